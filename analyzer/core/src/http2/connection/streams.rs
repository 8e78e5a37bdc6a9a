//! The streams of one connection that are open, or still draining after the protocol on top is done with them.

use std::collections::HashMap;

use crate::limits;

/// No row or slot.
pub const NONE: u32 = u32::MAX;

/// A stream, with what the protocol on top keeps of it.
#[derive(Debug, Default)]
pub struct Stream<T> {
    /// The stream identifier, 0 for a free slot.
    pub id: u32,
    /// By sender: WINDOW_UPDATE increments less DATA sent. With the initial window in force this is the window.
    pub credit: [i64; 2],
    /// The state of the protocol on top.
    pub state: T,
}

/// Places of the table in front of the map: more than a busy connection usually has streams open.
const PLACES: usize = 256;

/// Slots that most connections use.
const TOUCHED: usize = 4;

/// Streams by identifier.
///
/// Clients number their streams upwards, so that open streams rarely share a place of a small table; those that do
/// go to a map. A stream is in one of the two.
#[derive(Debug)]
pub struct Streams<T> {
    /// Identifier and slot; identifier 0 marks a free place.
    places: Box<[(u32, u32); PLACES]>,
    others: HashMap<u32, u32, foldhash::fast::RandomState>,
    slab: Vec<Stream<T>>,
    free: Vec<u32>,
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self { places: Box::new([(0, NONE); PLACES]), others: HashMap::default(), slab: Vec::new(), free: Vec::new() }
    }
}

/// Neighbouring odd identifiers get places of their own.
#[inline]
fn place(id: u32) -> usize {
    (id >> 1) as usize % PLACES
}

impl<T: Default> Streams<T> {
    /// Reads what the streams that open next will need, above the highest so far; `state` reads the state of one.
    #[inline]
    pub fn touch(&self, highest: u32, state: impl Fn(&T) -> u64) -> u64 {
        let ahead = |streams: u32| u64::from(self.places[place(highest.wrapping_add(streams * 2))].1);
        let (mut all, slots) = (ahead(0) ^ ahead(8), self.slab.iter().take(TOUCHED));
        for stream in slots {
            all ^= stream.credit[0] as u64 ^ stream.credit[1] as u64 ^ state(&stream.state);
        }
        all
    }

    /// The slot of an open stream.
    #[inline]
    pub fn slot(&self, id: u32) -> Option<u32> {
        match self.places[place(id)] {
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
                self.slab.push(Stream::default());
                (self.slab.len() - 1) as u32
            }
        };
        let kept = &mut self.places[place(id)];
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
        let kept = &mut self.places[place(id)];
        let slot =
            if kept.0 == id && id != 0 { Some(std::mem::replace(kept, (0, NONE)).1) } else { self.others.remove(&id) };
        if let Some(slot) = slot {
            self.free.push(slot);
            if let Some(stream) = self.get_mut(slot) {
                stream.id = 0;
            }
        }
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

    /// The same, to be changed.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = &mut Stream<T>> {
        self.slab.iter_mut()
    }
}
