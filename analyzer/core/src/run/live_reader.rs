//! Reads a capture in a thread of its own while it is recorded, and keeps the last intervals.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::capture_file::{CaptureInfo, CaptureReader, OpenError, Packet, Source};
use crate::limits;
use crate::packet_order::Sorter;
use crate::store::context::Context;
use crate::store::options::Options;
use crate::tls::KeyLog;

use super::finished::Finished;
use super::interval::{Interval, join_intervals};
use super::pipeline::{CaptureCounts, Pipeline};

/// A capture that is read while it is recorded.
#[derive(Debug)]
pub struct Live {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The reader waits for a later time, or has come to the end; or it need not wait any more.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    options: Options,
    keys: Arc<KeyLog>,
    pipeline: Pipeline,
    /// Packets wait until no earlier one can come.
    sorter: Sorter,
    intervals: VecDeque<Arc<Interval>>,
    /// Pieces that are kept, if there is room.
    history: usize,
    /// Cuts so far, and when the last interval ended that is not kept any more.
    cuts: usize,
    before: Option<i64>,
    /// Packets that have come.
    come: u64,
    /// Packets read, and the number of the last one, which begins anew before it has no room.
    packets: u64,
    number: u32,
    /// Packets from this time on are not read yet; `None` when all are read.
    until: Option<i64>,
    /// The reader has such a packet.
    has_later: bool,
    /// Nobody needs more.
    is_stopped: bool,
    /// The stream is over, and whether its last interval was cut.
    is_over: bool,
    is_cut: bool,
    error: Option<OpenError>,
    info: CaptureInfo,
    /// `info` may have changed.
    info_is_old: bool,
}

/// Why a live capture cannot be read on.
#[derive(Debug)]
pub enum LiveError {
    /// The source cannot be read, or is no capture.
    Open(OpenError),
    /// The reader panicked.
    Reader {
        /// At this packet of the stream, or at the next one.
        packet: u64,
    },
}

impl std::fmt::Display for LiveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Reader { packet } => write!(
                f,
                "reading failed near packet {packet} of the stream: a bug in grpcdiag; please report it with these packets, \
                 and start again"
            ),
        }
    }
}

/// The last intervals, joined.
#[derive(Debug)]
pub struct Window {
    /// Tables of connections.
    pub finished: Finished,
    /// All other tables.
    pub cx: Context,
    /// Counts of packets.
    pub counts: CaptureCounts,
    /// What the capture says about itself.
    pub info: CaptureInfo,
    /// The number of its first packet.
    pub first_packet: u32,
    /// When the interval before it ended, nanoseconds since the epoch; none before the first.
    pub begin: Option<i64>,
    /// When it ended.
    pub end: i64,
    /// Pieces in front that were wanted, and for which there was no room.
    pub missing: usize,
}

/// Counts of what is kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// Packets read since the beginning.
    pub packets: u64,
    /// Connections that are followed.
    pub connections: usize,
    /// Streams that are open on them.
    pub streams: usize,
    /// Rows.
    pub rows: usize,
    /// Methods, agents and error texts.
    pub names: usize,
}

