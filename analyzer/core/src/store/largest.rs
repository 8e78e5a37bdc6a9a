//! Keeps the largest of many values: the longest RPCs, of a method or of all, where not all have rows, and a sample of them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A value with the first packet and the stream of its RPC: of two equal ones the first packet's is the larger.
type Placed = (u64, Reverse<[u32; 2]>);

/// The largest values so far.
#[derive(Clone, Debug, Default)]
pub struct Largest {
    kept: BTreeSet<Placed>,
    /// Most that are kept.
    most: usize,
    /// The smallest of them; 0 while there is room.
    floor: u64,
}

impl Largest {
    /// None so far; `most` are kept.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Whether a value is among the largest, and if so keeps it in place of the smallest of them. Zero never is.
    #[inline]
    pub fn takes(&mut self, value: u64, place: [u32; 2]) -> bool {
        value > 0 && value >= self.floor && self.replaces((value, Reverse(place)))
    }

    /// Whether the value at `place` is among the largest; of equal values, the RPC that began first comes first.
    pub fn has(&self, value: u64, place: [u32; 2]) -> bool {
        self.kept.contains(&(value, Reverse(place)))
    }

    /// Takes one out, of which it shows later that it is larger.
    pub fn take_back(&mut self, value: u64, place: [u32; 2]) {
        self.kept.remove(&(value, Reverse(place)));
        self.find_floor();
    }

    fn replaces(&mut self, placed: Placed) -> bool {
        self.kept.insert(placed);
        let dropped = if self.kept.len() > self.most { self.kept.pop_first() } else { None };
        self.find_floor();
        dropped != Some(placed)
    }

    fn find_floor(&mut self) {
        let is_full = self.kept.len() >= self.most;
        let smallest = self.kept.first().filter(|_| is_full);
        self.floor = smallest.map_or(0, |placed| placed.0);
    }

    /// Adds the largest values of another thread.
    pub fn absorb(&mut self, other: &Self) {
        for &placed in &other.kept {
            self.replaces(placed);
        }
    }
}

/// A number for an RPC's place that says nothing of the RPC: those with the largest numbers are a uniform sample (the
/// finalizer of SplitMix64: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014).
#[inline]
pub fn scatter([packet, stream]: [u32; 2]) -> u64 {
    let mixed = (u64::from(packet) << 32 | u64::from(stream)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same ones stay in whatever order they come and on however many threads, and each was taken when it came.
        #[test]
        fn the_largest_are_always_taken(
            values in proptest::collection::vec(1..40_u64, 1..200), turn in 0..200_usize, split in 0..200_usize,
            most in 1..12_usize,
        ) {
            let every: Vec<Placed> = values.iter().zip(0..).map(|(&ns, packet)| (ns, Reverse([packet, 1]))).collect();
            let mut turned = every.clone();
            turned.rotate_left(turn % every.len());
            let (mut here, mut there) = (Largest::new(most), Largest::new(most));
            let mut taken = Vec::new();
            for (number, &(ns, Reverse(place))) in turned.iter().enumerate() {
                if (if number < split { &mut here } else { &mut there }).takes(ns, place) {
                    taken.push((ns, Reverse(place)));
                }
            }
            here.absorb(&there);
            let largest = |mut of: Vec<Placed>| { of.sort_unstable_by(|a, b| b.cmp(a)); of.truncate(most); of };
            prop_assert_eq!(largest(taken), largest(every.clone()));
            let kept = here.kept.iter().copied().collect();
            prop_assert_eq!(largest(kept), largest(every));
        }
    }

    #[test]
    fn one_that_is_larger_costs_no_other_its_place() {
        let mut largest = Largest::new(2);
        assert!([(5, 1), (4, 2), (3, 3)].map(|(ns, packet)| largest.takes(ns, [packet, 1])) == [true, true, false]);
        largest.take_back(5, [1, 1]);
        assert!(largest.takes(9, [1, 1]));
        assert!(largest.has(9, [1, 1]) && largest.has(4, [2, 1]) && !largest.takes(3, [3, 1]));
    }

    #[test]
    fn a_sample_is_spread_evenly() {
        let mut sample = Largest::new(1_000);
        let places: Vec<[u32; 2]> = (1..=20_000).map(|packet| [packet, 1 + packet % 7 * 2]).collect();
        let taken = places.iter().filter(|&&place| sample.takes(scatter(place), place)).count();
        assert!(taken < 1_000 * 5, "{taken}"); // 1,000 times (1 + ln 20) on average
        for tenth in places.chunks(2_000) {
            let kept = tenth.iter().filter(|&&place| sample.has(scatter(place), place)).count();
            assert!((60..140).contains(&kept), "{kept}"); // 100, four standard deviations
        }
    }

    #[test]
    fn where_none_is_wanted_none_is_taken() {
        assert!(!Largest::new(0).takes(5, [1, 1]));
    }
}
