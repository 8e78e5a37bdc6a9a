//! Buffers bytes of one direction with their places in the capture: until the other side's hello comes, or a record
//! boundary is proved.

use std::collections::VecDeque;

use crate::limits::{TLS_HELD_BYTES, TLS_HELD_PIECES};

#[derive(Clone, Copy, Debug)]
struct Piece<A> {
    length: u64,
    is_gap: bool,
    at: A,
}

/// Waiting bytes and gaps.
#[derive(Debug)]
pub struct Held<A> {
    bytes: Vec<u8>,
    pieces: VecDeque<Piece<A>>,
}

impl<A: Copy> Held<A> {
    /// Nothing waits; `buffer` takes the bytes.
    pub fn new(buffer: Vec<u8>) -> Self {
        Self { bytes: buffer, pieces: VecDeque::new() }
    }

    /// The buffer, for others to use.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether as much waits as may.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= TLS_HELD_BYTES || self.pieces.len() >= TLS_HELD_PIECES
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8], at: A) {
        self.bytes.extend_from_slice(bytes);
        self.mark(Piece { length: bytes.len() as u64, is_gap: false, at });
    }

    /// Adds a gap.
    pub fn push_gap(&mut self, length: u64, at: A) {
        self.mark(Piece { length, is_gap: true, at });
    }

    fn mark(&mut self, piece: Piece<A>) {
        let full = self.pieces.len() >= TLS_HELD_PIECES;
        match self.pieces.back_mut().filter(|last| full && last.is_gap == piece.is_gap) {
            Some(last) => *last = Piece { length: last.length.saturating_add(piece.length), ..piece },
            None => self.pieces.push_back(piece),
        }
    }

    /// Drops bytes from the front, and gaps between them.
    pub fn drop_front(&mut self, length: usize) {
        let length = length.min(self.bytes.len());
        self.bytes.drain(..length);
        let mut left = length as u64;
        while left > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            if !piece.is_gap && piece.length > left {
                piece.length -= left;
                return;
            }
            left -= if piece.is_gap { 0 } else { piece.length };
            self.pieces.pop_front();
        }
    }

    /// Drops the bytes from `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// The pieces in order: bytes, or the length of a gap.
    pub fn replay(&self) -> impl Iterator<Item = (Result<&[u8], u64>, A)> {
        let mut rest = self.bytes.as_slice();
        self.pieces.iter().map(move |piece| {
            if piece.is_gap {
                return (Err(piece.length), piece.at);
            }
            let length = usize::try_from(piece.length).unwrap_or(usize::MAX).min(rest.len());
            let (bytes, left) = rest.split_at(length);
            rest = left;
            (Ok(bytes), piece.at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_places() {
        let mut held = Held::new(Vec::new());
        held.push(b"abc", 1);
        held.push_gap(7, 2);
        held.push(b"de", 3);
        let all = |held: &Held<i32>| held.replay().map(|(r, at)| (r.map(<[u8]>::to_vec), at)).collect::<Vec<_>>();
        assert_eq!(all(&held), [(Ok(b"abc".to_vec()), 1), (Err(7), 2), (Ok(b"de".to_vec()), 3)]);
        held.drop_front(2);
        assert_eq!(all(&held), [(Ok(b"c".to_vec()), 1), (Err(7), 2), (Ok(b"de".to_vec()), 3)]);
        held.drop_front(2);
        assert_eq!(all(&held), [(Ok(b"e".to_vec()), 3)]);
        held.truncate(0);
        assert!(held.bytes().is_empty());
        assert_eq!(all(&held), [(Ok(vec![]), 3)]);
    }

    #[test]
    fn pieces_are_bounded() {
        let mut held = Held::new(Vec::new());
        for at in 0..TLS_HELD_PIECES + 10 {
            held.push(b"x", at);
        }
        assert!(held.is_full());
        assert_eq!(held.pieces.len(), TLS_HELD_PIECES);
        let last = held.replay().last().unwrap();
        assert_eq!(last, (Ok(&[b'x'; 11][..]), TLS_HELD_PIECES + 9));
    }
}
