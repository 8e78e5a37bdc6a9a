//! Keeps durations for exact quantiles: in memory, or in a temporary file when there are too many.

use std::sync::Arc;

use super::spill::Spill;

/// Durations in nanoseconds, of which exact quantiles are wanted: those below 4.3 s in half the space.
#[derive(Clone, Debug)]
pub struct Durations {
    short: Values<u32>,
    long: Values<u64>,
    /// How many of a width are kept in memory.
    most: usize,
    spill: Option<Arc<Spill>>,
}

impl Default for Durations {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Durations {
    /// None so far; more than memory should hold go to `spill`.
    pub fn new(spill: Option<Arc<Spill>>) -> Self {
        let most = spill.as_ref().map_or(usize::MAX, |spill| spill.most);
        Self { short: Values::default(), long: Values::default(), most, spill }
    }

    /// Adds one.
    #[inline]
    pub fn push(&mut self, ns: u64) {
        let kept = match u32::try_from(ns) {
            Ok(ns) => {
                self.short.kept.push(ns);
                self.short.kept.len()
            }
            Err(_) => {
                self.long.kept.push(ns);
                self.long.kept.len()
            }
        };
        if kept >= self.most {
            self.put_away();
        }
    }

    /// Takes out one that was added; `false` if those like it were moved.
    pub fn take_back(&mut self, ns: u64) -> bool {
        match u32::try_from(ns) {
            Ok(ns) => take_last(&mut self.short.kept, ns),
            Err(_) => take_last(&mut self.long.kept, ns),
        }
    }

