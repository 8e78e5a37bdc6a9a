//! Header blocks to fields (RFC 7541 3.2 and 6).

use serde::{Deserialize, Serialize};

use crate::limits::{HPACK_MAX_LIST_BYTES, HPACK_MAX_NAME_BYTES, HPACK_MAX_VALUE_BYTES};

use super::error::{HpackError, HpackErrorKind};
use super::reader::Reader;
use super::realign::{self, Aside};
use super::size_settings::SizeSettings;
use super::tables::Tables;
use super::text::{Scratch, read_text};
use super::{BlockStats, Classifier, ENTRY_OVERHEAD, Field, Representation};

/// Decodes the header blocks of one direction of a connection, in their order.
///
/// It starts strict, knowing every table entry. Where the capture began late or has a hole,
/// references to entries inserted before give fields whose name and value are `None`; it becomes
/// strict again once the size updates and insertions seen prove that no older entry can be left.
///
/// While the table's maximum size is unknown, entries are kept up to the setting in force, or up to
/// `HPACK_LATE_TABLE_BYTES` if that was not captured either. Entries with unknown strings count
/// with what is known of their size. Both can only keep an entry longer than the encoder does, who
/// then never refers to it. Of a table larger than `HPACK_MAX_TABLE_BYTES` the oldest entries become
/// unknown.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Decoder<C: Classifier> {
    pub(super) tables: Tables<C::Class>,
    settings: SizeSettings,
    /// The entries from before a hole, while it is not known what was inserted in it.
    aside: Option<Box<Aside<C::Class>>>,
    #[serde(skip)]
    name_scratch: Scratch,
    #[serde(skip)]
    pub(super) value_scratch: Scratch,
}

impl<C: Classifier> std::fmt::Debug for Decoder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive() // its table may hold secrets
    }
}

impl<C: Classifier> Decoder<C> {
    /// A decoder for a direction captured from its first header block on.
    pub fn new(classifier: &mut C) -> Self {
        Self::with_tables(Tables::new(classifier))
    }

    /// A decoder for a direction whose capture began in the middle: references to entries older
    /// than the first insertion seen give unknown fields, not errors.
    pub fn new_begun_late(classifier: &mut C) -> Self {
        let mut decoder = Self::new(classifier);
        decoder.mark_begun_late();
        decoder
    }

    /// A new decoder as [`new`](Self::new) gives it, without classifying the static table again.
    pub fn new_like(&self) -> Self {
        Self::with_tables(self.tables.new_like())
    }

    /// Overwrites the values of its entries, of which only the classes are needed.
    pub fn forget_values(&mut self) {
        self.tables.dynamic.forget_values();
        self.aside.iter_mut().for_each(|aside| aside.forget_values());
    }

    /// Shows the class of every entry that a block may refer to.
    pub fn each_class(&self, show: &mut impl FnMut(C::Class)) {
        self.tables.classes().for_each(&mut *show);
        self.aside.iter().flat_map(|aside| aside.classes()).for_each(show);
    }

    /// Keeps the classes of the static table where `like` does, which has the same ones.
    pub fn share_static_table(&mut self, like: &Self) {
        self.tables.share_static_classes(&like.tables);
    }

    fn with_tables(tables: Tables<C::Class>) -> Self {
        Self {
            tables,
            settings: SizeSettings::from_start(),
            aside: None,
            name_scratch: Scratch::default(),
            value_scratch: Scratch::default(),
        }
    }

    /// A header block, or a part of one, was not captured: every entry inserted so far becomes
    /// unknown, and so does the setting in force, since its ACK may be lost too.
    pub fn mark_begun_late(&mut self) {
        self.aside = None;
        self.tables.dynamic.forget();
        self.settings.forget();
    }

