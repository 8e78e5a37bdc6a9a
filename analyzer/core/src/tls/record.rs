//! The record layer (RFC 8446 section 5.1, RFC 5246 section 6.2.1): records out of a stream of bytes that comes in
//! pieces of any length.

use crate::limits::TLS_RECORD_LENGTH;

use super::Decryptor;

/// Bytes of a record's header.
pub const HEADER_LENGTH: usize = 5;

/// A handshake record of any version (RFC 8446 section 5.1): every TLS connection begins with one of each side.
pub const HANDSHAKE_RECORD: [u8; 2] = [22, 3];

/// Content types (RFC 8446 section 5.1).
pub mod kind {
    /// ChangeCipherSpec.
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    /// Alert.
    pub const ALERT: u8 = 21;
    /// Handshake.
    pub const HANDSHAKE: u8 = 22;
    /// Application data, in TLS 1.3 all that is encrypted.
    pub const APPLICATION_DATA: u8 = 23;
    /// Heartbeat (RFC 6520).
    pub const HEARTBEAT: u8 = 24;
}

/// A record's header, which may be any five bytes until [`Header::length`] says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_LENGTH]);

impl Header {
    /// The content type.
    pub fn kind(self) -> u8 {
        self.0[0]
    }

    /// Bytes after the header; `None` when these five bytes are no header of SSL 3.0 to TLS 1.3, all of which have a
    /// type of 20 to 24 and the version 3.0 to 3.4.
    pub fn length(self) -> Option<usize> {
        let [kind, major, minor, high, low] = self.0;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let known = (kind::CHANGE_CIPHER_SPEC..=kind::HEARTBEAT).contains(&kind) && major == 3 && minor <= 4;
        (known && length <= TLS_RECORD_LENGTH && (length > 0 || kind == kind::APPLICATION_DATA)).then_some(length)
    }
}

/// A record as it was on the wire.
#[derive(Debug)]
pub struct Record<A> {
    /// Its header.
    pub header: Header,
    /// Its body, when it was kept and is whole.
    pub body: Option<Vec<u8>>,
    /// Whether all of its bytes were captured.
    pub whole: bool,
    /// Where its first byte is.
    pub first: A,
}

impl<A> Record<A> {
    /// Bytes after the header.
    pub fn length(&self) -> usize {
        self.header.length().unwrap_or_default()
    }
}

/// What a piece of the stream led to.
#[derive(Debug)]
pub enum Step<A> {
    /// The record goes on in the next piece.
    Partial,
    /// A record is complete.
    Record(Record<A>),
    /// Where a header should be is none; these bytes of the stream since the last record are passed.
    Broken(u64),
}

/// Cuts one direction's stream into records.
#[derive(Debug)]
pub struct Framer<A> {
    header: Header,
    /// Bytes of the header that have come.
    have: usize,
    /// Bytes of the body that are to come.
    need: usize,
    body: Option<Vec<u8>>,
    damaged: bool,
    first: Option<A>,
}

impl<A: Copy> Framer<A> {
    /// Begins at a record boundary.
    pub fn new() -> Self {
        Self { header: Header::default(), have: 0, need: 0, body: None, damaged: false, first: None }
    }

    /// Takes bytes off the front of `rest` up to the end of a record. `keep` tells whether a record's body is wanted.
    pub fn push(
        &mut self,
        rest: &mut &[u8],
        at: A,
        decryptor: &mut Decryptor,
        keep: impl FnOnce(Header) -> bool,
    ) -> Step<A> {
        if self.have < HEADER_LENGTH {
            self.first.get_or_insert(at);
            for (place, &byte) in self.header.0.iter_mut().skip(self.have).zip(take(rest, HEADER_LENGTH - self.have)) {
                *place = byte;
                self.have += 1;
            }
            if self.have < HEADER_LENGTH {
                return Step::Partial;
            }
            let Some(length) = self.header.length() else { return Step::Broken(self.reset(decryptor)) };
            self.need = length;
            self.body = if keep(self.header) { decryptor.take_buffer() } else { None };
        }
        let bytes = take(rest, self.need);
        self.need -= bytes.len();
        if let Some(body) = &mut self.body {
            body.extend_from_slice(bytes);
        }
        if self.need > 0 { Step::Partial } else { Step::Record(self.finish(at)) }
    }

    /// Whether no record is begun.
    pub fn is_between(&self) -> bool {
        self.have == 0
    }

    /// Bytes of the record that is being read which have not come; 0 between records.
    pub fn owed(&self) -> usize {
        match self.have {
            0 => 0,
            HEADER_LENGTH => self.need,
            have => HEADER_LENGTH - have,
        }
    }

