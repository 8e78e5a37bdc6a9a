//! Keeps segments that came before the bytes in front of them.

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

use crate::at::At;
use crate::limits;
use crate::state_fields;

/// A segment kept for later.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The captured bytes.
    pub bytes: Box<[u8]>,
    /// Bytes on the wire, at least as many.
    pub length: i64,
    /// The packet.
    pub at: At,
    /// Its sender had received all bytes of the other side before this offset.
    pub answers: i64,
    /// The segment was retransmitted, and the bytes behind it waited for it.
    pub lost: bool,
    /// The sender's clock in the segment: TSval of its timestamps option (RFC 7323 section 3).
    pub clock: Option<u32>,
    /// Nagle's algorithm may have held it.
    pub may_be_held: bool,
}

/// A segment to be kept.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Where they begin.
    pub offset: i64,
    /// Bytes on the wire.
    pub length: i64,
    /// The packet.
    pub at: At,
    /// See [`Kept::answers`].
    pub answers: i64,
    /// See [`Kept::lost`].
    pub lost: bool,
    /// See [`Kept::clock`].
    pub clock: Option<u32>,
    /// See [`Kept::may_be_held`].
    pub may_be_held: bool,
}

/// The out-of-order segments of one sender by offset; where two hold the same byte, the first one recorded wins.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct OutOfOrder {
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::OUT_OF_ORDER_SEGMENTS }, _, _>")]
    segments: BTreeMap<i64, Kept>,
    bytes: usize,
}

impl OutOfOrder {
    /// Keeps a segment; `false` when it would exceed the limits.
    pub fn insert(&mut self, new: &New<'_>) -> bool {
        let &New { bytes, offset, length, at, answers, lost, clock, may_be_held } = new;
        if self.bytes + bytes.len() > limits::OUT_OF_ORDER_BYTES || self.segments.len() >= limits::OUT_OF_ORDER_SEGMENTS
        {
            return false;
        }
        let (mut offset, mut length, mut bytes) = (offset, length, bytes);
        for _ in 0..limits::OUT_OF_ORDER_STEPS {
            match self.segments.get(&offset).map(|kept| kept.length) {
                None => {
                    self.bytes += bytes.len();
                    self.segments
                        .insert(offset, Kept { bytes: bytes.into(), length, at, answers, lost, clock, may_be_held });
                    return true;
                }
                Some(known) if known >= length => return true,
                Some(known) => {
                    bytes = usize::try_from(known).ok().and_then(|known| bytes.get(known..)).unwrap_or_default();
                    (offset, length) = (offset + known, length - known);
                }
            }
        }
        true
    }

    /// Takes the first segment if it begins at or before `offset`.
    pub fn take_ready(&mut self, offset: i64) -> Option<(i64, Kept)> {
        let (&first, _) = self.segments.first_key_value()?;
        if first > offset {
            return None;
        }
        let (first, kept) = self.segments.pop_first()?;
        self.bytes -= kept.bytes.len();
        Some((first, kept))
    }

    /// Where the first kept segment begins, and the segment.
    pub fn head(&self) -> Option<(i64, &Kept)> {
        self.segments.first_key_value().map(|(&offset, kept)| (offset, kept))
    }

    /// Where the first kept segment begins.
    pub fn first(&self) -> Option<i64> {
        self.segments.first_key_value().map(|(&offset, _)| offset)
    }

    /// The packet of the first kept segment behind `offset`.
    pub fn behind(&self, offset: i64) -> Option<At> {
        self.segments.range(offset..).next().map(|(_, kept)| kept.at)
    }

    /// The packet of the first kept segment behind a hole that begins at `offset`, if one does.
    pub fn behind_hole(&self, offset: i64) -> Option<At> {
        let is_kept = |(start, kept): (&i64, &Kept)| start.saturating_add(kept.length) > offset;
        let before = self.segments.range(..=offset).next_back();
        if before.is_some_and(is_kept) { None } else { self.behind(offset) }
    }

    /// The packet of the first kept segment.
    pub fn first_at(&self) -> Option<At> {
        self.segments.first_key_value().map(|(_, kept)| kept.at)
    }

    /// The sender's clock in the first kept segment behind `offset`.
    pub fn clock_behind(&self, offset: i64) -> Option<u32> {
        self.segments.range(offset.saturating_add(1)..).next().and_then(|(_, kept)| kept.clock)
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_a_hole_is_found() {
        let mut store = OutOfOrder::default();
        for (offset, packet) in [(10, 1), (20, 2), (40, 3)] {
            let at = At::new(packet, 0);
            let (bytes, clock) = (&[0_u8; 10][..], None);
            let new = New { bytes, offset, length: 10, at, answers: 0, lost: false, clock, may_be_held: false };
            assert!(store.insert(&new));
        }
        let behind = |offset| store.behind_hole(offset).map_or(0, |at| at.packet);
        assert_eq!([5, 10, 25, 30, 35, 40, 50].map(behind), [1, 0, 0, 3, 3, 0, 0]);
    }
}
