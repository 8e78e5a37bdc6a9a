//! Remembers until when a path held bytes behind the capture point: a packet that their receiver sent that late does not
//! acknowledge them, so they had not arrived.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::state_fields;

/// How many are kept: as many ACKs as may come while a response is on its way.
const KEPT: usize = 32;

/// Bytes that one ACK covers, from one offset to another.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Held {
    from: i64,
    to: i64,
    until: i64,
    acknowledged: i64,
}

/// The latest bytes of one sender that were held.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeldPath {
    ring: [Held; KEPT],
    /// The place of the next one.
    #[serde(deserialize_with = "state_fields::below::<{ KEPT }, _, _>")]
    next: usize,
}

impl HeldPath {
    /// Remembers that these bytes were on their way `until` then. The ACK of them came when they were `acknowledged`. Gives until
    /// when they were known to be on their way before.
    #[cold]
    pub fn push(&mut self, bytes: Range<i64>, until: i64, acknowledged: i64) -> Option<i64> {
        let known = self.ring.iter_mut().find(|held| (held.from, held.to) == (bytes.start, bytes.end));
        if let Some(known) = known {
            let before = known.until;
            known.until = before.max(until);
            return Some(before);
        }
        self.ring[self.next] = Held { from: bytes.start, to: bytes.end, until, acknowledged };
        self.next = (self.next + 1) % KEPT;
        None
    }

    /// The time until which the path held the last byte before `offset`, and the time of that byte's ACK; nanoseconds.
    pub fn covers(&self, offset: i64) -> Option<(i64, i64)> {
        let held = self.ring.iter().find(|held| held.from < offset && offset <= held.to)?;
        Some((held.until, held.acknowledged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept() {
        let mut path = HeldPath::default();
        for to in 1..=KEPT as i64 + 1 {
            assert_eq!(path.push(to - 1..to, 100 + to, 200 + to), None);
        }
        assert_eq!([0, 1, 2].map(|offset| path.covers(offset)), [None, None, Some((102, 202))]);
        assert_eq!([150, 120].map(|until| path.push(1..2, until, 202)), [Some(102), Some(150)]);
        assert_eq!(path.covers(2), Some((150, 202)), "a later packet shows more");
        assert_eq!([KEPT as i64 + 1, KEPT as i64 + 2].map(|offset| path.covers(offset)), [Some((133, 233)), None]);
    }
}
