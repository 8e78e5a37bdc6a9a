//! Replacements of texts: as long decoded and as encoded, so that every octet behind them and every size in an HPACK table
//! stays what it was; the same for the same text; and told by nothing but a key that is thrown away.

use ring::hmac;
use std::collections::{HashMap, HashSet};

use crate::grpc::headers;
use crate::http2::hpack::huffman::code_bits;
use crate::limits;

/// What a text is, which decides the characters of its replacement. Equal texts of different kinds differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A field name: RFC 9110 section 5.6.2 without capitals (RFC 9113 section 8.2.1).
    Name,
    /// A field value.
    Value,
    /// A method, whose replacement no other method has.
    Method,
    /// Trace context: hexadecimal digits, part by part.
    Trace,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// It stays.
    Kept(&'a [u8]),
    /// It is replaced.
    Hidden(&'a [u8]),
}

impl<'a> Part<'a> {
    fn octets(&self) -> &'a [u8] {
        match self {
            Self::Kept(octets) | Self::Hidden(octets) => octets,
        }
    }
}

/// Lengths of Huffman codes, in bits (RFC 7541 Appendix B).
const LENGTHS: [usize; 21] = [5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30];

/// Bits of the longest codes of letters and digits.
const PLAIN_BITS: usize = 7;

/// The key of one run.
pub(super) struct Key(hmac::Key);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A key of any length.
    pub fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// 64 bits that depend on all of `parts` and on the key.
    pub fn number(&self, parts: &[&[u8]]) -> u64 {
        let mut mac = hmac::Context::with_key(&self.0);
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let digest = mac.sign();
        digest.as_ref().first_chunk::<8>().map_or(0, |chunk| u64::from_be_bytes(*chunk))
    }
}

/// Numbers that look random (SplitMix64), from a seed that the key hides.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ b >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Replaces texts, and remembers the methods it replaced.
#[derive(Debug)]
pub(super) struct Replacer {
    pub key: Key,
    alphabets: [Alphabets; 4],
    methods: HashMap<Vec<u8>, Vec<u8>>,
    taken: HashSet<Vec<u8>>,
    agents: HashMap<String, String>,
}

/// The characters of each code length.
type Alphabets = Vec<Vec<u8>>;

impl Replacer {
    pub fn new(key: &[u8]) -> Self {
        let alphabets = [Kind::Name, Kind::Value, Kind::Method, Kind::Trace].map(alphabets);
        Self { key: Key::new(key), alphabets, methods: HashMap::new(), taken: HashSet::new(), agents: HashMap::new() }
    }

