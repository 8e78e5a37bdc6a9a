//! Keeps each string once and refers to it by number. Number and length are bounded.

use serde::{Deserialize, Serialize};

use std::collections::{HashMap, HashSet};

use crate::limits;

use super::traces::Traces;
use crate::state_fields;

/// What new strings are called once there are too many.
const MORE: &[u8] = b"(more names than are told apart)";

/// Most strings of a dictionary, [`MORE`] among them.
const MOST: usize = limits::INTERNED_STRINGS + 1;

/// A dictionary of byte strings; numbers are given in the order of first sight.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interner {
    #[serde(deserialize_with = "state_fields::at_most::<{ MOST }, _, _>")]
    numbers: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    #[serde(deserialize_with = "state_fields::at_most::<{ MOST }, _, _>")]
    strings: Vec<Box<[u8]>>,
    bytes: usize,
    /// The number that new strings share, once there are too many.
    overflow: Option<u32>,
    /// Numbers of strings that were forgotten.
    #[serde(deserialize_with = "state_fields::at_most::<{ MOST }, _, _>")]
    free: Vec<u32>,
}

impl Interner {
    /// The number of `text`. Text beyond [`limits::INTERNED_BYTES`] is cut; once [`limits::INTERNED_STRINGS`] or
    /// [`limits::INTERNED_TOTAL`] bytes are kept, every new one gets the number of a shared last entry.
    pub fn intern(&mut self, text: &[u8]) -> u32 {
        let text = text.get(..limits::INTERNED_BYTES).unwrap_or(text);
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        if let Some(number) = self.overflow {
            return number;
        }
        if self.kept() < limits::INTERNED_STRINGS && self.bytes + text.len() <= limits::INTERNED_TOTAL {
            return self.push(text);
        }
        let number = self.numbers.get(MORE).copied().unwrap_or_else(|| self.push(MORE));
        self.overflow = Some(number);
        number
    }

    fn push(&mut self, text: &[u8]) -> u32 {
        self.bytes += text.len();
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.strings.push(Box::default());
                (self.strings.len() - 1) as u32
            }
        };
        if let Some(place) = self.strings.get_mut(number as usize) {
            *place = text.into();
        }
        self.numbers.insert(text.into(), number);
        number
    }

    /// The strings whose numbers are `used`, with the same numbers.
    fn only(&self, used: &HashSet<u32>) -> Self {
        let mut some = Self::default();
        for (text, number) in self.iter() {
            if used.contains(&number) {
                some.bytes += text.len();
                some.strings.push(text.into());
                some.numbers.insert(text.into(), number);
            } else {
                some.strings.push(Box::default());
                some.free.push(number);
            }
        }
        some
    }

    /// Bytes that the dictionary takes: each string twice, with its number.
    fn bytes(&self) -> usize {
        2 * self.bytes
            + self.strings.len() * size_of::<Box<[u8]>>()
            + self.numbers.len() * size_of::<(Box<[u8]>, u32)>()
    }

    /// How many strings are kept.
    pub fn kept(&self) -> usize {
        self.strings.len() - self.free.len()
    }

    /// Whether half of the room is taken.
    pub fn is_half_full(&self) -> bool {
        self.kept() >= limits::INTERNED_STRINGS / 2 || self.bytes >= limits::INTERNED_TOTAL / 2
    }

    /// Forgets the strings whose numbers are not `used`; the others keep theirs.
    pub fn forget_unused(&mut self, used: &HashSet<u32>) {
        for (number, text) in (0..).zip(&mut self.strings) {
            if !used.contains(&number) && self.numbers.get(text) == Some(&number) {
                self.numbers.remove(text);
                self.bytes -= text.len();
                *text = Box::default();
                self.free.push(number);
            }
        }
        self.overflow = None;
    }

    /// All strings by number, with bytes that are not UTF-8 replaced.
    pub fn texts(&self) -> Vec<String> {
        self.texts_from(0)
    }

    /// Those from a number on.
    pub fn texts_from(&self, first: usize) -> Vec<String> {
        self.strings.iter().skip(first).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    /// All strings with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.strings.iter().zip(0..).map(|(text, number)| (text.as_ref(), number))
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// Gives the strings other numbers: `order` has the old ones in the new order. None is found by its text afterwards.
    pub fn arrange(&mut self, order: &[u32]) {
        let mut before = std::mem::take(&mut self.strings);
        self.strings = order.iter().filter_map(|&old| before.get_mut(old as usize).map(std::mem::take)).collect();
        self.numbers = HashMap::default();
    }

    /// Takes the strings of another dictionary in; gives their numbers here by their numbers there.
    pub fn absorb(&mut self, other: &Self) -> Vec<u32> {
        let is_kept = |text, number| other.numbers.get(text) == Some(&number);
        let texts = (0..).zip(&other.strings);
        texts.map(|(number, text)| if is_kept(text, number) { self.intern(text) } else { u32::MAX }).collect()
    }

    /// One string by number.
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        self.strings.get(number as usize).map(AsRef::as_ref)
    }
}

