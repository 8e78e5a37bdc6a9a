//! Divides connections between this thread and another one, and buffers their segments.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::at::At;
use crate::packet::Segment;
use crate::store::options::Options;
use crate::tls::KeyLog;

use super::batch::{self, Batch, Window};
use super::connection_opening::Opening;
use super::route::{REMOTE, Route};
use super::shard::Shard;
use super::threads::Remote;

/// Segments after which it is tried again whether buffering pays.
const PAUSE: usize = 50_000;

/// Who reads which connections.
#[derive(Debug)]
pub struct Shards {
    /// The connections of this thread.
    pub here: Shard,
    /// Their buffered segments, if they are many; `None` if every segment is to be read when it comes.
    buffered: Option<Buffered>,
    /// The others, in a thread of their own.
    pub remote: Option<Remote>,
    /// The last packet before the last cut of a run that goes on, 0 without.
    pub cut: u32,
}

impl Shards {
    /// Shards without connections.
    pub fn new(options: Options, keys: Arc<KeyLog>, remote: Option<Remote>) -> Self {
        let buffered = Buffered { streams: options.streams(), ..Buffered::default() };
        let buffered = (!options.reads_in_order()).then_some(buffered);
        Self { here: Shard::with_keys(options, keys), buffered, remote, cut: 0 }
    }

    /// Gives a segment to the shard that holds its connection, and ends the one that it replaces.
    #[inline]
    pub fn deliver(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        if route.opens.is_none() && self.here.leaves_out(route.number) {
            return;
        }
        let elsewhere = route.replaces.filter(|old| old.shard != route.place.shard);
        match &mut self.remote {
            Some(remote) if route.place.shard == REMOTE => {
                remote.segment(route, segment, at);
                if let Some(old) = elsewhere {
                    self.read_buffered();
                    self.here.finish(old.local, true, at.packet);
                }
            }
            Some(remote) if elsewhere.is_some() => {
                remote.replace(elsewhere.map_or(0, |old| old.local), at.packet);
                self.read(route, segment, at);
            }
            _ => self.read(route, segment, at),
        }
    }

    /// Gives the kept segments of a connection to the shard to which `route` leads; their packets have rows,
    /// unless only some are wanted.
    pub fn begin(&mut self, opening: &Opening, route: &Route) {
        if opening.replaces_another() {
            self.read_buffered(); // the other one ends here, not where its segments were kept
        }
        self.here.cx.is_shown = self.here.cx.options.selection.is_none();
        let mut is_counted = opening.first().packet <= self.cut;
        for (route, segment, at) in opening.routed(route.number, route.place) {
            if is_counted && at.packet > self.cut {
                self.read_buffered();
                self.here.begin_interval(route.place.local, self.cut);
                is_counted = false;
            }
            self.deliver(&route, &segment, at);
        }
        if is_counted {
            self.read_buffered();
            self.here.begin_interval(route.place.local, self.cut);
        }
        self.here.cx.is_shown = false;
    }

    /// The row of a kept packet was written: rows behind it wait no longer than for so many segments.
    pub fn note_kept(&mut self) {
        let Some(buffered) = self.buffered.as_mut().filter(|buffered| buffered.is_used) else { return };
        buffered.kept += 1;
        if buffered.kept >= batch::WINDOW_SEGMENTS {
            self.read_buffered();
        }
    }

    /// Takes a segment of a connection that this thread reads.
    #[inline]
    fn read(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        match &mut self.buffered {
            Some(buffered) if buffered.is_used || batch::pays(&self.here) => {
                buffered.segment(route, segment, at, &mut self.here)
            }
            _ => self.here.segment(route, segment, at),
        }
    }

    /// Connections that either thread has begun to read.
    pub fn begun(&self) -> u64 {
        let remote = self.remote.as_ref().map_or(0, |remote| remote.begun.load(Ordering::Relaxed));
        self.here.begun().load(Ordering::Relaxed) + remote
    }

    /// Reads the buffered segments.
    pub fn read_buffered(&mut self) {
        if let Some(buffered) = &mut self.buffered {
            buffered.read(&mut self.here);
        }
    }
}

/// Buffers segments of this thread's connections, to be read connection by connection.
#[derive(Debug, Default)]
struct Buffered {
    /// Some are buffered.
    is_used: bool,
    /// Rows of packets, frames or messages are wanted, which get their order when all buffered segments are read.
    streams: bool,
    /// Packets of openings since the first of them.
    kept: usize,
    /// Segments that are not buffered, because connections did not alternate enough before them.
    pause: usize,
    filling: Batch,
    window: Window,
}

impl Buffered {
    fn segment(&mut self, route: &Route, segment: &Segment<'_>, at: At, shard: &mut Shard) {
        if self.pause > 0 {
            self.pause -= 1;
            return shard.segment(route, segment, at);
        }
        if !self.is_used {
            self.kept = 0;
            if self.streams {
                shard.cx.begin_disorder();
            }
        }
        self.is_used = true;
        self.filling.push(route, segment, at, shard.cx.is_shown);
        if self.filling.is_full() {
            let was_empty = self.window.is_empty();
            self.window.take(&mut self.filling, shard);
            self.is_used = !self.window.is_empty();
            if !self.is_used {
                shard.cx.restore_order();
            }
            self.pause = if was_empty && !self.is_used { PAUSE } else { 0 };
        }
    }

    #[cold]
    fn read(&mut self, shard: &mut Shard) {
        self.window.take(&mut self.filling, shard);
        self.window.read(shard);
        shard.cx.restore_order();
        self.is_used = false;
    }
}
