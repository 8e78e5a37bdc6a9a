//! Counts PINGs under the policy of gRPC servers (gRFC A8).

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::store::context::Context;
use crate::store::tables::PingRow;

/// The least time between PINGs of a client with open streams by default: 5 minutes (gRFC A8; grpc-go
/// `EnforcementPolicy.MinTime`).
const LEAST_INTERVAL: i64 = 300_000_000_000;
/// The same without open streams: 2 hours (grpc-go internal/transport/http2_server.go, `defaultPingTimeout`).
const LEAST_INTERVAL_IDLE: i64 = 7_200_000_000_000;
/// First PINGs of a connection that are kept.
const FIRST: u32 = 16;
/// Last PINGs before a GOAWAY that are kept.
const LAST: usize = 4;

/// A client's PINGs as a server with the default policy counts them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Policy {
    last: Option<i64>,
    strikes: u8,
    /// Frames of RPCs that the server had sent at the last PING.
    server_frames: u32,
    kept: u32,
    recent: Vec<PingRow>,
}

impl Policy {
    /// The strikes after a PING, as grpc-go's `handlePing` counts them: none when the server has sent HEADERS or DATA
    /// since the last one.
    pub(in crate::http2) fn ping(&mut self, now: i64, open_rpcs: u32, server_frames: u32) -> u8 {
        let least = if open_rpcs == 0 { LEAST_INTERVAL_IDLE } else { LEAST_INTERVAL };
        if server_frames != self.server_frames {
            self.strikes = 0;
        } else if self.last.is_some_and(|last| now.saturating_sub(last) < least) {
            self.strikes = self.strikes.saturating_add(1);
        }
        (self.last, self.server_frames) = (Some(now), server_frames);
        self.strikes
    }

    /// Frames are counted anew: so many of RPCs were the server's. Rows of the first PINGs are kept again.
    pub(in crate::http2) fn begin_interval(&mut self, server_frames: u32) {
        self.server_frames = self.server_frames.wrapping_sub(server_frames);
        self.kept = 0;
    }

    /// Writes the kept rows of the last PINGs: a GOAWAY follows, and they may be why.
    pub(in crate::http2) fn write_recent(&mut self, connection: u32, cx: &mut Context) {
        for row in self.recent.drain(..) {
            push(PingRow { connection, ..row }, cx); // cuts may have given it another number
        }
    }

    /// Keeps a row: at once while there are few, else as one of the last before a GOAWAY.
    pub(in crate::http2) fn keep(&mut self, row: PingRow, cx: &mut Context) {
        if self.kept < FIRST {
            self.kept += 1;
            push(row, cx);
        } else {
            if self.recent.len() >= LAST {
                self.recent.remove(0);
            }
            self.recent.push(row);
        }
    }
}

fn push(row: PingRow, cx: &mut Context) {
    if cx.pings.len() < limits::PINGS + limits::ROWS_AHEAD {
        cx.pings.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn the_third_ping_too_early_is_the_third_strike() {
        let mut policy = Policy::default();
        let strikes: Vec<u8> = (0..4).map(|i| policy.ping(i * 10 * SECOND, 1, 0)).collect();
        assert_eq!(strikes, [0, 1, 2, 3]);
    }

    #[test]
    fn frames_of_the_server_forgive() {
        let mut policy = Policy::default();
        let strikes: Vec<u8> =
            [0, 0, 1, 1].into_iter().zip(0..).map(|(frames, i)| policy.ping(i * SECOND, 1, frames)).collect();
        assert_eq!(strikes, [0, 1, 0, 1]);
    }

    #[test]
    fn without_streams_two_hours_are_asked_for() {
        let mut policy = Policy::default();
        assert_eq!([0, 301, 602].map(|s| policy.ping(s * SECOND, 1, 0)), [0, 0, 0]);
        assert_eq!(policy.ping(1_000 * SECOND, 0, 0), 1);
    }
}
