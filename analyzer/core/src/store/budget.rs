//! The causes among which time is divided (docs/json.md), and sums by cause.

use serde::{Deserialize, Serialize};

/// Why time passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Cause {
    /// The server waited for the client's application or library.
    Client = 0,
    /// The client waited for the server's application or library.
    Server = 1,
    /// Propagation.
    Network = 2,
    /// Bytes were moving.
    Transmission = 3,
    /// TCP's congestion window was full.
    CongestionWindow = 4,
    /// The peer's TCP receive window was full.
    ReceiveWindow = 5,
    /// The stream's HTTP/2 flow-control window was empty.
    StreamWindow = 6,
    /// The connection's HTTP/2 flow-control window was empty.
    ConnectionWindow = 7,
    /// Lost packets were retransmitted.
    LossRecovery = 8,
    /// Nagle's algorithm waited for a delayed ACK.
    DelayedAck = 9,
    /// Bytes of other streams went first.
    HeadOfLine = 10,
    /// Packets took longer than the path's minimum: they were queued on the way.
    NetworkQueue = 11,
    /// The peer acknowledged nothing any more.
    PeerUnreachable = 12,
    /// A proxy held it. The core sees one connection at a time and never charges this: joined legs do.
    Proxy = 13,
    /// The capture lacks the packets.
    CaptureGap = 14,
    /// The packets do not tell.
    #[default]
    Unexplained = 15,
}

/// Names in the order of [`Cause`].
pub const CAUSES: [&str; 16] = [
    "client",
    "server",
    "network",
    "transmission",
    "congestion_window",
    "receive_window",
    "stream_window",
    "connection_window",
    "loss_recovery",
    "delayed_ack",
    "head_of_line",
    "network_queue",
    "peer_unreachable",
    "proxy",
    "capture_gap",
    "unexplained",
];

/// RPC time that losses cost in a way of its own, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossTime {
    /// Blocked by a congestion window that a loss had reduced.
    pub reduced_window_ns: u64,
    /// Of the time of [`Cause::LossRecovery`], that in outages.
    pub outage_ns: u64,
}

impl LossTime {
    /// Adds both times of `other`, as [`Budget::add_all`] does.
    pub fn add(&mut self, other: &Self) {
        self.reduced_window_ns = self.reduced_window_ns.wrapping_add(other.reduced_window_ns);
        self.outage_ns = self.outage_ns.wrapping_add(other.outage_ns);
    }
}

/// Nanoseconds per cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget(pub [u64; CAUSES.len()]);

impl Budget {
    /// Adds time to a cause.
    #[inline]
    pub fn add(&mut self, cause: Cause, ns: u64) {
        if let Some(sum) = self.0.get_mut(cause as usize) {
            *sum = sum.wrapping_add(ns);
        }
    }

    /// The time of a cause.
    #[inline]
    pub fn get(&self, cause: Cause) -> u64 {
        self.0.get(cause as usize).copied().unwrap_or(0)
    }

    /// Adds every cause of `other`. Wraps after 584 years, which only a capture with absurd times holds; saturating
    /// would break the sum instead, and cost more than the addition.
    #[inline]
    pub fn add_all(&mut self, other: &Self) {
        for (sum, ns) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(ns);
        }
    }

    /// Undoes [`add_all`](Self::add_all).
    pub fn take_back(&mut self, other: &Self) {
        for (sum, ns) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_sub(ns);
        }
    }

    /// Moves what was waited for either side to what is unexplained: which side is the client is not known.
    #[cold]
    pub fn hide_sides(&mut self) {
        for side in [Cause::Client, Cause::Server] {
            let ns = self.get(side);
            self.add(side, ns.wrapping_neg());
            self.add(Cause::Unexplained, ns);
        }
    }

    /// All causes together, nanoseconds.
    #[inline]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, &ns| sum.wrapping_add(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_somebody_waited_for_can_be_hidden() {
        let mut budget = Budget::default();
        for (cause, ns) in [(Cause::Client, 3), (Cause::Server, 4), (Cause::Network, 5)] {
            budget.add(cause, ns);
        }
        budget.hide_sides();
        assert_eq!(
            [Cause::Client, Cause::Server, Cause::Network, Cause::Unexplained].map(|c| budget.get(c)),
            [0, 0, 5, 7]
        );
    }
}
