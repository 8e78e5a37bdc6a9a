//! Waits: intervals in which a side owed bytes and sent none.
//!
//! gRPC's five-byte prefix says how many bytes of a message are still to come, so silence inside a message is a
//! blocked writer. A cause is named only when what was binding at the stop and what came right before the sender
//! resumed agree; everything else is unexplained.

use crate::at::At;
use crate::budget::Cause;
use crate::context::{Context, NO_METHOD};
use crate::http2::held::Interval;
use crate::http2::streams::Kind;
use crate::tables::WaitRow;
use crate::tcp::congestion::CongestionWindow;
use crate::tcp::connection::Connection;
use crate::tcp::half::{self, Ack, Flight, Half};

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
/// Nagle's algorithm held it back.
#[cold]
pub fn began(connection: &mut Connection, side: usize, length: i64, at: At, cx: &mut Context) {
    let half = &connection.halves[side];
    let start = half.last_data_time;
    if at.time.saturating_sub(start) < SHORTEST {
        return;
    }
    connection.http2.held[side].clear();
    let segment = segment_size(connection, side);
    let half = &connection.halves[side];
    let in_flight = (half.highest - half.acked_at_send).max(0);
    let counted = half.sent.behind(half.acked_at_send).map_or(0, |segments| segments * segment);
    let full = half.congestion.bytes(segment) - in_flight.max(counted) < segment && in_flight >= segment;
    if half.congestion.is_after_loss() && half.acks_reach_back && full && release(connection, side, at).is_some() {
        let interval = Interval { start, end: at.time, cause: Cause::CongestionWindow, after_loss: true };
        connection.http2.held[side].add(interval);
    } else {
        held_back(connection, side, length, at, cx);
    }
}