    /// `bytes` bytes of this direction, with header blocks perhaps, were not captured. Every entry inserted so far is
    /// unknown until a block tells how many were inserted in the hole.
    pub fn mark_hole(&mut self, bytes: u64) {
        let since = self.tables.dynamic.set_aside();
        self.aside = match self.aside.take() {
            None => Some(Box::new(Aside::new(since, bytes))),
            Some(mut before) if since.is_append_only() => {
                before.widen(bytes, since.len());
                Some(before)
            }
            Some(_) => Some(Box::new(Aside::new(since, bytes))),
        };
        self.settings.forget();
    }

    /// A block after a hole: if it tells what was inserted there, older entries are known again.
    #[cold]
    fn realign(&mut self, block: &[u8], classifier: &mut C) {
        let Some(mut aside) = self.aside.take() else { return };
        if !self.tables.dynamic.is_append_only() || realign::is_hopeless(&aside) {
            return;
        }
        match realign::inserted_in_hole(block, &self.tables, &mut aside, classifier) {
            Some(inserted) => {
                let unknown = self.tables.unknown_class;
                self.tables.dynamic = realign::joined(*aside, inserted, &self.tables.dynamic, unknown);
            }
            None => self.aside = Some(aside),
        }
    }

    /// The receiver of these header blocks has sent SETTINGS_HEADER_TABLE_SIZE, not yet
    /// acknowledged. Encoders may follow it before their ACK is on the wire, so that size updates
    /// up to it are accepted from now on.
    pub fn announce_max_size_setting(&mut self, bytes: u32) {
        self.settings.announce(bytes);
    }

    /// SETTINGS_HEADER_TABLE_SIZE came into force by the ACK of this direction. Lowered below the
    /// table's size, it demands a size update at the start of the next block (RFC 7541 4.2);
    /// [`BlockStats`] tells if that is missing.
    pub fn set_max_size_setting(&mut self, bytes: u32) {
        self.settings.acknowledge(bytes, self.tables.dynamic.exact_max_size());
        if let Some(largest) = self.settings.largest() {
            self.tables.dynamic.bound(largest);
        }
    }

    /// Grows with everything that may change what the same octets mean in a later block: while it stays, an equal
    /// block of fields without insertions decodes equally.
    pub fn table_changes(&self) -> u64 {
        self.tables.dynamic.changes()
    }

