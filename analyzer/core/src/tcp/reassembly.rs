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
    /// It was retransmitted, and the bytes behind it waited for it.
    pub lost: bool,
    /// The sender's clock in it (RFC 7323 section 3).
    pub clock: Option<u32>,
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
        let &New { bytes, offset, length, at, answers, lost, clock } = new;
        if self.bytes + bytes.len() > limits::OUT_OF_ORDER_BYTES || self.segments.len() >= limits::OUT_OF_ORDER_SEGMENTS
        {
            return false;
        }
        let (mut offset, mut length, mut bytes) = (offset, length, bytes);
        for _ in 0..limits::OUT_OF_ORDER_STEPS {
            match self.segments.get(&offset).map(|kept| kept.length) {
                None => {
                    self.bytes += bytes.len();
                    self.segments.insert(offset, Kept { bytes: bytes.into(), length, at, answers, lost, clock });
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