impl Live {
    /// Begins to read, and keeps up to `history` intervals. The error is the operating system's.
    pub fn start(source: Source, options: Options, keys: Arc<KeyLog>, history: usize) -> std::io::Result<Self> {
        let state = State {
            pipeline: Pipeline::live(options.clone(), Arc::clone(&keys)),
            options,
            keys,
            sorter: Sorter::of_stream(),
            intervals: VecDeque::new(),
            history: history.max(1),
            cuts: 0,
            before: None,
            come: 0,
            packets: 0,
            number: 0,
            until: Some(i64::MIN),
            has_later: false,
            is_stopped: false,
            is_over: false,
            is_cut: false,
            error: None,
            info: CaptureInfo::default(),
            info_is_old: true,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("grpcdiag-live".into()).spawn(move || {
            of_thread.read(source);
            of_thread.lock().is_over = true;
            of_thread.changed.notify_all();
        })?;
        Ok(Self { shared, thread })
    }

    /// Lets packets before `until` be read, or all, also those that wait for late ones if none comes meanwhile, and waits for so long that they are, or the stream is over. Says whether
    /// either came, and whether the stream goes on.
    ///
    /// # Errors
    /// The source cannot be read or is no capture, or the reader failed.
    pub fn wait(&self, timeout: Duration, until: Option<i64>) -> Result<(bool, bool), LiveError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        if state.until != until {
            (state.until, state.has_later) = (until, false);
            self.shared.changed.notify_all();
        }
        let come = state.come;
        loop {
            if let Some(error) = state.error.take() {
                return Err(LiveError::Open(error));
            }
            if self.thread.is_finished() && !state.is_over {
                return Err(LiveError::Reader { packet: state.come });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && state.come == come {
                state.deliver_before(until.unwrap_or(i64::MAX)); // the stream stalls: none that is late will come
                state.has_later = state.sorter.first().is_some();
            }
            if state.is_over || state.has_later || left.is_zero() {
                return Ok((state.is_over || state.has_later, !state.is_over));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends an interval; `end` is the time up to which no packet is missing, if later than the last packet's. Behind the
    /// stream's end this is the last one.
    pub fn cut(&self, end: i64) {
        let mut state = self.shared.lock();
        if state.is_cut || (self.thread.is_finished() && !state.is_over) {
            return;
        }
        state.is_cut = state.is_over;
        state.info_is_old = true;
        let damage = state.info.last_damage();
        state.deliver_before(end);
        let interval = if state.is_over { state.pipeline.cut_last(damage) } else { state.pipeline.cut(end) };
        state.keep(interval);
    }

    /// The last `intervals` intervals, joined; `None` before the first cut.
    pub fn window(&self, intervals: usize) -> Option<Window> {
        let (kept, info, forgotten, wanted) = {
            let state = self.shared.lock();
            let wanted = intervals.clamp(1, state.history).min(state.cuts);
            let kept: Vec<_> = state.intervals.iter().map(Arc::clone).collect();
            (kept, state.info.clone(), state.before, wanted)
        };
        let (before, some) = kept.split_at(kept.len().saturating_sub(wanted));
        let (finished, cx, counts) = join_intervals(some.iter().map(Arc::as_ref))?;
        let first_packet = some.first().map_or(0, |interval| interval.packets_before).saturating_add(1);
        let end = some.last().map_or(0, |interval| interval.end_time);
        let begin = before.last().map(|interval| interval.end_time).or(forgotten);
        let missing = wanted - some.len();
        Some(Window { finished, cx, counts, info, first_packet, begin, end, missing })
    }

    /// Counts what is kept.
    pub fn kept(&self) -> Kept {
        let state = self.shared.lock();
        let [connections, streams, rows, names] = state.pipeline.kept();
        let rows = rows + state.intervals.iter().map(|interval| interval.rows()).sum::<usize>();
        Kept { packets: state.packets, connections, streams, rows, names }
    }

    /// Lets the thread end with the next packet.
    pub fn stop(&self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, source: Source) {
        let opened = CaptureReader::open(vec![source]);
        let mut reader = match opened {
            Ok(reader) => reader,
            Err(error) => {
                self.lock().error = Some(error);
                return;
            }
        };
        while let Some(packet) = reader.next_packet() {
            let mut state = self.lock();
            state.come += 1;
            state.sorter.push(&packet);
            if !self.deliver(state) {
                return;
            }
            let mut state = self.lock();
            if state.info_is_old {
                state.info = reader.info().clone();
                state.info_is_old = false;
            }
        }
        let mut state = self.lock();
        state.info = reader.info().clone();
        state.sorter.end();
        self.deliver(state);
    }

    /// Reads the packets that are due, as soon as they may be read; false if nobody needs more.
    fn deliver(&self, mut state: MutexGuard<'_, State>) -> bool {
        while let Some(time) = state.sorter.due() {
            if state.until.is_some_and(|until| time >= until) && !state.is_stopped {
                state.has_later = true;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if state.is_stopped {
                return false;
            } else {
                state.deliver();
            }
        }
        !state.is_stopped
    }
}

impl State {
    /// Reads the next packet.
    fn deliver(&mut self) {
        if self.number >= limits::LIVE_PACKETS {
            self.begin_anew();
        }
        let Some(packet) = self.sorter.give() else { return };
        self.number += 1;
        self.packets += 1;
        self.pipeline.packet(&Packet { number: self.number, ..packet });
    }

    /// Reads the packets before a time, up to which no packet is missing.
    fn deliver_before(&mut self, end: i64) {
        while self.sorter.first().is_some_and(|time| time < end) {
            self.deliver();
        }
    }

    /// There is no room for further numbers of packets: what comes is read as another capture.
    #[cold]
    fn begin_anew(&mut self) {
        self.pipeline = Pipeline::live(self.options.clone(), Arc::clone(&self.keys));
        self.forget(0);
        (self.number, self.cuts) = (0, 0);
    }

    fn keep(&mut self, interval: Interval) {
        if let Some(last) = self.intervals.back_mut() {
            Arc::make_mut(last).go_on();
        }
        self.intervals.push_back(Arc::new(interval));
        self.cuts += 1;
        let mut room = limits::LIVE_BYTES;
        let fit = self.intervals.iter().rev().take_while(|interval| {
            let fits = interval.bytes() <= room;
            room = room.saturating_sub(interval.bytes());
            fits
        });
        self.forget(fit.count().clamp(1, self.history));
    }

    /// Forgets intervals, but for so many of the last ones.
    fn forget(&mut self, kept: usize) {
        let forgotten = self.intervals.len().saturating_sub(kept);
        self.before = self.intervals.drain(..forgotten).next_back().map(|interval| interval.end_time).or(self.before);
    }
}

#[cfg(test)]
mod tests;
