//! Finds bytes that a side did not owe but that were held back all the same, by Nagle's algorithm or by the congestion
//! window.

use crate::at::At;
use crate::http2::frame::header::{FrameHeader, FrameType, HEADER_LEN, flag};
use crate::store::budget::Cause;
use crate::store::context::{Context, NO_METHOD};
use crate::store::tables::WaitRow;
use crate::tcp::half::{Ack, Half, SHORTEST_DELAYED_ACK};
use crate::tcp::send_queue::BlockedInterval;

use super::cause::{are_open, credit, is_full, tcp_window};
use super::layers::{Layers, SHORTEST, reaction};
use super::release::{release, release_of_near};
use super::row::row;
use super::stop::{Stop, stopped};

/// `side` sends new bytes without having owed any: a pause before shows that its queue was empty. Not so when a loss
/// had reduced its window, and the ACK right before was the first to make room: what begins now could not begin sooner. Nor when
/// Nagle's algorithm held it back, or the congestion window the end of a stream.
#[cold]
pub fn began(layers: &mut Layers<'_>, side: usize, length: i64, payload: &[u8], at: At, cx: &mut Context) {
    let half = &layers.tcp.halves[side];
    let start = half.last_data_time;
    if at.time.saturating_sub(start) < SHORTEST {
        return;
    }
    layers.tcp.transport.queues[side].clear();
    let sends_since = layers.tcp.transport.sends_since[side].take();
    let Some(ack) = release(layers, side, at).or_else(|| release_of_near(layers, side, at)) else {
        if may_lack_its_ack(layers, side, length, at) {
            layers.tcp.transport.queues[side].add(BlockedInterval::new(start, at.time, Cause::Unexplained));
        }
        return;
    };
    let segment = layers.tcp.segment_size(side);
    let half = &layers.tcp.halves[side];
    let in_flight = (half.highest - half.acked_at_send).max(0);
    let counted = half.sent.behind(half.acked_at_send).map_or(0, |segments| segments * segment);
    let full = half.congestion.bytes(segment) - in_flight.max(counted) < segment && in_flight >= segment;
    if full {
        layers.tcp.transport.sends_since[side] = sends_since;
    }
    if half.congestion.is_after_loss() && half.acks_reach_back && full && !had_room(layers, side, ack) {
        let interval = BlockedInterval::new(start, at.time, Cause::CongestionWindow);
        layers.tcp.transport.queues[side].add(BlockedInterval { after_loss: true, ..interval });
        return;
    }
    let stop = stopped(layers, side);
    let ends = ends(payload) == Some(stop.stream);
    let small = begins_message(layers, side, &stop) || ends && ends_messages(layers, side, &stop);
    let nagle = is_held_by_nagle(layers, side, &stop, length, ack, at);
    let (cause, own_ns, written) = if small && nagle {
        (Cause::DelayedAck, 0, start)
    } else if let Some(cause) = ends.then(|| holds_the_end(layers, side, &stop, ack)).flatten() {
        (cause, 0, start)
    } else if nagle && let Some((own_ns, written)) = holds_an_answer(layers, side, payload, ack, at) {
        (Cause::DelayedAck, own_ns, written)
    } else {
        if small && may_be_held_by_nagle(layers, side, &stop, length, ack) {
            layers.tcp.transport.queues[side].add(BlockedInterval::new(start, at.time, Cause::Unexplained));
        }
        return;
    };
    let interval = BlockedInterval { own_ns, ..BlockedInterval::new(start, at.time, cause) };
    layers.tcp.transport.queues[side].add(interval);
    let row = row(layers, side, &stop, Some(ack), at);
    cx.waits.push(WaitRow {
        start_time_ns: written,
        duration_ns: at.time.saturating_sub(written),
        cause: cause as u8,
        stopped_at_packet: layers.tcp.halves[side].last_data_packet,
        streams: 1,
        method: layers.http2.streams.find_mut(stop.stream).map_or(NO_METHOD, |stream| stream.state.method),
        ..row
    });
}