/// The bytes sent last were the HEADERS of a call without its message, in a segment that was not full, and the next
/// ones come right after the delayed ACK of it: those are held back by Nagle's algorithm, not late.
fn held_back(connection: &mut Connection, side: usize, length: i64, at: At, cx: &mut Context) {
    let stop = stop_now(connection, side);
    let released = release(connection, side, at);
    let Some(ack) = released else { return };
    let begun = connection.http2.streams.find_mut(stop.stream).is_some_and(|stream| {
        let direction = &stream.directions[side];
        let message_to_come = !direction.ended && direction.reader.messages == 0 && direction.headers.0 >= 0;
        stream.kind == Kind::Grpc && !stream.finished && message_to_come
    });
    let open = are_open(connection, side, &stop, credit(connection, side, at).0);
    if !begun || tcp_window(connection, side, &stop, length, ack, open, at) != Cause::DelayedAck {
        return;
    }
    let (start, cause) = (connection.halves[side].last_data_time, Cause::DelayedAck);
    connection.http2.held[side].add(Interval { start, end: at.time, cause, after_loss: false });
    let row = row(connection, side, &stop, released, at);
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

fn cause(connection: &Connection, side: usize, stop: &Stop, length: i64, released: Option<Ack>, at: At) -> Cause {
    if connection.halves[side].retransmissions_since > 0 {
        return Cause::LossRecovery;
    }
    let (right_before, since_the_stop) = credit(connection, side, at);
    let closed = closed_window(stop, segment_size(connection, side));
    if let (true, Some(cause)) = (right_before, closed) {
        return cause;
    }
    let cause = match (released, stop.in_flight) {
        (Some(ack), Some(_)) => {
            let open = are_open(connection, side, stop, right_before);
            tcp_window(connection, side, stop, length, ack, open, at)
        }
        (None, Some(in_flight)) => own_pause(connection, side, stop, in_flight, at, right_before),
        _ => Cause::Unexplained,
    };
    if cause != Cause::Unexplained {
        return cause;
    }
    match closed {
        Some(closed) if since_the_stop && mostly_for_credit(connection, side, at) => return closed,
        _ => {}
    }
    match closed_window(stop, 1) {
        // what comes now is no DATA: the windows still do not allow any
        Some(closed) if !since_the_stop => closed,
        _ if flows(connection, side, stop, at) => Cause::Transmission,
        _ => cause,
    }
}

/// Whether the credit that came since the stop came in the last quarter of the wait: a busy sender, or a path whose
/// delay varies, takes longer to be seen than the usual reaction.
fn mostly_for_credit(connection: &Connection, side: usize, at: At) -> bool {
    let near = connection.http2.near_rtt[side].max(0);
    let stopped = connection.halves[side].last_data_time;
    let arrives = connection.http2.sides[side].credited_at.map_or(stopped, |credit| credit.time.saturating_add(near));
    let late = at.time.saturating_sub(arrives).max(0);
    late.saturating_mul(4) <= at.time.saturating_sub(stopped)
}

/// Whether bytes were flowing: more than one segment in flight, and a pause well below a round trip, as a full link or
/// a pacing sender spaces segments. Windows that bind pause for a round trip.
fn flows(connection: &Connection, side: usize, stop: &Stop, at: At) -> bool {
    let segment = segment_size(connection, side);
    let pause = at.time.saturating_sub(connection.halves[side].last_data_time);
    let in_flight = stop.in_flight.is_some_and(|bytes| segment > 0 && bytes > segment);
    in_flight && round_trip(connection).is_some_and(|rtt| pause.saturating_mul(4) <= rtt)
}

/// Whether HTTP/2's windows allowed DATA at the stop. Where they are not known they did if the side is still inside a
/// frame, all of which they had allowed, if what is known to be left proves it, or if no credit came right before the
/// sender resumed: it was not what the sender waited for.
fn are_open(connection: &Connection, side: usize, stop: &Stop, right_before: bool) -> bool {
    match (stop.stream_window, stop.connection_window) {
        (Some(stream), Some(connection)) => stream > 0 && connection > 0,
        _ => {
            let in_frame = connection.http2.sides[side].owed_in_frame() > 0;
            in_frame || !right_before || stop.least_window.is_some_and(|window| window > 0)
        }
    }
}

/// The HTTP/2 window that allowed no DATA at the stop, or less than a writer cares to send: less than a segment and
/// than what is owed.
fn closed_window(stop: &Stop, segment: i64) -> Option<Cause> {
    let least = i64::try_from(stop.owed).unwrap_or(i64::MAX).min(segment).max(1);
    let closed = |window: Option<i64>| window.is_some_and(|window| window < least);
    let connection = closed(stop.connection_window).then_some(Cause::ConnectionWindow);
    connection.or_else(|| closed(stop.stream_window).then_some(Cause::StreamWindow))
}

/// Whether HTTP/2 credit came right before the sender resumed, and whether any came since it stopped.
fn credit(connection: &Connection, side: usize, at: At) -> (bool, bool) {
    let near = connection.http2.near_rtt[side].max(0);
    let Some(credit) = connection.http2.sides[side].credited_at else { return (false, false) };
    let arrives = credit.time.saturating_add(near);
    let since = arrives > connection.halves[side].last_data_time;
    (since && at.time.saturating_sub(arrives) <= reaction(connection), since)
}

/// An ACK released the sender: it waited for the receive window if that had no room for a segment, for the congestion
/// window if there was none and HTTP/2 allowed more. There was none if the estimate says so; if a window not yet grown
/// was full by its count of segments; and after a loss, when in-flight bytes that end a message's flow until an ACK
/// comes are the window.
fn tcp_window(connection: &Connection, side: usize, stop: &Stop, length: i64, ack: Ack, open: bool, at: At) -> Cause {
    let Some(in_flight) = stop.in_flight else { return Cause::Unexplained };
    let half = &connection.halves[side];
    let segment = segment_size(connection, side);
    if segment > 0 && stop.receive_window.is_some_and(|window| window - in_flight < segment) {
        return if in_flight >= segment { Cause::ReceiveWindow } else { Cause::Unexplained };
    }
    if segment == 0 || in_flight < segment {
        let nagle = open && in_flight > 0 && length < segment && half.sent_short;
        return if nagle && is_delayed(connection, side, ack) { Cause::DelayedAck } else { Cause::Unexplained };
    }
    let known = !half.congestion.assumed || !connection.http2.begun_late;
    let room = stop.congestion_window - in_flight;
    // a window that idle time halved is rounded down to whole segments, and halves the error of the estimate before
    let near = room < 2 * segment || !first_after_idle(connection, side);
    let full = room < segment
        || fills_initial_window(half, stop, segment)
        || near && stands_at_its_window(connection, side, stop, in_flight, at);
    let full = known && full;
    if open && (full || half.congestion.is_after_loss()) { Cause::CongestionWindow } else { Cause::Unexplained }
}

/// The estimate has outgrown the window: cubic leaves slow start by itself when delays grow (`hystart_update`,
/// net/ipv4/tcp_cubic.c), which no packet tells. Where it was captured, a sender that stands still for half a round trip
/// or more with every other window open, and goes on at an ACK, stood at its congestion window. An estimate that is
/// still in slow start is no more than twice that.
fn stands_at_its_window(connection: &Connection, side: usize, stop: &Stop, in_flight: i64, at: At) -> bool {
    let near = connection.http2.near_rtt[side];
    let segment = segment_size(connection, side);
    let pause = at.time.saturating_sub(connection.halves[side].last_data_time);
    let long = round_trip(connection).is_some_and(|rtt| pause.saturating_mul(2) >= rtt);
    let open = |window: Option<i64>| window.is_some_and(|window| window >= segment);
    (0..=half::NEAR).contains(&near)
        && long
        && in_flight >= segment
        && stop.congestion_window > CongestionWindow::initial(segment)
        && stop.congestion_window <= in_flight.saturating_mul(2)
        && stop.receive_window.is_some_and(|window| window - in_flight >= segment)
        && open(stop.stream_window)
        && open(stop.connection_window)
}

/// Whether a stop is the first burst's after an idle time that reduced the window: by a rule, which it shows, or
/// nothing.
fn first_after_idle(connection: &Connection, side: usize) -> bool {
    let half = &connection.halves[side];
    let near = connection.http2.near_rtt[side].max(0);
    let kept = half.rtt.retransmission_timeout(near).is_some_and(|timeout| half.flight.idle_before <= timeout);
    let into_flight = half.last_data_time.saturating_sub(half.flight.start_time);
    let later = round_trip(connection).is_some_and(|rtt| into_flight.saturating_mul(2) >= rtt);
    !kept && !later
}

/// Linux's window counts segments: ten short ones fill the initial window too.
fn fills_initial_window(half: &Half, stop: &Stop, segment: i64) -> bool {
    let initial = CongestionWindow::initial(segment);
    let segments = half.sent.behind(half.acked_at_send);
    stop.congestion_window <= initial && segments.is_some_and(|segments| segments * segment >= initial)
}

/// The peer acknowledged everything, and not before its delayed-ACK timer ran out: 40 ms in Linux (TCP_DELACK_MIN,
/// include/net/tcp.h), up to 200 ms elsewhere, 5 ms more or less. Nagle's algorithm (RFC 9293 section 3.7.4) holds a
/// short segment back until then.
fn is_delayed(connection: &Connection, side: usize, ack: Ack) -> bool {
    const DELAYS: std::ops::RangeInclusive<i64> = half::SHORTEST_DELAYED_ACK..=205_000_000;
    let half = &connection.halves[side];
    let there_and_back = connection.http2.near_rtt[1 - side];
    let delay = ack.time.saturating_sub(half.last_data_time).saturating_sub(there_and_back);
    there_and_back >= 0 && ack.offset >= half.highest && DELAYS.contains(&delay)
}

/// No packet released the sender. Where it was captured, with every window open and no ACK awaited for longer than a
/// round trip, nothing but its own application, library or host held it.
fn own_pause(connection: &Connection, side: usize, stop: &Stop, in_flight: i64, at: At, right_before: bool) -> Cause {
    let near = connection.http2.near_rtt[side];
    let segment = segment_size(connection, side);
    let duration = at.time.saturating_sub(connection.halves[side].last_data_time);
    let known = (0..=half::NEAR).contains(&near) && round_trip(connection).is_some_and(|rtt| duration > rtt);
    let room = |window: i64| window - in_flight >= segment;
    let tcp = room(stop.congestion_window) && stop.receive_window.is_some_and(room);
    if known && segment > 0 && tcp && are_open(connection, side, stop, right_before) {
        return if side == connection.http2.client { Cause::Client } else { Cause::Server };
    }
    Cause::Unexplained
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
