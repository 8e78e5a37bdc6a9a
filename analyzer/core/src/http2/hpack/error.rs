//! Why a header block could not be decoded.

use std::fmt;

use super::static_table::STATIC_ENTRIES;

/// A header block that breaks RFC 7541. To its receiver this ends the connection
/// (COMPRESSION_ERROR, RFC 9113 4.3); the observer goes on, as
/// [`Decoder::decode`](super::Decoder::decode) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HpackError {
    /// What is wrong.
    pub kind: HpackErrorKind,
    /// Where the integer, string or reference at fault begins, in octets from the start of the
    /// block.
    pub offset: usize,
}

/// The rules a header block can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HpackErrorKind {
    /// An integer above 2^32-1, or of more than `HPACK_MAX_INTEGER_OCTETS` (RFC 7541 5.1).
    IntegerOverflow,
    /// The block ends inside an integer or a string.
    Truncated,
    /// A reference to index 0 (RFC 7541 6.1).
    IndexZero,
    /// A reference beyond both tables (RFC 7541 2.3.3).
    IndexBeyondTables {
        /// The index referred to.
        index: u32,
        /// Entries of the dynamic table; the highest valid index is 61 more.
        entries: u32,
    },
    /// Huffman padding of 8 bits or more, or of other bits than ones (RFC 7541 5.2).
    HuffmanPadding,
    /// The end-of-string symbol inside a string (RFC 7541 5.2).
    HuffmanEndOfString,
    /// A size update above every setting that may be in force (RFC 7541 6.3).
    SizeUpdateAboveSetting {
        /// The size asked for, in bytes.
        size: u32,
        /// The largest setting that may be in force, in bytes.
        setting: u32,
    },
    /// A size update after the first field (RFC 7541 4.2).
    SizeUpdateAfterField,
}

impl HpackError {
    pub(super) fn new(kind: HpackErrorKind, offset: usize) -> Self {
        Self { kind, offset }
    }
}

impl fmt::Display for HpackErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IntegerOverflow => f.write_str("integer above 2^32-1 or too long"),
            Self::Truncated => f.write_str("the block ends inside an integer or a string"),
            Self::IndexZero => f.write_str("reference to index 0"),
            Self::IndexBeyondTables { index, entries } => {
                write!(f, "reference to index {index}; the tables end at {}", entries.saturating_add(STATIC_ENTRIES))
            }
            Self::HuffmanPadding => f.write_str("Huffman padding of 8 bits or more, or not of ones"),
            Self::HuffmanEndOfString => f.write_str("end-of-string symbol inside a Huffman string"),
            Self::SizeUpdateAboveSetting { size, setting } => {
                write!(f, "table size update to {size} bytes, above the setting of {setting}")
            }
            Self::SizeUpdateAfterField => f.write_str("table size update after the block's first field"),
        }
    }
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HPACK: {} (octet {} of the header block); the rest of the block is not decoded, and \
             references to entries inserted so far are unknown from now on",
            self.kind, self.offset
        )
    }
}

impl std::error::Error for HpackError {}
