//! What is kept per method while packets pass by: counts, times and their distribution.

use hdrhistogram::Histogram;

use crate::budget::Budget;
use crate::grpc::status;
use crate::limits;

/// Statistics of one method.
#[derive(Debug)]
pub struct MethodStats {
    /// RPCs.
    pub rpcs: u64,
    /// Of them, those whose end was seen.
    pub complete: u64,
    /// Of them, those of which bytes are missing.
    pub touch_gaps: u64,
    /// RPCs by status code; the last entry counts those whose status was not seen.
    pub statuses: [u64; status::NAMES.len() + 1],
    /// When the first RPC began, nanoseconds since the epoch.
    pub first_start: i64,
    /// When the last one ended or was last seen.
    pub last_end: i64,
    /// How long the complete ones took.
    pub durations: Durations,
    /// The longest of them, by which examples are chosen.
    slowest: Slowest,
    /// From a request message's last byte to the next response message's first byte on its stream, nanoseconds;
    /// only for the first [`limits::METHOD_HISTOGRAMS`] methods.
    pub turnaround: Option<Histogram<u64>>,
    /// Sum of the turnarounds, nanoseconds, for an exact mean.
    pub turnaround_sum: u64,
    /// The shortest turnaround, nanoseconds.
    pub turnaround_min: u64,
    /// The longest turnaround, nanoseconds.
    pub turnaround_max: u64,
    /// Messages of both directions.
    pub messages: u64,
    /// The RPCs' budgets summed.
    pub budget: Budget,
}

impl MethodStats {
    /// No RPC so far; with `histogram` turnarounds are kept.
    pub fn new(histogram: bool) -> Self {
        // three significant digits: quantiles are within 0.1 % of the exact value
        let turnaround = histogram.then(|| Histogram::new(3).ok()).flatten();
        Self {
            rpcs: 0,
            complete: 0,
            touch_gaps: 0,
            statuses: [0; status::NAMES.len() + 1],
            first_start: i64::MAX,
            last_end: i64::MIN,
            durations: Durations::default(),
            slowest: Slowest::default(),
            turnaround,
            turnaround_sum: 0,
            turnaround_min: u64::MAX,
            turnaround_max: 0,
            messages: 0,
            budget: Budget::default(),
        }
    }

    /// Takes an RPC in at its end; `start` is when it began, or if not `whole` when it was first seen. Says whether it is among the longest so far.
    #[inline]
    pub fn add_rpc(&mut self, status: u8, complete: bool, whole: bool, start: i64, budget: &Budget) -> bool {
        let duration = budget.total();
        self.rpcs += 1;
        self.complete += u64::from(complete);
        self.statuses[usize::from(status).min(status::NAMES.len())] += 1;
        self.first_start = self.first_start.min(start);
        self.last_end = self.last_end.max(start.saturating_add_unsigned(duration));
        self.budget.add_all(budget);
        if complete && whole {
            self.durations.push(duration);
        }
        complete && whole && self.slowest.takes(duration)
    }

    /// Takes the statistics of the same method from another thread in.
    pub fn absorb(&mut self, other: &mut Self) {
        self.rpcs += other.rpcs;
        self.complete += other.complete;
        self.touch_gaps += other.touch_gaps;
        for (sum, count) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += count;
        }
        self.first_start = self.first_start.min(other.first_start);
        self.last_end = self.last_end.max(other.last_end);
        self.durations.absorb(&mut other.durations);
        if let (Some(histogram), Some(theirs)) = (&mut self.turnaround, &other.turnaround) {
            // the histograms resize themselves: adding cannot fail for values either could hold
            let _ = histogram.add(theirs);
        }
        self.turnaround_sum = self.turnaround_sum.saturating_add(other.turnaround_sum);
        self.turnaround_min = self.turnaround_min.min(other.turnaround_min);
        self.turnaround_max = self.turnaround_max.max(other.turnaround_max);
        self.messages += other.messages;
        self.budget.add_all(&other.budget);
    }

    /// Takes one turnaround in.
    #[inline]
    pub fn add_turnaround(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.turnaround {
            // grows the histogram as needed; fails only beyond what 64 bits of nanoseconds can be
            let _ = histogram.record(ns);
            self.turnaround_sum = self.turnaround_sum.saturating_add(ns);
            self.turnaround_min = self.turnaround_min.min(ns);
            self.turnaround_max = self.turnaround_max.max(ns);
        }
    }
}

/// Durations in nanoseconds, of which exact quantiles are wanted: those below 4.3 s in half the space.
#[derive(Debug, Default)]
pub struct Durations {
    short: Vec<u32>,
    long: Vec<u64>,
}

