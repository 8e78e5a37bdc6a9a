//! Measures how much longer than the path's minimum a sender's packets take to the capture point.
//!
//! The TCP timestamp of a packet is its sender's clock (RFC 7323 section 4). Arrival less that clock is the delay on the
//! way but for a constant, and its minimum is the path alone: what lies above it is time in queues. The minimum is that
//! of the packets so far, so the result is a lower bound until one was not queued. Clocks drift apart, so the minimum
//! rises with time.

use serde::{Deserialize, Serialize};

use super::queue::TARGET;

/// Ticks of the clocks in use, nanoseconds: 1 us and 1 ms (Linux, `tcp_clock_ts`, net/ipv4/tcp.c; BSD and Windows), 4 and
/// 10 ms (Linux before 4.13, by CONFIG_HZ).
const TICKS: [i64; 4] = [1_000, 1_000_000, 4_000_000, 10_000_000];
/// The clock's rate is told from packets this far apart, nanoseconds: 100 ms, a hundred ticks of the usual length.
const RATE_TIME: i64 = 100_000_000;
/// A clock that is farther off its line than this, nanoseconds, is another clock: 4 s, above every queue that TCP waits
/// for.
const FARTHEST: i64 = 4_000_000_000;
/// Time in which a slow clock falls behind by 1: 100 parts per million, twice what crystals do.
const DRIFT_TIME: i64 = 10_000;

/// A host's clock stood, as that of a paused virtual machine does, when for this time, nanoseconds, all packets are later by
/// the same: 10 s, for which BBR too believes a path's minimum (draft-cardwell-iccrg-bbr-congestion-control).
const STEADY_TIME: i64 = 10_000_000_000;

/// The capture's clock was set forward when the packets of both directions, so many of each, are later by the same for this time,
/// nanoseconds, what they are late by included: as many and as long as show a standing queue.
const SHIFTED_TIME: i64 = 100_000_000;
const SHIFTED: u32 = 4;

/// Packets that were late, since the last one that was not.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Late {
    packets: u32,
    /// When the first one came, and the last one.
    since: i64,
    until: i64,
    lowest: i64,
    highest: i64,
}

/// The clock of one sender, and its packets' delays.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PathDelay {
    /// The first packet was seen.
    started: bool,
    /// The last timestamp.
    clock: u32,
    /// The one before it.
    clock_before: u32,
    /// Ticks since the first packet.
    ticks: i64,
    /// When the first packet came.
    first_time: i64,
    /// The length of a tick, 0 while not known.
    tick: i64,
    /// The smallest delay, less that of the first packet.
    minimum: i64,
    /// Since when the next two are measured: the smallest and the largest delay.
    steady_since: i64,
    lowest: i64,
    highest: i64,
    /// When the last packet came that was not late.
    in_time: i64,
    late: Late,
}

impl PathDelay {
    /// Reads what the next packets will; see [`Connection::touch`](super::connection::Connection::touch).
    #[inline]
    pub fn touch(&self) -> u64 {
        (self.ticks ^ self.highest) as u64
    }

    /// A packet with the timestamp `clock` came at `time`: how long it was queued at least, nanoseconds, 0 when that is
    /// less than [`TARGET`] or not known. A tick is the error.
    #[inline]
    pub fn packet(&mut self, clock: u32, time: i64) -> i64 {
        let passed = clock.wrapping_sub(self.clock) as i32;
        (self.clock_before, self.clock) = (self.clock, clock);
        if !self.started {
            self.start(clock, time);
            return 0;
        }
        self.ticks = self.ticks.wrapping_add(i64::from(passed));
        let elapsed = time - self.first_time;
        if self.tick == 0 {
            self.find_tick(elapsed);
        }
        // the clock ran within 4 s of its line up to the packet before: this cannot overflow
        let (delay, drift) = (elapsed - self.ticks * self.tick, elapsed / DRIFT_TIME);
        if delay.abs() > FARTHEST + drift.max(0) {
            self.start(clock, time);
        }
        if self.tick == 0 {
            return 0;
        }
        let delay = delay - drift;
        self.minimum = self.minimum.min(delay);
        self.check_steps(delay, elapsed);
        match delay - self.minimum - self.tick {
            queued if queued >= TARGET => {
                self.late.extend(delay, time);
                queued
            }
            _ => {
                (self.in_time, self.late.packets) = (time, 0);
                0
            }
        }
    }

