//! Remembers ACKs that came later than their receiver may delay them: before them nothing shows that the bytes had arrived.
//! An ACK of two full segments may not be delayed at all (RFC 9293 section 3.8.6.3): it says when the bytes arrived.

use serde::{Deserialize, Serialize};

use crate::state_fields;

use super::queue::TARGET;

/// Beyond a round trip, Linux delays an ACK for 40 ms, or as long as the round trip if that is more (TCP_DELACK_MIN in
/// include/net/tcp.h, `tcp_send_delayed_ack`); 20 ms are for timers and busy hosts.
const DELAYED: i64 = 60_000_000;

/// ACKs that are kept: so many come while a server works on a request.
const KEPT: usize = 32;

/// One of them: it covers the bytes from one offset to another.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct LateAck {
    from: i64,
    to: i64,
    time: i64,
}

/// The latest of one sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LateAcks {
    ring: [LateAck; KEPT],
    /// The place of the next one.
    #[serde(deserialize_with = "state_fields::below::<{ KEPT }, _, _>")]
    next: usize,
    /// The last one that is known to be late or in time was late.
    goes_on: bool,
}

/// How long an ACK may take that comes over a part of a path, `near` there and back; `whole` is that of all of the path.
pub(super) fn may_take(near: i64, whole: i64) -> i64 {
    near + DELAYED.max(whole + whole / 4)
}

impl LateAcks {
    /// Remembers one at `time`, which covers the bytes from one offset to another, if it is late, or not known to be in time
    /// behind one that was late.
    #[cold]
    pub fn push(&mut self, from: i64, to: i64, time: i64, is_late: Option<bool>) {
        self.goes_on = is_late.unwrap_or(self.goes_on);
        if self.goes_on {
            self.ring[self.next] = LateAck { from, to, time };
            self.next = (self.next + 1) % KEPT;
        }
    }

    /// When the one came that covers the last byte before `offset`.
    pub fn covers(&self, offset: i64) -> Option<i64> {
        self.ring.iter().find(|ack| ack.from < offset && offset <= ack.to).map(|ack| ack.time)
    }
}

/// Bytes of one sender that arrived later than a round trip after they were sent, one after the other.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Drained {
    from: i64,
    to: i64,
    /// When the first and the last ACK of them came, which lie no further apart than what counts as a queue.
    times: (i64, i64),
}

/// The latest of one sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drains {
    ring: [Drained; KEPT],
    /// The place of the last one.
    #[serde(deserialize_with = "state_fields::below::<{ KEPT }, _, _>")]
    last: usize,
}

impl Drains {
    /// Remembers an ACK at `time` of two full segments or more, from one offset to another.
    #[cold]
    pub fn push(&mut self, from: i64, to: i64, time: i64) {
        let last = &mut self.ring[self.last];
        if from == last.to && (0..=TARGET).contains(&(time - last.times.0)) {
            (last.to, last.times.1) = (to, time);
        } else {
            self.last = (self.last + 1) % KEPT;
            self.ring[self.last] = Drained { from, to, times: (time, time) };
        }
    }

    /// When the last bytes before `offset` had arrived of which such an ACK is known.
    pub fn arrived(&self, offset: i64) -> Option<i64> {
        let before = self.ring.iter().filter(|drained| drained.from < offset.min(drained.to));
        let &Drained { from, to, times: (first, last) } = before.max_by_key(|drained| drained.to)?;
        let part = (last - first).saturating_mul(offset.min(to) - from) / (to - from).max(1);
        Some(first + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_behind_a_late_one_are_kept_until_one_is_in_time() {
        let mut acks = LateAcks::default();
        for (to, is_late) in [(10, None), (20, Some(true)), (30, None), (40, Some(false)), (50, None)] {
            acks.push(to - 10, to, to, is_late);
        }
        let found = [1, 10, 11, 20, 21, 30, 31, 50].map(|offset| acks.covers(offset));
        assert_eq!(found, [None, None, Some(20), Some(20), Some(30), Some(30), None, None]);
    }

    #[test]
    fn bytes_that_drain_arrive_one_after_the_other() {
        let mut drains = Drains::default();
        assert_eq!(drains.arrived(10), None);
        for ack in 1..=8 {
            drains.push(10 * ack - 10, 10 * ack, 100_000_000 + ack * 1_000_000);
        }
        let found = [1, 10, 60, 70, 80, 90].map(|offset| drains.arrived(offset).map(|time| time / 100_000 - 1_000));
        assert_eq!(found, [Some(10), Some(18), Some(60), Some(75), Some(80), Some(80)], "six of them, then two");
        drains.push(100, 110, 120_000_000);
        assert_eq!([100, 101].map(|offset| drains.arrived(offset)), [Some(108_000_000), Some(120_000_000)]);
    }

    #[test]
    fn the_latest_are_kept() {
        let mut acks = LateAcks::default();
        for to in 1..=KEPT as i64 + 1 {
            acks.push(to - 1, to, 100 + to, Some(true));
        }
        assert_eq!([1, 2, KEPT as i64 + 1].map(|offset| acks.covers(offset)), [None, Some(102), Some(133)]);
    }
}