    /// The text of `parts` with the hidden ones replaced.
    ///
    /// Texts that Huffman coding makes longer are sent plain: their replacements need be as long decoded only, unless
    /// `coded` says that such a one was coded nevertheless.
    pub fn replace(&mut self, kind: Kind, parts: &[Part<'_>], coded: bool) -> Vec<u8> {
        if parts.iter().all(|part| matches!(part, Part::Kept(_))) {
            return parts.iter().flat_map(|part| part.octets()).copied().collect();
        }
        match kind {
            Kind::Method => self.path(parts, coded),
            Kind::Trace => parts.iter().flat_map(|&part| self.attempt(kind, &[part], true, 0)).collect(),
            Kind::Name | Kind::Value => self.attempt(kind, parts, coded, 0),
        }
    }

    /// A field that names software is replaced: what reports show of it may differ too.
    pub fn note_agent(&mut self, name: &[u8], text: &[u8], replaced: &[u8]) {
        let [before, after] = [text, replaced].map(|value| headers::software(name, value));
        if before != after && self.agents.len() < limits::SCRUB_REMEMBERED {
            self.agents.insert(before, after);
        }
    }

    /// Implementations as reports show them, with their replacements.
    pub fn agents(&self) -> &HashMap<String, String> {
        &self.agents
    }

    /// Replaced methods with their replacements.
    pub fn methods(&self) -> &HashMap<Vec<u8>, Vec<u8>> {
        &self.methods
    }

    /// The replacement of a path; one method has one, whatever query follows it.
    fn path(&mut self, parts: &[Part<'_>], coded: bool) -> Vec<u8> {
        let end = parts.iter().position(|part| *part == Part::Kept(b"?")).unwrap_or(parts.len());
        let (front, query) = parts.split_at(end);
        if query.is_empty() || !is_exact(front) {
            return self.method(parts, coded);
        }
        let method = self.method(front, coded);
        self.attempt(Kind::Value, &[&[Part::Kept(&method)], query].concat(), coded, 0)
    }

    fn method(&mut self, parts: &[Part<'_>], coded: bool) -> Vec<u8> {
        let whole: Vec<u8> = parts.iter().flat_map(|part| part.octets().iter().copied()).collect();
        if let Some(known) = self.methods.get(&whole) {
            return known.clone();
        }
        let mut replacement = self.attempt(Kind::Method, parts, coded, 0);
        for nth in 1..limits::SCRUB_ATTEMPTS {
            if !self.taken.contains(&replacement) {
                break;
            }
            replacement = self.attempt(Kind::Method, parts, coded, nth);
        }
        if self.methods.len() < limits::SCRUB_REMEMBERED {
            self.taken.insert(replacement.clone());
            self.methods.insert(whole, replacement.clone());
        }
        replacement
    }

    fn attempt(&self, kind: Kind, parts: &[Part<'_>], coded: bool, nth: u32) -> Vec<u8> {
        let encoded = bits(&mut parts.iter()).div_ceil(8);
        let fixed = bits(&mut parts.iter().filter(|part| kept(part)));
        let hidden: Vec<u8> = parts.iter().filter(|part| !kept(part)).flat_map(|part| part.octets()).copied().collect();
        let mut draw = Draw(self.key.number(&[&[kind as u8], &nth.to_be_bytes(), &hidden]));
        let length: usize = parts.iter().map(|part| part.octets().len()).sum();
        let (least, most) = if kind == Kind::Trace || kind == Kind::Method && is_exact(parts) {
            let exact = bits(&mut parts.iter()) - fixed; // other parts stand beside it
            (exact, exact)
        } else if encoded > length && !coded {
            (0, hidden.len() * PLAIN_BITS)
        } else {
            ((encoded * 8).saturating_sub(7 + fixed), (encoded * 8).saturating_sub(fixed))
        };
        let levels = levels(hidden.len(), least, most, &mut draw);
        let mut letters = levels.into_iter().map(|level| self.letter(kind, level, &mut draw));
        let mut out = Vec::with_capacity(hidden.len());
        for part in parts {
            match part {
                Part::Kept(octets) => out.extend_from_slice(octets),
                Part::Hidden(octets) => out.extend(letters.by_ref().take(octets.len())),
            }
        }
        out
    }

    fn letter(&self, kind: Kind, level: usize, draw: &mut Draw) -> u8 {
        let alphabet = self.alphabets[kind as usize].get(level).map(Vec::as_slice).unwrap_or_default();
        alphabet.get(draw.below(alphabet.len())).copied().unwrap_or(b'a')
    }
}

/// Code lengths, as indices into [`LENGTHS`], of `count` characters that have `least` to `most` bits together. As the
/// code lengths of the text itself would tell much of it, these are as even as can be and in a drawn order: they tell
/// the sum, which the encoded length tells anyway.
fn levels(count: usize, least: usize, most: usize, draw: &mut Draw) -> Vec<usize> {
    let mut levels = vec![0; count];
    let mut order: Vec<usize> = (0..count).collect();
    for place in (1..count).rev() {
        order.swap(place, draw.below(place + 1));
    }
    // where there is room, anywhere within it
    let goal = least + draw.below(most.saturating_sub(least) + 1);
    let mut total = count * LENGTHS[0];
    for (level, pair) in LENGTHS.windows(2).enumerate() {
        let step = pair[1] - pair[0];
        let wanted = goal.saturating_sub(total) / step;
        let lacking = least.saturating_sub(total).div_ceil(step);
        for &place in order.iter().take(wanted.max(lacking).min(count)) {
            if let Some(place) = levels.get_mut(place) {
                *place = level + 1;
            }
            total += step;
        }
        if total >= least {
            break;
        }
    }
    levels
}

fn kept(part: &Part<'_>) -> bool {
    matches!(part, Part::Kept(_))
}

/// The length of parts in bits, Huffman coded.
fn bits<'a>(of: &mut dyn Iterator<Item = &Part<'a>>) -> usize {
    of.flat_map(|part| part.octets()).map(|&octet| code_bits(octet)).sum()
}

/// Whether [`levels`] reaches the length of the hidden parts to the bit: up to eight bits, code lengths have no gaps.
fn is_exact(parts: &[Part<'_>]) -> bool {
    parts.iter().filter(|part| !kept(part)).flat_map(|part| part.octets()).all(|&octet| code_bits(octet) <= 8)
}

/// The characters of each code length that may stand in a replacement; where there is none, any of that length.
fn alphabets(kind: Kind) -> Alphabets {
    let any = |bits: usize| (1..=u8::MAX).filter(move |&c| code_bits(c) == bits && !matches!(c, b'\r' | b'\n'));
    LENGTHS
        .iter()
        .map(|&bits| {
            let fit: Vec<u8> = any(bits).filter(|&c| fits(kind, c)).collect();
            if fit.is_empty() { any(bits).collect() } else { fit }
        })
        .collect()
}

fn fits(kind: Kind, character: u8) -> bool {
    let plain = character.is_ascii_lowercase() || character.is_ascii_digit();
    match kind {
        Kind::Name => plain || b"-_.!&'*+|#$~^`".contains(&character),
        Kind::Value => character.is_ascii_graphic() && !b"\",;\\/".contains(&character),
        Kind::Method => character.is_ascii_alphanumeric() || character == b'_',
        Kind::Trace => matches!(character, b'0'..=b'9' | b'a'..=b'f'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::huffman;
    use crate::store::traces::Trace;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn replacements_are_as_long_decoded_and_encoded(
            text in proptest::collection::vec(any::<u8>(), 0..80), kept in 0..80_usize, key in any::<u64>(),
        ) {
            let mut replacer = Replacer::new(&key.to_be_bytes());
            let (front, back) = text.split_at(kept.min(text.len()));
            for kind in [Kind::Name, Kind::Value, Kind::Method] {
                let replaced = replacer.replace(kind, &[Part::Kept(front), Part::Hidden(back)], true);
                prop_assert_eq!(replaced.len(), text.len());
                prop_assert!(replaced.starts_with(front));
                prop_assert_eq!(huffman::encode(&replaced).len(), huffman::encode(&text).len());
                prop_assert_eq!(&replacer.replace(kind, &[Part::Kept(front), Part::Hidden(back)], true), &replaced);
            }
        }

        #[test]
        fn usual_texts_get_usual_replacements(text in "[a-zA-Z0-9/:. _-]{1,60}", key in any::<u64>()) {
            let mut replacer = Replacer::new(&key.to_be_bytes());
            let name = replacer.replace(Kind::Name, &[Part::Hidden(text.as_bytes())], false);
            prop_assert!(name.iter().all(|&c| fits(Kind::Name, c)), "{}", String::from_utf8_lossy(&name));
            let value = replacer.replace(Kind::Value, &[Part::Hidden(text.as_bytes())], false);
            prop_assert!(value.iter().all(u8::is_ascii_graphic));
        }
    }

    #[test]
    fn encoding_is_the_inverse_of_decoding() {
        let text: Vec<u8> = (0..=255).collect();
        let encoded = huffman::encode(&text);
        let mut room = vec![0; huffman::decoded_bound(encoded.len()) + 1];
        let length = huffman::decode(&encoded, &mut room).unwrap();
        assert_eq!(&room[..length], &text);
        assert_eq!(huffman::encode(b"www.example.com"), b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
    }

    #[test]
    fn requests_of_one_trace_stay_so() {
        let mut replacer = Replacer::new(b"key");
        let [first, second] = [b"b7ad6b7169203331", b"00f067aa0ba902b7"].map(|span| {
            let before = [b"00-0af7651916cd43dd8448eb211c80319c-", &span[..], b"-01"].concat();
            let (kind, parts) = super::super::fields::parts(Some(b"traceparent"), &before, Default::default());
            let after = replacer.replace(kind, &parts, true);
            assert_eq!(huffman::encode(&after).len(), huffman::encode(&before).len());
            assert_ne!(Trace::parse(&after).unwrap().span, Trace::parse(&before).unwrap().span);
            (after[..36].to_vec(), after)
        });
        assert_eq!(first.0, second.0);
        assert_ne!(first.1, second.1);
        assert!(!first.0.ends_with(b"0af7651916cd43dd8448eb211c80319c-"));
    }

    #[test]
    fn a_method_has_one_replacement_with_every_query() {
        let mut replacer = Replacer::new(b"key");
        let around = super::super::fields::Around { hide_methods: true, ..Default::default() };
        let mut show = |path: &[u8]| {
            let (kind, parts) = super::super::fields::parts(Some(b":path"), path, around);
            let shown = replacer.replace(kind, &parts, true);
            assert_eq!((shown.len(), huffman::encode(&shown).len()), (path.len(), huffman::encode(path).len()));
            shown
        };
        let path = b"/acme.Secrets/Get";
        let alone = show(path);
        assert_ne!(alone, path);
        for query in [&b"?connect=v1&message=a"[..], b"?message=%7Bsecret%7D", b"?", b"??&a=\xff"] {
            let whole = show(&[path, query].concat());
            assert!(whole.starts_with(&alone), "{}", String::from_utf8_lossy(&whole));
        }
        assert_eq!(replacer.methods().len(), 1);
    }

    #[test]
    fn methods_stay_apart() {
        let mut replacer = Replacer::new(b"key");
        let replaced: HashSet<Vec<u8>> = (b'a'..=b'z')
            .map(|c| replacer.replace(Kind::Method, &[Part::Kept(b"/"), Part::Hidden(&[c]), Part::Kept(b"/M")], true))
            .collect();
        assert_eq!(replaced.len(), 26);
    }
}
