//! Finds a record boundary after bytes that the capture lacks: the lengths of two records link three headers of
//! application data.

use crate::limits::{TLS_RESYNC_HEADERS, TLS_RESYNC_STEP};

use super::buffered::Held;
use super::record::{HEADER_LENGTH, Header, kind};

/// Two whole records and the header of a third, within the bytes searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Where the first record begins.
    pub begin: usize,
    /// Where the proof ends.
    pub end: usize,
}

/// Bytes of the tag of every AEAD suite: no record is shorter.
const SHORTEST: usize = 16;

/// What records' lengths say of a place.
enum Chain {
    /// It is a boundary; the proof has this length.
    Proven(usize),
    /// Neither it nor the places before this distance are one.
    Refuted(usize),
    /// More bytes are needed.
    Undecided,
}

impl Chain {
    /// These headers were linked, and the bytes at `place` are none. Enough headers cannot be chance, so that the
    /// stream itself breaks there; this also keeps the search's time in proportion to the bytes.
    fn broken(headers: usize, place: usize) -> Self {
        Self::Refuted(if headers >= TLS_RESYNC_HEADERS { place } else { 1 })
    }
}

/// A search for a record boundary in one direction.
#[derive(Debug)]
pub struct Search<A> {
    /// The bytes searched.
    pub held: Held<A>,
    /// Bytes of the stream passed since the last record that ended.
    pub skipped: u64,
    /// Places before this one are no boundary.
    refuted: usize,
}

impl<A: Copy> Search<A> {
    /// Begins after `skipped` bytes of the stream.
    pub fn new(buffer: Vec<u8>, skipped: u64) -> Self {
        Self { held: Held::new(buffer), skipped, refuted: 0 }
    }

    /// Passes bytes that are missing, too: what came before them does not count.
    pub fn gap(&mut self, length: u64) {
        self.skipped = self.skipped.saturating_add(self.held.bytes().len() as u64).saturating_add(length);
        self.held.clear();
        self.refuted = 0;
    }

    /// Searches further in bytes of at most [`TLS_RESYNC_STEP`]. A boundary with how many of `bytes` its proof took.
    pub fn push(&mut self, bytes: &[u8], at: A) -> Option<(Boundary, usize)> {
        if self.refuted >= TLS_RESYNC_STEP {
            self.skipped = self.skipped.saturating_add(self.refuted as u64);
            self.held.drop_front(self.refuted);
            self.refuted = 0;
        }
        let before = self.held.bytes().len();
        self.held.push(bytes, at);
        let boundary = self.find(|bytes| chain(bytes.0, before.saturating_sub(bytes.1)))?;
        Some((boundary, boundary.end - before))
    }

    /// A boundary from which whole records lead to the very end, when no more bytes will come.
    pub fn at_end(&mut self) -> Option<Boundary> {
        self.find(|bytes| chain_to_end(bytes.0))
    }

    fn find(&mut self, judge: impl Fn((&[u8], usize)) -> Chain) -> Option<Boundary> {
        let bytes = self.held.bytes();
        while let Some(rest) = bytes.get(self.refuted..) {
            self.refuted += rest.iter().position(|&b| b == kind::APPLICATION_DATA).unwrap_or(rest.len());
            let candidate = bytes.get(self.refuted..).filter(|rest| !rest.is_empty())?;
            match judge((candidate, self.refuted)) {
                Chain::Proven(length) => {
                    return Some(Boundary { begin: self.refuted, end: self.refuted + length });
                }
                Chain::Undecided => return None,
                Chain::Refuted(distance) => self.refuted += distance.max(1),
            }
        }
        None
    }
}

/// Follows records' lengths until enough headers are linked, the last of them ending after `beyond`.
fn chain(bytes: &[u8], beyond: usize) -> Chain {
    let (mut place, mut headers) = (0, 0);
    loop {
        let rest = bytes.get(place..).unwrap_or_default();
        let Some(header) = rest.first_chunk::<HEADER_LENGTH>() else {
            return if may_begin(rest) { Chain::Undecided } else { Chain::broken(headers, place) };
        };
        let Some(length) = application_data(header) else { return Chain::broken(headers, place) };
        headers += 1;
        if headers >= TLS_RESYNC_HEADERS && place + HEADER_LENGTH > beyond {
            return Chain::Proven(place + HEADER_LENGTH);
        }
        place += HEADER_LENGTH + length;
    }
}

