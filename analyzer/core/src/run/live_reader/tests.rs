//! What stops a live reader, and how many intervals it keeps.

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

/// An interval that ends at `end` and takes some bytes.
fn interval(end: i64, bytes: usize) -> Interval {
    let mut pipeline = Pipeline::live(Options::default(), Arc::default());
    let mut interval = pipeline.cut(end);
    while interval.bytes() < bytes {
        (0..1_000).for_each(|_| interval.done.repeats.push(RepeatRow::default()));
    }
    interval
}

#[test]
fn pieces_without_room_are_dropped_and_counted() {
    let live = start_keeping(9, Cursor::new(Vec::new()));
    for nth in 1..=4 {
        live.shared.lock().keep(interval(nth, limits::LIVE_BYTES / 2 + 1));
    }
    assert_eq!(live.shared.lock().intervals.len(), 1, "two do not fit");
    let window = live.window(3).unwrap();
    assert_eq!((window.missing, window.begin, window.end), (2, Some(3), 4));
    live.shared.lock().keep(interval(5, 9));
    assert_eq!((live.window(1).unwrap().missing, live.window(9).unwrap().missing), (0, 3));
}

#[test]
fn only_the_last_piece_keeps_what_is_open() {
    let live = start_keeping(2, Cursor::new(Vec::new()));
    for nth in 1..=5 {
        let mut interval = interval(nth, 0);
        interval.open.repeats.push(RepeatRow::default());
        interval.open.unanswered.push(UnansweredRow::default());
        live.shared.lock().keep(interval);
    }
    let state = live.shared.lock();
    let open = |interval: &Arc<Interval>| (interval.open.repeats.len(), interval.open.unanswered.len());
    assert_eq!(state.intervals.iter().map(open).collect::<Vec<_>>(), [(0, 1), (1, 1)]);
    drop(state);
    assert_eq!(live.window(2).unwrap().begin, Some(3), "the piece before is known though it is not kept");
}
