//! Header blocks with their strings replaced (RFC 7541): every octet that is no string stays, so that both ends of the
//! dynamic table, all indices and all sizes stay what they were.

use crate::grpc::headers::is_connect_get;
use crate::grpc::protocol::Content;
use crate::http2::hpack::reader::Reader;
use crate::http2::hpack::{Representation, huffman};

use super::fields::{self, Around};
use super::replace::{Kind, Part, Replacer};

/// The fields of a block as its reader found them.
#[derive(Debug, Default)]
pub(super) struct Fields {
    seen: Vec<Seen>,
    content: Content,
    /// It is a request of Connect's.
    connect: bool,
    te_trailers: bool,
    /// A field is not known.
    unknown: bool,
}

#[derive(Debug)]
struct Seen {
    name: Option<Vec<u8>>,
    literal: bool,
}

impl Fields {
    /// The next field; `None` where it is not known.
    pub fn add(&mut self, name: Option<&[u8]>, value: Option<&[u8]>, representation: Representation) {
        self.unknown |= name.is_none() || value.is_none();
        match (name, value) {
            (Some(b"content-type"), Some(value)) => self.content = Content::from_header(value),
            (Some(b"connect-protocol-version"), _) => self.connect = true,
            (Some(b":path"), Some(path)) => self.connect |= is_connect_get(path),
            (Some(b"te"), Some(b"trailers")) => self.te_trailers = true,
            _ => {}
        }
        let literal = representation != Representation::Indexed;
        self.seen.push(Seen { name: name.filter(|_| literal).map(<[u8]>::to_vec), literal });
    }
}

/// The block, which had these fields, with its strings replaced; not `whole` when a part of it could not be read.
pub(super) fn rewrite(
    block: &[u8],
    fields: &Fields,
    whole: bool,
    replacer: &mut Replacer,
    hide_methods: bool,
) -> Vec<u8> {
    let mut walk = Walk { reader: Reader::new(block), block, out: vec![0; block.len()] };
    // as a stream is judged when it opens (`grpc::rpc`): what lacks fields may be gRPC
    let may_be_grpc = fields.content == Content::None && (fields.te_trailers || fields.unknown || !whole);
    let is_rpc = may_be_grpc || fields.content.opens(fields.connect).is_rpc();
    let around = Around { other_content: !is_rpc, hide_methods };
    let mut seen = fields.seen.iter();
    while let Some(octet) = walk.reader.peek() {
        let size_update = octet & 0xe0 == 0x20;
        let field = if size_update { None } else { seen.next() };
        let faulty = !size_update && field.is_none() && !whole;
        let name = field.filter(|field| field.literal).and_then(|field| field.name.as_deref());
        if walk.field(octet, name, around, replacer).is_none() || faulty {
            break; // what is behind a fault is not read, and stays zero
        }
    }
    walk.out
}

/// Reading a block while another one is written beside it.
struct Walk<'a> {
    reader: Reader<'a>,
    block: &'a [u8],
    out: Vec<u8>,
}

impl Walk<'_> {
    /// One representation; `None` where it breaks off.
    fn field(&mut self, octet: u8, name: Option<&[u8]>, around: Around, replacer: &mut Replacer) -> Option<()> {
        let prefix = match octet >> 4 {
            8.. => 7,
            4..=7 => 6,
            2 | 3 => 5,
            _ => 4,
        };
        let index = self.integer(prefix)?;
        if prefix == 7 || prefix == 5 {
            return Some(());
        }
        let mut literal = None;
        if index == 0 {
            let text = self.string(&mut |text, coded| {
                if fields::is_standard(text, is_static(text)) {
                    return text.to_vec();
                }
                replacer.replace(Kind::Name, &[Part::Hidden(text)], coded)
            })?;
            literal = Some(text);
        }
        let name = name.or(literal.as_deref());
        self.string(&mut |text, coded| {
            let (kind, parts) = fields::parts(name, text, around);
            let replaced = replacer.replace(kind, &parts, coded);
            if let Some(name @ (b"user-agent" | b"server")) = name
                && replaced != text
            {
                replacer.note_agent(name, text, &replaced);
            }
            replaced
        })?;
        Some(())
    }

    /// An integer, which stays.
    fn integer(&mut self, prefix: u32) -> Option<u32> {
        let start = self.reader.position();
        let value = self.reader.integer(prefix);
        let end = self.reader.position();
        if let (Some(out), Some(block)) = (self.out.get_mut(start..end), self.block.get(start..end)) {
            out.copy_from_slice(block);
        }
        value.ok()
    }

    /// A string literal: its length stays, its text is replaced. Gives the text as it was.
    fn string(&mut self, replace: &mut dyn FnMut(&[u8], bool) -> Vec<u8>) -> Option<Vec<u8>> {
        let huffman_coded = self.reader.peek()? & 0x80 != 0;
        let length = self.integer(7)? as usize;
        let start = self.reader.position();
        let encoded = self.reader.octets(length, start).ok()?;
        let Some(text) = (if huffman_coded { decoded(encoded) } else { Some(encoded.to_vec()) }) else {
            // all ones are no text either (RFC 7541 section 5.2)
            self.write(start, &vec![0xff; length]);
            return None;
        };
        let replaced = replace(&text, huffman_coded);
        let octets = if huffman_coded { huffman::encode(&replaced) } else { replaced };
        if octets.len() == length {
            self.write(start, &octets);
        }
        Some(text)
    }

    fn write(&mut self, start: usize, octets: &[u8]) {
        if let Some(out) = self.out.get_mut(start..start + octets.len()) {
            out.copy_from_slice(octets);
        }
    }
}

