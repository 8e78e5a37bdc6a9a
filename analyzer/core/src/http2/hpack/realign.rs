//! Where the entries from before a hole stand after it.
//!
//! Header blocks in a hole may have inserted entries, which move all older ones. How many is not known, but only one
//! number makes the next blocks sense: every field of a known kind where it may stand, each once. Encoders do not
//! insert what their table holds, so that what fits without any entry from the hole is what was meant. Until then
//! older entries are unknown.

use serde::{Deserialize, Serialize};

use crate::limits::{
    HPACK_MAX_NAME_BYTES, HPACK_MAX_VALUE_BYTES, HPACK_REALIGN_BLOCKS, HPACK_REALIGN_ENTRIES, HPACK_REALIGN_FIELDS,
};

use super::dynamic_table::DynamicTable;
use super::reader::Reader;
use super::static_table::STATIC_ENTRIES;
use super::tables::Tables;
use super::text::{Scratch, read_text};
use super::{Classifier, HpackError};

/// The entries from before a hole.
#[derive(Serialize, Deserialize)]
pub(super) struct Aside<Class> {
    table: DynamicTable<Class>,
    /// No more entries than this were inserted in the hole.
    most: u32,
    /// Blocks that did not tell.
    tried: u32,
}

impl<Class: Copy> Aside<Class> {
    /// Sets `table` aside for a hole of so many bytes.
    pub fn new(table: DynamicTable<Class>, bytes: u64) -> Self {
        // an insertion takes two octets at the least: a name's index and an empty value (RFC 7541 6.2.1)
        Self { table, most: u32::try_from(bytes / 2).unwrap_or(u32::MAX), tried: 0 }
    }

    /// See [`DynamicTable::forget_values`].
    pub fn forget_values(&mut self) {
        self.table.forget_values();
    }

    /// The classes of its entries.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        self.table.classes()
    }

    /// Another hole of so many bytes, after `inserted` entries.
    pub fn widen(&mut self, bytes: u64, inserted: u32) {
        let more = u32::try_from(bytes / 2).unwrap_or(u32::MAX).saturating_add(inserted);
        self.most = self.most.saturating_add(more);
    }
}

/// A field of a block as far as it is known without the older entries.
#[derive(Clone, Copy)]
enum Form<Class> {
    Known(Class),
    /// The entry that is so many places behind the newest one from before the hole, if nothing was inserted in it.
    Older(u32),
}

/// How many entries the hole inserted, by the block that comes next; `None` when it does not tell.
pub(super) fn inserted_in_hole<C: Classifier>(
    block: &[u8],
    tables: &Tables<C::Class>,
    aside: &mut Aside<C::Class>,
    classifier: &mut C,
) -> Option<u32> {
    let forms = scan(block, tables, classifier).ok()??;
    if !forms.iter().any(|form| matches!(form, Form::Older(_))) {
        return None;
    }
    aside.tried += 1;
    let furthest = forms.iter().filter_map(|form| if let Form::Older(nth) = form { Some(*nth) } else { None }).max()?;
    let last = aside.most.min(furthest);
    if last > HPACK_REALIGN_ENTRIES {
        return None;
    }
    let mut fits = [Fit::default(), Fit::default()];
    let mut classes = Vec::with_capacity(forms.len());
    for inserted in 0..=last {
        let Some(missing) = resolve(&forms, inserted, aside, tables.unknown_class, &mut classes) else { continue };
        if classifier.is_whole_block(&classes) {
            fits[usize::from(missing)].add(inserted);
        }
    }
    fits.iter().find(|fit| fit.count > 0).and_then(Fit::only)
}

/// Whether so many blocks did not tell that none will.
pub(super) fn is_hopeless<Class>(aside: &Aside<Class>) -> bool {
    aside.tried >= HPACK_REALIGN_BLOCKS
}

#[derive(Clone, Copy, Default)]
struct Fit {
    count: u32,
    inserted: u32,
}

