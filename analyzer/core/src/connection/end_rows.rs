//! Adds the rows that say how a connection ended, or what was on its way when the capture did.

use crate::at;
use crate::store::context::Context;
use crate::store::tables::{ClosingRow, UnansweredRow, UndeliveredRow};
use crate::tcp::connection::Connection as Tcp;

use super::content::Content;

/// Adds a row for each side whose last packets were retransmitted after a timeout, and got no answer.
pub(super) fn push_unanswered(tcp: &Tcp, content: &Content, cx: &mut Context) {
    for (side, sent) in (0..2).filter_map(|side| Some((side, tcp.transport.unanswered_of(side)?))) {
        let (ping_packet, ping_time_ns) = at::place(content.http2.sides[1 - side].pinged);
        cx.unanswered.push(UnansweredRow {
            connection: tcp.row,
            direction: content.http2.direction(side),
            heard_packet: sent.heard.0,
            heard_time_ns: sent.heard.1,
            first_packet: sent.first.packet,
            first_time_ns: sent.first.time,
            shortest: sent.shortest,
            longest_bytes: sent.longest_acked,
            retransmissions: sent.retransmissions,
            timeouts: sent.timeouts,
            again_packet: sent.again.packet,
            again_time_ns: sent.again.time,
            last_packet: sent.last.packet,
            last_time_ns: sent.last.time,
            ping_packet,
            ping_time_ns,
            fin_alone: u8::from(tcp.halves[side].fin.is_some_and(|fin| tcp.halves[side].acked >= fin)),
        });
    }
}

/// Adds a row for each side whose first unacknowledged bytes never arrived: they were retransmitted in vain, or left a hole
/// that was never filled. Its peer was heard after them, or reported later bytes, so the path is not gone.
pub(super) fn push_undelivered(tcp: &Tcp, content: &Content, cx: &mut Context) {
    for side in 0..2 {
        let half = &tcp.halves[side];
        let sent = half.undelivered.from(half.acked);
        let hole = tcp.hole(side);
        let heard = tcp.transport.unanswered[side].heard;
        let first = if sent.retransmissions > 0 { sent.first } else { hole.map_or(sent.first, |hole| hole.1) };
        let reported = heard.0 > first.packet || sent.selective.packet > 0;
        if !reported || sent.retransmissions == 0 && hole.is_none() {
            continue;
        }
        let behind =
            if sent.selective.packet > 0 { sent.selective } else { hole.map_or(sent.selective, |hole| hole.1) };
        cx.undelivered.push(UndeliveredRow {
            connection: tcp.row,
            direction: content.http2.direction(side),
            first_packet: first.packet,
            first_time_ns: first.time,
            retransmissions: sent.retransmissions,
            shortest: sent.shortest,
            last_packet: sent.last.packet,
            last_time_ns: sent.last.time,
            hole_bytes: hole.map_or(0, |hole| hole.0),
            behind_packet: behind.packet,
            behind_time_ns: behind.time,
            longest_bytes: sent.longest_acked,
            longest_seen_bytes: half.longest_payload,
            segment_bytes: half.segment_size(&tcp.halves[1 - side]),
            heard_packet: heard.0,
            heard_time_ns: heard.1,
        });
    }
}

/// Adds a row for each FIN and RST behind packet `cut`.
pub(super) fn push_closings(tcp: &Tcp, content: &Content, cut: u32, cx: &mut Context) {
    let behind = tcp.closings.iter().zip(&content.closings).filter(|(closing, _)| closing.at.packet > cut);
    for (closing, known) in behind {
        let (ping_packet, ping_time_ns) = at::place(known.ping);
        cx.closings.push(ClosingRow {
            connection: tcp.row,
            direction: content.http2.direction(closing.side),
            packet: closing.at.packet,
            time_ns: closing.at.time,
            reset: u8::from(closing.is_reset),
            acknowledges: u8::from(closing.acknowledges),
            lacks: u8::from(closing.lacks),
            ttl: closing.ttl,
            least_ttl: closing.ttls[0],
            most_ttl: closing.ttls[1],
            identification: closing.ip_id.map_or(u32::MAX, u32::from),
            identification_before: closing.ip_id_before.map_or(u32::MAX, u32::from),
            own_packet: closing.own.0,
            own_time_ns: closing.own.1,
            peer_packet: closing.peer.0,
            peer_time_ns: closing.peer.1,
            peer_idle_ns: closing.peer_idle,
            open_rpcs: known.open_rpcs,
            ping_packet,
            ping_time_ns,
            later_packets: closing.later,
            later_packet: closing.later_at.packet,
            later_time_ns: closing.later_at.time,
        });
    }
}
