//! Follows what a sender sends while no packet of its peer comes: whether the path or the peer is gone.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::state_fields;
use crate::store::budget::Cause;

/// Retransmission timeouts without a packet of the peer from which nothing is answered any more. One may be chance: a lost
/// segment, or its lost ACK.
const TIMEOUTS: u32 = 2;

/// Payload that every path carries (RFC 9293 section 3.7.1).
const PASSES: u32 = 536;

/// What one side sent since its peer was last heard.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Unanswered {
    /// The peer's last packet, 0 before any, and its time.
    pub heard: (u32, i64),
    /// The first packet with payload or FIN since; its number is 0 where there is none.
    pub first: At,
    /// The shortest payload of the packets since, 0 for a FIN alone.
    pub shortest: u32,
    /// The longest payload of a packet that was acknowledged before.
    pub longest_acked: u32,
    /// Packets that were retransmitted since.
    pub retransmissions: u32,
    /// Of these, after a retransmission timeout.
    pub timeouts: u32,
    /// The first retransmission since.
    pub again: At,
    /// The last one.
    pub last: At,
}

/// An interval in which a side sent in vain, until its peer was heard again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Outage {
    /// The side that sent.
    #[serde(deserialize_with = "state_fields::side")]
    pub side: usize,
    /// Its length, nanoseconds.
    pub ns: i64,
    /// The first packet that got no answer, 0 where there was no outage.
    pub from_packet: u32,
    /// The next packet of the peer, 0 where there was no outage.
    pub to_packet: u32,
    /// When that came.
    pub to_time: i64,
}

impl Unanswered {
    /// A packet of the peer comes. Returns the first packet that was sent in vain until now.
    #[inline]
    pub fn hear(&mut self, at: At) -> Option<At> {
        let mut in_vain = None;
        if self.first.packet != 0 {
            in_vain = self.is_in_vain().then_some(self.first);
            *self = Self::default();
        }
        self.heard = (at.packet, at.time);
        in_vain
    }

    /// A packet with payload or FIN is sent.
    #[inline]
    pub fn send(&mut self, at: At, payload: u32) {
        if self.first.packet == 0 {
            (self.first, self.shortest) = (at, payload);
        }
        self.shortest = self.shortest.min(payload);
    }

    /// A packet is retransmitted, after a `timeout` or not.
    pub fn retransmit(&mut self, timeout: bool, longest_acked: u32, at: At) {
        self.longest_acked = longest_acked;
        self.retransmissions += 1;
        self.timeouts += u32::from(timeout);
        if self.again.packet == 0 {
            self.again = at;
        }
        self.last = at;
    }

    /// Whether nothing is answered any more. A peer that was never heard may be missing from the capture.
    pub fn is_in_vain(&self) -> bool {
        self.heard.0 != 0 && self.is_unanswered()
    }

    /// Why nothing is answered. If all packets are longer than what every path carries, and than any that was acknowledged,
    /// the path may drop long ones alone.
    pub fn cause(&self) -> Cause {
        if self.shortest > self.longest_acked.max(PASSES) { Cause::Unexplained } else { Cause::PeerUnreachable }
    }

    /// Whether the capture holds no answer any more, or none at all.
    pub fn is_unanswered(&self) -> bool {
        self.timeouts >= TIMEOUTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_the_peer_answers_everything() {
        let mut sent = Unanswered::default();
        assert!(sent.hear(At::new(1, 10)).is_none());
        for (packet, timeout) in [(2, false), (3, false), (4, true), (5, true)] {
            sent.send(At::new(packet, 10 * i64::from(packet)), 100 - packet);
            if packet > 2 {
                assert!(!sent.is_in_vain());
                sent.retransmit(timeout, 0, At::new(packet, 10 * i64::from(packet)));
            }
        }
        assert!(sent.is_in_vain());
        assert_eq!((sent.heard.0, sent.first.packet, sent.again.packet, sent.last.packet), (1, 2, 3, 5));
        assert_eq!((sent.retransmissions, sent.timeouts, sent.shortest), (3, 2, 95));
        assert_eq!(sent.hear(At::new(6, 60)).map(|first| first.packet), Some(2));
        assert!(!sent.is_in_vain() && sent.heard == (6, 60) && sent.first.packet == 0);
    }

    #[test]
    fn long_packets_alone_may_be_dropped_for_their_length() {
        for (payload, longest_acked, expected) in [(537, 0, true), (536, 0, false), (900, 899, true), (900, 900, false)]
        {
            let mut sent = Unanswered::default();
            sent.send(At::new(1, 0), payload);
            sent.send(At::new(2, 0), payload + 100);
            sent.retransmit(true, longest_acked, At::new(3, 0));
            assert_eq!(sent.cause() == Cause::Unexplained, expected, "{payload} {longest_acked}");
        }
    }

    #[test]
    fn a_peer_that_was_never_heard_may_be_missing() {
        let mut sent = Unanswered::default();
        sent.send(At::new(1, 0), 10);
        (2..9).for_each(|packet| sent.retransmit(true, 0, At::new(packet, 0)));
        assert!(sent.is_unanswered() && !sent.is_in_vain());
    }
}
