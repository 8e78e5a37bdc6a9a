//! Buffers segments that are handed to another thread, or read connection by connection.

use crate::at::At;
use crate::packet::{PacketDirection, Segment, TcpFlags};

use super::route::{Place, REMOTE, Route};
use super::shard::Shard;

/// Segments per batch: enough to make a hand-over, which may wake a thread, cheap; few enough to stay in a cache.
const BATCH_SEGMENTS: usize = 3_072;
/// Payload bytes per batch.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that are read together, connection by connection.
const TOGETHER: usize = 40;
/// Connections at once from which on it pays: what is kept of fewer stays in the cache from packet to packet.
const MANY: usize = 192;
/// Segments of a connection that are fetched at once, ahead.
const FETCHED: usize = 16;

/// Segments with their payload copied, in the order of the capture.
#[derive(Debug, Default)]
pub struct Batch {
    items: Vec<Item>,
    payload: Vec<u8>,
    /// Segments that [`Item`] has no room for.
    full: Vec<(Route, Segment<'static>)>,
    /// How often a segment is of another connection than the one before it.
    turns: usize,
}

/// An ordinary segment of a known connection. A third of a [`Segment`]: what the threads hand over goes through memory.
#[derive(Clone, Copy, Debug)]
struct Item {
    time: i64,
    packet: u32,
    local: u32,
    number: u32,
    seq: u32,
    ack: u32,
    timestamps: Option<(u32, u32)>,
    payload_len: u32,
    payload_start: u32,
    payload_captured: u32,
    cooked_interface: u32,
    ip_id: Option<u16>,
    flags: TcpFlags,
    window: u16,
    side: u8,
    ttl: u8,
    packet_direction: PacketDirection,
    /// Index into `Batch::full` of the whole segment.
    full: Option<u32>,
}

impl Batch {
    /// Whether it has no segment.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether it should be read.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.items.len() >= BATCH_SEGMENTS || self.payload.len() >= BATCH_BYTES
    }

    /// Adds a segment.
    #[inline]
    pub fn push(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        let payload_start = self.payload.len() as u32; // batches are small
        self.payload.extend_from_slice(segment.payload);
        let ordinary = route.opens.is_none()
            && route.replaces.is_none()
            && segment.sack.is_empty()
            && !segment.flags.intersects(EXTRAORDINARY);
        let full = (!ordinary).then(|| {
            self.full.push((*route, segment.without_payload()));
            (self.full.len() - 1) as u32
        });
        self.turns += usize::from(self.items.last().is_none_or(|last| last.local != route.place.local));
        self.items.push(Item {
            time: at.time,
            packet: at.packet,
            local: route.place.local,
            number: route.number,
            seq: segment.seq,
            ack: segment.ack,
            timestamps: segment.timestamps,
            payload_len: segment.payload_len,
            payload_start,
            payload_captured: segment.payload.len() as u32,
            cooked_interface: segment.cooked_interface,
            ip_id: segment.ip_id,
            flags: segment.flags,
            window: segment.window,
            side: route.side as u8,
            ttl: segment.ttl,
            packet_direction: segment.packet_direction,
            full,
        });
    }

    /// Reads the segment at a position.
    #[inline]
    fn read(&self, item: &Item, shard: &mut Shard) {
        let start = item.payload_start as usize;
        let payload = self.payload.get(start..start + item.payload_captured as usize).unwrap_or_default();
        let at = At::new(item.packet, item.time);
        match item.full.and_then(|index| self.full.get(index as usize)) {
            Some((route, segment)) => shard.segment(route, &segment.with_payload(payload), at),
            None => shard.segment(&item.route(), &item.segment(payload), at),
        }
    }

    fn clear(&mut self) {
        self.items.clear();
        self.payload.clear();
        self.full.clear();
        self.turns = 0;
    }

    /// Its connections take turns so often that each is read anew from memory for every segment.
    fn is_mixed(&self) -> bool {
        self.turns * 2 > self.items.len()
    }
}

/// Batches in the order of the capture.
///
/// A connection's state is some 10 kB. Thousands of connections that take turns do not fit into a cache, and fetching
/// them takes longer than decoding. So their segments are read connection by connection, in order within each: tables
/// of rows, whose order would show it, are not made this way.
#[derive(Debug, Default)]
pub struct Batches {
    batches: Vec<Batch>,
    /// By position in the shard: its first and its latest segment here.
    ends: Vec<(u32, u32)>,
    /// Positions in the shard, in the order of their first segments.
    connections: Vec<u32>,
    /// By batch and segment: the connection's next one.
    next: Vec<u32>,
}

/// No segment.
const NOTHING: u32 = u32::MAX;