/// Whether ACKs that came since `side` stopped, and well before `ack`, had left room for a segment in its congestion window.
fn had_room(layers: &Layers<'_>, side: usize, ack: Ack) -> bool {
    let half = &layers.tcp.halves[side];
    let (near, segment) = (layers.tcp.transport.near_rtt[side].max(0), layers.tcp.segment_size(side));
    let earlier = half.acks.at(ack.time.saturating_sub(reaction(layers)));
    earlier.is_some_and(|earlier| {
        let since = earlier.time.saturating_add(near) > half.last_data_time;
        since && half.congestion.bytes(segment) - (half.highest - earlier.offset) >= segment
    })
}

/// Nagle's algorithm held an answer back behind a short segment of something else, such as the acknowledgement of a PING:
/// its client had sent nothing but the delayed ACK since. The bytes before do not tell when the answer was written, so the
/// server is granted as long as it took for the slowest of the answers of the same method before: gives that time, and when
/// the answer was written then.
fn holds_an_answer(layers: &mut Layers<'_>, side: usize, payload: &[u8], ack: Ack, at: At) -> Option<(i64, i64)> {
    let is_missing = layers.http2.sides[side].gaps > 0; // so may be the slowest of its answers
    if side == layers.http2.client || is_missing || layers.tcp.halves[1 - side].last_data_time >= ack.time {
        return None;
    }
    let call = &layers.http2.streams.find_mut(first_stream(payload)?)?.state;
    let (since, method) = (call.turn_since, call.method);
    let own = layers.http2.application.turns.longest_taken(method).filter(|_| since >= 0)?;
    let written = layers.tcp.halves[side].last_data_time.max(since.saturating_add(own));
    (at.time.saturating_sub(written) >= SHORTEST).then_some((own, written))
}

/// The stream of the first HEADERS or DATA that begin in a packet, among its first frames.
fn first_stream(payload: &[u8]) -> Option<u32> {
    const SEARCHED: usize = 4;
    let mut rest = payload;
    for _ in 0..SEARCHED {
        let (octets, behind) = rest.split_first_chunk::<HEADER_LEN>()?;
        let header = FrameHeader::parse(octets);
        if matches!(header.kind(), FrameType::HEADERS | FrameType::DATA) {
            return Some(header.stream);
        }
        rest = behind.get(header.length() as usize..)?;
    }
    None
}

/// The bytes sent last were the HEADERS of a call without its message, as far as nothing is missing.
fn begins_message(layers: &mut Layers<'_>, side: usize, stop: &Stop) -> bool {
    let sender = &layers.http2.sides[side];
    layers.http2.streams.find_mut(stop.stream).is_some_and(|stream| {
        let call = &stream.state;
        let direction = &call.directions[side];
        let message_to_come = !direction.ended && direction.reader.messages == 0 && direction.headers.0 >= 0;
        let read = sender.is_read_whole(direction.gaps, call.first.packet);
        call.kind.is_rpc() && !call.finished && read && message_to_come
    })
}

/// The bytes sent last were a segment that was not full, and the next ones come right after the delayed ACK of it: those
/// are held back by Nagle's algorithm, not late.
fn is_held_by_nagle(layers: &Layers<'_>, side: usize, stop: &Stop, length: i64, ack: Ack, at: At) -> bool {
    let open = are_open(layers, side, stop, credit(layers, side, at).0);
    tcp_window(layers, side, stop, length, ack, open, at) == Cause::DelayedAck
}

/// The same, where the capture does not show which windows were open, or for how long the path alone holds ACKs.
fn may_be_held_by_nagle(layers: &Layers<'_>, side: usize, stop: &Stop, length: i64, ack: Ack) -> bool {
    let half = &layers.tcp.halves[side];
    let short = half.sent_short && length < layers.tcp.segment_size(side) && !half.sends_at_once;
    let unknown = layers.http2.begun_late || layers.tcp.transport.near_is_bound[1 - side];
    let late = ack.time.saturating_sub(half.last_data_time) >= SHORTEST_DELAYED_ACK;
    let awaited = stop.in_flight.is_some_and(|bytes| bytes > 0) && ack.offset == half.highest;
    unknown && short && late && awaited
}

