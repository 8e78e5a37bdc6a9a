//! Statistics of each method: counts, times and their distribution.

use hdrhistogram::Histogram;

use crate::limits;

use super::budget::Budget;
use super::durations::Durations;
use super::largest::Largest;

/// The status code of success.
pub const OK: u8 = 0;
/// Status codes of gRPC.
pub const STATUSES: usize = 17;

/// Statistics of one method.
#[derive(Clone, Debug)]
pub struct MethodStats {
    /// RPCs.
    pub rpcs: u64,
    /// Of them, those whose end was seen.
    pub complete: u64,
    /// RPCs of the method with bytes missing from the capture.
    pub touch_gaps: u64,
    /// Of them, those whose end is among bytes or packets that the capture lacks: they took longer than is known.
    pub end_missing: u64,
    /// RPCs by status code; the last entry counts those whose status was not seen.
    pub statuses: [u64; STATUSES + 1],
    /// When the first RPC began, nanoseconds since the epoch.
    pub first_start: i64,
    /// The first packet and the stream of that RPC, which tell methods apart whose first RPCs began together.
    pub first_place: [u32; 2],
    /// When the last one ended or was last seen.
    pub last_end: i64,
    /// How long the complete ones took.
    pub durations: Durations,
    /// The longest of them, by which examples are chosen.
    slowest: Largest,
    /// From a request message's last byte to the next response message's first byte on its stream, nanoseconds; from the
    /// request's END_STREAM if that comes clearly later. Only for the first [`limits::METHOD_HISTOGRAMS`] methods.
    pub turnaround: Option<Histogram<u64>>,
    /// The same while the statistics wait for others: recorded values with their counts, a hundredth of the size.
    packed: Option<Vec<(u64, u64)>>,
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
    pub fn new(histogram: bool, durations: Durations) -> Self {
        // three significant digits: quantiles are within 0.1 % of the exact value
        let turnaround = histogram.then(|| Histogram::new(3).ok()).flatten();
        Self {
            rpcs: 0,
            complete: 0,
            touch_gaps: 0,
            end_missing: 0,
            statuses: [0; STATUSES + 1],
            first_start: i64::MAX,
            first_place: [u32::MAX; 2],
            last_end: i64::MIN,
            durations,
            slowest: Largest::new(limits::SLOWEST_RPCS),
            turnaround,
            packed: None,
            turnaround_sum: 0,
            turnaround_min: u64::MAX,
            turnaround_max: 0,
            messages: 0,
            budget: Budget::default(),
        }
    }

    /// Takes an RPC in at its end; `start` is when it began, or if not `whole` when it was first seen, `place` its first
    /// packet and its stream. Says whether it is among the longest so far.
    #[inline]
    pub fn add_rpc(
        &mut self,
        status: u8,
        complete: bool,
        whole: bool,
        start: i64,
        place: [u32; 2],
        budget: &Budget,
    ) -> bool {
        let duration = budget.total();
        self.rpcs += 1;
        self.complete += u64::from(complete);
        self.statuses[usize::from(status).min(STATUSES)] += 1;
        self.begins(start, place);
        self.last_end = self.last_end.max(start.saturating_add_unsigned(duration));
        self.budget.add_all(budget);
        if complete && whole {
            self.durations.push(duration);
        }
        complete && whole && self.slowest.takes(duration, place)
    }

    /// Takes out an RPC that was taken in as complete; `false` if that is no longer possible.
    pub fn take_back(&mut self, status: u8, whole: bool, place: [u32; 2], budget: &Budget) -> bool {
        let possible = !whole || self.durations.take_back(budget.total());
        if possible {
            self.slowest.take_back(budget.total(), place);
            self.rpcs = self.rpcs.saturating_sub(1);
            self.complete = self.complete.saturating_sub(1);
            let count = &mut self.statuses[usize::from(status).min(STATUSES)];
            *count = count.saturating_sub(1);
            self.budget.take_back(budget);
        }
        possible
    }

    #[inline]
    fn begins(&mut self, start: i64, place: [u32; 2]) {
        if start <= self.first_start && (start, place) < (self.first_start, self.first_place) {
            (self.first_start, self.first_place) = (start, place);
        }
    }

    /// Whether the RPC at `place` is among the longest; of equally long ones those that began first are.
    pub fn is_among_longest(&self, duration: u64, place: [u32; 2]) -> bool {
        self.slowest.has(duration, place)
    }

    /// Takes the statistics of the same method from another thread in.
    pub fn absorb(&mut self, other: &mut Self) {
        self.rpcs += other.rpcs;
        self.complete += other.complete;
        self.touch_gaps += other.touch_gaps;
        self.end_missing += other.end_missing;
        for (sum, count) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += count;
        }
        self.begins(other.first_start, other.first_place);
        self.last_end = self.last_end.max(other.last_end);
        self.durations.absorb(&mut other.durations);
        self.slowest.absorb(&other.slowest);
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

