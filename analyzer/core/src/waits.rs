//! Waits: intervals in which a side owed bytes and sent none.
//!
//! gRPC's five-byte prefix says how many bytes of a message are still to come, so silence inside a message is a
//! blocked writer. A cause is named only when what was binding at the stop and what came right before the sender
//! resumed agree; everything else is unexplained.

use crate::at::At;
use crate::http2::connection::streams::Kind;
use crate::http2::frame::header::{FrameHeader, FrameType, HEADER_LEN, flag};
use crate::store::budget::Cause;
use crate::store::context::{Context, NO_METHOD};
use crate::store::tables::WaitRow;
use crate::tcp::connection::Connection;
use crate::tcp::half::{self, Ack, Flight, Half};
use crate::tcp::send_queue::Interval;

mod cause;

use cause::{are_open, cause, credit, is_full, stands_at_its_window, tcp_window};

/// Shorter silences are a sender's own pace: 1 ms.
const SHORTEST: i64 = 1_000_000;
/// A sender resumes within this of what released it, or a quarter of the round trip if that is less: 2 ms.
const LONGEST_REACTION: i64 = 2_000_000;
/// The least reaction time a host is given: 200 microseconds.
const SHORTEST_REACTION: i64 = 200_000;
const NOT_KNOWN: i64 = -1;

/// What was binding when a sender that owes bytes sent its last ones.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    stream: u32,
    owed: u64,
    in_flight: Option<i64>,
    congestion_window: i64,
    receive_window: Option<i64>,
    stream_window: Option<i64>,
    connection_window: Option<i64>,
    /// What both allow at least where they are not known.
    least_window: Option<i64>,
    /// The credits of connection and stream as the sender knew them, where their beginning is not known.
    credits: Option<[i64; 2]>,
}

/// New data of `side` was read: remembers what is binding if the side owes more.
#[inline]
pub fn stopped(connection: &mut Connection, side: usize) {
    if !connection.owes(side) {
        connection.halves[side].stop = None;
        return;
    }
    connection.halves[side].stop = Some(stop_now(connection, side));
}

/// `side` paused inside a message between `start` and `at`, behind bytes of its peer that the capture lacks: with them
/// what it waited for is missing.
#[cold]
pub fn not_judged(connection: &mut Connection, side: usize, start: i64, at: At) {
    if at.time.saturating_sub(start) >= SHORTEST && connection.owes(side) {
        let interval = Interval { start, end: at.time, cause: Cause::Unexplained, after_loss: false };
        connection.http2.charge_wait(side, &interval);
    }
}

/// What is binding after the last bytes of `side`.
#[inline]
fn stop_now(connection: &mut Connection, side: usize) -> Stop {
    let stream = connection.http2.sides[side].last_stream;
    let (stream_window, connection_window) = http2_windows(connection, side, stream);
    let late = connection.http2.begun_late;
    let least_window = if late { least_http2_window(connection, side, stream) } else { None };
    let credits = if late { known_credits(connection, side, stream) } else { None };
    let owed = connection.owed(side, stream);
    let (half, peer) = (&connection.halves[side], &connection.halves[1 - side]);
    let segment = i64::from(half.segment_size(peer));
    Stop {
        stream,
        owed,
        in_flight: half.acks_reach_back.then_some((half.highest - half.acked_at_send).max(0)),
        congestion_window: half.congestion.bytes(segment),
        receive_window: receive_window(half, peer, connection.http2.near_rtt[side]),
        stream_window,
        connection_window,
        least_window,
        credits,
    }
}

/// The windows of a stream and of the connection as the sender knew them when it sent its last bytes: without credit
/// that was captured too late to have reached it by then.
fn http2_windows(connection: &mut Connection, side: usize, stream: u32) -> (Option<i64>, Option<i64>) {
    let near = connection.http2.near_rtt[side];
    let windows = (connection.http2.stream_window(side, stream), connection.http2.connection_window(side));
    let sender = &connection.http2.sides[side];
    if near <= half::NEAR || sender.recent_credits.is_empty() {
        return windows;
    }
    let known = connection.halves[side].last_data_time.saturating_sub(near);
    let without = |window: Option<i64>, stream| window.map(|window| window - sender.credit_after(stream, known));
    (without(windows.0, stream), without(windows.1, 0))
}

