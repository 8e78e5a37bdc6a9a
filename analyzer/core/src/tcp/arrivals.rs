//! Remembers when bytes arrived at the peer of their sender, by ACKs that are not delayed: those of two full segments (RFC 9293
//! section 3.8.6.3). Bytes that drain through a narrow link arrive much later than a round trip after they pass the capture point.

use serde::{Deserialize, Serialize};

use crate::state_fields;

use super::queue::TARGET;

/// Intervals that are kept, each at most [`TARGET`] long: together they cover the time that a response may take.
const KEPT: usize = 32;

/// Bytes of one sender that arrived one after the other.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Arrived {
    from: i64,
    to: i64,
    /// When the first and the last ACK of them came, which lie no further apart than what counts as a queue.
    times: (i64, i64),
}

/// The latest bytes of one sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Arrivals {
    ring: [Arrived; KEPT],
    /// The place of the last one.
    #[serde(deserialize_with = "state_fields::below::<{ KEPT }, _, _>")]
    last: usize,
}

impl Arrivals {
    /// Remembers an ACK at `time` of two full segments or more, from one offset to another.
    #[inline(never)]
    pub fn push(&mut self, from: i64, to: i64, time: i64) {
        let last = &mut self.ring[self.last];
        if from == last.to && (0..=TARGET).contains(&(time - last.times.0)) {
            (last.to, last.times.1) = (to, time);
        } else {
            self.last = (self.last + 1) % KEPT;
            self.ring[self.last] = Arrived { from, to, times: (time, time) };
        }
    }

    /// The time by which the last bytes before `offset` had arrived, as far as an ACK sent at once shows it;
    /// nanoseconds.
    pub fn arrived(&self, offset: i64) -> Option<i64> {
        let before = self.ring.iter().filter(|arrived| arrived.from < offset.min(arrived.to));
        let &Arrived { from, to, times: (first, last) } = before.max_by_key(|arrived| arrived.to)?;
        let part = (last - first).saturating_mul(offset.min(to) - from) / (to - from).max(1);
        Some(first + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_one_after_the_other() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.arrived(10), None);
        for ack in 1..=8 {
            arrivals.push(10 * ack - 10, 10 * ack, 100_000_000 + ack * 1_000_000);
        }
        let found = [1, 10, 60, 70, 80, 90].map(|offset| arrivals.arrived(offset).map(|time| time / 100_000 - 1_000));
        assert_eq!(found, [Some(10), Some(18), Some(60), Some(75), Some(80), Some(80)], "six of them, then two");
        arrivals.push(100, 110, 120_000_000);
        assert_eq!([100, 101].map(|offset| arrivals.arrived(offset)), [Some(108_000_000), Some(120_000_000)]);
    }
}