impl Fit {
    fn add(&mut self, inserted: u32) {
        self.count += 1;
        self.inserted = inserted;
    }

    fn only(&self) -> Option<u32> {
        (self.count == 1).then_some(self.inserted)
    }
}

/// The fields' classes if the hole inserted so many entries, and whether some of those are among them; `None` when a
/// field then refers to nothing.
fn resolve<Class: Copy>(
    forms: &[Form<Class>],
    inserted: u32,
    aside: &Aside<Class>,
    unknown: Class,
    classes: &mut Vec<Class>,
) -> Option<bool> {
    let mut missing = false;
    classes.clear();
    for form in forms {
        classes.push(match *form {
            Form::Known(class) => class,
            Form::Older(nth) => match nth.checked_sub(inserted) {
                None => {
                    missing = true;
                    unknown
                }
                Some(nth) => match aside.table.get(nth) {
                    Some(found) => found.class,
                    None if aside.table.older_unknown() => unknown,
                    None => return None,
                },
            },
        });
    }
    Some(missing)
}

/// The fields of a block; `None` when they are too many, or a size update may have evicted what this is about.
fn scan<C: Classifier>(
    block: &[u8],
    tables: &Tables<C::Class>,
    classifier: &mut C,
) -> Result<Option<Vec<Form<C::Class>>>, HpackError> {
    let mut reader = Reader::new(block);
    let (mut names, mut values) = (Scratch::default(), Scratch::default());
    let mut forms: Vec<Form<C::Class>> = Vec::new();
    // of this block's own insertions
    let mut new: Vec<Form<C::Class>> = Vec::new();
    while let Some(octet) = reader.peek() {
        let start = reader.position();
        let bits = match octet {
            0x80.. => 7,
            0x40..0x80 => 6,
            0x20..0x40 => return Ok(None),
            _ => 4,
        };
        let index = reader.integer(bits)?;
        let form = if octet & 0x80 != 0 {
            by_index(index, start, tables, &new)?
        } else {
            let name = match index {
                0 => read_text(&mut reader, &mut names, HPACK_MAX_NAME_BYTES)?.octets,
                _ if index <= STATIC_ENTRIES => tables.name(index, start, &mut names)?.octets,
                _ => None, // a name of the dynamic table: not worth following, gRPC's own are static or literal
            };
            let value = read_text(&mut reader, &mut values, HPACK_MAX_VALUE_BYTES)?.octets;
            Form::Known(classifier.classify(name, value))
        };
        if bits == 6 {
            new.push(form);
        }
        forms.push(form);
        if forms.len() > HPACK_REALIGN_FIELDS {
            return Ok(None);
        }
    }
    Ok(Some(forms))
}

fn by_index<Class: Copy>(
    index: u32,
    start: usize,
    tables: &Tables<Class>,
    new: &[Form<Class>],
) -> Result<Form<Class>, HpackError> {
    let Some(nth) = index.checked_sub(STATIC_ENTRIES + 1) else {
        return Ok(Form::Known(tables.look_up(index, start)?.class));
    };
    let inserted = new.len() as u32;
    if let Some(back) = inserted.checked_sub(nth + 1)
        && let Some(&form) = new.get(back as usize)
    {
        return Ok(form);
    }
    let nth = nth.saturating_sub(inserted);
    Ok(match tables.dynamic.get(nth) {
        Some(found) => Form::Known(found.class),
        None => Form::Older(nth.saturating_sub(tables.dynamic.len())),
    })
}

/// The table from before the hole, `inserted` unknown entries, and what came since.
pub(super) fn joined<Class: Copy>(
    aside: Aside<Class>,
    inserted: u32,
    since: &DynamicTable<Class>,
    unknown: Class,
) -> DynamicTable<Class> {
    let mut table = aside.table;
    table.pass_hole(inserted, unknown);
    table.append(since);
    table
}
