//! Notes that a side was silent while its peer waited for it, by HTTP/2: several RPCs, or a PING, which the library
//! acknowledges whatever the application does.

use crate::at::At;
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::StallRow;
use crate::tcp::half::Half;

use super::layers::Layers;

/// A library acknowledges a PING within a millisecond or two; a busy host takes longer: 20 ms.
const LATE_PING: i64 = 20_000_000;
/// RPCs that wait for less are their handlers' time: 50 ms.
const LATE_RPCS: i64 = 50_000_000;
/// One RPC that waits is its handler's time.
const SEVERAL: u32 = 2;

/// Whether `side`, which sends new bytes, was silent for long.
#[inline]
pub fn was_silent(last_data_time: i64, at: At) -> bool {
    at.time - last_data_time >= LATE_PING
}

/// `side` sends after a silence: a row if its peer waited for it meanwhile. It counts from when all its bytes had been
/// acknowledged: until then TCP may have held back more. With a retransmission in it, it may be the network's.
#[cold]
pub fn note(layers: &mut Layers<'_>, side: usize, at: At, cx: &mut Context) {
    let (half, peer) = (&layers.tcp.halves[side], &layers.tcp.halves[1 - side]);
    let http2 = &mut layers.http2;
    let turns = &http2.application.turns;
    let waiting = if side == http2.client { 0 } else { turns.waiting() };
    let Some(free) = half.acks.first_of_all(half.highest) else { return };
    let silent_since = |since: i64| since.max(free.time).max(half.last_data_time);
    let near = layers.tcp.transport.near_rtt[side].max(0);
    let silence = |since: i64| at.time.saturating_sub(since).saturating_sub(near);
    let waited = (waiting >= SEVERAL).then(|| silent_since(turns.waiting_since()));
    let rpcs = waited.filter(|since| silence(*since) >= LATE_RPCS);
    let pinged = http2.sides[side].pinged.map(|ping| (ping, silent_since(ping.ready_time)));
    // behind any retransmission its acknowledgement may have been lost
    let late = |&(_, since): &(At, i64)| silence(since) >= LATE_PING && peer.last_retransmission < since;
    let ping = pinged.filter(late);
    let Some(start) = rpcs.into_iter().chain(ping.map(|(_, since)| since)).min() else { return };
    let troubled = half.last_retransmission >= start || lost_since(peer, start);
    let full =
        http2.application.stalls >= limits::CONNECTION_STALLS || cx.stalls.len() >= limits::STALLS + limits::ROWS_AHEAD;
    if half.last_data_packet == 0 || troubled || peer.window == Some(0) || full {
        return;
    }
    http2.application.stalls += 1;
    let all_acked = peer.acks.first_of_all(peer.highest).filter(|ack| ack.packet != at.packet && ack.time >= start);
    let row = StallRow {
        connection: layers.tcp.row,
        start_time_ns: start,
        duration_ns: at.time.saturating_sub(start),
        stopped_at_packet: half.last_data_packet,
        stopped_time_ns: half.last_data_time,
        resumed_at_packet: at.packet,
        waiting,
        ping_packet: ping.map_or(0, |(ping, _)| ping.ready_packet),
        ping_time_ns: ping.map_or(-1, |(ping, _)| ping.ready_time),
        acked_time_ns: all_acked.map_or(-1, |ack| ack.time),
        answers_ns: -1,
        durations_ns: -1,
        ..StallRow::default()
    };
    http2.application.turns.stalled(side, row, http2.client, &mut cx.stalls);
}

/// Whether a side retransmitted since `start` what its peer does not say that it had (RFC 2883). Most silences have a tail loss
/// probe (RFC 8985 section 7), because ACKs are put off.
fn lost_since(half: &Half, start: i64) -> bool {
    half.last_retransmission >= start && (half.sent_again.is_full() || half.sent_again.any_since(start))
}