    /// Whether the capture's clock was set forward: all packets of both directions are late since the same moment, by the same. No
    /// queue is like that in both, nor without change.
    #[cold]
    pub fn have_shifted(both: &mut [&mut Self; 2]) -> bool {
        let [one, other] = both.each_ref();
        let by = [one, other].map(|delay| delay.late.lowest - delay.minimum);
        let lasts = one.late.until.max(other.late.until) - one.late.since.min(other.late.since);
        let shifted = one.late.is_steady()
            && other.late.is_steady()
            && one.in_time < other.late.since
            && other.in_time < one.late.since
            && (by[0] - by[1]).abs() < TARGET + one.tick.max(other.tick)
            && lasts + by[0].min(by[1]) >= SHIFTED_TIME;
        if shifted {
            both.iter_mut().for_each(|one| (one.minimum, one.late.packets) = (one.late.lowest, 0));
        }
        shifted
    }

    /// A queue varies, and a step of a clock does not: after one the minimum is another.
    #[inline]
    fn check_steps(&mut self, delay: i64, elapsed: i64) {
        if elapsed - self.steady_since >= STEADY_TIME {
            if self.highest - self.lowest < TARGET {
                self.minimum = self.lowest;
            }
            (self.steady_since, self.lowest, self.highest) = (elapsed, delay, delay);
        }
        self.lowest = self.lowest.min(delay);
        self.highest = self.highest.max(delay);
    }

    /// When the packet before the last one came at the earliest, if it was not queued: not later than it came.
    pub fn captured_before(&self) -> Option<i64> {
        self.captured_at(self.clock_before).map(|latest| latest - self.tick)
    }

    /// When a packet with the timestamp `clock` came at the latest, if it was not queued.
    pub fn captured_at(&self, clock: u32) -> Option<i64> {
        let ticks = self.ticks.saturating_add(i64::from(clock.wrapping_sub(self.clock) as i32));
        let sent = ticks.saturating_mul(self.tick);
        let tilted = self.minimum.saturating_add(sent / DRIFT_TIME).saturating_add(self.tick);
        (self.tick > 0).then(|| self.first_time.saturating_add(sent).saturating_add(tilted))
    }

    /// The first packet, or the first of another clock.
    #[cold]
    fn start(&mut self, clock: u32, first_time: i64) {
        *self = Self { started: true, clock, clock_before: clock, first_time, ..Self::default() };
    }

    /// Finds the tick whose length agrees within a quarter with the time that passed.
    #[cold]
    fn find_tick(&mut self, passed: i64) {
        if passed >= RATE_TIME {
            let agrees =
                |tick: &i64| self.ticks.saturating_mul(*tick).saturating_sub(passed).saturating_abs() <= passed / 4;
            self.tick = TICKS.into_iter().find(agrees).unwrap_or(0);
        }
    }
}

impl Late {
    fn extend(&mut self, delay: i64, time: i64) {
        if self.packets == 0 {
            *self = Self { packets: 0, since: time, until: time, lowest: delay, highest: delay };
        }
        self.packets = self.packets.saturating_add(1);
        (self.lowest, self.highest) = (self.lowest.min(delay), self.highest.max(delay));
        self.until = time;
    }