    /// Passes bytes that the capture lacks. `Err` with the bytes passed since the last record's end when they hide a
    /// record boundary; a record when they end one, which is not whole then.
    pub fn gap(&mut self, length: u64, at: A, decryptor: &mut Decryptor) -> Result<Step<A>, u64> {
        let inside = usize::try_from(length).ok().filter(|&n| self.have == HEADER_LENGTH && n <= self.need);
        let Some(inside) = inside else { return Err(self.reset(decryptor).saturating_add(length)) };
        self.damaged = true;
        if let Some(body) = self.body.take() {
            decryptor.give_buffer(body);
        }
        self.need -= inside;
        Ok(if self.need > 0 { Step::Partial } else { Step::Record(self.finish(at)) })
    }

    /// Drops an incomplete record: how many of its bytes came.
    pub fn reset(&mut self, decryptor: &mut Decryptor) -> u64 {
        if let Some(body) = self.body.take() {
            decryptor.give_buffer(body);
        }
        let length = if self.have < HEADER_LENGTH { 0 } else { self.header.length().unwrap_or_default() };
        let passed = self.have + (length - self.need.min(length));
        *self = Self::new();
        passed as u64
    }

    fn finish(&mut self, at: A) -> Record<A> {
        let first = self.first.unwrap_or(at);
        let done = std::mem::replace(self, Self::new());
        Record { header: done.header, body: done.body, whole: !done.damaged, first }
    }
}

/// The record at the front of `bytes`, if it is whole in them: its header, its body, and what follows.
pub fn split_whole(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk()?;
    let header = Header(*header);
    let (body, rest) = rest.split_at_checked(header.length()?)?;
    Some((header, body, rest))
}

/// Takes at most `length` bytes off the front of `rest`.
fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(length.min(rest.len()));
    *rest = left;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(pieces: &[&[u8]]) -> Vec<(u8, Vec<u8>, usize)> {
        let (mut framer, mut decryptor, mut records) = (Framer::new(), Decryptor::default(), vec![]);
        for (number, mut rest) in pieces.iter().copied().enumerate() {
            while !rest.is_empty() {
                match framer.push(&mut rest, number, &mut decryptor, |_| true) {
                    Step::Record(r) => records.push((r.header.kind(), r.body.unwrap(), r.first)),
                    Step::Partial => assert!(rest.is_empty()),
                    Step::Broken(_) => return records,
                }
            }
        }
        records
    }

    #[test]
    fn records_in_pieces() {
        let stream = b"\x16\x03\x01\0\x03abc\x17\x03\x03\0\0\x17\x03\x03\0\x01d";
        let whole = vec![(22, b"abc".to_vec(), 0), (23, vec![], 0), (23, b"d".to_vec(), 0)];
        assert_eq!(records(&[stream]), whole);
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        let firsts: Vec<usize> = records(&bytes).into_iter().map(|(_, _, first)| first).collect();
        assert_eq!(firsts, [0, 8, 13]);
    }

    #[test]
    fn what_is_no_header() {
        assert_eq!(Header(*b"HTTP/").length(), None);
        assert_eq!(Header([22, 3, 1, 0, 0]).length(), None, "an empty handshake record");
        assert_eq!(Header([23, 3, 3, 0x48, 0]).length(), Some(0x4800));
        assert_eq!(Header([23, 3, 3, 0x48, 1]).length(), None);
        assert_eq!(Header([25, 3, 3, 0, 1]).length(), None);
        assert_eq!(Header([22, 2, 0, 0, 1]).length(), None);
    }

    #[test]
    fn gaps() {
        let mut decryptor = Decryptor::default();
        let mut framer = Framer::new();
        let mut rest: &[u8] = b"\x17\x03\x03\0\x0aab";
        assert!(matches!(framer.push(&mut rest, 0, &mut decryptor, |_| true), Step::Partial));
        assert!(matches!(framer.gap(3, 1, &mut decryptor), Ok(Step::Partial)));
        let Ok(Step::Record(record)) = framer.gap(5, 2, &mut decryptor) else { panic!("the record ends with the gap") };
        assert!(!record.whole && record.body.is_none() && record.length() == 10 && record.first == 0);
        assert_eq!(framer.gap(5, 3, &mut decryptor).unwrap_err(), 5, "at a boundary");
        let mut rest: &[u8] = b"\x17\x03\x03\0\x0aab";
        framer.push(&mut rest, 4, &mut decryptor, |_| true);
        assert_eq!(framer.gap(9, 5, &mut decryptor).unwrap_err(), 16, "over the end");
        assert_eq!(decryptor.buffers_in_use(), 0);
    }
}
