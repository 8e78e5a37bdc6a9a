//! Measures round-trip times (RFC 6298) as the capture point sees them: from a sender's packet to its peer's
//! acknowledgement.

use serde::{Deserialize, Serialize};

/// Linux's lower bound of the variance term: TCP_RTO_MIN, 200 ms (include/net/tcp.h).
pub const RTO_MIN: i64 = 200_000_000;

/// The least time for which an ACK is put off, with 5 ms for clocks: 40 ms in Linux (TCP_DELACK_MIN, include/net/tcp.h).
pub const SHORTEST_DELAYED_ACK: i64 = 35_000_000;

/// Longer round trips are broken clocks, one hour: TCP gives up long before.
const LONGEST: i64 = 3_600_000_000_000;

/// One half of the path: capture point to a peer and back.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Rtt {
    /// End offset and time of the segment that is being timed.
    timed: Option<(i64, i64)>,
    /// End offset and first time of a segment that may have been retransmitted since.
    waiting: Option<(i64, i64)>,
    /// The segment in `waiting` is the last of those that an ACK left: others before it wait for longer.
    others_wait: bool,
    /// The smallest sample, nanoseconds.
    pub min: Option<i64>,
    /// Each sample may hold the time that the peer's application took to answer, or for which its TCP put an ACK off.
    pub is_bound: bool,
    /// Smoothed, nanoseconds.
    smoothed: i64,
    /// Variation, nanoseconds.
    variation: i64,
}

impl Rtt {
    /// A segment of new data ends at `end`.
    #[inline]
    pub fn sent(&mut self, end: i64, time: i64) {
        if self.timed.is_none() {
            self.timed = Some((end, time));
        }
        if self.waiting.is_none() {
            (self.waiting, self.others_wait) = (Some((end, time)), false);
        }
    }

    /// A retransmission makes the running sample ambiguous (Karn's algorithm, RFC 6298 section 3).
    pub fn retransmitted(&mut self) {
        self.timed = None;
    }

    /// All bytes before `offset` are acknowledged at `time`, by a packet that `answers` with bytes of its own or by none; `at_once`
    /// if such an ACK is not put off. `last` is the end and the time of the last segment. Gives for how long a segment waited for
    /// this, whether or not it was retransmitted meanwhile.
    #[inline]
    pub fn acknowledged(
        &mut self,
        offset: i64,
        time: i64,
        answers: bool,
        at_once: bool,
        last: (i64, i64),
    ) -> Option<i64> {
        if let Some((end, sent)) = self.timed
            && offset >= end
        {
            self.timed = None;
            let may_be_put_off = !at_once && time - sent >= SHORTEST_DELAYED_ACK;
            self.is_bound = (answers || may_be_put_off) && (self.is_bound || self.min.is_none());
            self.sample(time - sent);
        }
        let (_, sent) = self.waiting.take_if(|(end, _)| offset >= *end)?;
        self.others_wait = last.0 > offset;
        self.waiting = self.others_wait.then_some(last);
        Some(time - sent)
    }

    /// How long an ACK takes on average, nanoseconds; 0 before the first sample.
    pub fn smoothed(&self) -> i64 {
        self.smoothed
    }

    /// When the first of the segments was sent for the first time of which one is not acknowledged, if that is known.
    pub fn waiting_since(&self) -> Option<i64> {
        self.waiting.filter(|_| !self.others_wait).map(|(_, sent)| sent)
    }

    /// Takes a sample in (RFC 6298 section 2); negative ones come from clocks that step back, absurd ones from broken
    /// clocks: both are left out.
    pub fn sample(&mut self, ns: i64) {
        if !(0..=LONGEST).contains(&ns) {
            return;
        }
        if self.min.is_none() {
            (self.smoothed, self.variation) = (ns, ns / 2);
        } else {
            self.variation += ((self.smoothed - ns).abs() - self.variation) / 4;
            self.smoothed += (ns - self.smoothed) / 8;
        }
        self.min = Some(self.min.map_or(ns, |min| min.min(ns)));
    }

    /// Linux's retransmission timeout, nanoseconds, for a sender whose own half of the path takes `near`: smoothed
    /// RTT plus four times the variation, of which Linux takes at least 200 ms (net/ipv4/tcp_input.c,
    /// `tcp_rtt_estimator`). `None` before the first sample.
    pub fn retransmission_timeout(&self, near: i64) -> Option<i64> {
        self.min?;
        Some(self.smoothed + near.max(0) + (4 * self.variation).max(RTO_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_at_a_time_and_karn() {
        let mut rtt = Rtt::default();
        rtt.sent(100, 0);
        rtt.sent(200, 5);
        rtt.acknowledged(50, 7, false, false, (200, 5));
        assert_eq!(rtt.min, None);
        rtt.acknowledged(100, 10, false, false, (200, 5));
        assert_eq!(rtt.min, Some(10));
        rtt.sent(300, 20);
        rtt.retransmitted();
        rtt.acknowledged(300, 21, false, false, (300, 20));
        assert_eq!(rtt.min, Some(10), "a retransmitted segment gives no sample");
    }

    #[test]
    fn segments_that_an_ack_leaves_are_timed_by_the_last_of_them() {
        let mut rtt = Rtt::default();
        for (end, time) in [(100, 0), (200, 5), (300, 8)] {
            rtt.sent(end, time);
        }
        assert_eq!(rtt.acknowledged(100, 10, false, false, (300, 8)), Some(10));
        assert_eq!((rtt.waiting_since(), rtt.acknowledged(200, 11, false, false, (300, 8))), (None, None));
        assert_eq!(rtt.acknowledged(300, 50, false, false, (300, 8)), Some(42));
        rtt.sent(400, 60);
        assert_eq!(rtt.waiting_since(), Some(60));
    }

    #[test]
    fn an_answer_is_a_bound_until_a_packet_without_payload_comes() {
        let mut rtt = Rtt::default();
        for (end, answers, is_bound) in [(1, true, true), (2, true, true), (3, false, false), (4, true, false)] {
            rtt.sent(end, 0);
            rtt.acknowledged(end, 10, answers, false, (end, 0));
            assert_eq!(rtt.is_bound, is_bound, "{end}");
        }
    }

    #[test]
    fn an_ack_that_may_be_put_off_is_a_bound_until_another_comes() {
        let mut rtt = Rtt::default();
        let acks = [(40_000_000, false, true), (34_999_999, false, false), (40_000_000, false, false)];
        for (end, (ns, at_once, is_bound)) in (1..).zip(acks) {
            rtt.sent(end, 0);
            rtt.acknowledged(end, ns, false, at_once, (end, 0));
            assert_eq!(rtt.is_bound, is_bound, "{end}");
        }
        let mut rtt = Rtt::default();
        rtt.sent(1, 0);
        rtt.acknowledged(1, 40_000_000, false, true, (1, 0));
        assert!(!rtt.is_bound, "two full segments are acknowledged at once");
    }

    #[test]
    fn timeout_has_linux_lower_bound() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.retransmission_timeout(0), None);
        for _ in 0..50 {
            rtt.sample(205_000_000);
        }
        let timeout = rtt.retransmission_timeout(0).unwrap();
        assert!((405_000_000..406_000_000).contains(&timeout), "{timeout}");
        rtt.sample(-3);
        assert_eq!(rtt.min, Some(205_000_000));
    }
}
