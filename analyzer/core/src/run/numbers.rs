//! The numbers of connections by their ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::state_fields;

use super::route::End;

/// Both ends of a connection, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Key {
    low: End,
    high: End,
}

impl Key {
    #[inline]
    pub fn new(a: End, b: End) -> Self {
        if a <= b { Self { low: a, high: b } } else { Self { low: b, high: a } }
    }

    /// The same in every run, because it is saved.
    #[inline]
    fn hash(&self) -> u64 {
        foldhash::fast::FixedState::default().hash_one(self)
    }
}

/// Numbers by a hash of their ends: those of thousands of connections fit into a cache, and with the ends, which are
/// compared where they are kept, they would not.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Numbers {
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::CONNECTIONS + limits::BARE_UNLISTED }, _, _>")]
    by_hash: HashMap<u64, u32, foldhash::fast::RandomState>,
    /// Those whose hash is that of other ends.
    /// Those whose hash is that of other ends.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::CONNECTIONS + limits::BARE_UNLISTED }, _, _>")]
    others: HashMap<Key, u32, foldhash::fast::RandomState>,
}

impl Numbers {
    /// The number of `key`; `key_of` gives the ends of a connection that is known.
    #[inline]
    pub fn find(&self, key: &Key, key_of: impl Fn(u32) -> Option<Key>) -> Option<u32> {
        match self.by_hash.get(&key.hash()) {
            Some(&number) if key_of(number).as_ref() == Some(key) => Some(number),
            _ if self.others.is_empty() => None,
            _ => self.others.get(key).copied(),
        }
    }

    /// Gives `key` a number, in the place of the one that it had.
    pub fn insert(&mut self, key: Key, number: u32, key_of: impl Fn(u32) -> Option<Key>) {
        self.others.remove(&key);
        match self.by_hash.entry(key.hash()) {
            Entry::Occupied(taken) if key_of(*taken.get()).is_some_and(|other| other != key) => {
                self.others.insert(key, number);
            }
            place => drop(place.insert_entry(number)),
        }
    }

    /// Forgets that `key` has this number, if it has.
    pub fn remove(&mut self, key: &Key, number: u32) {
        let hash = key.hash();
        if self.by_hash.get(&hash) == Some(&number) {
            self.by_hash.remove(&hash);
        } else if self.others.get(key) == Some(&number) {
            self.others.remove(key);
        }
    }

    /// Gives numbers other ones; `None` forgets one.
    pub fn renumber(&mut self, new: impl Fn(u32) -> Option<u32>) {
        let change = |number: &mut u32| new(*number).map(|new| *number = new).is_some();
        self.by_hash.retain(|_, number| change(number));
        self.others.retain(|_, number| change(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Address;

    fn key(port: u16) -> Key {
        Key::new((Address::v4([10, 0, 0, 1]), port), (Address::v4([10, 0, 0, 2]), 443))
    }

    #[test]
    fn ends_with_the_same_hash_are_told_apart() {
        let keys = [key(1), key(2)];
        let key_of = |number: u32| keys.get(number as usize).copied();
        let mut numbers = Numbers::default();
        // as if the second one had the first one's hash
        numbers.by_hash.insert(keys[1].hash(), 0);
        assert_eq!(numbers.find(&keys[1], key_of), None);
        numbers.insert(keys[1], 1, key_of);
        assert_eq!(numbers.others.len(), 1);
        assert_eq!(numbers.find(&keys[1], key_of), Some(1));
        numbers.remove(&keys[1], 1);
        assert_eq!(numbers.find(&keys[1], key_of), None);
        assert_eq!((numbers.by_hash.len(), numbers.others.len()), (1, 0));
    }

    #[test]
    fn the_number_of_a_connection_that_is_gone_is_replaced() {
        let mut numbers = Numbers::default();
        numbers.insert(key(1), 7, |_| None);
        numbers.insert(key(1), 8, |_| None);
        assert_eq!(numbers.find(&key(1), |number| (number == 8).then(|| key(1))), Some(8));
        numbers.renumber(|number| (number == 8).then_some(3));
        assert_eq!(numbers.find(&key(1), |number| (number == 3).then(|| key(1))), Some(3));
    }
}