/// Whether the capture may lack the delayed ACK for which Nagle's algorithm held bytes back, or have it behind them: one is due.
fn may_lack_its_ack(layers: &Layers<'_>, side: usize, length: i64, at: At) -> bool {
    let (half, near) = (&layers.tcp.halves[side], layers.tcp.transport.near_rtt[side].max(0));
    let short = length < layers.tcp.segment_size(side) && !half.sends_at_once;
    short && half.acked < half.highest && half.awaits_a_delayed_ack(at.time, near)
}

/// Whether what `half` sends without having owed any may have been held up all the same, as far as it shows at once: by
/// Nagle's algorithm behind a short segment, or, when it is no more than the frame that ends a stream, by the
/// congestion window, which had no room for it behind the last message.
#[inline]
pub fn may_be_held(half: &Half, payload: &[u8], at: At) -> bool {
    at.time - half.last_data_time >= SHORTEST
        && (half.paused_behind_a_short_segment(at.time) || ends(payload).is_some())
}

/// The stream that a packet's only frame ends: an empty DATA frame, or trailers.
#[inline(never)]
fn ends(payload: &[u8]) -> Option<u32> {
    let (octets, rest) = payload.split_first_chunk::<HEADER_LEN>()?;
    let header = FrameHeader::parse(octets);
    let alone = rest.len() == header.length() as usize && header.stream != 0 && header.has(flag::END_STREAM);
    let ending = header.kind() == FrameType::HEADERS || header.kind() == FrameType::DATA && rest.is_empty();
    (alone && ending).then_some(header.stream)
}

/// The bytes sent last were a message's, and nothing of the stream is left but its end.
fn ends_messages(layers: &mut Layers<'_>, side: usize, stop: &Stop) -> bool {
    layers.http2.streams.find_mut(stop.stream).is_some_and(|stream| {
        let call = &stream.state;
        let direction = &call.directions[side];
        call.kind.is_rpc() && !direction.ended && direction.reader.messages > 0
    })
}

/// What held up the frame that ends a stream, which comes right after an ACK, for which alone it can have waited: it is the
/// first, the peer has sent nothing else meanwhile, all messages are whole, and the congestion window was full. It owed
/// nothing, so that standing still proves nothing. Nagle's algorithm would have waited for the last segment's ACK, if that
/// was short: which of both it was is not known then. Flow control does not bind such frames (RFC 9113 section 6.9).
fn holds_the_end(layers: &mut Layers<'_>, side: usize, stop: &Stop, ack: Ack) -> Option<Cause> {
    if !ends_messages(layers, side, stop) {
        return None;
    }
    let (half, peer) = (&layers.tcp.halves[side], &layers.tcp.halves[1 - side]);
    let near = layers.tcp.transport.near_rtt[side].max(0);
    let earlier = half.acks.at(ack.time.saturating_sub(reaction(layers)));
    let before_the_stop = |ack: Ack| ack.time.saturating_add(near) <= half.last_data_time;
    let first = earlier.map_or(half.acks.is_whole(), before_the_stop);
    let silent = peer.last_data_time < half.last_data_time;
    let untroubled = half.retransmissions_since == 0;
    let (in_flight, segment) = (stop.in_flight?, layers.tcp.segment_size(side));
    let received = stop.receive_window.is_some_and(|window| window - in_flight >= segment);
    let full = segment > 0 && in_flight >= segment && received && is_full(layers, side, stop, in_flight);
    let nagle = half.sent_short && ack.offset >= half.highest;
    let cause = if nagle { Cause::Unexplained } else { Cause::CongestionWindow };
    (first && silent && untroubled && full).then_some(cause)
}