impl Batches {
    /// Puts a batch behind the others.
    pub fn push(&mut self, batch: Batch) {
        self.batches.push(batch);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether it pays to wait for more before they are read.
    pub fn may_wait(&self, shard: &Shard) -> bool {
        self.batches.len() < TOGETHER && pays(shard) && self.batches.last().is_some_and(Batch::is_mixed)
    }

    /// Reads all of them and hands each to `spent`, empty.
    pub fn apply(&mut self, shard: &mut Shard, spent: &mut impl FnMut(Batch)) {
        if self.batches.len() > 1 {
            let first = self.batches.first().and_then(|batch| batch.items.first());
            shard.by_connection(Some(first.map_or(0, |item| item.packet)));
            self.link();
            self.follow(shard);
            shard.by_connection(None);
        } else {
            for batch in &self.batches {
                batch.items.iter().for_each(|item| batch.read(item, shard));
            }
        }
        for mut batch in self.batches.drain(..) {
            batch.clear();
            spent(batch);
        }
    }

    /// Links the segments of each connection.
    fn link(&mut self) {
        self.connections.clear();
        self.next.clear();
        self.next.resize(self.batches.len() * BATCH_SEGMENTS, NOTHING);
        for (number, batch) in self.batches.iter().enumerate() {
            for (place, item) in batch.items.iter().enumerate() {
                let local = item.local as usize;
                if self.ends.len() <= local {
                    self.ends.resize(local + 1, (NOTHING, NOTHING));
                }
                let this = (number * BATCH_SEGMENTS + place) as u32; // some 120,000 at the most
                let Some(ends) = self.ends.get_mut(local) else { continue };
                if ends.0 == NOTHING {
                    ends.0 = this;
                    self.connections.push(item.local);
                } else if let Some(next) = self.next.get_mut(ends.1 as usize) {
                    *next = this;
                }
                ends.1 = this;
            }
        }
    }

    /// Reads the segments of one connection after the other; what comes next is fetched meanwhile.
    fn follow(&mut self, shard: &mut Shard) {
        let mut fetched = NOTHING;
        for (number, &local) in self.connections.iter().enumerate() {
            let mut ahead = fetched;
            if let Some(&after) = self.connections.get(number + 1) {
                shard.touch(after);
                fetched = self.fetch(self.ends.get(after as usize).map_or(NOTHING, |ends| ends.0));
            }
            let Some(ends) = self.ends.get_mut(local as usize) else { continue };
            let mut at = std::mem::replace(ends, (NOTHING, NOTHING)).0;
            for nth in 0_usize.. {
                if nth % FETCHED == 0 {
                    ahead = self.fetch(ahead);
                }
                let Some((batch, item)) = at_place(&self.batches, at) else { break };
                at = self.next.get(at as usize).copied().unwrap_or(NOTHING);
                batch.read(item, shard);
            }
        }
    }

    /// Fetches some segments of a connection from a place on, all at once: none of the reads waits for another. Gives the
    /// place behind them.
    fn fetch(&self, mut at: u32) -> u32 {
        for _ in 0..FETCHED {
            let Some((batch, item)) = at_place(&self.batches, at) else { break };
            let last = item.payload_start + item.payload_captured.saturating_sub(1);
            let octet = |at: u32| batch.payload.get(at as usize).copied().unwrap_or(0);
            std::hint::black_box(
                item.time ^ i64::from(item.local) ^ i64::from(octet(item.payload_start) ^ octet(last)),
            );
            at = self.next.get(at as usize).copied().unwrap_or(NOTHING);
        }
        at
    }
}

/// The segment at a place among batches of [`BATCH_SEGMENTS`], and its batch.
#[inline]
fn at_place(batches: &[Batch], at: u32) -> Option<(&Batch, &Item)> {
    let batch = batches.get(at as usize / BATCH_SEGMENTS)?;
    Some((batch, batch.items.get(at as usize % BATCH_SEGMENTS)?))
}

/// Whether so many connections are open that their state does not fit into a cache.
#[inline]
pub fn pays(shard: &Shard) -> bool {
    shard.live() >= MANY
}

/// SYN brings options, URG a pointer: those segments are handed over whole.
const EXTRAORDINARY: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::URG.0);

impl Item {
    #[inline]
    fn route(&self) -> Route {
        // the shard matters only where one connection replaces another
        let place = Place { shard: REMOTE, local: self.local };
        Route { number: self.number, place, side: usize::from(self.side), opens: None, replaces: None }
    }

    /// The segment without its addresses, which the router alone needs.
    #[inline]
    fn segment<'a>(&self, payload: &'a [u8]) -> Segment<'a> {
        Segment {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            timestamps: self.timestamps,
            payload,
            payload_len: self.payload_len,
            ip_id: self.ip_id,
            ttl: self.ttl,
            packet_direction: self.packet_direction,
            cooked_interface: self.cooked_interface,
            ..Segment::nowhere()
        }
    }
}