/// What both windows of HTTP/2 allow at least, without credit that may not have reached the sender yet.
#[cold]
fn least_http2_window(connection: &mut Connection, side: usize, stream: u32) -> Option<i64> {
    let near = connection.http2.near_rtt[side].max(0);
    let known = connection.halves[side].last_data_time.saturating_sub(near);
    let sender = &connection.http2.sides[side];
    let unknown = [sender.credit_after(0, known), sender.credit_after(stream, known)];
    connection.http2.least_window(side, stream, unknown)
}

/// The credits of the connection and of a stream without what may not have reached the sender yet.
#[cold]
fn known_credits(connection: &mut Connection, side: usize, stream: u32) -> Option<[i64; 2]> {
    let near = connection.http2.near_rtt[side].max(0);
    let known = connection.halves[side].last_data_time.saturating_sub(near);
    let credits = connection.http2.credits(side, stream)?;
    let sender = &connection.http2.sides[side];
    Some([credits[0] - sender.credit_after(0, known), credits[1] - sender.credit_after(stream, known)])
}

/// A sender that stopped inside a message, behind a whole DATA frame, goes on right when credit comes: that may prove
/// where the connection's window is used up.
#[cold]
fn note_stop_for_credit(connection: &mut Connection, side: usize, stop: &Stop, at: At) {
    let Some(credits) = stop.credits else { return };
    let whole = stop.owed > 0 && connection.http2.sides[side].owed_in_frame() == 0;
    if whole && connection.halves[side].retransmissions_since == 0 && credit(connection, side, at).0 {
        let segment = segment_size(connection, side);
        connection.http2.note_stop_for_credit(side, stop.stream, credits, segment);
    }
}

/// The receive window of `peer` as the sender knew it when it sent its last bytes.
fn receive_window(half: &Half, peer: &Half, near: i64) -> Option<i64> {
    let known =
        if near <= half::NEAR { peer.window } else { peer.windows.at(half.last_data_time.saturating_sub(near)) };
    known.and_then(|window| i64::try_from(window).ok())
}

/// `side`, which owed bytes, sends new ones: if it was silent long enough, that was a wait.
/// `length` bytes come in its packet.
pub fn resumed(connection: &mut Connection, side: usize, length: i64, at: At, cx: &mut Context) {
    let half = &connection.halves[side];
    let Some(stop) = half.stop else { return };
    let (start, packet) = (half.last_data_time, half.last_data_packet);
    let duration = at.time.saturating_sub(start);
    if duration < SHORTEST {
        return;
    }
    if connection.http2.begun_late {
        note_stop_for_credit(connection, side, &stop, at);
    }
    let released = release(connection, side, at);
    let cause = cause(connection, side, &stop, length, released, at);
    let after_loss = cause == Cause::CongestionWindow && connection.halves[side].congestion.is_after_loss();
    let interval = Interval { start, end: at.time, cause, after_loss };
    let streams = connection.http2.charge_wait(side, &interval);
    let row = row(connection, side, &stop, released, at);
    hold(connection, side, interval);
    let congestion_window_bytes = at_its_window(connection, side, &stop, cause, after_loss, released.is_some(), at);
    let waits = if connection.is_encrypted() { &mut cx.record_waits } else { &mut cx.waits };
    waits.push(WaitRow {
        congestion_window_bytes,
        start_time_ns: start,
        duration_ns: duration,
        cause: cause as u8,
        stopped_at_packet: packet,
        streams,
        method: connection.http2.streams.find_mut(stop.stream).map_or(NO_METHOD, |stream| stream.method),
        after_loss: u8::from(after_loss),
        ..row
    });
}