/// The strings of a run that rows refer to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Strings {
    /// Methods, `/package.Service/Method`.
    pub methods: Interner,
    /// Implementations, `grpc-go/1.85.0`.
    pub agents: Interner,
    /// Error texts, `grpc-message` as it was sent or its known beginning.
    pub errors: Interner,
    /// Trace contexts of requests.
    pub traces: Traces,
    /// Whether all error texts are kept, which may hold anything, and not only those of implementations.
    pub keeps_errors: bool,
    /// Methods without a name so far.
    unnamed: u32,
    /// Counts the times at which connections got other numbers.
    renumbered: u32,
}

/// Numbers of strings that something refers to.
#[derive(Clone, Debug, Default)]
pub struct UsedNames {
    /// Methods.
    pub methods: HashSet<u32>,
    /// Implementations.
    pub agents: HashSet<u32>,
    /// Error texts.
    pub errors: HashSet<u32>,
    /// Trace contexts.
    pub traces: HashSet<u32>,
}

/// First octet of what stands for a method whose name is not in the capture; no field may hold it (RFC 9113 section
/// 8.2.1).
const LABEL: u8 = 0;

impl Strings {
    /// The number of a method by its `:path`.
    pub fn method(&mut self, path: &[u8]) -> u32 {
        if path.first() == Some(&LABEL) {
            return self.methods.intern(b"(not a path)");
        }
        self.methods.intern(path)
    }

    /// A number for a method of `connection` whose name is not in the capture, the `nth` one; `None` when too many
    /// names are kept.
    pub fn unnamed_method(&mut self, connection: u32, nth: u32) -> Option<u32> {
        if self.unnamed >= limits::METHOD_LABELS_TOTAL {
            return None;
        }
        self.unnamed += 1;
        let mut key = [LABEL; 13];
        key[1..5].copy_from_slice(&self.renumbered.to_be_bytes());
        key[5..9].copy_from_slice(&connection.to_be_bytes());
        key[9..].copy_from_slice(&nth.to_be_bytes());
        let number = self.methods.intern(&key);
        (self.methods.get(number) == Some(&key[..])).then_some(number)
    }

    /// The names alone, with the same numbers.
    pub fn names(&self) -> Self {
        let &Self { ref methods, ref agents, ref errors, keeps_errors, .. } = self;
        let (methods, agents, errors) = (methods.clone(), agents.clone(), errors.clone());
        Self { methods, agents, errors, keeps_errors, ..Self::default() }
    }

    /// The names to which something refers, with the same numbers.
    pub fn only(&self, used: &UsedNames) -> Self {
        Self {
            methods: self.methods.only(&used.methods),
            agents: self.agents.only(&used.agents),
            errors: self.errors.only(&used.errors),
            keeps_errors: self.keeps_errors,
            ..Self::default()
        }
    }

    /// Bytes that the names take.
    pub fn bytes(&self) -> usize {
        self.methods.bytes() + self.agents.bytes() + self.errors.bytes()
    }