    fn is_steady(&self) -> bool {
        self.packets >= SHIFTED && self.highest - self.lowest < TARGET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// The longest delays of two senders with a packet each 10 ms, which are later by `by` from `since` on, in the last second of two.
    fn longest_of_both(by: [i64; 2], since: [i64; 2], varies: i64) -> [i64; 2] {
        let mut delays = [PathDelay::default(); 2];
        let mut longest = [0; 2];
        for n in 0..200_i64 {
            for side in 0..2 {
                let sent = 10 * n + 3 * side as i64;
                let late = if sent < since[side] { 0 } else { by[side] + n % 2 * varies };
                let queued = delays[side].packet(sent as u32, (sent + late) * MS);
                let [first, second] = &mut delays;
                let shifted = queued > 0 && PathDelay::have_shifted(&mut [first, second]);
                longest[side] = if n < 100 || shifted { 0 } else { longest[side].max(queued) };
            }
        }
        longest.map(|queued| queued / MS)
    }

    #[test]
    fn a_clock_that_was_set_is_no_queue() {
        assert_eq!(longest_of_both([50, 50], [500, 500], 0), [0, 0]);
        assert_eq!(longest_of_both([50, 53], [500, 500], 2), [0, 0]);
        assert_eq!(longest_of_both([50, 0], [500, 500], 0), [48, 0], "one direction");
        assert_eq!(longest_of_both([50, 60], [500, 500], 0), [48, 58], "not by the same");
        assert_eq!(longest_of_both([50, 50], [500, 600], 0), [48, 48], "not at once");
        assert_eq!(longest_of_both([50, 50], [500, 500], 6), [54, 54], "a queue varies");
    }

    /// Sends a packet each 10 ms of which those at 2 to 3 s are queued for `queue`; gives the longest measured.
    fn longest(tick: i64, ppm: i64, queue: i64) -> i64 {
        let mut delay = PathDelay::default();
        let mut longest = 0;
        for sent in (0..6_000 * MS).step_by(10 * MS as usize) {
            let queued = if (2_000 * MS..3_000 * MS).contains(&sent) { queue } else { 0 };
            let clock = 0xffff_ff00_u32.wrapping_add((sent / tick) as u32);
            longest = longest.max(delay.packet(clock, 7 * MS + sent + sent / 1_000_000 * ppm + queued));
        }
        longest
    }

    #[test]
    fn a_queue_is_measured_to_a_tick_and_the_drift() {
        for tick in TICKS {
            for ppm in [-50, 0, 50] {
                let found = longest(tick, ppm, 80 * MS);
                assert!((79 * MS - 2 * tick..80 * MS + MS).contains(&found), "{tick} {ppm} {found}");
                assert_eq!(longest(tick, ppm, 4 * MS), 0, "{tick} {ppm}");
            }
        }
    }

    /// The longest delay of a sender with a packet each 10 ms, in the last of 60 seconds, behind `pause` of its clock.
    fn longest_at_last(pause: i64, varies: i64) -> i64 {
        let mut delay = PathDelay::default();
        let mut longest = 0;
        for sent in (0..60_000 * MS).step_by(10 * MS as usize) {
            let later = if sent < 2_000 * MS { 0 } else { pause + sent / (10 * MS) % 2 * varies };
            let queued = delay.packet((sent / MS) as u32, 7 * MS + sent + later);
            longest = if sent < 59_000 * MS { 0 } else { longest.max(queued) };
        }
        longest
    }

    #[test]
    fn a_clock_that_stood_is_no_queue_for_long() {
        assert_eq!(longest_at_last(300 * MS, 0), 0);
        assert_eq!(longest_at_last(300 * MS, 3 * MS), 0);
        assert!(longest_at_last(300 * MS, 12 * MS) > 300 * MS, "a queue varies");
    }

    #[test]
    fn a_queue_does_not_make_a_packet_leave_later() {
        let mut delay = PathDelay::default();
        let round = |delay: &PathDelay| delay.captured_before().map(|before| (before + MS / 2) / MS);
        for n in 0..50_i64 {
            delay.packet(10 * n as u32, 10 * n * MS);
            assert!(round(&delay).is_none_or(|before| before == 10 * (n - 1)), "{n}");
        }
        for queued in [80, 70] {
            delay.packet(580 - queued as u32, 580 * MS);
        }
        assert_eq!(round(&delay), Some(500));
    }

    #[test]
    fn a_clock_whose_tick_is_not_known_measures_nothing() {
        assert_eq!(longest(2 * MS, 0, 80 * MS), 0);
    }

    #[test]
    fn another_clock_begins_anew() {
        let mut delay = PathDelay::default();
        for n in 0..50_i64 {
            assert_eq!(delay.packet(1_000 + 10 * n as u32, 10 * n * MS), 0);
        }
        for n in 50..100_i64 {
            assert_eq!(delay.packet(90_000_000 + 10 * n as u32, 10 * n * MS), 0);
        }
        assert!((58 * MS..60 * MS).contains(&delay.packet(90_000_000 + 1_000, 1_060 * MS)));
    }
}
