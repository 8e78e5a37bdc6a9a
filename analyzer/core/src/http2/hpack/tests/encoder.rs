//! A tiny HPACK encoder that shares nothing with the decoder but the static table, and that knows
//! from which block on an observer must have watched to know each string.

use std::sync::LazyLock;

use super::super::Representation;
use super::super::huffman::derived_codes;
use super::super::static_table::STATIC_TABLE;
use super::rfc_codes::CODES;

/// Code and length of each symbol.
pub(super) static DERIVED: LazyLock<Vec<(u32, u8)>> = LazyLock::new(derived_codes);

/// Block number of strings that everybody knows.
const ALWAYS: usize = usize::MAX;

#[derive(Clone)]
struct Entry {
    name: Vec<u8>,
    value: Vec<u8>,
    /// First block that must have been seen to know the name, and the value.
    name_since: usize,
    value_since: usize,
}

/// What the encoder meant by a field.
#[derive(Debug, Clone)]
pub(super) struct Meant {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub representation: Representation,
    /// First block that must have been seen to know the name, and the value.
    pub name_since: usize,
    pub value_since: usize,
}

/// How to encode a field.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub representation: Representation,
    pub huffman: bool,
    /// Refer to the name if a table has it.
    pub name_reference: bool,
}

pub(super) struct Encoder {
    /// Newest first.
    table: Vec<Entry>,
    pub max_size: usize,
    pub blocks: usize,
}

impl Encoder {
    pub fn new() -> Self {
        Self { table: Vec::new(), max_size: 4096, blocks: 0 }
    }

    pub fn size(&self) -> usize {
        self.table.iter().map(|entry| entry.name.len() + entry.value.len() + 32).sum()
    }

    pub fn block(&mut self, resize: Option<usize>, plans: &[Plan]) -> (Vec<u8>, Vec<Meant>) {
        let mut block = Vec::new();
        if let Some(max_size) = resize {
            integer(&mut block, 0x20, 5, max_size);
            self.max_size = max_size;
            self.evict();
        }
        let meant = plans.iter().map(|plan| self.field(&mut block, plan)).collect();
        self.blocks += 1;
        (block, meant)
    }

    fn field(&mut self, block: &mut Vec<u8>, plan: &Plan) -> Meant {
        let exact = |entry: &Entry| entry.name == plan.name && entry.value == plan.value;
        let by_name = |entry: &Entry| entry.name == plan.name;
        if plan.representation == Representation::Indexed
            && let Some((index, entry)) = self.find(exact)
        {
            integer(block, 0x80, 7, index);
            return meant(entry, Representation::Indexed);
        }
        let (representation, mark, prefix_bits) = match plan.representation {
            Representation::LiteralWithoutIndexing => (plan.representation, 0x00, 4),
            Representation::NeverIndexed => (plan.representation, 0x10, 4),
            _ => (Representation::LiteralIncremental, 0x40, 6),
        };
        let named = if plan.name_reference { self.find(by_name) } else { None };
        integer(block, mark, prefix_bits, named.as_ref().map_or(0, |(index, _)| *index));
        if named.is_none() {
            string(block, &plan.name, plan.huffman);
        }
        string(block, &plan.value, plan.huffman);
        let entry = Entry {
            name: plan.name.clone(),
            value: plan.value.clone(),
            name_since: named.map_or(self.blocks, |(_, entry)| entry.name_since).min(self.blocks),
            value_since: self.blocks,
        };
        if representation == Representation::LiteralIncremental {
            self.table.insert(0, entry.clone());
            self.evict();
        }
        meant(entry, representation)
    }

    /// The dynamic table goes first, so that its entries get used.
    fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Option<(usize, Entry)> {
        let dynamic = self.table.iter().cloned().zip(62..);
        let all = STATIC_TABLE.iter().map(|(name, value)| Entry {
            name: name.to_vec(),
            value: value.to_vec(),
            name_since: ALWAYS,
            value_since: ALWAYS,
        });
        let found = dynamic.chain(all.zip(1..)).find(|(entry, _)| wanted(entry));
        found.map(|(entry, index)| (index, entry))
    }

    fn evict(&mut self) {
        while self.size() > self.max_size {
            self.table.pop();
        }
    }
}

fn meant(entry: Entry, representation: Representation) -> Meant {
    Meant {
        name: entry.name,
        value: entry.value,
        representation,
        name_since: entry.name_since,
        value_since: entry.value_since,
    }
}

/// RFC 7541 5.1, after its pseudocode.
pub(super) fn integer(block: &mut Vec<u8>, mark: u8, prefix_bits: u32, value: usize) {
    let full = (1 << prefix_bits) - 1;
    if value < full {
        block.push(mark | value as u8);
        return;
    }
    block.push(mark | full as u8);
    let mut rest = value - full;
    while rest >= 128 {
        block.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    block.push(rest as u8);
}

pub(super) fn string(block: &mut Vec<u8>, text: &[u8], huffman_coded: bool) {
    let (mark, octets) = if huffman_coded { (0x80, huffman(text)) } else { (0, text.to_vec()) };
    integer(block, mark, 7, octets.len());
    block.extend(octets);
}

/// The text in Huffman code, padded with ones.
pub(super) fn huffman(text: &[u8]) -> Vec<u8> {
    let mut bits = Vec::new();
    text.iter().for_each(|&octet| push_bits(&mut bits, usize::from(octet)));
    pack(&bits)
}

pub(super) fn push_bits(bits: &mut Vec<bool>, symbol: usize) {
    let len = DERIVED[symbol].1;
    bits.extend((0..len).rev().map(|nth| CODES[symbol] >> nth & 1 == 1));
}

pub(super) fn pack(bits: &[bool]) -> Vec<u8> {
    let octet = |bits: &[bool]| (0..8).fold(0, |octet, nth| octet << 1 | u8::from(*bits.get(nth).unwrap_or(&true)));
    bits.chunks(8).map(octet).collect()
}