fn is_static(name: &[u8]) -> bool {
    crate::http2::hpack::is_static_name(name)
}

fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut room = vec![0; huffman::decoded_bound(encoded.len()) + 1];
    let length = huffman::decode(encoded, &mut room).ok()?;
    room.truncate(length);
    Some(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::headers::HeaderClass;
    use crate::http2::hpack::{Decoder, Field};
    use crate::store::strings::Strings;
    use proptest::prelude::*;

    /// Literals with incremental indexing, Huffman-coded or plain.
    fn literals(fields: &[(&str, &str)], huffman_coded: bool) -> Vec<u8> {
        let mut block = Vec::new();
        for text in fields.iter().map(|(name, value)| [name, value]) {
            block.push(0x40);
            for text in text {
                let octets = if huffman_coded { huffman::encode(text.as_bytes()) } else { text.as_bytes().to_vec() };
                block.push(octets.len() as u8 | if huffman_coded { 0x80 } else { 0 });
                block.extend(octets);
            }
        }
        block
    }

    /// The block with its strings replaced, by what a decoder says of it.
    fn scrubbed(block: &[u8], decoder: &mut Decoder<Strings>, replacer: &mut Replacer) -> Vec<u8> {
        let mut fields = Fields::default();
        let done = decoder.decode(block, &mut Strings::default(), &mut |field| {
            fields.add(field.name, field.value, field.representation);
        });
        rewrite(block, &fields, done.is_ok(), replacer, false)
    }

    fn new_decoder() -> Decoder<Strings> {
        Decoder::new(&mut Strings::default())
    }

    fn decode(block: &[u8], decoder: &mut Decoder<Strings>) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let text = |octets: Option<&[u8]>| String::from_utf8_lossy(octets.unwrap_or(b"?")).into_owned();
        let mut add = |field: Field<'_, HeaderClass>| fields.push((text(field.name), text(field.value)));
        decoder.decode(block, &mut Strings::default(), &mut add).unwrap();
        fields
    }

    #[test]
    fn strings_are_replaced_and_indices_still_meet_them() {
        for huffman_coded in [false, true] {
            let first =
                literals(&[(":path", "/a.B/C"), ("x-secret", "hunter2hunter2"), ("te", "trailers")], huffman_coded);
            let second = [0xbe, 0xbf, 0xc0];
            let (mut ours, mut theirs) = (new_decoder(), new_decoder());
            let mut replacer = Replacer::new(b"key");
            let block = scrubbed(&first, &mut ours, &mut replacer);
            assert_eq!(block.len(), first.len());
            let fields = decode(&block, &mut theirs);
            assert_eq!((fields[0].1.as_str(), fields[2].1.as_str()), ("/a.B/C", "trailers"));
            let (name, value) = &fields[1];
            assert!(name != "x-secret" && name.len() == 8 && value != "hunter2hunter2" && value.len() == 14);
            assert_eq!(scrubbed(&second, &mut ours, &mut replacer), second);
            assert_eq!(decode(&second, &mut theirs)[1], fields[1]);
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_taken_and_decode_as_before(block in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut ours, mut before, mut after) = (new_decoder(), new_decoder(), new_decoder());
            let scrubbed = scrubbed(&block, &mut ours, &mut Replacer::new(b"key"));
            prop_assert_eq!(scrubbed.len(), block.len());
            let lengths = |block: &[u8], decoder: &mut Decoder<Strings>| {
                let mut lengths = Vec::new();
                let done = decoder.decode(block, &mut Strings::default(), &mut |field| {
                    lengths.push((field.name.map(<[u8]>::len), field.value.map(<[u8]>::len), field.representation));
                });
                (lengths, done.is_ok())
            };
            prop_assert_eq!(lengths(&block, &mut before), lengths(&scrubbed, &mut after));
        }
    }
}
