//! Remembers what blocked a sender below HTTP/2. A stream's own bytes do not show it: an answer may have waited behind
//! blocked bytes, and a request behind a lost segment.

use serde::{Deserialize, Serialize};

use std::ops::Range;

use crate::limits;
use crate::state_fields;
use crate::store::budget::Cause;

/// Retransmissions within this time count as one, nanoseconds: 1 ms.
const TOGETHER: i64 = 1_000_000;

/// An interval in which a sender was blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedInterval {
    /// Its last bytes before.
    pub start: i64,
    /// Its next bytes.
    pub end: i64,
    /// What held it up.
    pub cause: Cause,
    /// A loss held the bytes up, or the congestion window that a loss had reduced.
    pub after_loss: bool,
    /// Time that the application is granted first, nanoseconds: what it sends next may not have been written before.
    pub own_ns: i64,
}

impl BlockedInterval {
    /// An interval of a sender whose application was done, and that no loss held up.
    pub fn new(start: i64, end: i64, cause: Cause) -> Self {
        Self { start, end, cause, after_loss: false, own_ns: 0 }
    }

    /// One interval for both, of no known cause if they have two, or bytes flowed in between.
    fn joined_to(self, next: &Self) -> Self {
        let is_one = self.cause == next.cause && next.start.saturating_sub(self.end) < TOGETHER;
        let cause = if is_one { self.cause } else { Cause::Unexplained };
        Self { end: next.end, cause, after_loss: is_one && self.after_loss && next.after_loss, ..self }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Resent {
    offset: i64,
    end: i64,
    time: i64,
    /// The sender's clock in the first of these packets, if it has one.
    clock: Option<u32>,
}

/// The queue of one sender, as far as the capture shows what held it up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SendQueue {
    /// Offset behind the bytes that are being read.
    pub position: i64,
    /// What comes late now was behind a lost segment, not only behind one that took longer.
    pub lost: bool,
    /// What comes was kept behind a hole, so that its waits were not judged.
    pub late: bool,
    /// And it came so long behind a short segment that Nagle's algorithm may have held it.
    pub may_be_held: bool,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::HELD_INTERVALS }, _, _>")]
    intervals: Vec<BlockedInterval>,
    /// The last [`limits::RESENT`] retransmissions, in a ring.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::RESENT }, _, _>")]
    resent: Vec<Resent>,
    resendings: usize,
    last_resent: i64,
    /// The sender's clock in the last retransmission that has one.
    last_clock: Option<u32>,
}

impl SendQueue {
    /// Adds an interval in which the sender was blocked. It had bytes to send since the interval before: where there are too many,
    /// the oldest two become one.
    pub fn add(&mut self, interval: BlockedInterval) {
        if self.intervals.len() >= limits::HELD_INTERVALS {
            let first = self.intervals.remove(0);
            if let Some(second) = self.intervals.first_mut() {
                *second = first.joined_to(second);
            }
        }
        self.intervals.push(interval);
    }

    /// Takes back the newest interval, which concerned one segment alone.
    pub fn take_back(&mut self) {
        self.intervals.pop();
    }

    /// Forgets the intervals: the queue was empty, so later bytes did not wait behind them.
    #[inline]
    pub fn clear(&mut self) {
        self.intervals.clear();
    }

    /// Leaves open what the intervals held up: later bytes may have been written behind them.
    pub fn doubt(&mut self) {
        for interval in &mut self.intervals {
            (interval.cause, interval.after_loss) = (Cause::Unexplained, false);
        }
    }

    /// The intervals since the sender last had nothing to send, oldest first.
    pub fn intervals(&self) -> &[BlockedInterval] {
        &self.intervals
    }

