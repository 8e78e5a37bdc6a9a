//! Follows the first bytes that a sender's peer does not acknowledge: whether packets that long ever arrive.

use serde::{Deserialize, Serialize};

use crate::at::At;

/// Retransmissions of the same bytes from which they count as lost on the way: one may be spurious.
const AGAIN: u32 = 2;

/// What one side retransmitted from the first byte on that its peer had not acknowledged.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Undelivered {
    /// Where these bytes begin.
    offset: i64,
    /// Packets that repeated them.
    pub retransmissions: u32,
    /// The first packet that repeated these bytes; `last` is the last one.
    pub first: At,
    /// See `first`.
    pub last: At,
    /// The shortest payload of these packets, bytes.
    pub shortest: u32,
    /// The first packet of the peer that reports bytes behind these as received (RFC 2018), 0 for none.
    pub selective: At,
    /// The longest packet of new data that was not acknowledged: where it ends, and its payload.
    awaited: (i64, u32),
    /// The one before it that was shorter, if that is not acknowledged either.
    shorter: (i64, u32),
    /// The longest payload of a packet that the peer acknowledged.
    pub longest_acked: u32,
}

impl Undelivered {
    /// A packet of new data up to `end` is sent.
    #[inline]
    pub fn send(&mut self, end: i64, payload: u32) {
        if payload > self.awaited.1.max(self.longest_acked) {
            let before = std::mem::replace(&mut self.awaited, (end, payload));
            if before.1 > 0 {
                self.shorter = before;
            }
        }
    }

    /// The peer acknowledges all bytes before `offset`.
    #[inline]
    pub fn acknowledge(&mut self, offset: i64) {
        for awaited in [&mut self.shorter, &mut self.awaited] {
            if offset >= awaited.0 {
                self.longest_acked = self.longest_acked.max(awaited.1);
                awaited.1 = 0;
            }
        }
    }

    /// Bytes from `acked` on, the first that are not acknowledged, are retransmitted. Gives the time of the first
    /// retransmission when they count as lost.
    pub fn retransmit(&mut self, acked: i64, payload: u32, at: At) -> Option<i64> {
        if self.offset != acked || self.retransmissions == 0 {
            let selective = if self.offset == acked { self.selective } else { At::default() };
            *self = Self { first: at, shortest: payload, selective, ..self.nothing_again(acked) };
        }
        self.retransmissions += 1;
        self.shortest = self.shortest.min(payload);
        self.last = at;
        (self.retransmissions >= AGAIN).then_some(self.first.time)
    }

    /// Since when the first bytes that the peer never acknowledged, behind `acked`, were retransmitted, if so often that they
    /// count as lost.
    pub fn lost_since(&self, acked: i64) -> Option<i64> {
        let again = self.from(acked);
        (again.retransmissions >= AGAIN).then_some(again.first.time)
    }

    /// Whether only packets this long are lost: none as long was ever acknowledged, and shorter ones behind them arrived.
    pub fn is_too_long(&self) -> bool {
        self.retransmissions >= AGAIN && self.selective.packet > 0 && (1..self.shortest).contains(&self.longest_acked)
    }

    /// The peer, which acknowledges up to `acked`, reports bytes behind as received.
    pub fn report(&mut self, acked: i64, at: At) {
        if self.offset != acked {
            *self = Self { selective: at, ..self.nothing_again(acked) };
        } else if self.selective.packet == 0 {
            self.selective = at;
        }
    }

    /// The same sender while nothing is known of its bytes from `acked` on.
    fn nothing_again(&self, acked: i64) -> Self {
        let Self { awaited, shorter, longest_acked, .. } = *self;
        Self { offset: acked, awaited, shorter, longest_acked, ..Self::default() }
    }

    /// What was retransmitted, and reported, from the first byte on that the peer never acknowledged.
    pub fn from(&self, acked: i64) -> Self {
        if self.offset == acked { *self } else { self.nothing_again(acked) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_acknowledged_packet_is_known_exactly() {
        let mut sent = Undelivered::default();
        for (end, payload) in [(100, 100), (1_100, 1_000), (1_300, 200)] {
            sent.send(end, payload);
        }
        sent.acknowledge(99);
        assert_eq!(sent.longest_acked, 0);
        sent.acknowledge(100);
        assert_eq!(sent.longest_acked, 100, "the longer one is awaited");
        sent.acknowledge(1_300);
        sent.send(2_748, 1_448);
        sent.acknowledge(1_300);
        assert_eq!(sent.longest_acked, 1_000);
    }

    #[test]
    fn what_was_recovered_says_nothing_of_later_bytes() {
        let mut sent = Undelivered::default();
        sent.retransmit(0, 1_000, At::new(3, 30));
        sent.retransmit(0, 1_000, At::new(4, 40));
        sent.acknowledge(1_000);
        sent.report(1_000, At::new(9, 90));
        let later = sent.from(1_000);
        assert_eq!((later.retransmissions, later.shortest, later.selective.packet), (0, 0, 9));
        assert_eq!((later.first, later.last), (At::default(), At::default()));
    }

    #[test]
    fn only_the_same_bytes_again_count() {
        let mut sent = Undelivered::default();
        sent.report(5, At::new(1, 10));
        assert_eq!(sent.retransmit(5, 1_448, At::new(2, 20)), None);
        assert_eq!(sent.retransmit(5, 1_000, At::new(3, 30)), Some(20));
        assert_eq!((sent.from(5).retransmissions, sent.from(5).shortest, sent.from(5).selective.packet), (2, 1_000, 1));
        assert_eq!((sent.from(6).retransmissions, sent.lost_since(5), sent.lost_since(6)), (0, Some(20), None));
        assert!(!sent.is_too_long(), "nothing was acknowledged");
        sent.longest_acked = 999;
        assert!(sent.is_too_long());
        assert_eq!(sent.retransmit(6, 1_448, At::new(4, 40)), None);
        assert_eq!((sent.shortest, sent.selective.packet), (1_448, 0));
    }
}
