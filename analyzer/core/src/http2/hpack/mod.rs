//! HPACK (RFC 7541) for an observer: header blocks to fields, also where the capture began in the
//! middle.
//!
//! Most fields of a gRPC connection are indexed. So each table entry carries a small `Copy` class,
//! which the caller's [`Classifier`] computes once, when the entry is inserted; a reference then
//! costs one look-up and no work on strings.
//!
//! An observer may lack entries inserted before the capture or in a hole of it. Dynamic indices
//! count from the newest entry, hence everything inserted since resolves exactly, and older
//! references are known to be unknown: a field is exact or says that it is not, and is never a
//! guess. For the same reason keeping an entry too long is harmless. After a hole older entries are
//! found again when the blocks behind it allow one place only (`realign`).

mod decoder;
mod dynamic_table;
mod error;
pub(crate) mod huffman;
pub(crate) mod reader;
mod realign;
mod size_settings;
mod static_table;
mod tables;
mod text;

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use decoder::Decoder;
pub use error::{HpackError, HpackErrorKind};

/// Octets an entry costs beyond its name and value (RFC 7541 4.1; RFC 9113 6.5.2 counts header
/// lists alike).
const ENTRY_OVERHEAD: u32 = 32;

/// SETTINGS_HEADER_TABLE_SIZE before any SETTINGS frame, in bytes (RFC 9113 6.5.2).
const DEFAULT_TABLE_SIZE: u32 = 4096;

/// Gives fields their meaning to the caller, once per table entry or literal.
pub trait Classifier {
    /// What is remembered beside an entry; small, for it is copied with every field.
    type Class: Copy + Serialize + DeserializeOwned;

    /// The class of a field. `None` stands for a name or value unknown to the observer: inserted
    /// before the capture began, in a hole of it, or longer than the limits.
    fn classify(&mut self, name: Option<&[u8]>, value: Option<&[u8]>) -> Self::Class;

    /// Whether a peer may have sent a header block of these fields, in this order, so that no field has another's
    /// place. It has to ask for fields that each block of a kind has exactly once.
    fn is_whole_block(&self, fields: &[Self::Class]) -> bool;
}

/// One field of a header block, borrowed from the block or the decoder for the time of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a, Class> {
    /// The name's octets; `None` if unknown to the observer.
    pub name: Option<&'a [u8]>,
    /// The value's octets; `None` if unknown to the observer.
    pub value: Option<&'a [u8]>,
    /// What the [`Classifier`] said of this name and value when it saw them; of an entry too large to
    /// be kept, the class remains though the strings do not.
    pub class: Class,
    /// How the block represented the field.
    pub representation: Representation,
    /// Of a field that is not known completely: which table entry it is, the same number for the same entry and no
    /// other; `None` when it is none.
    pub entry: Option<u64>,
}

/// How a block represents a field (RFC 7541 6.1 and 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// A reference to a table entry (6.1).
    Indexed,
    /// A literal that becomes an entry of the dynamic table (6.2.1).
    LiteralIncremental,
    /// A literal that leaves the table as it is (6.2.2).
    LiteralWithoutIndexing,
    /// A literal that no intermediary may index, such as a credential (6.2.3).
    NeverIndexed,
}

/// What a header block held, beside its fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Fields in the block, also those withheld.
    pub fields: u32,
    /// Size of the header list, in bytes: name, value and 32 for each field (RFC 9113 6.5.2). A
    /// lower bound if `unknown_fields` is not 0.
    pub list_bytes: u64,
    /// Fields of which the name or the value is unknown to the observer.
    pub unknown_fields: u32,
    /// Fields counted but not passed on, as the list had passed `HPACK_MAX_LIST_BYTES`.
    pub withheld_fields: u32,
    /// Dynamic table size updates at the start of the block (RFC 7541 6.3).
    pub table_size_updates: u32,
    /// The setting was lowered, and the block does not begin with the size update that RFC 7541 4.2
    /// demands.
    pub missing_size_update: bool,
}

/// Whether the static table has a field of this name.
pub(crate) fn is_static_name(name: &[u8]) -> bool {
    static_table::STATIC_TABLE.iter().any(|&(known, _)| known == name)
}