/// Follows records' lengths to the exact end.
fn chain_to_end(bytes: &[u8]) -> Chain {
    let (mut place, mut headers) = (0, 0);
    while let Some(length) = bytes.get(place..).and_then(<[u8]>::first_chunk).and_then(application_data) {
        place += HEADER_LENGTH + length;
        headers += 1;
        if place == bytes.len() {
            return Chain::Proven(place);
        }
    }
    Chain::broken(headers, place.min(bytes.len()))
}

/// The length that a header of application data tells; every version since TLS 1.2 has the same third byte.
fn application_data(header: &[u8; HEADER_LENGTH]) -> Option<usize> {
    Header(*header).length().filter(|&length| may_begin(header) && length >= SHORTEST)
}

/// Whether these may be the first bytes of a header of application data.
fn may_begin(bytes: &[u8]) -> bool {
    bytes.iter().zip([kind::APPLICATION_DATA, 3, 3]).all(|(&a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(length: u16) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        let mut record = vec![23, 3, 3, high, low];
        record.resize(5 + usize::from(length), 0x17);
        record
    }

    fn stream() -> Vec<u8> {
        [vec![9; 100], record(20), vec![23, 3, 3, 0, 21], record(40), record(50), record(60)].concat()
    }

    #[test]
    fn three_linked_headers_prove_a_boundary() {
        let bytes = stream();
        // The record of 20 is followed by a header whose record of 21 bytes ends at no header.
        for size in 1..=bytes.len() {
            let mut search = Search::new(Vec::new(), 7);
            let mut found = None;
            for (number, piece) in bytes.chunks(size).enumerate() {
                if let Some((boundary, taken)) = search.push(piece, ()) {
                    found = Some((boundary, number * size + taken));
                    break;
                }
            }
            let (boundary, taken) = found.expect("a boundary");
            assert_eq!((boundary, taken), (Boundary { begin: 130, end: 235 }, 235), "in pieces of {size}");
        }
    }

    #[test]
    fn the_end_of_all_bytes_proves_one_too() {
        let mut search = Search::new(Vec::new(), 0);
        assert_eq!(search.push(&[vec![23, 23, 3], record(30)].concat(), ()), None);
        assert_eq!(search.at_end(), Some(Boundary { begin: 3, end: 38 }));
        assert_eq!(search.push(&record(30)[..20], ()), None);
        assert_eq!(search.at_end(), None);
    }

    #[test]
    fn a_chain_that_breaks_is_passed_at_once() {
        // A header that waits for 16 kB, behind which 700 records are linked to no header: the next of them is tried
        // only after the break.
        let mut search = Search::new(Vec::new(), 0);
        let linked = record(18).repeat(700);
        assert_eq!(search.push(&[&[23, 3, 3, 0x40, 0][..], &linked].concat(), ()), None);
        assert_eq!((search.push(&[9; 100], ()), search.refuted), (None, 0), "the first header still waits");
        let rest = [vec![9; 3000], record(18).repeat(3)].concat();
        let (boundary, _) = search.push(&rest, ()).unwrap();
        assert_eq!(boundary.begin, 5 + linked.len() + 100 + 3000);
    }

    #[test]
    fn what_a_search_keeps_is_bounded() {
        let mut search = Search::new(Vec::new(), 0);
        for number in 0..200_u64 {
            assert_eq!(search.push(&[1; TLS_RESYNC_STEP], ()), None);
            assert!(search.held.bytes().len() <= 2 * TLS_RESYNC_STEP);
            assert_eq!(search.skipped + search.held.bytes().len() as u64, (number + 1) * TLS_RESYNC_STEP as u64);
        }
        search.gap(5);
        assert_eq!(search.skipped, 200 * TLS_RESYNC_STEP as u64 + 5);
    }
}
