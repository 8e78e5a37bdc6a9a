//! Finds the longest RPCs, of a method or of all, where not all have rows.

use std::cmp::Reverse;

/// A duration with the RPC's first packet and its stream: of two equal ones the first packet's is the longer.
type Long = (u64, Reverse<[u32; 2]>);

/// The longest durations so far.
#[derive(Clone, Debug, Default)]
pub struct Slowest {
    /// In no order; of no time where there are fewer.
    kept: Vec<Long>,
    /// The shortest of them.
    floor: Long,
}

impl Slowest {
    /// None so far; `most` are kept.
    pub fn new(most: usize) -> Self {
        Self { kept: vec![Long::default(); most], floor: Long::default() }
    }

    /// Whether `ns` is among the longest, and if so keeps it in place of the shortest of them.
    #[inline]
    pub fn takes(&mut self, ns: u64, place: [u32; 2]) -> bool {
        ns > 0 && ns >= self.floor.0 && self.replaces((ns, Reverse(place)))
    }

    /// Whether the RPC at `place` is among them; of equally long ones those that began first are.
    pub fn has(&self, ns: u64, place: [u32; 2]) -> bool {
        self.kept.contains(&(ns, Reverse(place)))
    }

    /// Takes one out, of which it shows later that it took longer.
    pub fn take_back(&mut self, ns: u64, place: [u32; 2]) {
        if let Some(kept) = self.kept.iter_mut().find(|kept| **kept == (ns, Reverse(place))) {
            *kept = Long::default();
            self.floor = Long::default();
        }
    }

    fn replaces(&mut self, long: Long) -> bool {
        let Some(least) = self.kept.iter_mut().min().filter(|least| **least < long) else { return false };
        *least = long;
        self.floor = self.kept.iter().copied().min().unwrap_or_default();
        true
    }

    /// Takes those of another thread in.
    pub fn absorb(&mut self, other: &Self) {
        for &long in other.kept.iter().filter(|(ns, _)| *ns > 0) {
            self.replaces(long);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same ones stay in whatever order they come and on however many threads, and each was taken when it came.
        #[test]
        fn the_longest_are_always_taken(
            values in proptest::collection::vec(1..40_u64, 1..200), turn in 0..200_usize, split in 0..200_usize,
            most in 1..12_usize,
        ) {
            let every: Vec<Long> = values.iter().zip(0..).map(|(&ns, packet)| (ns, Reverse([packet, 1]))).collect();
            let mut turned = every.clone();
            turned.rotate_left(turn % every.len());
            let (mut here, mut there) = (Slowest::new(most), Slowest::new(most));
            let mut taken = Vec::new();
            for (number, &(ns, Reverse(place))) in turned.iter().enumerate() {
                if (if number < split { &mut here } else { &mut there }).takes(ns, place) {
                    taken.push((ns, Reverse(place)));
                }
            }
            here.absorb(&there);
            let longest = |mut of: Vec<Long>| { of.sort_unstable_by(|a, b| b.cmp(a)); of.truncate(most); of };
            prop_assert_eq!(longest(taken), longest(every.clone()));
            let kept = here.kept.iter().copied().filter(|long| long.0 > 0).collect();
            prop_assert_eq!(longest(kept), longest(every));
        }
    }

    #[test]
    fn one_that_took_longer_costs_no_other_its_place() {
        let mut slowest = Slowest::new(2);
        assert!([(5, 1), (4, 2), (3, 3)].map(|(ns, packet)| slowest.takes(ns, [packet, 1])) == [true, true, false]);
        slowest.take_back(5, [1, 1]);
        assert!(slowest.takes(9, [1, 1]));
        assert!(slowest.has(9, [1, 1]) && slowest.has(4, [2, 1]) && !slowest.takes(3, [3, 1]));
    }

    #[test]
    fn where_none_is_wanted_none_is_taken() {
        assert!(!Slowest::new(0).takes(5, [1, 1]));
    }
}