    /// Makes the statistics small, which nothing is added to until they are [unpacked](Self::unpack).
    pub fn pack(&mut self) {
        let recorded = |histogram: Histogram<u64>| {
            histogram.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
        };
        self.packed = self.turnaround.take().map(recorded);
        self.durations.pack();
    }

    /// Bytes that the packed statistics take.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.durations.bytes() + self.packed.as_deref().map_or(0, size_of_val)
    }

    /// Makes them as they were.
    pub fn unpack(&mut self) {
        let Some((packed, mut histogram)) = self.packed.take().zip(Histogram::new(3).ok()) else { return };
        for (value, count) in packed {
            let _ = histogram.record_n(value, count); // it could be recorded before
        }
        self.turnaround = Some(histogram);
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

/// The rank of a quantile among `count` values by nearest rank, from 1.
pub fn nearest_rank(share: f64, count: u64) -> u64 {
    ((share * count as f64).ceil() as u64).clamp(1, count.max(1))
}

/// The ranks, from 1, of the two values between which a quantile of the distribution that `count` values were drawn from
/// lies in 95 of 100 cases or more, whatever that distribution; `None` for an end that so few values do not bound.
///
/// As many values lie below the quantile as a binomial distribution says: each end leaves it 2.5 % at most (David and
/// Nagaraja, Order Statistics, section 7.1).
pub fn interval_ranks(share: f64, count: u64) -> (Option<u64>, Option<u64>) {
    let from_above = |rank: u64| count + 1 - rank;
    (lower_rank(share, count), lower_rank(1.0 - share, count).map(from_above))
}

/// The chance that is left to each end.
const TAIL: f64 = 0.025;
/// A chance, against that of the likeliest number, which adds nothing to a sum.
const NEXT_TO_NOTHING: f64 = 1e-18;

/// The largest rank with a chance of [`TAIL`] at most that fewer values than it lie below the quantile.
fn lower_rank(share: f64, count: u64) -> Option<u64> {
    let likeliest = (((count + 1) as f64 * share) as u64).min(count);
    // the chance of one value less below the quantile, against that of `below` values
    let one_less = |below: u64| below as f64 / (count - below + 1) as f64 * (1.0 - share) / share;
    let (mut more, mut chance, mut below) = (0.0, 1.0, likeliest);
    while below < count && chance > NEXT_TO_NOTHING {
        below += 1;
        chance /= one_less(below);
        more += chance;
    }
    let (mut as_many_or_less, mut chance, mut below) = (1.0, 1.0, likeliest);
    while below > 0 && chance > NEXT_TO_NOTHING {
        chance *= one_less(below);
        below -= 1;
        as_many_or_less += chance;
    }
    let least = TAIL * (as_many_or_less + more);
    let (mut chance, mut below) = (1.0, likeliest);
    while as_many_or_less > least {
        as_many_or_less -= chance;
        chance *= one_less(below);
        below = below.checked_sub(1)?;
    }
    Some(below + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_interval() {
        assert_eq!(interval_ranks(0.5, 0), (None, None));
    }

    /// Ranks of order statistics as tables of the sign test have them (5 and fewer values bound no median).
    #[test]
    fn intervals_of_the_median_are_those_of_the_sign_test() {
        for (count, low, high) in
            [(5, None, None), (6, Some(1), Some(6)), (9, Some(2), Some(8)), (20, Some(6), Some(15))]
        {
            assert_eq!(interval_ranks(0.5, count), (low, high), "{count} values");
        }
    }

    #[test]
    fn a_far_quantile_of_few_values_has_no_upper_end() {
        assert_eq!(interval_ranks(0.99, 100), (Some(97), None));
        assert_eq!(interval_ranks(0.01, 100), (None, Some(4)));
        assert_eq!(interval_ranks(0.99, 1000), (Some(983), Some(997)));
    }

    /// Against the distribution summed from its beginning, which works as long as no value below has a chance at all.
    #[test]
    fn ranks_are_those_of_the_sums() {
        for (share, count) in [(0.5, 101), (0.5, 1000), (0.1, 3000), (0.1, 40), (0.01, 3000), (0.001, 20_000)] {
            let (low, high) = summed(share, count);
            let turned = |rank: Option<u64>| rank.map(|rank| count + 1 - rank);
            assert_eq!(interval_ranks(share, count), (low, high), "{share} of {count}");
            assert_eq!(interval_ranks(1.0 - share, count), (turned(high), turned(low)), "the other end");
        }
        let (low, high) = interval_ranks(0.5, 1_000_000_000);
        assert_eq!((low, high), (Some(499_969_010), Some(500_030_991))); // 1.96 standard deviations of 15,811
    }

    fn summed(share: f64, count: u64) -> (Option<u64>, Option<u64>) {
        let (mut chance, mut sum, mut low) = ((1.0 - share).powf(count as f64), 0.0, None);
        for below in 0..count {
            sum += chance;
            if sum <= 0.025 {
                low = Some(below + 1);
            }
            if sum >= 0.975 {
                return (low, Some(below + 1));
            }
            chance *= (count - below) as f64 / (below + 1) as f64 * share / (1.0 - share);
        }
        (low, None)
    }
}
