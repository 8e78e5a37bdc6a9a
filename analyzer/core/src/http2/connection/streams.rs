//! The streams of one connection that are open, or still draining after the protocol on top is done with them.

use std::collections::HashMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits;
use crate::state_fields;

/// No row or slot.
pub const NONE: u32 = u32::MAX;

/// A stream, with what the protocol on top keeps of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stream<T> {
    /// The stream identifier, 0 for a free slot.
    pub id: u32,
    /// By sender: WINDOW_UPDATE increments less DATA sent. With the initial window in force this is the window.
    pub credit: [i64; 2],
    /// The state of the protocol on top.
    pub state: T,
}

/// Places of the table in front of the map at first, and at the most: more than a connection of few callers, and than a busy
/// one, usually has streams open.
const PLACES: [usize; 2] = [8, 256];

/// Removed streams that are looked at: more than a connection of few callers has.
const REMOVED: usize = 64;

/// Slots that most connections use.
const TOUCHED: usize = 4;

/// Streams by identifier.
///
/// Clients number their streams upwards, so that open streams rarely share a place of a small table. Where two would, the
/// table grows; at its full size the later one goes to a map. A stream is in one of the two.
#[derive(Debug, Serialize, Deserialize)]
pub struct Streams<T> {
    /// Identifier and slot; identifier 0 marks a free place.
    #[serde(deserialize_with = "read_places")]
    places: Box<[(u32, u32)]>,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::OPEN_STREAMS }, _, _>")]
    others: HashMap<u32, u32, foldhash::fast::RandomState>,
    #[serde(bound(deserialize = "T: Deserialize<'de>"))]
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::OPEN_STREAMS }, _, _>")]
    slab: Vec<Stream<T>>,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::OPEN_STREAMS }, _, _>")]
    free: Vec<u32>,
}

