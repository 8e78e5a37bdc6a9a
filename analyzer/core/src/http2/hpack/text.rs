//! Names and values on their way from a block to the caller and the table.

use serde::{Deserialize, Serialize};

use crate::limits::HPACK_RETAINED_SCRATCH_BYTES;

use super::error::HpackError;
use super::huffman;
use super::reader::Reader;

/// First bit of a string literal: Huffman-coded (RFC 7541 5.2).
const HUFFMAN: u8 = 0x80;

/// A name or a value, of which perhaps only the length is known.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    /// The octets; `None` if unknown to the observer.
    pub octets: Option<&'a [u8]>,
    /// Decoded length in octets; 0 if that is unknown too.
    pub len: usize,
}

impl<'a> Text<'a> {
    pub fn known(octets: &'a [u8]) -> Self {
        Self { octets: Some(octets), len: octets.len() }
    }

    pub fn unknown(len: usize) -> Self {
        Self { octets: None, len }
    }

    /// The same length without the octets.
    pub fn withheld(self) -> Self {
        Self::unknown(self.len)
    }
}

/// Reads a string literal (RFC 7541 5.2). A plain one is borrowed from the block, a Huffman-coded
/// one is decoded into `scratch`. One of more than `longest` octets as encoded is checked and
/// measured only.
pub(super) fn read_text<'a, 'block: 'a>(
    reader: &mut Reader<'block>,
    scratch: &'a mut Scratch,
    longest: usize,
) -> Result<Text<'a>, HpackError> {
    let start = reader.position();
    let huffman_coded = reader.peek().is_some_and(|octet| octet & HUFFMAN != 0);
    let len = reader.integer(7)? as usize;
    let encoded = reader.octets(len, start)?;
    let at_start = |kind| HpackError::new(kind, start);
    match (huffman_coded, len <= longest) {
        (false, true) => Ok(Text::known(encoded)),
        (false, false) => Ok(Text::unknown(len)),
        (true, true) => scratch.decode(encoded).map(Text::known).map_err(at_start),
        (true, false) => huffman::decoded_len(encoded).map(Text::unknown).map_err(at_start),
    }
}

/// A buffer that is reused from string to string.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    fn decode(&mut self, encoded: &[u8]) -> Result<&[u8], super::HpackErrorKind> {
        let room = self.room(huffman::decoded_bound(encoded.len()) + 1);
        let written = huffman::decode(encoded, room)?;
        Ok(room.get(..written).unwrap_or_default())
    }

    /// A copy of `octets`, which frees the table they come from for changes.
    pub fn copy(&mut self, octets: &[u8]) -> &[u8] {
        let room = self.room(octets.len());
        room.copy_from_slice(octets);
        room
    }

    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len {
            self.0.resize(len, 0);
        }
        &mut self.0[..len]
    }

    /// Gives back what an unusually long string took.
    pub fn trim(&mut self) {
        if self.0.len() > HPACK_RETAINED_SCRATCH_BYTES {
            self.0 = Vec::new();
        }
    }
}

#[cfg(test)]
impl Scratch {
    /// Octets held at present.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
