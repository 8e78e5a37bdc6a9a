//! The numbers of packets in the file, which reports name.

use crate::limits;

/// The numbers in the file of packets by their places in the order of times, where the two differ.
#[derive(Debug, Default)]
pub struct Numbers {
    places: u32,
    /// First place of each stretch, and where its numbers begin.
    stretches: Vec<(u32, usize)>,
    numbers: Vec<u32>,
    /// The last place in `numbers`.
    last: u32,
}

impl Numbers {
    /// The numbers of packets behind so many others.
    pub(super) fn behind(before: u32) -> Self {
        Self { places: before, ..Self::default() }
    }

    /// Whether there is no room for further ones.
    pub(super) fn is_full(&self) -> bool {
        self.numbers.len() >= limits::SORTED_NUMBERS
    }

    /// Whether packets have the places of their numbers.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The place of the next packet, with its number in the file.
    pub(super) fn add(&mut self, number: u32) -> u32 {
        self.places = self.places.saturating_add(1);
        if number != self.places {
            if self.last.saturating_add(1) != self.places || self.stretches.is_empty() {
                self.stretches.push((self.places, self.numbers.len()));
            }
            self.numbers.push(number);
            self.last = self.places;
        }
        self.places
    }

    /// The number in the file of the packet at a place.
    pub fn number(&self, place: u32) -> u32 {
        let behind = self.stretches.partition_point(|&(first, _)| first <= place);
        let end = self.stretches.get(behind).map_or(self.numbers.len(), |&(_, begin)| begin);
        let stretch = behind.checked_sub(1).and_then(|before| self.stretches.get(before));
        let found = stretch.and_then(|&(first, begin)| {
            let at = begin + (place - first) as usize;
            self.numbers.get(at).filter(|_| at < end)
        });
        found.copied().unwrap_or(place)
    }

    /// Makes ranges of numbers in the file ranges of places that hold all these packets.
    pub fn cover<'a>(&self, ranges: impl Iterator<Item = &'a mut [u32; 2]>) {
        let mut known: Vec<(u32, u32)> = Vec::with_capacity(self.numbers.len());
        for (stretch, &(first, begin)) in self.stretches.iter().enumerate() {
            let end = self.stretches.get(stretch + 1).map_or(self.numbers.len(), |&(_, end)| end);
            let of_it = self.numbers.get(begin..end).unwrap_or_default();
            known.extend(of_it.iter().copied().zip(first..));
        }
        known.sort_unstable();
        for range in ranges {
            let [first, last] = *range;
            let begin = known.partition_point(|&(number, _)| number < first);
            let within = known.get(begin..).unwrap_or_default().iter().take_while(|&&(number, _)| number <= last);
            let is_moved = |number: u32| known.binary_search_by_key(&number, |&(number, _)| number).is_ok();
            let ends = [first, last].into_iter().filter(|&end| !is_moved(end));
            let places = || within.clone().map(|&(_, place)| place).chain(ends.clone());
            *range = [places().min().unwrap_or(first), places().max().unwrap_or(last)];
        }
    }
}
