//! What all formats have in common: a packet's record, and numbers in a byte order.

use std::ops::Range;

/// A packet's place in its file's buffer, and what its record says.
pub(super) struct Record {
    /// None if the record has no time.
    pub time_ns: Option<i64>,
    pub link_type: u32,
    pub interface: u32,
    pub original_len: u32,
    pub data: Range<usize>,
}

/// A byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    #[inline]
    pub fn u32(self, word: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(word),
            Order::Big => u32::from_be_bytes(word),
        }
    }

    /// A word as it is stored.
    pub fn word(self, number: u32) -> [u8; 4] {
        match self {
            Order::Little => number.to_le_bytes(),
            Order::Big => number.to_be_bytes(),
        }
    }

    /// Two halves of a word, in the order in which they are stored.
    pub fn halves(self, [a, b]: [u16; 2]) -> [u8; 4] {
        let ([a, b], [c, d]) = match self {
            Order::Little => (a.to_le_bytes(), b.to_le_bytes()),
            Order::Big => (a.to_be_bytes(), b.to_be_bytes()),
        };
        [a, b, c, d]
    }

    /// The two halves of a word, in the order in which they are stored.
    #[inline]
    pub fn u16s(self, [a, b, c, d]: [u8; 4]) -> [u16; 2] {
        match self {
            Order::Little => [u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])],
            Order::Big => [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])],
        }
    }

    /// A number stored as two words, the high one first in either order.
    #[inline]
    pub fn u64(self, high: [u8; 4], low: [u8; 4]) -> u64 {
        u64::from(self.u32(high)) << 32 | u64::from(self.u32(low))
    }

    /// A 64-bit option's value; None if it has another length.
    pub fn option_u64(self, value: &[u8]) -> Option<u64> {
        let bytes: [u8; 8] = value.try_into().ok()?;
        Some(match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        })
    }
}