    #[cold]
    fn put_away(&mut self) {
        if let Some(spill) = &self.spill {
            self.short.put_away(spill);
            self.long.put_away(spill);
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        self.short.bytes() + self.long.bytes()
    }

    /// Sorts them if they are many, so that copies share them and quantiles of many copies together are found by searching.
    pub fn pack(&mut self) {
        self.sort(MANY_TO_SHARE);
    }

    fn sort(&mut self, least: usize) {
        self.short.sort(least);
        self.long.sort(least);
    }

    /// Adds the durations of another thread, which uses the same file.
    pub fn absorb(&mut self, other: &mut Self) {
        self.short.absorb(&mut other.short);
        self.long.absorb(&mut other.long);
    }

    /// All together; an absurd sum stops at what 64 bits hold.
    pub fn sum(&self) -> u64 {
        let short: u64 = self.short.kept.iter().map(|&ns| u64::from(ns)).sum();
        let kept = self.long.kept.iter().fold(short, |sum, &ns| sum.saturating_add(ns));
        let sorted =
            self.short.sorted.iter().map(|sorted| sorted.sum).chain(self.long.sorted.iter().map(|sorted| sorted.sum));
        let kept = sorted.fold(kept, u64::saturating_add);
        let away = |away: &Option<Box<Away>>| away.as_ref().map_or(0, |away| away.sum);
        kept.saturating_add(away(&self.short.away)).saturating_add(away(&self.long.away))
    }

    /// The values of some ranks, from 1, among all in ascending order, each in the place of its rank; 0 for a rank that
    /// there is not. Reorders the durations.
    pub fn at_ranks(&mut self, ranks: &[usize]) -> Vec<u64> {
        let mut wanted: Vec<usize> = ranks.iter().copied().filter(|rank| (1..=self.len()).contains(rank)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let (in_short, short) = (wanted.partition_point(|&rank| rank <= self.short.len()), self.short.len());
        let mut found = Vec::with_capacity(wanted.len());
        let (first, second) = wanted.split_at(in_short);
        self.short.at_ranks(1, first, self.spill.as_deref(), &mut found);
        self.long.at_ranks(short + 1, second, self.spill.as_deref(), &mut found);
        let value = |rank| found.iter().find(|&&(of, _)| of == rank).map_or(0, |&(_, value)| value);
        ranks.iter().map(|&rank| value(rank)).collect()
    }

    /// How many there are of each class, up to that of the longest one: class `n` begins at the power
    /// `n / CLASSES_PER_DECADE` of ten. Those beyond the shortest and the longest class count there.
    pub fn classes(&self) -> Vec<u64> {
        let longest = self.longest().max(SHORTEST);
        let begins: Vec<u64> = (0..=LAST_CLASS).map(begin_of_class).take_while(|&begin| begin <= longest).collect();
        let mut counts = vec![0; begins.len()];
        let mut count = |ns: u64| {
            let class = begins.partition_point(|&begin| begin <= ns.max(SHORTEST));
            if let Some(count) = class.checked_sub(1).and_then(|class| counts.get_mut(class)) {
                *count += 1;
            }
        };
        self.short.each(self.spill.as_deref(), &mut count);
        self.long.each(self.spill.as_deref(), &mut count);
        counts
    }

    /// The longest one, 0 without any.
    pub fn longest(&self) -> u64 {
        if self.long.len() > 0 { self.long.longest() } else { self.short.longest() }
    }
}

/// Classes of durations between a power of ten and the next one.
pub const CLASSES_PER_DECADE: u32 = 40;
/// From three hours on all are of one class.
const LAST_CLASS: u32 = 13 * CLASSES_PER_DECADE;
/// A microsecond: RPCs that begin and end in one packet are drawn as this long, for logarithms have no zero.
const SHORTEST: u64 = 1_000;

/// The shortest duration of a class, nanoseconds.
fn begin_of_class(class: u32) -> u64 {
    10_f64.powf(f64::from(class) / f64::from(CLASSES_PER_DECADE)).ceil() as u64
}

/// Takes the last one like it out of some values; `false` without any.
fn take_last<T: Copy + Eq>(values: &mut Vec<T>, value: T) -> bool {
    let place = values.iter().rposition(|&kept| kept == value);
    place.map(|place| values.swap_remove(place)).is_some()
}

/// Values of one width.
#[derive(Clone, Debug, Default)]
struct Values<T> {
    kept: Vec<T>,
    sorted: Vec<Arc<Sorted<T>>>,
    /// Made with the first piece: there may be very many methods.
    away: Option<Box<Away>>,
}

/// Values in ascending order, and their sum.
#[derive(Debug)]
struct Sorted<T> {
    values: Vec<T>,
    sum: u64,
}

/// What is in the file.
#[derive(Clone, Debug, Default)]
struct Away {
    /// Where pieces begin, and how many values each has.
    pieces: Vec<(u64, u32)>,
    values: usize,
    sum: u64,
    longest: u64,
}

/// A value of some bytes.
trait Value: Copy + Ord + Into<u64> {
    const BYTES: usize;
    fn add_to(self, bytes: &mut Vec<u8>);
}

impl Value for u32 {
    const BYTES: usize = 4;
    fn add_to(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }
}

impl Value for u64 {
    const BYTES: usize = 8;
    fn add_to(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }
}

impl<T: Value> Values<T> {
    fn len(&self) -> usize {
        let sorted: usize = self.sorted.iter().map(|sorted| sorted.values.len()).sum();
        self.kept.len() + sorted + self.away.as_ref().map_or(0, |away| away.values)
    }

    fn bytes(&self) -> usize {
        let sorted: usize = self.sorted.iter().map(|sorted| size_of_val(sorted.values.as_slice())).sum();
        size_of_val(self.kept.as_slice()) + sorted
    }

    fn longest(&self) -> u64 {
        let away = self.away.as_ref().map_or(0, |away| away.longest);
        let sorted = self.sorted.iter().filter_map(|sorted| sorted.values.last());
        self.kept.iter().chain(sorted).max().map_or(0, |&longest| longest.into()).max(away)
    }

    /// Moves those kept to a sorted part, unless they are fewer than `least`.
    fn sort(&mut self, least: usize) {
        if self.kept.len() >= least {
            let mut values = std::mem::take(&mut self.kept);
            values.sort_unstable();
            let sum = values.iter().fold(0_u64, |sum, &value| sum.saturating_add(value.into()));
            self.sorted.push(Arc::new(Sorted { values, sum }));
        }
    }

    /// Moves all to the file.
    fn put_away(&mut self, spill: &Spill) {
        if self.kept.is_empty() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.kept.len() * T::BYTES);
        let longest = self.longest();
        let away = self.away.get_or_insert_default();
        away.longest = longest;
        away.values += self.kept.len();
        let values = self.kept.len() as u32;
        for value in self.kept.drain(..) {
            away.sum = away.sum.saturating_add(value.into());
            value.add_to(&mut bytes);
        }
        away.pieces.push((spill.add(&bytes), values));
    }

    fn absorb(&mut self, other: &mut Self) {
        if other.kept.len() > self.kept.len() {
            std::mem::swap(&mut self.kept, &mut other.kept);
        }
        self.kept.append(&mut other.kept);
        self.sorted.append(&mut other.sorted);
        match (&mut self.away, other.away.take()) {
            (Some(away), Some(mut theirs)) => {
                away.pieces.append(&mut theirs.pieces);
                away.values += theirs.values;
                away.sum = away.sum.saturating_add(theirs.sum);
                away.longest = away.longest.max(theirs.longest);
            }
            (away, theirs @ Some(_)) => *away = theirs,
            (_, None) => {}
        }
    }

    /// Finds the values of ascending different ranks, of which `first` is that of the smallest value.
    fn at_ranks(&mut self, first: usize, ranks: &[usize], spill: Option<&Spill>, found: &mut Vec<(usize, u64)>) {
        match spill.filter(|_| self.away.is_some()) {
            Some(spill) => self.count(first, ranks, spill, found),
            None if !self.sorted.is_empty() => {
                self.sort(1);
                found.extend(ranks.iter().map(|&rank| (rank, self.search(rank - first))));
            }
            None if self.kept.len() < MANY => select(&mut self.kept, first, ranks, found),
            None => select_of_many(&self.kept, first, ranks, found),
        }
    }

    /// The value in a place of all sorted parts together: the largest number that at most so many values are smaller than.
    fn search(&self, place: usize) -> u64 {
        let bits = u64::BITS - self.longest().leading_zeros();
        (0..bits).rev().fold(0, |found, bit| {
            let next = found | 1 << bit;
            let smaller = self.sorted.iter().map(|sorted| sorted.values.partition_point(|&value| value.into() < next));
            if smaller.sum::<usize>() <= place { next } else { found }
        })
    }

    /// The same by counting, 16 bits of all values at a time from the highest on: each time it is known of more bits of
    /// each wanted value what they are, and how many values with these bits are smaller.
    fn count(&self, first: usize, ranks: &[usize], spill: &Spill, found: &mut Vec<(usize, u64)>) {
        const BITS: u32 = 16;
        let mut known: Vec<(usize, u64)> = ranks.iter().map(|&rank| (rank - first, 0)).collect();
        let mut shift = T::BYTES as u32 * 8;
        while shift > 0 {
            let above = move |value: u64| value.checked_shr(shift).unwrap_or(0);
            let mut beginnings: Vec<u64> = known.iter().map(|&(_, bits)| bits).collect();
            beginnings.dedup();
            let mut counts = vec![vec![0_u64; 1 << BITS]; beginnings.len()];
            shift -= BITS;
            self.each(Some(spill), |value| {
                if let Ok(place) = beginnings.binary_search(&above(value)) {
                    counts[place][(value >> shift) as usize & 0xffff] += 1;
                }
            });
            for (smaller, bits) in &mut known {
                let Ok(place) = beginnings.binary_search(bits) else { continue };
                let mut next = 0;
                for (&count, these) in counts[place].iter().zip(0..) {
                    next = these;
                    if *smaller < count as usize {
                        break;
                    }
                    *smaller -= count as usize;
                }
                *bits = *bits << BITS | next;
            }
        }
        found.extend(ranks.iter().copied().zip(known.into_iter().map(|(_, value)| value)));
    }

    /// Shows all values, in no order.
    fn each(&self, spill: Option<&Spill>, mut show: impl FnMut(u64)) {
        let sorted = self.sorted.iter().flat_map(|sorted| &sorted.values);
        self.kept.iter().chain(sorted).for_each(|&value| show(value.into()));
        let mut bytes = Vec::new();
        for &(place, values) in self.away.iter().flat_map(|away| &away.pieces) {
            bytes.resize(values as usize * T::BYTES, 0);
            if let Some(spill) = spill {
                spill.read(place, &mut bytes);
            }
            for value in bytes.chunks_exact(T::BYTES) {
                show(value.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
            }
        }
    }
}

/// From so many values on, sorting them once costs less than copying and dividing them for each window of a minute.
const MANY_TO_SHARE: usize = 1 << 10;

/// From so many values on, counting them is cheaper than dividing them.
const MANY: usize = 1 << 16;

/// Leading bits of a value by which it is counted: neighbours differ by less than 1 %.
const LEADING_BITS: u32 = 8;

/// Values of other leading bits have other numbers, larger values no smaller ones.
#[inline]
fn leading(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(LEADING_BITS);
    (u64::from(shift) << LEADING_BITS | value >> shift) as usize
}

/// What [`select`] does, of very many values: counted by their leading bits, so that only those are put aside and divided
/// which share them with a wanted one. [`Values::count`] puts nothing aside and takes twice as long.
fn select_of_many<T: Copy + Ord + Into<u64>>(of: &[T], first: usize, ranks: &[usize], found: &mut Vec<(usize, u64)>) {
    let mut counts = vec![0_usize; leading(u64::MAX) + 1];
    for &value in of {
        counts[leading(value.into())] += 1;
    }
    let mut wanted = vec![false; counts.len()];
    let (mut smaller, mut smaller_aside, mut places) = (0, 0, Vec::with_capacity(ranks.len()));
    let mut left = ranks.iter().map(|&rank| rank - first).peekable();
    for (count, wanted) in counts.into_iter().zip(&mut wanted) {
        while let Some(place) = left.next_if(|&place| place < smaller + count) {
            *wanted = true;
            places.push(smaller_aside + place - smaller);
        }
        smaller += count;
        smaller_aside += if *wanted { count } else { 0 };
    }
    let mut aside: Vec<T> = of.iter().copied().filter(|&value| wanted[leading(value.into())]).collect();
    let mut selected = Vec::with_capacity(places.len());
    select(&mut aside, 0, &places, &mut selected);
    selected.sort_unstable();
    found.extend(ranks.iter().copied().zip(selected.into_iter().map(|(_, value)| value)));
}

/// Finds the values of ascending different ranks, of which `first` is that of the smallest value in `of`: the middle one
/// first, whose place then divides the rest.
fn select<T: Copy + Ord + Into<u64>>(of: &mut [T], first: usize, ranks: &[usize], found: &mut Vec<(usize, u64)>) {
    let middle = ranks.len() / 2;
    let (before, rest) = ranks.split_at(middle);
    let Some((&rank, after)) = rest.split_first() else { return };
    let Some(place) = rank.checked_sub(first).filter(|&place| place < of.len()) else { return };
    let (smaller, value, larger) = of.select_nth_unstable(place);
    found.push((rank, (*value).into()));
    select(smaller, first, before, found);
    select(larger, rank + 1, after, found);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted(mut values: Vec<u64>) -> Vec<u64> {
        values.sort_unstable();
        values
    }

    proptest! {
        #[test]
        fn values_of_ranks_are_those_of_the_sorted_values(
            values in proptest::collection::vec(prop_oneof![0..50_u64, (u64::from(u32::MAX) - 2)..u64::from(u32::MAX) + 3, any::<u64>()], 1..300),
            split in 0..300_usize,
            ranks in proptest::collection::vec(0..310_usize, 0..14),
            most in prop_oneof![Just(None), (1..40_usize).prop_map(Some)],
            sorted_from in prop_oneof![Just(usize::MAX), 1..200_usize],
        ) {
            let spill = most.and_then(|most| Spill::new(most).ok());
            let (mut here, mut there) = (Durations::new(spill.clone()), Durations::new(spill.clone()));
            for (index, &ns) in values.iter().enumerate() {
                if index < split { here.push(ns) } else { there.push(ns) }
            }
            here.sort(sorted_from);
            there.sort(sorted_from);
            here.absorb(&mut there);
            prop_assert_eq!(here.len(), values.len());
            prop_assert_eq!(here.sum(), values.iter().fold(0_u64, |sum, &ns| sum.saturating_add(ns)));
            let ordered = sorted(values);
            prop_assert_eq!(here.longest(), ordered[ordered.len() - 1]);
            let (classes, mut expected) = (here.classes(), vec![0; LAST_CLASS as usize + 1]);
            for &ns in &ordered {
                let class = (ns.max(SHORTEST) as f64).log10() * f64::from(CLASSES_PER_DECADE) + 1e-9;
                expected[(class as usize).min(LAST_CLASS as usize)] += 1;
            }
            expected.truncate(classes.len());
            prop_assert_eq!(classes, expected);
            let expected: Vec<u64> =
                ranks.iter().map(|rank| rank.checked_sub(1).and_then(|at| ordered.get(at)).copied().unwrap_or(0)).collect();
            prop_assert_eq!(here.at_ranks(&ranks), expected);
            prop_assert!(spill.is_none_or(|spill| spill.failure().is_none()));
        }
    }

    proptest! {
        #[test]
        fn counting_finds_what_dividing_does(
            values in proptest::collection::vec(prop_oneof![0..50_u64, 250..260_u64, 100_000..101_000_u64, any::<u64>()], 1..300),
            mut ranks in proptest::collection::vec(any::<prop::sample::Index>(), 0..14),
            first in 0..3_usize,
        ) {
            let mut ranks: Vec<usize> = ranks.drain(..).map(|rank| first + rank.index(values.len())).collect();
            ranks.sort_unstable();
            ranks.dedup();
            let (mut counted, mut divided) = (Vec::new(), Vec::new());
            select_of_many(&values, first, &ranks, &mut counted);
            select(&mut values.clone(), first, &ranks, &mut divided);
            divided.sort_unstable();
            prop_assert_eq!(counted, divided);
        }

        #[test]
        fn numbers_of_leading_bits_keep_the_order(one in any::<u64>(), other in any::<u64>(), less in 0..64_u32) {
            let (one, other) = (one >> less, other >> less);
            prop_assert!(one.cmp(&other) == leading(one).cmp(&leading(other)) || leading(one) == leading(other));
            prop_assert!(leading(one) <= leading(u64::MAX));
        }
    }

    #[test]
    fn nothing_has_no_values() {
        assert_eq!(Durations::default().at_ranks(&[0, 1]), [0, 0]);
        assert_eq!(Durations::default().longest(), 0);
    }
}
