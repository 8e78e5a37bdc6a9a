//! Both tables as one address space (RFC 7541 2.3.3).

use serde::{Deserialize, Serialize};

use std::sync::Arc;

use super::dynamic_table::{DynamicTable, Found};
use super::error::{HpackError, HpackErrorKind};
use super::static_table::{STATIC_ENTRIES, STATIC_TABLE};
use super::text::{Scratch, Text};
use super::{Classifier, ENTRY_OVERHEAD};

/// The static table with its classes, and the dynamic table.
#[derive(Serialize, Deserialize)]
pub(super) struct Tables<Class> {
    pub dynamic: DynamicTable<Class>,
    #[serde(with = "crate::state_fields::shared")]
    static_classes: Arc<[Class; STATIC_TABLE.len()]>,
    /// The class of a field of which nothing is known.
    pub unknown_class: Class,
}

impl<Class: Copy> Tables<Class> {
    pub fn new(classifier: &mut impl Classifier<Class = Class>) -> Self {
        let classes = STATIC_TABLE.map(|(name, value)| classifier.classify(Some(name), Some(value)));
        Self {
            dynamic: DynamicTable::from_start(),
            static_classes: Arc::new(classes),
            unknown_class: classifier.classify(None, None),
        }
    }

    /// Tables of a new connection, with the same classes.
    pub fn new_like(&self) -> Self {
        Self {
            dynamic: DynamicTable::from_start(),
            static_classes: Arc::clone(&self.static_classes),
            unknown_class: self.unknown_class,
        }
    }

    /// Keeps the classes of the static table where `like` does.
    pub fn share_static_classes(&mut self, like: &Self) {
        self.static_classes = Arc::clone(&like.static_classes);
    }

    /// The classes of all entries.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        self.static_classes.iter().copied().chain(self.dynamic.classes())
    }

    /// The entry at `index`; `start` is where the reference begins, for the error.
    #[inline]
    pub fn look_up(&self, index: u32, start: usize) -> Result<Found<'_, Class>, HpackError> {
        let nth = index.wrapping_sub(1) as usize;
        if let (Some(&(name, value)), Some(&class)) = (STATIC_TABLE.get(nth), self.static_classes.get(nth)) {
            let size = (name.len() + value.len()) as u32 + ENTRY_OVERHEAD;
            return Ok(Found { name: Some(name), value: Some(value), class, size, complete: true });
        }
        match self.dynamic.get(index.wrapping_sub(STATIC_ENTRIES + 1)) {
            Some(found) => Ok(found),
            None => self.look_up_missing(index, start),
        }
    }

    /// The number of the dynamic table's entry at `index`, which is its own for ever.
    #[cold]
    pub fn entry_number(&self, index: u32) -> Option<u64> {
        let nth = index.checked_sub(STATIC_ENTRIES + 1)?;
        Some(self.dynamic.next_number().wrapping_sub(1).wrapping_sub(u64::from(nth)))
    }

    #[cold]
    fn look_up_missing(&self, index: u32, start: usize) -> Result<Found<'_, Class>, HpackError> {
        if index == 0 {
            return Err(HpackError::new(HpackErrorKind::IndexZero, start));
        }
        if !self.dynamic.older_unknown() {
            let entries = self.dynamic.len();
            return Err(HpackError::new(HpackErrorKind::IndexBeyondTables { index, entries }, start));
        }
        let class = self.unknown_class;
        Ok(Found { name: None, value: None, class, size: ENTRY_OVERHEAD, complete: false })
    }

    /// The name of the entry at `index`. It is copied into `scratch`, because an insertion may
    /// evict the entry that it takes its name from (RFC 7541 4.4).
    pub fn name<'a>(&self, index: u32, start: usize, scratch: &'a mut Scratch) -> Result<Text<'a>, HpackError> {
        let found = self.look_up(index, start)?;
        Ok(found.name.map_or(Text::unknown(0), |name| Text::known(scratch.copy(name))))
    }
}
