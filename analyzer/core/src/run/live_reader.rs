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
    /// Pieces that are kept, if there is room.
    history: usize,
    /// Cuts so far, and when the last piece ended that is not kept any more.
    cuts: usize,
    before: Option<i64>,
    /// Packets read, and the number of the last one, which begins anew before it has no room.
    packets: u64,
    number: u32,
    /// Packets from this time on are not read yet; `None` when all are read.
    until: Option<i64>,
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
    /// Begins to read, and keeps up to `history` pieces. The error is the operating system's.
    pub fn start(source: Source, options: Options, keys: Arc<KeyLog>, history: usize) -> std::io::Result<Self> {
        let state = State {
            pipeline: Pipeline::live(options.clone(), Arc::clone(&keys)),
            options,
            keys,
            pieces: VecDeque::new(),
            history: history.max(1),
            cuts: 0,
            before: None,
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

    /// Lets packets before `until` be read, or all, and waits for so long that they are, or the stream is over. Says whether
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
        loop {
            if let Some(error) = state.error.take() {
                return Err(LiveError::Open(error));
            }
            if self.thread.is_finished() && !state.is_over {
                return Err(LiveError::Reader { packet: state.packets });
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
        if state.is_cut || (self.thread.is_finished() && !state.is_over) {
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
        let (kept, info, forgotten, wanted) = {
            let state = self.shared.lock();
            let wanted = pieces.clamp(1, state.history).min(state.cuts);
            (state.pieces.iter().map(Arc::clone).collect::<Vec<_>>(), state.info.clone(), state.before, wanted)
        };
        let (before, some) = kept.split_at(kept.len().saturating_sub(wanted));
        let (finished, cx, counts) = join_pieces(some.iter().map(Arc::as_ref))?;
        let first_packet = some.first().map_or(0, |piece| piece.packets_before).saturating_add(1);
        let end = some.last().map_or(0, |piece| piece.end_time);
        let begin = before.last().map(|piece| piece.end_time).or(forgotten);
        let missing = wanted - some.len();
        Some(Window { finished, cx, counts, info, first_packet, begin, end, missing })
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
                self.lock().error = Some(error);
                return;
            }
        };
        while let Some(packet) = reader.next_packet() {
            let mut state = self.lock();
            while state.until.is_some_and(|until| packet.time_ns >= until) && !state.is_stopped {
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
        self.lock().info = reader.info().clone();
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
        self.forget(0);
        (self.number, self.cuts) = (0, 0);
    }

    fn keep(&mut self, piece: Piece) {
        if let Some(last) = self.pieces.back_mut() {
            Arc::make_mut(last).go_on();
        }
        self.pieces.push_back(Arc::new(piece));
        self.cuts += 1;
        let mut room = limits::LIVE_BYTES;
        let fit = self.pieces.iter().rev().take_while(|piece| {
            let fits = piece.bytes() <= room;
            room = room.saturating_sub(piece.bytes());
            fits
        });
        self.forget(fit.count().clamp(1, self.history));
    }

    /// Forgets pieces, but for so many of the last ones.
    fn forget(&mut self, kept: usize) {
        let forgotten = self.pieces.len().saturating_sub(kept);
        self.before = self.pieces.drain(..forgotten).last().map(|piece| piece.end_time).or(self.before);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read, Result};

    use super::*;
    use crate::store::tables::{RepeatRow, UnansweredRow};

    const WAIT: Duration = Duration::from_secs(60);

    /// A source that panics behind its bytes.
    struct Panics(Cursor<Vec<u8>>);

    impl Read for Panics {
        fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
            match self.0.read(bytes)? {
                0 => panic!("a bug of the decoder"),
                read => Ok(read),
            }
        }
    }

    /// A pcapng block.
    fn block(kind: u32, words: &[u32]) -> Vec<u8> {
        let length = 12 + 4 * words.len() as u32;
        [kind, length].iter().chain(words).chain(&[length]).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A pcapng file with packets of 4 bytes at these times in microseconds.
    fn pcapng(times: &[u64]) -> Vec<u8> {
        let mut bytes = block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
        bytes.extend(block(1, &[1, 262_144]));
        for time in times {
            bytes.extend(block(6, &[0, (time >> 32) as u32, *time as u32, 4, 4, 0]));
        }
        bytes
    }

    fn start(source: impl Read + Send + 'static) -> Live {
        start_keeping(1, source)
    }

    fn start_keeping(history: usize, source: impl Read + Send + 'static) -> Live {
        let source = Source::Reader("a stream".to_owned(), Box::new(source));
        Live::start(source, Options::default(), Arc::default(), history).unwrap()
    }

    #[test]
    fn a_packet_of_the_latest_time_stops_nothing() {
        let live = start(Cursor::new(pcapng(&[1_700_000_000_000_000, 1 << 63, 1_700_000_001_000_000])));
        assert_eq!(live.wait(WAIT, None).unwrap(), (true, false));
        assert_eq!(live.kept().packets, 3);
    }

    #[test]
    fn a_panic_of_the_reader_is_an_error_and_no_end() {
        let live = start(Panics(Cursor::new(pcapng(&[1_700_000_000_000_000]))));
        let error = (0..600).find_map(|_| live.wait(Duration::from_millis(100), None).err());
        let error = error.expect("an error");
        assert!(error.to_string().starts_with("reading failed near packet 1 of the stream"), "{error}");
        live.cut(0);
        assert!(live.window(1).is_none(), "what was read by halves is no piece");
    }

    /// A piece that ends at `end` and takes some bytes.
    fn piece(end: i64, bytes: usize) -> Piece {
        let mut pipeline = Pipeline::live(Options::default(), Arc::default());
        let mut piece = pipeline.cut(end);
        let row = RepeatRow::default();
        (0..bytes.div_ceil(size_of::<RepeatRow>())).for_each(|_| piece.done.repeats.push(row));
        piece
    }

    #[test]
    fn pieces_without_room_are_dropped_and_counted() {
        let live = start_keeping(9, Cursor::new(Vec::new()));
        for nth in 1..=4 {
            live.shared.lock().keep(piece(nth, limits::LIVE_BYTES / 2 + (1 << 20)));
        }
        assert_eq!(live.shared.lock().pieces.len(), 1, "two do not fit");
        let window = live.window(3).unwrap();
        assert_eq!((window.missing, window.begin, window.end), (2, Some(3), 4));
        live.shared.lock().keep(piece(5, 9));
        assert_eq!((live.window(1).unwrap().missing, live.window(9).unwrap().missing), (0, 3));
    }

    #[test]
    fn only_the_last_piece_keeps_what_is_open() {
        let live = start_keeping(2, Cursor::new(Vec::new()));
        for nth in 1..=5 {
            let mut piece = piece(nth, 0);
            piece.open.repeats.push(RepeatRow::default());
            piece.open.unanswered.push(UnansweredRow::default());
            live.shared.lock().keep(piece);
        }
        let state = live.shared.lock();
        let open = |piece: &Arc<Piece>| (piece.open.repeats.len(), piece.open.unanswered.len());
        assert_eq!(state.pieces.iter().map(open).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
        drop(state);
        assert_eq!(live.window(2).unwrap().begin, Some(3), "the piece before is known though it is not kept");
    }
}
