//! Remembers ACKs that came later than their receiver may delay them: before them nothing shows that the bytes had arrived.

use serde::{Deserialize, Serialize};

use crate::state_fields;

/// Beyond a round trip, Linux delays an ACK for 40 ms, or as long as the round trip if that is more (TCP_DELACK_MIN in
/// include/net/tcp.h, `tcp_send_delayed_ack`); 20 ms are for timers and busy hosts.
const DELAYED: i64 = 60_000_000;

/// ACKs that are kept: so many come while a server works on a request.
const KEPT: usize = 32;

/// An ACK that covers the bytes from one offset to another.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TimedAck {
    /// The first offset.
    pub from: i64,
    /// The offset behind the last byte.
    pub to: i64,
    /// When it came.
    pub time: i64,
    /// The packet.
    pub packet: u32,
    /// When the first of the bytes passed the capture point that are known to have waited for it.
    pub sent: Option<i64>,
}

/// The latest of one sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LateAcks {
    ring: [TimedAck; KEPT],
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
    /// Remembers one if it is late, or not known to be in time behind one that was late.
    #[cold]
    pub fn push(&mut self, ack: TimedAck, is_late: Option<bool>) {
        self.goes_on = is_late.unwrap_or(self.goes_on);
        if self.goes_on {
            self.ring[self.next] = ack;
            self.next = (self.next + 1) % KEPT;
        }
    }

    /// The one that covers the last byte before `offset`, and none behind it.
    pub fn up_to(&self, offset: i64) -> Option<TimedAck> {
        self.ring.iter().find(|ack| ack.from < offset && offset == ack.to).copied()
    }

    /// When the one came that covers the last byte before `offset`.
    pub fn covers(&self, offset: i64) -> Option<i64> {
        self.ring.iter().find(|ack| ack.from < offset && offset <= ack.to).map(|ack| ack.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_behind_a_late_one_are_kept_until_one_is_in_time() {
        let mut acks = LateAcks::default();
        for (to, is_late) in [(10, None), (20, Some(true)), (30, None), (40, Some(false)), (50, None)] {
            acks.push(TimedAck { from: to - 10, to, time: to, ..TimedAck::default() }, is_late);
        }
        let found = [1, 10, 11, 20, 21, 30, 31, 50].map(|offset| acks.covers(offset));
        assert_eq!(found, [None, None, Some(20), Some(20), Some(30), Some(30), None, None]);
    }

    #[test]
    fn the_latest_are_kept() {
        let mut acks = LateAcks::default();
        for to in 1..=KEPT as i64 + 1 {
            acks.push(TimedAck { from: to - 1, to, time: 100 + to, ..TimedAck::default() }, Some(true));
        }
        assert_eq!([1, 2, KEPT as i64 + 1].map(|offset| acks.covers(offset)), [None, Some(102), Some(133)]);
    }
}