    /// Decodes a complete header block (HEADERS or PUSH_PROMISE with its CONTINUATIONs, without
    /// padding) and hands its fields to `sink` in order, up to a header list of
    /// `HPACK_MAX_LIST_BYTES`.
    ///
    /// # Errors
    /// A block that breaks RFC 7541. Fields before the fault have been passed on. What the rest
    /// would have inserted is unknown, so the decoder behaves as after
    /// [`mark_begun_late`](Self::mark_begun_late) and takes further blocks.
    pub fn decode(
        &mut self,
        block: &[u8],
        classifier: &mut C,
        sink: &mut impl FnMut(Field<'_, C::Class>),
    ) -> Result<BlockStats, HpackError> {
        if self.aside.is_some() {
            self.realign(block, classifier);
        }
        let result = self.decode_block(block, classifier, sink);
        if result.is_err() {
            self.mark_begun_late();
        }
        self.name_scratch.trim();
        self.value_scratch.trim();
        result
    }

    /// Decodes the beginning of a header block whose rest was not captured, which
    /// [`mark_hole`](Self::mark_hole) has to be told of then.
    #[cold]
    pub fn decode_part(&mut self, block: &[u8], classifier: &mut C, sink: &mut impl FnMut(Field<'_, C::Class>)) {
        // it may end in the middle of a field: what came before has been passed on
        let _ = self.decode_block(block, classifier, sink);
    }

    #[inline]
    fn decode_block(
        &mut self,
        block: &[u8],
        classifier: &mut C,
        sink: &mut impl FnMut(Field<'_, C::Class>),
    ) -> Result<BlockStats, HpackError> {
        let mut reader = Reader::new(block);
        let mut stats = BlockStats::default();
        self.size_updates(&mut reader, &mut stats)?;
        while let Some(octet) = reader.peek() {
            if octet & 0x80 != 0 {
                self.indexed(&mut reader, &mut stats, sink)?;
                continue;
            }
            let form = match octet >> 4 {
                4..=7 => (Representation::LiteralIncremental, 6),
                1 => (Representation::NeverIndexed, 4),
                0 => (Representation::LiteralWithoutIndexing, 4),
                _ => {
                    return Err(HpackError::new(HpackErrorKind::SizeUpdateAfterField, reader.position()));
                }
            };
            self.literal(&mut reader, form, classifier, &mut stats, sink)?;
        }
        Ok(stats)
    }

    /// Size updates, which only the start of a block may have (RFC 7541 4.2).
    #[inline]
    fn size_updates(&mut self, reader: &mut Reader<'_>, stats: &mut BlockStats) -> Result<(), HpackError> {
        let mut smallest: Option<u32> = None;
        while reader.peek().is_some_and(|octet| octet & 0xe0 == 0x20) {
            let start = reader.position();
            let size = reader.integer(5)?;
            if let Some(setting) = self.settings.largest().filter(|&setting| size > setting) {
                return Err(HpackError::new(HpackErrorKind::SizeUpdateAboveSetting { size, setting }, start));
            }
            self.tables.dynamic.resize(size);
            stats.table_size_updates = stats.table_size_updates.saturating_add(1);
            smallest = Some(smallest.map_or(size, |smallest| smallest.min(size)));
        }
        stats.missing_size_update = self.settings.take_missing(smallest);
        Ok(())
    }

    #[inline]
    fn indexed(
        &self,
        reader: &mut Reader<'_>,
        stats: &mut BlockStats,
        sink: &mut impl FnMut(Field<'_, C::Class>),
    ) -> Result<(), HpackError> {
        let start = reader.position();
        let index = reader.integer(7)?;
        let found = self.tables.look_up(index, start)?;
        let field = Field {
            name: found.name,
            value: found.value,
            class: found.class,
            representation: Representation::Indexed,
            entry: if found.complete { None } else { self.tables.entry_number(index) },
        };
        if count(stats, u64::from(found.size), found.complete) {
            sink(field);
        }
        Ok(())
    }

    fn literal(
        &mut self,
        reader: &mut Reader<'_>,
        (representation, prefix_bits): (Representation, u32),
        classifier: &mut C,
        stats: &mut BlockStats,
        sink: &mut impl FnMut(Field<'_, C::Class>),
    ) -> Result<(), HpackError> {
        let start = reader.position();
        let mut name = match reader.integer(prefix_bits)? {
            0 => read_text(reader, &mut self.name_scratch, HPACK_MAX_NAME_BYTES)?,
            index => self.tables.name(index, start, &mut self.name_scratch)?,
        };
        let mut value = read_text(reader, &mut self.value_scratch, HPACK_MAX_VALUE_BYTES)?;
        let size = name.len as u64 + value.len as u64 + u64::from(ENTRY_OVERHEAD);
        let mut class = self.tables.unknown_class;
        let complete = name.octets.is_some() && value.octets.is_some();
        if count(stats, size, complete) {
            class = classifier.classify(name.octets, value.octets);
            let inserted = representation == Representation::LiteralIncremental;
            let entry = (!complete && inserted).then(|| self.tables.dynamic.next_number());
            sink(Field { name: name.octets, value: value.octets, class, representation, entry });
        } else {
            (name, value) = (name.withheld(), value.withheld());
        }
        if representation == Representation::LiteralIncremental {
            self.tables.dynamic.insert(name, value, class);
        }
        Ok(())
    }
}

/// Counts a field of `size` bytes; whether the list is still short enough to hand it on.
#[inline]
fn count(stats: &mut BlockStats, size: u64, complete: bool) -> bool {
    stats.fields = stats.fields.saturating_add(1);
    stats.list_bytes = stats.list_bytes.saturating_add(size);
    stats.unknown_fields = stats.unknown_fields.saturating_add(u32::from(!complete));
    let emitted = stats.list_bytes <= HPACK_MAX_LIST_BYTES;
    stats.withheld_fields = stats.withheld_fields.saturating_add(u32::from(!emitted));
    emitted
}