impl Durations {
    /// Adds one.
    #[inline]
    pub fn push(&mut self, ns: u64) {
        match u32::try_from(ns) {
            Ok(ns) => self.short.push(ns),
            Err(_) => self.long.push(ns),
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

    fn absorb(&mut self, other: &mut Self) {
        if other.len() > self.len() {
            std::mem::swap(self, other);
        }
        self.short.append(&mut other.short);
        self.long.append(&mut other.long);
    }

    /// All together; an absurd sum stops at what 64 bits hold.
    pub fn sum(&self) -> u64 {
        let short: u64 = self.short.iter().map(|&ns| u64::from(ns)).sum();
        self.long.iter().fold(short, |sum, &ns| sum.saturating_add(ns))
    }

    /// The values at some shares of all, by nearest rank, then the smallest and the largest; zeros without any.
    /// Reorders the durations.
    pub fn quantiles<const N: usize>(&mut self, shares: [f64; N]) -> ([u64; N], u64, u64) {
        let count = self.len();
        let ranks = shares.map(|share| ((share * count as f64).ceil() as usize).clamp(1, count.max(1)) - 1);
        let mut at = [0; N];
        let mut order: [usize; N] = std::array::from_fn(|index| index);
        order.sort_unstable_by_key(|&index| std::cmp::Reverse(ranks[index]));
        let mut end = count; // what is beyond a rank once selected is larger: the next one is sought before it
        for index in order {
            at[index] = self.select(ranks[index], end);
            end = (ranks[index] + 1).min(end);
        }
        let smallest = |of: &[u32]| of.iter().min().copied().map(u64::from);
        let min = smallest(&self.short).or_else(|| self.long.iter().min().copied());
        let max = self.long.iter().max().copied().or_else(|| self.short.iter().max().copied().map(u64::from));
        (at, min.unwrap_or(0), max.unwrap_or(0))
    }

    /// The duration of a rank below `end`, before which stand the `end` smallest ones.
    fn select(&mut self, rank: usize, end: usize) -> u64 {
        let short = self.short.len();
        if rank < short {
            let part = self.short.get_mut(..end.min(short)).unwrap_or_default();
            return if rank < part.len() { u64::from(*part.select_nth_unstable(rank).1) } else { 0 };
        }
        let part = self.long.get_mut(..end.saturating_sub(short)).unwrap_or_default();
        if rank - short < part.len() { *part.select_nth_unstable(rank - short).1 } else { 0 }
    }
}

/// The longest durations so far.
#[derive(Debug, Default)]
struct Slowest {
    /// In no order; 0 where there are fewer.
    kept: [u64; limits::SLOWEST_RPCS],
    /// The shortest of them.
    floor: u64,
}

impl Slowest {
    /// Whether `ns` is among the longest, and if so keeps it in place of the shortest of them.
    #[inline]
    fn takes(&mut self, ns: u64) -> bool {
        if ns <= self.floor {
            return false;
        }
        if let Some(place) = self.kept.iter_mut().min() {
            *place = ns;
        }
        self.floor = self.kept.iter().copied().min().unwrap_or(0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

    fn expected(mut values: Vec<u64>) -> ([u64; 4], u64, u64) {
        values.sort_unstable();
        let rank = |share: f64| ((share * values.len() as f64).ceil() as usize).max(1) - 1;
        (SHARES.map(|share| values[rank(share)]), values[0], values[values.len() - 1])
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            values in proptest::collection::vec(prop_oneof![0..50_u64, (u64::from(u32::MAX) - 2)..u64::from(u32::MAX) + 3, any::<u64>()], 1..300),
            split in 0..300_usize,
        ) {
            let (mut here, mut there) = (Durations::default(), Durations::default());
            for (index, &ns) in values.iter().enumerate() {
                if index < split { here.push(ns) } else { there.push(ns) }
            }
            here.absorb(&mut there);
            prop_assert_eq!(here.len(), values.len());
            prop_assert_eq!(here.sum(), values.iter().fold(0_u64, |sum, &ns| sum.saturating_add(ns)));
            prop_assert_eq!(here.quantiles(SHARES), expected(values));
        }

        #[test]
        fn the_longest_are_always_taken(values in proptest::collection::vec(1..1_000_u64, 1..200)) {
            let mut slowest = Slowest::default();
            let taken: Vec<u64> = values.iter().copied().filter(|&ns| slowest.takes(ns)).collect();
            let longest = |mut of: Vec<u64>| { of.sort_unstable_by(|a, b| b.cmp(a)); of.truncate(limits::SLOWEST_RPCS); of };
            prop_assert_eq!(longest(taken), longest(values));
        }
    }

    #[test]
    fn nothing_has_no_quantiles() {
        assert_eq!(Durations::default().quantiles(SHARES), ([0; 4], 0, 0));
    }
}
