//! What the tests share: recorded sessions, and what a session told.

use std::fmt::Write;
use std::sync::Arc;

use crate::tls::{Decryptor, Event, Facts, KeyLog, Reason, Session};

/// Bytes from hexadecimal digits, blanks among them.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A recorded session: lines of `key` and a key log's line, `>` and `<` with a piece of the client's and the server's
/// bytes, `=>` and `=<` with their plaintext as the program that recorded it knows it.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub keys: String,
    pub pieces: Vec<(usize, Piece)>,
    pub plain: [Vec<u8>; 2],
}

#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Bytes(Vec<u8>),
    Gap(u64),
}

/// All that a session told; places are the numbers of the pieces.
#[derive(Clone, Debug)]
pub struct Told {
    pub plain: [Vec<u8>; 2],
    /// Bytes of plaintext missing, per side.
    pub gaps: [Vec<Option<u64>>; 2],
    /// Other events as text, without places.
    pub events: Vec<String>,
    /// First and last place of each `Data`.
    pub places: Vec<(usize, usize, usize)>,
    pub facts: Facts<usize>,
}

impl Recording {
    pub fn load(name: &str) -> Self {
        let path = format!("{}/src/tls/tests/sessions/{name}.session", env!("CARGO_MANIFEST_DIR"));
        Self::parse(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
    }

    pub fn parse(text: &str) -> Self {
        let mut recording = Self::default();
        for line in text.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("key", key) => writeln!(recording.keys, "{key}").unwrap(),
                (">", bytes) => recording.pieces.push((0, Piece::Bytes(hex(bytes)))),
                ("<", bytes) => recording.pieces.push((1, Piece::Bytes(hex(bytes)))),
                ("=>", bytes) => recording.plain[0] = hex(bytes),
                ("=<", bytes) => recording.plain[1] = hex(bytes),
                _ => assert!(line.starts_with('#'), "{line}"),
            }
        }
        recording
    }

    /// In pieces of at most `size` bytes.
    pub fn cut(mut self, size: usize) -> Self {
        let pieces = std::mem::take(&mut self.pieces);
        for (side, piece) in pieces {
            match piece {
                Piece::Bytes(bytes) => {
                    self.pieces.extend(bytes.chunks(size).map(|part| (side, Piece::Bytes(part.to_vec()))));
                }
                gap => self.pieces.push((side, gap)),
            }
        }
        self
    }

    /// With the sides exchanged.
    pub fn swapped(mut self) -> Self {
        self.pieces.iter_mut().for_each(|(side, _)| *side = 1 - *side);
        self.plain.swap(0, 1);
        self
    }

    /// All bytes of one side before all of the other.
    pub fn one_side_first(mut self, first: usize) -> Self {
        self.pieces.sort_by_key(|(side, _)| *side != first);
        self
    }

    /// Without the key log's lines that `drop` wants dropped.
    pub fn without_keys(mut self, drop: impl Fn(&str) -> bool) -> Self {
        self.keys = self.keys.lines().filter(|line| !drop(line)).flat_map(|line| [line, "\n"]).collect();
        self
    }

    /// The bytes of `side` in order.
    pub fn bytes(&self, side: usize) -> Vec<u8> {
        self.pieces.iter().filter(|(s, _)| *s == side).flat_map(|(_, piece)| piece.bytes().to_vec()).collect()
    }

    /// Replaces `range` of the bytes of `side` by a gap.
    pub fn with_gap(mut self, side: usize, range: std::ops::Range<usize>) -> Self {
        let (mut offset, mut pieces) = (0, Vec::new());
        for (s, piece) in std::mem::take(&mut self.pieces) {
            if s != side {
                pieces.push((s, piece));
                continue;
            }
            let bytes = piece.bytes();
            let local = |at: usize| at.saturating_sub(offset).min(bytes.len());
            let (begin, end) = (local(range.start), local(range.end));
            if begin > 0 {
                pieces.push((s, Piece::Bytes(bytes[..begin].to_vec())));
            }
            if end > begin {
                pieces.push((s, Piece::Gap((end - begin) as u64)));
            }
            if end < bytes.len() {
                pieces.push((s, Piece::Bytes(bytes[end..].to_vec())));
            }
            offset += bytes.len();
        }
        self.pieces = pieces;
        self
    }

    /// Decrypts it.
    pub fn run(&self) -> Told {
        let mut decryptor = self.decryptor();
        let told = self.run_with(&mut decryptor);
        assert_eq!(decryptor.buffers_in_use(), 0, "all buffers are returned");
        told
    }

    /// What has its key log.
    pub fn decryptor(&self) -> Decryptor {
        Decryptor::new(Arc::new(KeyLog::parse(self.keys.as_bytes())))
    }

    /// Decrypts it with shared memory of a certain state.
    pub fn run_with(&self, decryptor: &mut Decryptor) -> Told {
        let mut session = Session::new();
        let mut told = Told {
            plain: Default::default(),
            gaps: Default::default(),
            events: vec![],
            places: vec![],
            facts: Facts::new(),
        };
        let mut out = |event: Event<'_, usize>, at: usize| told.take(event, at);
        for (at, (side, piece)) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Bytes(bytes) => session.feed(*side, bytes, at, decryptor, &mut out),
                Piece::Gap(length) => session.gap(*side, *length, at, decryptor, &mut out),
            }
        }
        session.finish(self.pieces.len(), decryptor, &mut out);
        told.facts = session.facts().clone();
        told
    }
}

impl Piece {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Gap(_) => &[],
        }
    }
}

impl Told {
    fn take(&mut self, event: Event<'_, usize>, at: usize) {
        match event {
            Event::Data { side, bytes, first } => {
                self.plain[side].extend_from_slice(bytes);
                self.places.push((side, first, at));
            }
            Event::Gap { side, length } => self.gaps[side].push(length),
            Event::Record { side, length, .. } => self.events.push(format!("record of {side}: {length}")),
            other => self.events.push(format!("{other:?}")),
        }
    }

    /// Whether an event was told of which the text begins so.
    pub fn has(&self, begin: &str) -> bool {
        self.events.iter().any(|event| event.starts_with(begin))
    }

    /// The reasons for which `side` is not decrypted.
    pub fn lost(&self, side: usize) -> Vec<Reason> {
        let all = [
            Reason::NoKeys,
            Reason::HandshakeMissing,
            Reason::HandshakeMalformed,
            Reason::SuiteUnsupported,
            Reason::VersionUnsupported,
            Reason::Compressed,
            Reason::WrongKeys,
            Reason::SequenceLost,
            Reason::NotTls,
        ];
        let told = |reason: &&Reason| {
            let event: Event<'_, usize> = Event::Undecryptable { side, reason: **reason };
            let text = format!("{event:?}");
            self.events.iter().filter(|event| **event == text).count() == 1
        };
        all.iter().filter(told).copied().collect()
    }
}