    /// Whether the queue was blocked since it was last empty.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        !self.intervals.is_empty()
    }

    /// These bytes were retransmitted at `time`, by a packet with the timestamp `clock`: nothing behind them could be read
    /// before.
    pub fn resent(&mut self, bytes: Range<i64>, time: i64, clock: Option<u32>) {
        let Range { start: offset, end } = bytes;
        let joins = self.resendings > 0 && time.saturating_sub(self.last_resent) < TOGETHER;
        self.resendings += usize::from(!joins);
        let place = (self.resendings - 1) % limits::RESENT;
        match self.resent.get_mut(place) {
            Some(resent) if joins => {
                *resent = Resent { offset: resent.offset.min(offset), end: resent.end.max(end), time, ..*resent };
            }
            Some(resent) => *resent = Resent { offset, end, time, clock },
            None => self.resent.push(Resent { offset, end, time, clock }),
        }
        self.last_resent = time;
        self.last_clock = clock.or(self.last_clock);
    }

    /// The receiver had these bytes twice (RFC 2883): they were not missing, but others may have been that a packet of
    /// several lost ones retransmitted with them.
    pub fn was_not_missing(&mut self, twice: Range<i64>) {
        for resent in self.resent.iter_mut().filter(|resent| resent.offset == twice.start) {
            resent.offset = if resent.end <= twice.end { i64::MAX } else { twice.end };
        }
    }

    /// All bytes before `offset` are acknowledged by a packet that echoes the timestamp `echo`. If that is older than the
    /// retransmission, the receiver had the first transmission (the Eifel algorithm, RFC 3522 section 3.2).
    #[inline]
    pub fn answered(&mut self, offset: i64, echo: u32) {
        let older = |clock: u32| (echo.wrapping_sub(clock) as i32) < 0;
        // clocks run forward: an echo that is not older than the last retransmission is not older than any
        if self.last_clock.is_some_and(older) {
            let needless = |resent: &&mut Resent| resent.offset < offset && resent.clock.is_some_and(older);
            self.resent.iter_mut().filter(needless).for_each(|resent| resent.offset = i64::MAX);
        }
    }

    /// Whether anything was retransmitted after `time`.
    #[inline]
    pub fn resent_after(&self, time: i64) -> bool {
        self.resendings > 0 && self.last_resent > time
    }

    /// When bytes before `position` were last retransmitted, after `since` and not after `until`.
    pub fn last_resent_before(&self, position: i64, since: i64, until: i64) -> Option<i64> {
        let before = self.resent.iter().filter(|r| r.offset < position && r.time > since && r.time <= until);
        before.map(|r| r.time).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_intervals_become_one() {
        let mut queue = SendQueue::default();
        for start in 0..limits::HELD_INTERVALS as i64 + 2 {
            queue.add(BlockedInterval::new(start, start + 1, Cause::CongestionWindow));
        }
        assert_eq!(queue.intervals().len(), limits::HELD_INTERVALS);
        assert_eq!(queue.intervals()[0], BlockedInterval::new(0, 3, Cause::CongestionWindow));
        queue.add(BlockedInterval::new(TOGETHER, TOGETHER + 1, Cause::LossRecovery));
        for start in 1..limits::HELD_INTERVALS as i64 {
            queue.add(BlockedInterval::new(TOGETHER + start, TOGETHER + start + 1, Cause::LossRecovery));
        }
        queue.add(BlockedInterval::new(3 * TOGETHER, 4 * TOGETHER, Cause::LossRecovery));
        assert_eq!(queue.intervals()[0], BlockedInterval::new(0, TOGETHER + 2, Cause::Unexplained), "two causes");
        queue.clear();
        assert!(!queue.is_blocked());
    }

    #[test]
    fn only_bytes_in_front_that_were_missing_count() {
        let mut queue = SendQueue::default();
        queue.resent(1_000..1_500, 10 * TOGETHER, None);
        queue.resent(3_000..3_500, 50 * TOGETHER, None);
        assert_eq!(queue.last_resent_before(1_000, 0, i64::MAX), None, "the stream's bytes lie before");
        assert_eq!(queue.last_resent_before(2_000, 0, i64::MAX), Some(10 * TOGETHER));
        assert_eq!(queue.last_resent_before(4_000, 0, i64::MAX), Some(50 * TOGETHER));
        assert_eq!(queue.last_resent_before(4_000, 0, 49 * TOGETHER), Some(10 * TOGETHER), "no time to be answered");
        assert_eq!(queue.last_resent_before(4_000, 50 * TOGETHER, i64::MAX), None, "sent later");
        queue.was_not_missing(3_000..3_400);
        assert_eq!(queue.last_resent_before(3_400, 0, i64::MAX), Some(10 * TOGETHER), "the bytes before came twice");
        assert_eq!(queue.last_resent_before(3_401, 0, i64::MAX), Some(50 * TOGETHER), "the rest was missing");
        queue.was_not_missing(3_400..3_500);
        assert_eq!(queue.last_resent_before(4_000, 0, i64::MAX), Some(10 * TOGETHER));
    }

    #[test]
    fn an_ack_that_echoes_an_older_timestamp_answers_the_first_transmission() {
        let mut queue = SendQueue::default();
        queue.resent(1_000..1_500, 10 * TOGETHER, Some(500));
        queue.answered(1_000, 400);
        assert_eq!(queue.last_resent_before(2_000, 0, i64::MAX), Some(10 * TOGETHER), "not acknowledged yet");
        queue.answered(2_000, 500);
        assert_eq!(queue.last_resent_before(2_000, 0, i64::MAX), Some(10 * TOGETHER), "it may be the second one's");
        queue.answered(2_000, 499);
        assert_eq!(queue.last_resent_before(2_000, 0, i64::MAX), None);
    }

    #[test]
    fn a_burst_is_one_resending() {
        let mut queue = SendQueue::default();
        for n in 0..3 * limits::RESENT as i64 {
            queue.resent(n * 1_000..n * 1_000 + 500, 10 * TOGETHER + n, None);
        }
        assert_eq!(queue.last_resent_before(1, 0, i64::MAX), Some(10 * TOGETHER + 3 * limits::RESENT as i64 - 1));
    }
}