/// The congestion window at the stop, bytes: where it was binding, what was in flight tells it.
fn at_its_window(
    connection: &mut Connection,
    side: usize,
    stop: &Stop,
    cause: Cause,
    after_loss: bool,
    released: bool,
    at: At,
) -> i64 {
    let segment = segment_size(connection, side);
    let Some(in_flight) = stop.in_flight else { return stop.congestion_window };
    if after_loss {
        connection.halves[side].congestion.proved(in_flight, segment);
        return stop.congestion_window.min(in_flight.max(segment));
    }
    let less = stop.congestion_window - in_flight >= segment && released;
    if less
        && matches!(cause, Cause::CongestionWindow | Cause::Unexplained)
        && stands_at_its_window(connection, side, stop, in_flight, at)
    {
        connection.halves[side].congestion.outgrown(in_flight, segment);
        return in_flight;
    }
    stop.congestion_window
}

fn segment_size(connection: &Connection, side: usize) -> i64 {
    i64::from(connection.halves[side].segment_size(&connection.halves[1 - side]))
}

/// What TCP holds up stands in a queue, and so does what is written meanwhile. Other waits end the queue.
fn hold(connection: &mut Connection, side: usize, interval: Interval) {
    let held = &mut connection.http2.held[side];
    match interval.cause {
        Cause::CongestionWindow | Cause::ReceiveWindow | Cause::LossRecovery | Cause::DelayedAck => held.add(interval),
        _ => held.clear(),
    }
}

/// `side` sends new bytes without having owed any: a pause before shows that its queue was empty. Not so when a loss
/// had reduced its window, that was full, and an ACK came right before: what begins now could not begin sooner. Nor when
/// Nagle's algorithm held it back, or the congestion window the end of a stream.
#[cold]
pub fn began(connection: &mut Connection, side: usize, length: i64, payload: &[u8], at: At, cx: &mut Context) {
    let half = &connection.halves[side];
    let start = half.last_data_time;
    if at.time.saturating_sub(start) < SHORTEST {
        return;
    }
    connection.http2.held[side].clear();
    let Some(ack) = release(connection, side, at) else { return };
    let segment = segment_size(connection, side);
    let half = &connection.halves[side];
    let in_flight = (half.highest - half.acked_at_send).max(0);
    let counted = half.sent.behind(half.acked_at_send).map_or(0, |segments| segments * segment);
    let full = half.congestion.bytes(segment) - in_flight.max(counted) < segment && in_flight >= segment;
    if half.congestion.is_after_loss() && half.acks_reach_back && full {
        let interval = Interval { start, end: at.time, cause: Cause::CongestionWindow, after_loss: true };
        connection.http2.held[side].add(interval);
        return;
    }
    let stop = stop_now(connection, side);
    let ends = ends(payload) == Some(stop.stream);
    let small = begins_message(connection, side, &stop) || ends && ends_messages(connection, side, &stop);
    if small && is_held_by_nagle(connection, side, &stop, length, ack, at) {
        note_held(connection, side, &stop, Cause::DelayedAck, ack, at, cx);
    } else if ends && let Some(cause) = holds_the_end(connection, side, &stop, ack) {
        note_held(connection, side, &stop, cause, ack, at, cx);
    }
}

/// The bytes sent last were the HEADERS of a call without its message.
fn begins_message(connection: &mut Connection, side: usize, stop: &Stop) -> bool {
    connection.http2.streams.find_mut(stop.stream).is_some_and(|stream| {
        let direction = &stream.directions[side];
        let message_to_come = !direction.ended && direction.reader.messages == 0 && direction.headers.0 >= 0;
        stream.kind == Kind::Grpc && !stream.finished && message_to_come
    })
}

/// The bytes sent last were a segment that was not full, and the next ones come right after the delayed ACK of it: those
/// are held back by Nagle's algorithm, not late.
fn is_held_by_nagle(connection: &Connection, side: usize, stop: &Stop, length: i64, ack: Ack, at: At) -> bool {
    let open = are_open(connection, side, stop, credit(connection, side, at).0);
    tcp_window(connection, side, stop, length, ack, open, at) == Cause::DelayedAck
}