    /// Connections have other numbers from now on.
    pub fn renumber(&mut self) {
        self.renumbered = self.renumbered.wrapping_add(1);
    }

    /// Whether it is time to forget what nothing refers to.
    pub fn is_half_full(&self) -> bool {
        let dictionaries = [&self.methods, &self.agents, &self.errors];
        dictionaries.iter().any(|one| one.is_half_full()) || self.unnamed >= limits::METHOD_LABELS_TOTAL / 2
    }

    /// Forgets what nothing refers to.
    pub fn forget_unused(&mut self, used: &UsedNames) {
        self.methods.forget_unused(&used.methods);
        self.agents.forget_unused(&used.agents);
        self.errors.forget_unused(&used.errors);
        self.traces.forget_unused(&used.traces);
        self.unnamed = self.unnamed_methods().len() as u32;
    }

    /// The methods whose names are not in the capture, by connection, and on each in the order of their first RPCs.
    pub fn unnamed_methods(&self) -> Vec<u32> {
        let mut unnamed: Vec<(&[u8], u32)> =
            self.methods.iter().filter(|(text, _)| text.first() == Some(&LABEL)).collect();
        unnamed.sort_unstable();
        unnamed.into_iter().map(|(_, number)| number).collect()
    }

    /// The methods from a number on; `None` for one whose name is not in the capture.
    pub fn methods_from(&self, first: usize) -> Vec<Option<String>> {
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        self.methods.iter().skip(first).map(|(name, _)| (name.first() != Some(&LABEL)).then(|| text(name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable_and_bounded() {
        let mut interner = Interner::default();
        assert_eq!(interner.intern(b"/a"), 0);
        assert_eq!(interner.intern(b"/b"), 1);
        assert_eq!(interner.intern(b"/a"), 0);
        for n in 0..limits::INTERNED_STRINGS * 2 {
            interner.intern(n.to_string().as_bytes());
        }
        assert_eq!(interner.texts().len(), limits::INTERNED_STRINGS + 1);
        assert_eq!(interner.intern(b"/a"), 0);
        assert_eq!(interner.intern(b"new"), limits::INTERNED_STRINGS as u32);
    }

    #[test]
    fn forgotten_numbers_are_given_again() {
        let mut interner = Interner::default();
        for n in 0..limits::INTERNED_STRINGS * 2 {
            interner.intern(n.to_string().as_bytes());
        }
        interner.forget_unused(&HashSet::from([7, 4]));
        assert_eq!((interner.kept(), interner.is_half_full()), (2, false));
        assert_eq!(interner.get(7), Some(&b"7"[..]));
        assert_eq!(interner.intern(b"7"), 7);
        let new = interner.intern(b"new");
        assert!((new as usize) <= limits::INTERNED_STRINGS && interner.get(new) == Some(b"new"));
        assert_eq!(interner.kept(), 3);
    }

    #[test]
    fn the_name_for_the_rest_is_kept_once() {
        let mut interner = Interner::default();
        for round in 0..9 {
            for n in 0..limits::INTERNED_STRINGS {
                interner.intern(format!("{round} {n}").as_bytes());
            }
            let more = interner.intern(format!("{round} more").as_bytes());
            interner.forget_unused(&HashSet::from([more]));
            assert_eq!(interner.kept(), 1, "round {round}");
        }
    }

    #[test]
    fn long_strings_are_bounded_in_bytes() {
        let mut interner = Interner::default();
        let long = |n: usize| [n.to_string().as_bytes(), &[b'x'; limits::INTERNED_BYTES]].concat();
        let most = limits::INTERNED_TOTAL / limits::INTERNED_BYTES;
        let numbers: Vec<u32> = (0..2 * most).map(|n| interner.intern(&long(n))).collect();
        assert_eq!(numbers[most - 1], most as u32 - 1);
        assert!(numbers[most..].iter().all(|&number| number == most as u32), "they share one name");
        assert_eq!(interner.intern(b""), most as u32, "and so does every new one, however short");
        assert_eq!(interner.intern(&long(7)), 7);
    }
}
