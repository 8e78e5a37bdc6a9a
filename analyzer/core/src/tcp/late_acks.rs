//! Remembers ACKs that came later than their receiver may delay them: before them nothing shows that the bytes had arrived.

use serde::{Deserialize, Serialize};

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
    count: usize,
    /// The last one that is known to be late or in time was late.
    goes_on: bool,
}

/// How long an ACK may take that comes over a part of a path, `near` there and back; `whole` is that of all of the path.
pub fn may_take(near: i64, whole: i64) -> i64 {
    near + DELAYED.max(whole + whole / 4)
}

impl LateAcks {
    /// Remembers one at `time`, which covers the bytes from one offset to another, if it is late, or not known to be in time
    /// behind one that was late.
    #[cold]
    pub fn push(&mut self, from: i64, to: i64, time: i64, is_late: Option<bool>) {
        self.goes_on = is_late.unwrap_or(self.goes_on);
        if self.goes_on {
            self.ring[self.count % KEPT] = LateAck { from, to, time };
            self.count += 1;
        }
    }

    /// When the one came that covers the last byte before `offset`.
    pub fn covers(&self, offset: i64) -> Option<i64> {
        self.ring.iter().find(|ack| ack.from < offset && offset <= ack.to).map(|ack| ack.time)
    }
}
