//! Waits: intervals in which a side owed bytes and sent none.
//!
//! gRPC's five-byte prefix says how many bytes of a message are still to come, so silence inside a message is a
//! blocked writer. A cause is named only when what was binding at the stop and what came right before the sender
//! resumed agree; everything else is unexplained.

use crate::at::At;
use crate::budget::Cause;
use crate::context::Context;
use crate::tables::WaitRow;
use crate::tcp::connection::Connection;
use crate::tcp::half::{Ack, Flight};

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
}

/// New data of `side` was read: remembers what is binding if the side owes more.
#[inline]
pub fn stopped(connection: &mut Connection, side: usize) {
    if !connection.http2.owes(side) {
        connection.halves[side].stop = None;
        return;
    }
    let stream = connection.http2.sides[side].last_stream;
    let stream_window = connection.http2.stream_window(side, stream);
    let (half, peer) = (&connection.halves[side], &connection.halves[1 - side]);
    let segment = i64::from(half.segment_size(peer));
    let stop = Stop {
        stream,
        owed: connection.http2.owed(side, stream),
        in_flight: half.acks_reach_back.then_some((half.highest - half.acked_at_send).max(0)),
        congestion_window: half.congestion.bytes(segment),
        receive_window: peer.window.and_then(|window| i64::try_from(window).ok()),
        stream_window,
        connection_window: connection.http2.connection_window(side),
    };
    connection.halves[side].stop = Some(stop);
}

/// `side`, which owed bytes, sends new ones: if it was silent long enough, that was a wait.
pub fn resumed(connection: &mut Connection, side: usize, at: At, cx: &mut Context) {
    let half = &connection.halves[side];
    let Some(stop) = half.stop else { return };
    let (start, packet) = (half.last_data_time, half.last_data_packet);
    let duration = at.time.saturating_sub(start);
    if duration < SHORTEST {
        return;
    }
    let released = release(connection, side, at);
    let cause = cause(connection, side, &stop, released, at);
    let streams = connection.http2.charge_wait(side, start, at.time, cause);
    let row = row(connection, side, &stop, released, at);
    cx.waits.push(WaitRow {
        start_time_ns: start,
        duration_ns: duration,
        cause: cause as u8,
        stopped_at_packet: packet,
        streams,
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
    let near = connection.http2.near_rtt[side].max(0);
    let reaction = reaction(connection);
    // the smallest round trip is a bound: the one this ACK took may be longer, never shorter, but clocks jitter
    let ack = half.acks.at(at.time.saturating_sub(near).saturating_add(reaction.min(near / 8)))?;
    let after = at.time.saturating_sub(ack.time).saturating_sub(near);
    (after <= reaction && ack.time.saturating_add(near) > half.last_data_time).then_some(ack)
}

fn cause(connection: &Connection, side: usize, stop: &Stop, released: Option<Ack>, at: At) -> Cause {
    let half = &connection.halves[side];
    let near = connection.http2.near_rtt[side].max(0);
    if half.retransmissions_since > 0 {
        return Cause::LossRecovery;
    }
    let credited = connection.http2.sides[side].credited_at.is_some_and(|credit| {
        let arrives = credit.time.saturating_add(near);
        arrives > half.last_data_time && at.time.saturating_sub(arrives) <= reaction(connection)
    });
    if credited && stop.connection_window.is_some_and(|window| window <= 0) {
        return Cause::ConnectionWindow;
    }
    if credited && stop.stream_window.is_some_and(|window| window <= 0) {
        return Cause::StreamWindow;
    }
    match (released, stop.in_flight) {
        (Some(_), Some(in_flight)) => tcp_window(connection, side, stop, in_flight),
        _ => Cause::Unexplained,
    }
}

/// An ACK released the sender: it waited for the receive window if that had no room for a segment, for the congestion
/// window if the estimate had none and HTTP/2 allowed more.
fn tcp_window(connection: &Connection, side: usize, stop: &Stop, in_flight: i64) -> Cause {
    let segment = i64::from(connection.halves[side].segment_size(&connection.halves[1 - side]));
    let open = |window: Option<i64>| window.is_none_or(|window| window > 0);
    if segment == 0 || in_flight < segment {
        return Cause::Unexplained;
    }
    if stop.receive_window.is_some_and(|window| window - in_flight < segment) {
        return Cause::ReceiveWindow;
    }
    let full = stop.congestion_window - in_flight < segment;
    if full && open(stop.stream_window) && open(stop.connection_window) {
        return Cause::CongestionWindow;
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
    if segment > 0 {
        half.congestion.sent(in_flight.saturating_add(end - start), segment);
    }
    half.last_data_time = at.time.max(half.last_data_time);
    half.last_data_packet = at.packet;
    half.retransmissions_since = 0;
}

fn begin_flight(half: &mut crate::tcp::half::Half, start: i64, segment: i64, near: i64, at: At) {
    let first = half.last_data_packet == 0;
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
