//! Reads a capture in a thread of its own while it is recorded, and keeps the last pieces.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::capture_file::{CaptureInfo, CaptureReader, OpenError, Packet, Source};
use crate::limits;
use crate::store::context::{Context, Options};
use crate::tls::KeyLog;

use super::finished::Finished;
use super::piece::{Piece, join_pieces};
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
    pieces: VecDeque<Arc<Piece>>,
    /// Pieces that are kept.
    history: usize,
    /// Packets read, and the number of the last one, which begins anew before it has no room.
    packets: u64,
    number: u32,
    /// Packets from this time on are not read yet.
    until: i64,
    /// The reader has such a packet.
    has_later: bool,
    /// Nobody needs more.
    is_stopped: bool,
    /// The stream is over, and whether its last piece was cut.
    is_over: bool,
    is_cut: bool,
    error: Option<OpenError>,
    info: CaptureInfo,
    /// `info` may have changed.
    info_is_old: bool,
}

/// The last pieces, joined.
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
    /// When the piece before it ended, nanoseconds since the epoch; none before the first.
    pub begin: Option<i64>,
    /// When it ended.
    pub end: i64,
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
    /// Begins to read, and keeps up to `history` pieces. The error is the operating system's.
    pub fn start(source: Source, options: Options, keys: Arc<KeyLog>, history: usize) -> std::io::Result<Self> {
        let state = State {
            pipeline: Pipeline::live(options.clone(), Arc::clone(&keys)),
            options,
            keys,
            pieces: VecDeque::new(),
            history: history.max(1),
            packets: 0,
            number: 0,
            until: i64::MIN,
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
        let thread = std::thread::Builder::new().name("grpcdiag-live".into()).spawn(move || of_thread.read(source))?;
        Ok(Self { shared, thread })
    }

    /// Lets packets before `until` be read, and waits for so long that all are, or the stream is over. Says whether either
    /// came, and whether the stream goes on.
    ///
    /// # Errors
    /// The source cannot be read or is no capture.
    pub fn wait(&self, timeout: Duration, until: i64) -> Result<(bool, bool), OpenError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        if state.until != until {
            (state.until, state.has_later) = (until, false);
            self.shared.changed.notify_all();
        }
        loop {
            state.is_over |= self.thread.is_finished(); // also by a panic
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.is_over || state.has_later || left.is_zero() {
                return Ok((state.is_over || state.has_later, !state.is_over));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends a piece; `end` is the time up to which no packet is missing, if later than the last packet's. Behind the
    /// stream's end this is the last one.
    pub fn cut(&self, end: i64) {
        let mut state = self.shared.lock();
        if state.is_cut {
            return;
        }
        state.is_cut = state.is_over;
        state.info_is_old = true;
        let damage = state.info.last_damage();
        let piece = if state.is_over { state.pipeline.cut_last(damage) } else { state.pipeline.cut(end) };
        state.keep(piece);
    }

    /// The last `pieces` pieces, joined; `None` before the first cut.
    pub fn window(&self, pieces: usize) -> Option<Window> {
        let (kept, info) = {
            let state = self.shared.lock();
            (state.pieces.iter().map(Arc::clone).collect::<Vec<_>>(), state.info.clone())
        };
        let (before, some) = kept.split_at(kept.len().saturating_sub(pieces.max(1)));
        let (finished, cx, counts) = join_pieces(some.iter().map(Arc::as_ref))?;
        let first_packet = some.first().map_or(0, |piece| piece.packets_before).saturating_add(1);
        let end = some.last().map_or(0, |piece| piece.end_time);
        let begin = before.last().map(|piece| piece.end_time);
        Some(Window { finished, cx, counts, info, first_packet, begin, end })
    }

    /// Counts what is kept.
    pub fn kept(&self) -> Kept {
        let state = self.shared.lock();
        let [connections, streams, rows, names] = state.pipeline.kept();
        let rows = rows + state.pieces.iter().map(|piece| piece.rows()).sum::<usize>();
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
                let mut state = self.lock();
                (state.error, state.is_over) = (Some(error), true);
                return self.changed.notify_all();
            }
        };
        while let Some(packet) = reader.next_packet() {
            let mut state = self.lock();
            while packet.time_ns >= state.until && !state.is_stopped {
                state.has_later = true;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_stopped {
                return;
            }
            state.packet(&packet);
            if state.info_is_old {
                state.info = reader.info().clone();
                state.info_is_old = false;
            }
        }
        let mut state = self.lock();
        state.info = reader.info().clone();
        state.is_over = true;
        self.changed.notify_all();
    }
}

impl State {
    fn packet(&mut self, packet: &Packet<'_>) {
        if self.number >= limits::LIVE_PACKETS {
            self.begin_anew();
        }
        self.number += 1;
        self.packets += 1;
        self.pipeline.packet(&Packet { number: self.number, ..*packet });
    }

    /// There is no room for further numbers of packets: what comes is read as another capture.
    #[cold]
    fn begin_anew(&mut self) {
        self.pipeline = Pipeline::live(self.options.clone(), Arc::clone(&self.keys));
        self.pieces.clear();
        self.number = 0;
    }

    fn keep(&mut self, piece: Piece) {
        while self.pieces.len() > self.history {
            self.pieces.pop_front();
        }
        self.pieces.push_back(Arc::new(piece));
    }
}
