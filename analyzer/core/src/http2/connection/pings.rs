//! Notes PING and GOAWAY frames: what a PING is for, and why a connection ends.

use crate::at::At;
use crate::http2::frame::goaway::Goaway;
use crate::http2::frame::header::{FrameHeader, FrameType, flag};
use crate::http2::frame::ping::Purpose;
use crate::http2::observe::implementation::Implementation;
use crate::limits;
use crate::store::tables::{GoawayRow, PingRow};

use super::application::Application;
use super::reading::Parser;
use super::side::{GoawaySeen, Side};

/// A PING this soon after DATA of the peer answers it: 2 ms.
const ANSWERS_DATA: i64 = 2_000_000;
/// A PING after nothing was received for this long is keepalive: 1 s, where gRPC's shortest period is 1 s on servers
/// and 10 s on clients, and estimators wait for DATA.
const SILENCE: i64 = 1_000_000_000;
/// Characters kept of a GOAWAY's debug text.
const REASON: usize = 80;

impl<A: Application, W: ?Sized> Parser<'_, A, W> {
    /// A PING, or its acknowledgement.
    pub(super) fn note_ping(&mut self, header: FrameHeader, payload: [u8; 8]) {
        let (h2, side, at) = (&mut *self.h2, self.side, self.at);
        let is_ack = header.has(flag::ACK);
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
            h2.sides[side].pinged = None;
        } else {
            let purpose = find_purpose(&h2.sides[1 - side], payload, at);
            row.purpose = purpose as u8;
            h2.sides[side].habits.ping(purpose);
            if side == h2.client {
                let server = &h2.sides[1 - side];
                // among missing frames there may be some of RPCs
                let server_frames = server.habits.rpc_frames().wrapping_add(server.gaps);
                row.strikes = h2.policy.ping(at.time, row.open_rpcs, server_frames);
            }
            h2.sides[1 - side].pinged.get_or_insert(at);
            if h2.sides[side].implementation == Implementation::Unknown {
                h2.sides[side].implementation = Implementation::from_ping(payload);
            }
        }
        h2.policy.keep(row, self.cx);
    }

    /// A GOAWAY: the PINGs before it may be why.
    pub(super) fn note_goaway(&mut self, frame: &Goaway<'_>) {
        let (h2, cx) = (&mut *self.h2, &mut *self.cx);
        let (last_stream, code, time) = (frame.last_stream, frame.error_code, self.at.time);
        h2.sides[self.side].goaway = Some(GoawaySeen { last_stream, code, time });
        h2.policy.write_recent(h2.connection, cx);
        if cx.goaways.len() < limits::GOAWAYS + limits::ROWS_AHEAD {
            let reason = cx.goaway_reason(&text(frame.debug_data));
            cx.goaways.push(GoawayRow {
                connection: h2.connection,
                direction: h2.direction(self.side),
                packet: self.at.packet,
                time_ns: self.at.time,
                code: frame.error_code,
                last_stream: frame.last_stream,
                reason,
                open_rpcs: h2.application.open(),
            });
        }
    }
}

/// What a PING is for, by its payload, else by its time: estimators answer DATA of the peer, keepalive breaks a silence.
fn find_purpose<A: Application>(peer: &Side<A>, payload: [u8; 8], at: At) -> Purpose {
    Purpose::from_payload(payload).unwrap_or_else(|| {
        let since = at.time.saturating_sub(peer.frame_first().time);
        match peer.last_kind() {
            FrameType::DATA if since <= ANSWERS_DATA => Purpose::Bdp,
            _ if since >= SILENCE => Purpose::Keepalive,
            _ => Purpose::Unknown,
        }
    })
}

/// Debug data as far as it is words: a reason is, anything else is not shown.
fn text(debug_data: &[u8]) -> String {
    let kept = debug_data.get(..REASON).unwrap_or(debug_data);
    let plain = kept.iter().all(|&byte| byte.is_ascii_alphanumeric() || b" _-.,:()[]+>".contains(&byte));
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
