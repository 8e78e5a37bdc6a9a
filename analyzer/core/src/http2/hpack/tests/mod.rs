//! The decoder against RFC 7541, recorded stories, a tiny encoder, and hostile bytes.

mod encoder;
mod holes;
mod huffman;
mod late;
mod limits;
mod properties;
mod rfc7541;
mod rfc_codes;
mod rules;
mod size_updates;
mod stories;

use super::{BlockStats, Classifier, Decoder, Field, HpackError, Representation};

/// A field as the tests keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    name: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    representation: Representation,
}

/// Gives every field a digest of its strings as class, so that a class at a wrong entry is found.
#[derive(Default)]
struct Digesting {
    calls: usize,
}

impl Classifier for Digesting {
    type Class = u64;

    fn classify(&mut self, name: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
        self.calls += 1;
        digest(name, value)
    }

    fn is_whole_block(&self, _fields: &[Self::Class]) -> bool {
        false
    }
}

fn digest(name: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for text in [name, value] {
        digest = digest.wrapping_mul(31).wrapping_add(text.map_or(7, |_| 11));
        for octet in text.unwrap_or_default() {
            digest = (digest ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    digest
}

/// A decoder with its classifier.
struct Peer {
    classifier: Digesting,
    decoder: Decoder<Digesting>,
}

impl Peer {
    fn from_start() -> Self {
        let mut classifier = Digesting::default();
        let decoder = Decoder::new(&mut classifier);
        Self { classifier, decoder }
    }

    fn begun_late() -> Self {
        let mut classifier = Digesting::default();
        let decoder = Decoder::new_begun_late(&mut classifier);
        Self { classifier, decoder }
    }

    fn try_decode(&mut self, block: &[u8]) -> (Vec<Owned>, Result<BlockStats, HpackError>) {
        let mut fields = Vec::new();
        let mut sink = |field: Field<'_, u64>| {
            assert_eq!(field.class, digest(field.name, field.value), "{field:?}");
            fields.push(Owned {
                name: field.name.map(<[u8]>::to_vec),
                value: field.value.map(<[u8]>::to_vec),
                representation: field.representation,
            });
        };
        let result = self.decoder.decode(block, &mut self.classifier, &mut sink);
        (fields, result)
    }

    fn decode(&mut self, block: &[u8]) -> (Vec<Owned>, BlockStats) {
        let (fields, result) = self.try_decode(block);
        (fields, result.unwrap())
    }

    /// The fields as "name: value", with "?" for what is unknown.
    fn lines(&mut self, block: &[u8]) -> Vec<String> {
        self.decode(block).0.iter().map(line).collect()
    }

    /// Size of the dynamic table, and its entries from the newest as "name: value".
    fn table(&self) -> (u32, Vec<String>) {
        let table = &self.decoder.tables.dynamic;
        let entry = |nth| {
            let found = table.get(nth).unwrap();
            format!("{}: {}", show(found.name), show(found.value))
        };
        (table.size(), (0..table.len()).map(entry).collect())
    }
}

fn line(field: &Owned) -> String {
    format!("{}: {}", show(field.name.as_deref()), show(field.value.as_deref()))
}

fn show(text: Option<&[u8]>) -> String {
    text.map_or("?".into(), |octets| String::from_utf8_lossy(octets).into_owned())
}

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}
