//! IP fragments waiting for the rest of their datagram, in bounded memory and for a bounded time.

use std::collections::VecDeque;

use crate::limits::{FRAGMENT_TIMEOUT_NS, MAX_FRAGMENT_BYTES, MAX_FRAGMENTED_DATAGRAMS};

use super::address::Address;
use super::datagram::{Added, Datagram, Fragment};
use super::outcome::{Layer, Malformed, Problem};

/// What the fragments of one datagram have in common (RFC 791 section 2.3, RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    source: Address,
    destination: Address,
    id: u32,
    /// Zero in IPv6.
    protocol: u8,
    /// One packet recorded on several interfaces is several datagrams.
    interface: u32,
}

impl Key {
    fn of(fragment: &Fragment<'_>) -> Self {
        let network = &fragment.network;
        let counts = network.source.is_ipv4();
        Self {
            source: network.source,
            destination: network.destination,
            id: fragment.id,
            protocol: if counts { fragment.protocol } else { 0 },
            interface: fragment.context.interface,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    key: Key,
    /// Capture time of the first fragment seen, in nanoseconds.
    since: i64,
    /// After a contradiction only that: the rest of the datagram is refused until it would have expired.
    datagram: Result<Datagram, Problem>,
}

/// Counts about IP fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentStats {
    /// Fragments seen.
    pub fragments: u64,
    /// Datagrams put together.
    pub reassembled: u64,
    /// Fragments that brought nothing new.
    pub duplicates: u64,
    /// IPv4 fragments that overlapped others in part; what came first was kept.
    pub overlapped: u64,
    /// Fragments refused: impossible extent, contradiction to earlier ones, or part of a datagram already dropped.
    pub refused: u64,
    /// Datagrams given up because the rest did not come in time (`limits::FRAGMENT_TIMEOUT_NS`).
    pub expired: u64,
    /// Datagrams given up to make room (`limits::MAX_FRAGMENTED_DATAGRAMS`, `limits::MAX_FRAGMENT_BYTES`).
    pub evicted: u64,
    /// Datagrams still waiting.
    pub waiting: u64,
    /// Bytes held by them.
    pub held_bytes: u64,
}

/// The datagrams waiting, oldest first.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    waiting: VecDeque<Waiting>,
    held_bytes: usize,
    stats: FragmentStats,
}

impl Fragments {
    /// Stores a fragment; returns the datagram if that completes it.
    pub fn add(&mut self, fragment: &Fragment<'_>, time_ns: i64) -> Result<Option<Datagram>, Malformed> {
        self.stats.fragments += 1;
        let added = fragment.extent().and_then(|extent| self.store(fragment, extent, time_ns));
        self.evict();
        added.map_err(|problem| {
            self.stats.refused += 1;
            fragment.view.malformed(Layer::Fragment, problem)
        })
    }

    pub fn stats(&self) -> FragmentStats {
        FragmentStats { waiting: self.waiting.len() as u64, held_bytes: self.held_bytes as u64, ..self.stats }
    }

    /// Gives up the datagrams that have waited too long.
    fn expire(&mut self, time_ns: i64) {
        while let Some(oldest) = self.waiting.front()
            && oldest.has_expired(time_ns)
        {
            self.stats.expired += 1;
            self.remove(0);
        }
    }

    fn store(
        &mut self,
        fragment: &Fragment<'_>,
        extent: (u32, u32),
        time_ns: i64,
    ) -> Result<Option<Datagram>, Problem> {
        self.expire(time_ns);
        let index = self.find_or_start(fragment, time_ns);
        let Some(waiting) = self.waiting.get_mut(index) else {
            return Ok(None);
        };
        let datagram = waiting.datagram.as_mut().map_err(|problem| *problem)?;
        let before = datagram.memory();
        let added = datagram.add(fragment, extent);
        self.held_bytes = self.held_bytes - before + datagram.memory();
        match added {
            Ok(Added::Stored) => {}
            Ok(Added::Duplicate) => self.stats.duplicates += 1,
            Ok(Added::Overlapped) => self.stats.overlapped += 1,
            Err(problem) => {
                self.held_bytes -= datagram.memory();
                waiting.datagram = Err(problem);
                return Err(problem);
            }
        }
        Ok(self.take_if_complete(index))
    }

    fn find_or_start(&mut self, fragment: &Fragment<'_>, time_ns: i64) -> usize {
        let key = Key::of(fragment);
        if let Some(index) = self.waiting.iter().position(|waiting| waiting.key == key) {
            let expired = |waiting: &Waiting| waiting.has_expired(time_ns);
            if !self.waiting.get(index).is_some_and(expired) {
                return index;
            }
            // Not the oldest by arrival, so `expire` did not reach it: capture time went backwards in between.
            self.stats.expired += 1;
            self.remove(index);
        }
        self.waiting.push_back(Waiting { key, since: time_ns, datagram: Ok(Datagram::new(fragment)) });
        self.waiting.len() - 1
    }

    fn take_if_complete(&mut self, index: usize) -> Option<Datagram> {
        let datagram = self.waiting.get(index)?.datagram.as_ref().ok()?;
        if !datagram.is_complete() {
            return None;
        }
        self.stats.reassembled += 1;
        self.remove(index)
    }

    /// Gives up the oldest datagrams until the limits hold.
    fn evict(&mut self) {
        while self.waiting.len() > MAX_FRAGMENTED_DATAGRAMS || self.held_bytes > MAX_FRAGMENT_BYTES {
            self.stats.evicted += 1;
            self.remove(0);
        }
    }

    fn remove(&mut self, index: usize) -> Option<Datagram> {
        let datagram = self.waiting.remove(index)?.datagram.ok()?;
        self.held_bytes -= datagram.memory();
        Some(datagram)
    }
}

impl Waiting {
    fn has_expired(&self, time_ns: i64) -> bool {
        time_ns.saturating_sub(self.since) > FRAGMENT_TIMEOUT_NS
    }
}