/// Reads places that were saved: a power of two.
fn read_places<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[(u32, u32)]>, D::Error> {
    let places = Box::<[(u32, u32)]>::deserialize(from)?;
    let possible = places.len().is_power_of_two() && places.len() <= PLACES[1];
    if possible { Ok(places) } else { Err(D::Error::custom("another number of places")) }
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self {
            places: Box::new([(0, NONE); PLACES[0]]),
            others: HashMap::default(),
            slab: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Default> Streams<T> {
    /// Neighbouring odd identifiers get places of their own.
    #[inline]
    fn place(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.places.len() - 1) // a power of two
    }

    /// Makes the table larger until no two of its streams and `id` share a place, if it may be that large.
    #[cold]
    fn make_places(&mut self, id: u32) {
        while self.places.len() < PLACES[1] && self.places[self.place(id)].0 != 0 {
            // streams that have places of their own have them in a larger table too
            let larger = vec![(0, NONE); 2 * self.places.len()].into_boxed_slice();
            for kept in std::mem::replace(&mut self.places, larger).into_iter().filter(|kept| kept.0 != 0) {
                let place = self.place(kept.0);
                self.places[place] = kept;
            }
        }
    }

    /// Reads what the streams that open next will need, above the highest so far; `state` reads the state of one.
    #[inline]
    pub fn touch(&self, highest: u32, state: impl Fn(&T) -> u64) -> u64 {
        let ahead = |streams: u32| u64::from(self.places[self.place(highest.wrapping_add(streams * 2))].1);
        let (mut all, slots) = (ahead(0) ^ ahead(4), self.slab.iter().take(TOUCHED));
        for stream in slots {
            all ^= stream.credit[0] as u64 ^ stream.credit[1] as u64 ^ state(&stream.state);
        }
        all
    }

    /// The slot of an open stream.
    #[inline]
    pub fn slot(&self, id: u32) -> Option<u32> {
        match self.places[self.place(id)] {
            (kept, slot) if kept == id && id != 0 => Some(slot),
            _ if self.others.is_empty() => None,
            _ => self.others.get(&id).copied(),
        }
    }

    /// The stream in a slot.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Stream<T>> {
        self.slab.get_mut(slot as usize)
    }

    /// The state of the stream in a slot.
    #[inline]
    pub fn state_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.get_mut(slot).map(|stream| &mut stream.state)
    }

    /// The stream with an identifier.
    #[inline]
    pub fn find_mut(&mut self, id: u32) -> Option<&mut Stream<T>> {
        let slot = self.slot(id)?;
        self.get_mut(slot)
    }

    /// Keeps a new stream, whose state is that of an earlier one in its slot; `None` when [`limits::OPEN_STREAMS`] are open.
    #[inline]
    pub fn open(&mut self, id: u32) -> Option<&mut Stream<T>> {
        if self.len() >= limits::OPEN_STREAMS {
            return None;
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                if self.slab.is_empty() {
                    self.slab.reserve_exact(1); // many connections never have two streams open
                }
                self.slab.push(Stream::default());
                (self.slab.len() - 1) as u32
            }
        };
        if self.places[self.place(id)].0 != 0 {
            self.make_places(id);
        }
        let place = self.place(id);
        let kept = &mut self.places[place];
        if kept.0 == 0 {
            *kept = (id, slot);
        } else {
            self.others.insert(id, slot);
        }
        let stream = self.slab.get_mut(slot as usize)?;
        (stream.id, stream.credit) = (id, [0; 2]);
        Some(stream)
    }

    /// Forgets a stream.
    #[inline]
    pub fn remove(&mut self, id: u32) {
        let place = self.place(id);
        let kept = &mut self.places[place];
        let slot =
            if kept.0 == id && id != 0 { Some(std::mem::replace(kept, (0, NONE)).1) } else { self.others.remove(&id) };
        if let Some(slot) = slot {
            self.free.push(slot);
            if let Some(stream) = self.get_mut(slot) {
                stream.id = 0;
            }
        }
    }

    /// The state of one of the streams that were removed last, if no other one has taken its slot.
    pub fn find_removed(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<&mut T> {
        let slab = &self.slab;
        let holds = |slot: &&u32| slab.get(**slot as usize).is_some_and(|stream| is_wanted(&stream.state));
        let slot = *self.free.iter().rev().take(REMOVED).find(holds)?;
        self.state_mut(slot)
    }

    /// Number of streams kept.
    pub fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Whether no stream is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The identifiers kept, ascending.
    pub fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.slab.iter().map(|stream| stream.id).filter(|&id| id != 0).collect();
        ids.sort_unstable();
        ids
    }

    /// All slots, those of no stream among them.
    pub fn slots(&self) -> impl Iterator<Item = &Stream<T>> {
        self.slab.iter()
    }

    /// All slots, those of no stream among them, to be changed.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = &mut Stream<T>> {
        self.slab.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_would_share_a_place_are_told_apart() {
        for distance in [2, 16, 512, 514] {
            let mut streams = Streams::<u32>::default();
            let ids: Vec<u32> = (0..600).map(|nth| 1 + distance * nth).collect();
            for &id in &ids {
                streams.open(id).unwrap().state = id;
            }
            for &id in ids.iter().step_by(2) {
                streams.remove(id);
            }
            for (nth, &id) in ids.iter().enumerate() {
                let found = streams.find_mut(id).map(|stream| stream.state);
                assert_eq!(found, (nth % 2 == 1).then_some(id), "{distance}");
            }
            assert_eq!(streams.len(), 300);
            assert!(streams.places.len() <= PLACES[1]);
        }
    }

    #[test]
    fn one_stream_after_the_other_needs_no_large_table() {
        let mut streams = Streams::<u32>::default();
        for id in (1..2_000).step_by(2) {
            streams.open(id).unwrap();
            streams.remove(id);
        }
        assert_eq!((streams.places.len(), streams.slab.len()), (PLACES[0], 1));
    }
}
