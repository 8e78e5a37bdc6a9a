//! Notes PING and GOAWAY frames: what a PING is for, and why a connection ends.

use crate::at::At;
use crate::http2::frame::goaway::Goaway;
use crate::http2::frame::header::FrameType;
use crate::http2::frame::ping::Purpose;
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::{GoawayRow, PingRow};

use super::application::Application;
use super::side::GoawaySeen;
use super::state::Http2;

/// A PING this soon after DATA of the peer answers it: 2 ms.
const ANSWERS_DATA: i64 = 2_000_000;
/// A PING after nothing was received for this long is keepalive: 1 s, where gRPC's shortest period is 1 s on servers
/// and 10 s on clients, and estimators wait for DATA.
const SILENCE: i64 = 1_000_000_000;
/// Characters kept of a GOAWAY's debug text.
const REASON: usize = 80;

/// A PING of `side`, or its acknowledgement.
pub(in crate::http2) fn ping<A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    is_ack: bool,
    payload: [u8; 8],
    at: At,
    cx: &mut Context,
) {
    let mut row = PingRow {
        connection: h2.connection,
        direction: h2.direction(side),
        packet: at.packet,
        time_ns: at.time,
        ack: u8::from(is_ack),
        open_rpcs: h2.application.open(),
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
        row.strikes = h2.policy.ping(at.time, row.open_rpcs, server_frames);
    }
    h2.policy.keep(row, cx);
}

/// What a PING is for, by its payload, else by its time: estimators answer DATA, keepalive breaks a silence.
fn purpose<A: Application>(h2: &Http2<A>, side: usize, payload: [u8; 8], at: At) -> Purpose {
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
pub(in crate::http2) fn goaway<A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    frame: &Goaway<'_>,
    at: At,
    cx: &mut Context,
) {
    h2.sides[side].goaway = Some(GoawaySeen { last_stream: frame.last_stream, code: frame.error_code });
    h2.policy.write_recent(h2.connection, cx);
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
            open_rpcs: h2.application.open(),
        });
    }
}

/// Debug data as far as it is words: a reason is, anything else is not shown.
fn text(debug_data: &[u8]) -> String {
    let kept = debug_data.get(..REASON).unwrap_or(debug_data);
    let plain = kept.iter().all(|&byte| byte.is_ascii_alphanumeric() || b" _-.,:()[]".contains(&byte));
    if plain { String::from_utf8_lossy(kept).into_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_are_kept_of_debug_data() {
        assert_eq!(text(b"too_many_pings"), "too_many_pings");
        assert_eq!(text(b"\x00\x01secret"), "");
        assert_eq!(text(&[b'a'; 100]).len(), REASON);
    }
}
