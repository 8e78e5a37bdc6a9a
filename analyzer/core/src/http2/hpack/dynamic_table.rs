//! The dynamic table (RFC 7541 2.3.2 and 4), exact as far as the observer can know it.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;

use crate::limits::{HPACK_LATE_TABLE_BYTES, HPACK_MAX_TABLE_BYTES};

use crate::state_fields;

use super::text::Text;
use super::{DEFAULT_TABLE_SIZE, ENTRY_OVERHEAD};

/// Evicted octets below which the arena is not compacted.
const LEAST_COMPACTION_BYTES: usize = 1024;

/// Most entries that are kept: none is smaller than its overhead.
const MOST_ENTRIES: usize = (HPACK_MAX_TABLE_BYTES / ENTRY_OVERHEAD) as usize;

/// An entry; its strings stand in the arena, the name before the value.
#[derive(Serialize, Deserialize)]
struct Entry<Class> {
    class: Class,
    /// Where its strings begin, in octets ever appended to the arena.
    start: u64,
    /// `None` if unknown.
    name_len: Option<u32>,
    /// `None` if unknown.
    value_len: Option<u32>,
    /// Size in bytes (RFC 7541 4.1); a lower bound if a string is unknown.
    size: u32,
}

/// An entry as read.
pub(super) struct Found<'a, Class> {
    pub name: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub class: Class,
    /// Size in bytes; a lower bound unless `complete`.
    pub size: u32,
    /// Both strings are known.
    pub complete: bool,
}

/// Entries newest first, over an arena of their strings that only grows at its end and is compacted
/// now and then, so that an insertion allocates nothing once both have grown.
#[derive(Serialize, Deserialize)]
pub(super) struct DynamicTable<Class> {
    #[serde(bound(deserialize = "Class: Deserialize<'de>"))]
    #[serde(deserialize_with = "state_fields::at_most::<{ MOST_ENTRIES }, _, _>")]
    entries: VecDeque<Entry<Class>>,
    arena: Vec<u8>,
    /// Octets compacted away from the arena so far.
    compacted: u64,
    /// Sum of the entries' sizes, in bytes.
    size: u32,
    /// Maximum size, in bytes; an assumption unless `max_size_exact`.
    max_size: u32,
    max_size_exact: bool,
    /// Older entries may exist that are not held: from before the capture, from before a hole, or
    /// beyond the limits.
    older_unknown: bool,
    /// Counts what may change the meaning of an index.
    changes: u64,
    /// Nothing was evicted, and the encoder has not signalled a size.
    append_only: bool,
    /// The number of the next entry. Entries count upwards; those from before the capture have the numbers below the
    /// first. After a hole, in which nobody knows how many were inserted, they start anew far above.
    next_number: u64,
}

/// Entries are told apart over this many before and after the beginning of the capture or of a hole: more than an
/// index (RFC 7541 section 5.1, in 32 bits here) can reach.
const NUMBERS: u64 = 1 << 33;

impl<Class: Copy> DynamicTable<Class> {
    /// The empty table of a new connection.
    pub fn from_start() -> Self {
        Self {
            entries: VecDeque::new(),
            arena: Vec::new(),
            compacted: 0,
            size: 0,
            max_size: DEFAULT_TABLE_SIZE,
            max_size_exact: true,
            older_unknown: false,
            changes: 0,
            append_only: true,
            next_number: 0,
        }
    }

