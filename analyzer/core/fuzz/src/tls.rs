//! TLS records of both directions in pieces, with gaps, with and without their keys.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use grpcdiag_core::limits::TLS_BUFFERS;
use grpcdiag_core::tls::{Decryptor, Event, KeyLog, Session};

use super::input::{Pieces, SEED, Step, step};
use super::support::repository;

/// Recorded sessions of all cipher suites, as the core's own tests use them.
const SESSIONS: &str = "analyzer/core/src/tls/tests/sessions";
const KEYS: u8 = 1;
const OWN_KEYS: u8 = 2;

/// The key log of every recorded session.
pub static RECORDED_KEYS: LazyLock<Arc<KeyLog>> = LazyLock::new(|| {
    let mut keys = KeyLog::default();
    for session in sessions() {
        keys.extend(session.keys.as_bytes());
    }
    let file = repository("fixtures/recorded/tls13-go.keys");
    keys.extend(&std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    Arc::new(keys)
});

struct Recording {
    keys: String,
    /// Side and bytes.
    pieces: Vec<(usize, Vec<u8>)>,
}

fn sessions() -> Vec<Recording> {
    let folder = repository(SESSIONS);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| parse(&std::fs::read_to_string(path).unwrap())).collect()
}

/// Lines of `key` and a key log's line, and of `>` or `<` and a piece of the client's or server's bytes.
fn parse(text: &str) -> Recording {
    let mut recording = Recording { keys: String::new(), pieces: Vec::new() };
    for line in text.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("key", key) => recording.keys += &format!("{key}\n"),
            (">", bytes) => recording.pieces.push((0, hex(bytes))),
            ("<", bytes) => recording.pieces.push((1, hex(bytes))),
            _ => {}
        }
    }
    recording
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

thread_local! {
    /// Kept over inputs, as over a run's connections: a session that does not return its buffers would use them up.
    static WITH_KEYS: RefCell<Decryptor> = RefCell::new(Decryptor::new(Arc::clone(&RECORDED_KEYS)));
}

/// An input is a byte that says which keys there are, a key log of its own if the byte says so, and steps.
pub fn run(data: &[u8]) {
    let mut pieces = Pieces(data);
    let known = pieces.byte();
    if known & OWN_KEYS != 0 {
        let length = usize::from(pieces.word());
        let keys = KeyLog::parse(pieces.bytes(length));
        assert!(keys.damaged + keys.unused + keys.over_limit <= keys.lines);
        return read(pieces, &mut Decryptor::new(Arc::new(keys)));
    }
    if known & KEYS == 0 {
        return read(pieces, &mut Decryptor::default());
    }
    WITH_KEYS.with_borrow_mut(|decryptor| read(pieces, decryptor));
    // attempts are bounded over a run: a new run for one input in some
    if known & 0xf0 == 0 {
        WITH_KEYS.replace(Decryptor::new(Arc::clone(&RECORDED_KEYS)));
    }
}

fn read(mut pieces: Pieces<'_>, decryptor: &mut Decryptor) {
    let mut session = Session::new();
    let (mut fed, mut plain, mut at) = (0, 0, 0);
    let mut out = |event: Event<'_, u32>, place: u32| match event {
        Event::Data { bytes, first, .. } => {
            plain += bytes.len();
            assert!(first <= place);
        }
        Event::Record { first, .. } => assert!(first <= place),
        Event::Undecryptable { reason, .. } => assert!(!reason.text().is_empty()),
        _ => {}
    };
    while let Some(step) = pieces.step() {
        at += 1;
        match step {
            Step::Bytes(side, bytes) => {
                fed += bytes.len();
                session.feed(side, bytes, at, decryptor, &mut out);
            }
            Step::Gap(side, length) => session.gap(side, length, at, decryptor, &mut out),
        }
        assert!(decryptor.buffers_in_use() <= TLS_BUFFERS);
    }
    session.finish(at, decryptor, &mut out);
    assert!(plain <= fed, "{plain} bytes of plaintext from {fed}");
    assert_eq!(decryptor.buffers_in_use(), 0, "all buffers are returned");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for session in sessions() {
        let mut steps = Vec::new();
        for (side, bytes) in &session.pieces {
            if steps.len() + bytes.len() > 2 * SEED {
                break;
            }
            steps.extend(step(*side, bytes));
        }
        seeds.push([&[KEYS | 0x10][..], &steps].concat());
        seeds.push([&[0][..], &steps].concat());
        let length = u16::try_from(session.keys.len()).unwrap();
        seeds.push([&[OWN_KEYS][..], &length.to_le_bytes(), session.keys.as_bytes(), &steps].concat());
    }
    seeds
}
