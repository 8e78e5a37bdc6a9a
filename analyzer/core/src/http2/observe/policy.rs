//! PINGs under the policy of gRPC servers (gRFC A8), and the frames that end connections.

use crate::at::At;
use crate::http2::connection::side::GoawaySeen;
use crate::http2::connection::state::Http2;
use crate::http2::frame::goaway::Goaway;
use crate::http2::frame::header::FrameType;
use crate::http2::frame::ping::Purpose;
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::{GoawayRow, PingRow};

/// The least time between PINGs of a client with open streams by default: 5 minutes (gRFC A8; grpc-go
/// `EnforcementPolicy.MinTime`).
const LEAST_INTERVAL: i64 = 300_000_000_000;
/// The same without open streams: 2 hours (grpc-go internal/transport/http2_server.go, `defaultPingTimeout`).
const LEAST_INTERVAL_IDLE: i64 = 7_200_000_000_000;
/// A PING this soon after DATA of the peer answers it: 2 ms.
const ANSWERS_DATA: i64 = 2_000_000;
/// A PING after nothing was received for this long is keepalive: 1 s, where gRPC's shortest period is 1 s on servers
/// and 10 s on clients, and estimators wait for DATA.
const SILENCE: i64 = 1_000_000_000;
/// First PINGs of a connection that are kept.
const FIRST: u32 = 16;
/// Last PINGs before a GOAWAY that are kept.
const LAST: usize = 4;
/// Characters kept of a GOAWAY's debug text.
const REASON: usize = 64;

/// A client's PINGs as a server with the default policy counts them.
#[derive(Debug, Default)]
pub struct Policy {
    last: Option<i64>,
    strikes: u8,
    /// Frames of RPCs that the server had sent at the last PING.
    server_frames: u32,
    kept: u32,
    recent: [Option<PingRow>; LAST],
}

impl Policy {
    /// The strikes after a PING, as grpc-go's `handlePing` counts them: none when the server has sent HEADERS or DATA
    /// since the last one.
    fn ping(&mut self, now: i64, open_rpcs: u32, server_frames: u32) -> u8 {
        let least = if open_rpcs == 0 { LEAST_INTERVAL_IDLE } else { LEAST_INTERVAL };
        if server_frames != self.server_frames {
            self.strikes = 0;
        } else if self.last.is_some_and(|last| now.saturating_sub(last) < least) {
            self.strikes = self.strikes.saturating_add(1);
        }
        (self.last, self.server_frames) = (Some(now), server_frames);
        self.strikes
    }

    /// Keeps a row: at once while there are few, else as one of the last before a GOAWAY.
    fn keep(&mut self, row: PingRow, cx: &mut Context) {
        if self.kept < FIRST {
            self.kept += 1;
            push(row, cx);
        } else {
            self.recent.rotate_left(1);
            self.recent[LAST - 1] = Some(row);
        }
    }
}

fn push(row: PingRow, cx: &mut Context) {
    if cx.pings.len() < limits::PINGS + limits::ROWS_AHEAD {
        cx.pings.push(row);
    }
}

/// A PING of `side`, or its acknowledgement.
pub(in crate::http2) fn ping(h2: &mut Http2, side: usize, is_ack: bool, payload: [u8; 8], at: At, cx: &mut Context) {
    let mut row = PingRow {
        connection: h2.connection,
        direction: h2.direction(side),
        packet: at.packet,
        time_ns: at.time,
        ack: u8::from(is_ack),
        open_rpcs: h2.open_rpcs,
        ..PingRow::default()
    };
    if is_ack {
        h2.sides[side].habits.ping_ack();
        return h2.policy.keep(row, cx);
    }
    let purpose = purpose(h2, side, payload, at);
    row.purpose = purpose as u8;
    h2.sides[side].habits.ping(purpose);
    if side == h2.client {
        let server_frames = h2.sides[1 - side].habits.rpc_frames();
        row.strikes = h2.policy.ping(at.time, h2.open_rpcs, server_frames);
    }
    h2.policy.keep(row, cx);
}

/// What a PING is for, by its payload, else by its time: estimators answer DATA, keepalive breaks a silence.
fn purpose(h2: &Http2, side: usize, payload: [u8; 8], at: At) -> Purpose {
    match Purpose::from_payload(payload) {
        Some(purpose) => purpose,
        None => {
            let peer = &h2.sides[1 - side];
            let since = at.time.saturating_sub(peer.frame_first().time);
            match peer.last_kind() {
                FrameType::DATA if since <= ANSWERS_DATA => Purpose::Bdp,
                _ if since >= SILENCE => Purpose::Keepalive,
                _ => Purpose::Unknown,
            }
        }
    }
}

/// A GOAWAY of `side`: the PINGs before it may be why.
pub(in crate::http2) fn goaway(h2: &mut Http2, side: usize, frame: &Goaway<'_>, at: At, cx: &mut Context) {
    h2.sides[side].goaway = Some(GoawaySeen { last_stream: frame.last_stream, code: frame.error_code });
    for row in std::mem::take(&mut h2.policy.recent).into_iter().flatten() {
        push(row, cx);
    }
    if cx.goaways.len() < limits::GOAWAYS + limits::ROWS_AHEAD {
        let reason = cx.goaway_reason(&text(frame.debug_data));
        cx.goaways.push(GoawayRow {
            connection: h2.connection,
            direction: h2.direction(side),
            packet: at.packet,
            time_ns: at.time,
            code: frame.error_code,
            last_stream: frame.last_stream,
            reason,
            open_rpcs: h2.open_rpcs,
        });
    }
}

/// Debug data as far as it is words: a reason is, anything else is not shown.
fn text(debug_data: &[u8]) -> String {
    let kept = debug_data.get(..REASON).unwrap_or(debug_data);
    let plain = kept.iter().all(|&byte| byte.is_ascii_alphanumeric() || b" _-.,:()".contains(&byte));
    if plain { String::from_utf8_lossy(kept).into_owned() } else { String::new() }
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

    #[test]
    fn only_words_are_kept_of_debug_data() {
        assert_eq!(text(b"too_many_pings"), "too_many_pings");
        assert_eq!(text(b"\x00\x01secret"), "");
        assert_eq!(text(&[b'a'; 100]).len(), REASON);
    }
}