    /// Grows with everything that may change the meaning of an index.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The number that the next entry gets.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// The entry that is `nth` from the newest, 0 being the newest.
    #[inline]
    pub fn get(&self, nth: u32) -> Option<Found<'_, Class>> {
        let entry = self.entries.get(nth as usize)?;
        let start = entry.start.wrapping_sub(self.compacted) as usize;
        let middle = start.wrapping_add(entry.name_len.unwrap_or(0) as usize);
        let octets = |start: usize, len: Option<u32>| self.arena.get(start..start.wrapping_add(len? as usize));
        Some(Found {
            name: octets(start, entry.name_len),
            value: octets(middle, entry.value_len),
            class: entry.class,
            size: entry.size,
            complete: entry.name_len.is_some() && entry.value_len.is_some(),
        })
    }

    /// Overwrites all but the names of its entries: the class of an entry has all that is needed of its value, which may be
    /// secret, as may be those of entries that were evicted.
    pub fn forget_values(&mut self) {
        let known = std::mem::take(&mut self.arena);
        self.arena = vec![b'*'; known.len()];
        for entry in &self.entries {
            let start = entry.start.wrapping_sub(self.compacted) as usize;
            let name = start..start.saturating_add(entry.name_len.unwrap_or(0) as usize);
            if let (Some(kept), Some(octets)) = (self.arena.get_mut(name.clone()), known.get(name)) {
                kept.copy_from_slice(octets);
            }
        }
    }

    /// The classes of its entries.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        self.entries.iter().map(|entry| entry.class)
    }

    /// Number of entries held.
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether a reference beyond the entries held may be valid.
    pub fn older_unknown(&self) -> bool {
        self.older_unknown
    }

    /// Maximum size, in bytes; `None` if unknown.
    pub fn exact_max_size(&self) -> Option<u32> {
        self.max_size_exact.then_some(self.max_size)
    }

    /// Takes the entries away, which may still exist for the encoder, and leaves an empty table of unknown size.
    pub fn set_aside(&mut self) -> Self {
        let (changes, next_number) = (self.changes + 1, self.next_number);
        let mut empty = Self { changes, next_number, max_size: self.max_size, ..Self::from_start() };
        empty.forget();
        empty.append_only = true;
        std::mem::replace(self, empty)
    }

    /// Forgets all entries, which may still exist for the encoder, and the maximum size.
    pub fn forget(&mut self) {
        self.changes += 1;
        self.clear();
        self.next_number = self.next_number.wrapping_add(NUMBERS);
        self.older_unknown = true;
        self.max_size_exact = false;
        self.max_size = self.max_size.max(HPACK_LATE_TABLE_BYTES);
    }

    /// A hole inserted so many entries, of which nothing is known; it may have held a size update too.
    pub fn pass_hole(&mut self, inserted: u32, class: Class) {
        for _ in 0..inserted {
            self.push(Text::unknown(0), Text::unknown(0), ENTRY_OVERHEAD, class);
        }
        self.older_unknown = true;
        self.max_size_exact = false;
        self.changes += 1;
        self.evict();
    }

    /// Inserts the entries of `other`, which came since.
    pub fn append(&mut self, other: &Self) {
        for nth in (0..other.len()).rev() {
            if let Some(found) = other.get(nth) {
                let [name, value] = [found.name, found.value].map(|text| text.map_or(Text::unknown(0), Text::known));
                self.insert(name, value, found.class);
            }
        }
        self.changes = self.changes.max(other.changes) + 1;
        self.next_number = other.next_number; // an entry keeps the number that it had since the hole
    }

    /// Whether it still holds every entry that was ever inserted, and the encoder has not resized it.
    pub fn is_append_only(&self) -> bool {
        self.append_only
    }

    /// The encoder signalled a maximum size (RFC 7541 6.3).
    pub fn resize(&mut self, max_size: u32) {
        self.changes += 1;
        self.append_only = false;
        self.max_size = max_size;
        self.max_size_exact = true;
        self.evict();
        if max_size < ENTRY_OVERHEAD {
            // No entry is that small, so none can have stayed: from here on the table is known
            // completely.
            self.older_unknown = false;
        }
    }

    /// The maximum size is `bytes` or less: of use where it is not known exactly.
    pub fn bound(&mut self, bytes: u32) {
        self.changes += 1;
        if !self.max_size_exact {
            self.max_size = bytes;
            self.evict();
        }
    }

    /// Inserts an entry and evicts the oldest as far as needed (RFC 7541 4.4).
    pub fn insert(&mut self, name: Text<'_>, value: Text<'_>, class: Class) {
        self.changes += 1;
        let size = name.len.saturating_add(value.len).saturating_add(ENTRY_OVERHEAD as usize);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        if self.max_size_exact && size > self.max_size {
            // RFC 7541 4.4: this is no error and empties the table, whatever was in it.
            self.clear();
            self.older_unknown = false;
        } else if size > self.kept_size() {
            // The encoder may hold it: keep its place, so that older and newer indices stay right.
            self.clear();
            self.older_unknown = true;
            self.push(Text::unknown(0), Text::unknown(0), ENTRY_OVERHEAD, class);
        } else {
            self.push(name, value, size, class);
            self.evict();
        }
        self.compact();
    }

    fn push(&mut self, name: Text<'_>, value: Text<'_>, size: u32, class: Class) {
        let start = self.compacted + self.arena.len() as u64;
        self.arena.extend_from_slice(name.octets.unwrap_or_default());
        self.arena.extend_from_slice(value.octets.unwrap_or_default());
        self.entries.push_front(Entry {
            class,
            start,
            name_len: name.octets.map(|octets| octets.len() as u32),
            value_len: value.octets.map(|octets| octets.len() as u32),
            size,
        });
        self.size = self.size.saturating_add(size);
        self.next_number = self.next_number.wrapping_add(1);
    }

    /// The size up to which entries are kept, in bytes.
    fn kept_size(&self) -> u32 {
        self.max_size.min(HPACK_MAX_TABLE_BYTES)
    }

    fn evict(&mut self) {
        let kept_size = self.kept_size();
        while self.size > kept_size {
            let Some(oldest) = self.entries.pop_back() else {
                break;
            };
            self.append_only = false;
            self.size = self.size.saturating_sub(oldest.size);
            // Where the encoder evicts too, anything older is gone as well; else only the observer
            // forgets.
            self.older_unknown = !(self.max_size_exact && kept_size == self.max_size);
        }
    }

    fn clear(&mut self) {
        self.append_only = false;
        self.entries.clear();
        self.size = 0;
    }

    /// Drops evicted strings once they are half of the arena, which keeps the cost of moving the
    /// rest constant per octet.
    fn compact(&mut self) {
        let end = self.compacted + self.arena.len() as u64;
        let oldest = self.entries.back().map_or(end, |entry| entry.start);
        let evicted = oldest.saturating_sub(self.compacted) as usize;
        if evicted >= LEAST_COMPACTION_BYTES && evicted >= self.arena.len() / 2 {
            self.arena.drain(..evicted.min(self.arena.len()));
            self.compacted = oldest;
        }
    }
}

#[cfg(test)]
impl<Class> DynamicTable<Class> {
    /// Sum of the entries' sizes, in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Octets the arena holds, evicted ones included.
    pub fn arena_len(&self) -> usize {
        self.arena.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_forgotten_those_of_evicted_entries_too() {
        let mut table = DynamicTable::from_start();
        for number in 0..60 {
            let value = format!("SECRET {number:0100}");
            table.insert(Text::known(b"authorization"), Text::known(value.as_bytes()), ());
        }
        assert!(table.arena.len() > 60 / 2 * 100, "evicted entries are in it");
        table.forget_values();
        assert!(!table.arena.windows(6).any(|part| part == b"SECRET"));
        assert_eq!(table.get(0).and_then(|found| found.name), Some(&b"authorization"[..]));
    }
}