/// Whether what `half` sends without having owed any may have been held up all the same, as far as it shows at once: by
/// Nagle's algorithm behind a short segment, or, when it is no more than the frame that ends a stream, by the
/// congestion window, which had no room for it behind the last message.
#[inline]
pub fn may_be_held(half: &Half, payload: &[u8], at: At) -> bool {
    at.time.saturating_sub(half.last_data_time) >= SHORTEST
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
fn ends_messages(connection: &mut Connection, side: usize, stop: &Stop) -> bool {
    connection.http2.streams.find_mut(stop.stream).is_some_and(|stream| {
        let direction = &stream.directions[side];
        stream.kind == Kind::Grpc && !direction.ended && direction.reader.messages > 0
    })
}

/// What held up the frame that ends a stream, which comes right after an ACK, for which alone it can have waited: it is the
/// first, the peer has sent nothing else meanwhile, all messages are whole, and the congestion window was full. It owed
/// nothing, so that standing still proves nothing. Nagle's algorithm would have waited for the last segment's ACK, if that
/// was short: which of both it was is not known then. Flow control does not bind such frames (RFC 9113 section 6.9).
fn holds_the_end(connection: &mut Connection, side: usize, stop: &Stop, ack: Ack) -> Option<Cause> {
    if !ends_messages(connection, side, stop) {
        return None;
    }
    let (half, peer) = (&connection.halves[side], &connection.halves[1 - side]);
    let near = connection.http2.near_rtt[side].max(0);
    let earlier = half.acks.at(ack.time.saturating_sub(reaction(connection)));
    let before_the_stop = |ack: Ack| ack.time.saturating_add(near) <= half.last_data_time;
    let first = earlier.map_or(half.acks.is_whole(), before_the_stop);
    let silent = peer.last_data_time < half.last_data_time;
    let untroubled = half.retransmissions_since == 0;
    let (in_flight, segment) = (stop.in_flight?, segment_size(connection, side));
    let received = stop.receive_window.is_some_and(|window| window - in_flight >= segment);
    let full = segment > 0 && in_flight >= segment && received && is_full(connection, side, stop, in_flight);
    let nagle = half.sent_short && ack.offset >= half.highest;
    let cause = if nagle { Cause::Unexplained } else { Cause::CongestionWindow };
    (first && silent && untroubled && full).then_some(cause)
}

/// Bytes that `side` did not owe were held up all the same.
fn note_held(connection: &mut Connection, side: usize, stop: &Stop, cause: Cause, ack: Ack, at: At, cx: &mut Context) {
    let start = connection.halves[side].last_data_time;
    connection.http2.held[side].add(Interval { start, end: at.time, cause, after_loss: false });
    let row = row(connection, side, stop, Some(ack), at);
    cx.waits.push(WaitRow {
        start_time_ns: start,
        duration_ns: at.time.saturating_sub(start),
        cause: cause as u8,
        stopped_at_packet: connection.halves[side].last_data_packet,
        streams: 1,
        method: connection.http2.streams.find_mut(stop.stream).map_or(NO_METHOD, |stream| stream.method),
        ..row
    });
}

/// Both halves of the path, nanoseconds.
fn round_trip(connection: &Connection) -> Option<i64> {
    match connection.http2.near_rtt {
        [a, b] if a >= 0 && b >= 0 => Some(a + b),
        _ => None,
    }
}

/// How soon after its release a sender is seen to resume.
fn reaction(connection: &Connection) -> i64 {
    round_trip(connection).map_or(SHORTEST, |rtt| rtt / 4).clamp(SHORTEST_REACTION, LONGEST_REACTION)
}

/// The ACK that reached the sender right before it resumed, if one did: the newest captured no later than the way to
/// the sender and back allows.
fn release(connection: &Connection, side: usize, at: At) -> Option<Ack> {
    let half = &connection.halves[side];
    // beside the sender the smallest round trip so far is its host's reaction, which may be twice as quick the next time
    let near = match connection.http2.near_rtt[side].max(0) {
        near if near <= half::NEAR => near / 2,
        near => near,
    };
    let reaction = reaction(connection);
    // farther off it is a bound: the one this ACK took may be longer, never shorter, but clocks jitter
    let ack = half.acks.at(at.time.saturating_sub(near).saturating_add(reaction.min(near / 8)))?;
    let after = at.time.saturating_sub(ack.time).saturating_sub(near);
    (after <= reaction && ack.time.saturating_add(near) > half.last_data_time).then_some(ack)
}

fn row(connection: &Connection, side: usize, stop: &Stop, released: Option<Ack>, at: At) -> WaitRow {
    let (half, peer) = (&connection.halves[side], &connection.halves[1 - side]);
    let near = connection.http2.near_rtt[side].max(0);
    WaitRow {
        connection: connection.row,
        stream: stop.stream,
        direction: connection.http2.direction(side),
        owed_bytes: stop.owed,
        in_flight_bytes: stop.in_flight.unwrap_or(NOT_KNOWN),
        congestion_window_bytes: stop.congestion_window,
        receive_window_bytes: stop.receive_window.unwrap_or(NOT_KNOWN),
        // windows may be negative (RFC 9113 section 6.9.2): -1 cannot stand for "not known"
        stream_window_bytes: stop.stream_window.unwrap_or(i64::MIN),
        connection_window_bytes: stop.connection_window.unwrap_or(i64::MIN),
        released_by_packet: released.map_or(0, |ack| ack.packet),
        released_time_ns: released.map_or(NOT_KNOWN, |ack| ack.time),
        resumed_at_packet: at.packet,
        flight: half.flight.number,
        flight_first_packet: half.flight.first_packet,
        flight_start_time_ns: half.flight.start_time,
        idle_before_ns: half.flight.idle_before,
        rto_ns: half.rtt.retransmission_timeout(near).unwrap_or(NOT_KNOWN),
        window_before_idle_bytes: half.flight.window_before,
        mss: half.segment_size(peer),
        rtt_ns: round_trip(connection).unwrap_or(NOT_KNOWN),
        retransmissions: half.retransmissions_since,
        ..WaitRow::default()
    }
}

/// `side` sends the new bytes up to `end`: a new flight begins if nothing is in flight, after which an idle time
/// longer than the retransmission timeout restarts the congestion window (`tcp_slow_start_after_idle_check`,
/// include/net/tcp.h).
#[inline]
pub fn sent(connection: &mut Connection, side: usize, start: i64, end: i64, at: At) {
    let near = connection.http2.near_rtt[side].max(0);
    let segment = i64::from(connection.halves[side].segment_size(&connection.halves[1 - side]));
    let half = &mut connection.halves[side];
    let known = half.known_acked(at.time, near);
    half.acks_reach_back = known.is_some();
    let known = known.unwrap_or(half.acked);
    if segment > 0 && known > half.acked_at_send {
        half.congestion.acknowledged(known - half.acked_at_send, segment);
    }
    half.acked_at_send = half.acked_at_send.max(known);
    let in_flight = (half.highest - half.acked_at_send).max(0);
    if in_flight == 0 {
        begin_flight(half, start, segment, near, at);
    }
    half.highest = end;
    half.rtt.sent(end, at.time);
    half.sent.push(end, end - start, segment);
    half.sent_short = end - start < segment;
    if segment > 0 {
        half.congestion.sent(in_flight.saturating_add(end - start), segment);
    }
    half.last_data_time = at.time.max(half.last_data_time);
    half.last_data_packet = at.packet;
    half.retransmissions_since = 0;
}

fn begin_flight(half: &mut Half, start: i64, segment: i64, near: i64, at: At) {
    // what was sent in a hole is not in the capture: neither is when
    let first = half.last_data_packet == 0 || start > half.highest;
    let idle = at.time.saturating_sub(half.last_data_time).max(0);
    half.flight = Flight {
        number: half.flight.number + 1,
        first_packet: at.packet,
        start_time: at.time,
        start,
        idle_before: if first { NOT_KNOWN } else { idle },
        window_before: half.congestion.bytes(segment),
    };
    half.congestion.flight_over();
    if first || segment == 0 {
        return;
    }
    if let Some(timeout) = half.rtt.retransmission_timeout(near)
        && idle > timeout
    {
        half.congestion.restart_after_idle(idle, timeout, segment);
    }
}
