//! Names the cause of a wait. What was binding at the stop must agree with what came right before the sender resumed.

use crate::at::At;
use crate::http2::connection::windows::LITTLE;
use crate::store::budget::Cause;
use crate::tcp::congestion::CongestionWindow;
use crate::tcp::half::{self, Ack, Half};

use super::layers::{Layers, reaction};
use super::stop::Stop;

pub(super) fn cause(
    layers: &Layers<'_>,
    side: usize,
    stop: &Stop,
    length: i64,
    released: Option<Ack>,
    at: At,
) -> Cause {
    let (right_before, since_the_stop) = credit(layers, side, at);
    let closed =
        closed_window(stop, layers.tcp.segment_size(side)).map(|closed| last_to_open(layers, side, stop, closed, at));
    let opened = match closed {
        Some(closed) if right_before => Some(closed),
        _ => window_grew(layers, side, stop, at).map(|_| Cause::ReceiveWindow),
    };
    let half = &layers.tcp.halves[side];
    if half.retransmissions_since > 0 && (opened.is_none() || !has_recovered(layers, side, at)) {
        let unproven = half.sent_again.unproven_since(half.last_data_time);
        return if half.retransmissions_since > unproven { Cause::LossRecovery } else { Cause::Unexplained };
    }
    if let Some(cause) = opened {
        return cause;
    }
    let cause = match (released, stop.in_flight) {
        (Some(ack), Some(_)) => {
            let open = are_open(layers, side, stop, right_before);
            tcp_window(layers, side, stop, length, ack, open, at)
        }
        (None, Some(in_flight)) => own_pause(layers, side, stop, in_flight, at, right_before),
        _ => Cause::Unexplained,
    };
    if cause != Cause::Unexplained {
        return cause;
    }
    if closed.is_none() && stays_shut(layers, side, stop, length) {
        return Cause::ReceiveWindow;
    }
    match closed {
        Some(closed) if since_the_stop && mostly_for_credit(layers, side, at) => return closed,
        _ => {}
    }
    match closed_window(stop, LITTLE) {
        // what comes now is no DATA: the windows still do not allow any worth sending
        Some(closed) if !since_the_stop => closed,
        _ if flows(layers, side, stop, at) => Cause::Transmission,
        _ => cause,
    }
}

/// Whether all bytes sent were acknowledged, retransmissions too, and the sender was silent all the same: no loss held
/// it any more.
fn has_recovered(layers: &Layers<'_>, side: usize, at: At) -> bool {
    let half = &layers.tcp.halves[side];
    let near = layers.tcp.transport.near_rtt[side].max(0);
    let acked = half.acks.first_of_all(half.highest);
    acked.is_some_and(|ack| at.time.saturating_sub(ack.time).saturating_sub(near) > reaction(layers))
}

/// The packet that announced a larger receive window right before the sender resumed, if that had no room for a segment
/// at the stop. It acknowledges nothing new: all was acknowledged while the window was shut.
pub(super) fn window_grew(layers: &Layers<'_>, side: usize, stop: &Stop, at: At) -> Option<Ack> {
    let grew = layers.tcp.halves[side].window_grew;
    let segment = layers.tcp.segment_size(side);
    let shut = segment > 0 && stop.receive_window? - stop.in_flight? < segment;
    let (right_before, _) = arrival(layers, side, grew.time, at);
    (shut && right_before).then_some(grew)
}

/// Whether the receive window had no room for a segment at the stop, and has none when the sender resumes, with less: it probes, or
/// sends what little there is room for (RFC 9293 sections 3.8.6.1 and 3.8.6.2.1).
fn stays_shut(layers: &Layers<'_>, side: usize, stop: &Stop, length: i64) -> bool {
    let (half, segment) = (&layers.tcp.halves[side], layers.tcp.segment_size(side));
    let is_shut =
        |window: Option<i64>, used: Option<i64>| window.zip(used).is_some_and(|(window, used)| window - used < segment);
    let now = layers.tcp.halves[1 - side].window.and_then(|window| i64::try_from(window).ok());
    length < segment
        && half.retransmissions_since == 0
        && is_shut(stop.receive_window, stop.in_flight)
        && is_shut(now, Some(half.highest - half.acked))
}

/// Whether a packet that was captured at `time` reached `side` right before it resumed, and whether since it stopped.
fn arrival(layers: &Layers<'_>, side: usize, time: i64, at: At) -> (bool, bool) {
    let arrives = time.saturating_add(layers.tcp.transport.near_rtt[side].max(0));
    let since = arrives > layers.tcp.halves[side].last_data_time;
    (since && at.time.saturating_sub(arrives) <= reaction(layers), since)
}

/// Whether the credit that came since the stop came in the last quarter of the wait: a busy sender, or a path whose
/// delay varies, takes longer to be seen than the usual reaction.
pub(super) fn mostly_for_credit(layers: &Layers<'_>, side: usize, at: At) -> bool {
    let near = layers.tcp.transport.near_rtt[side].max(0);
    let stopped = layers.tcp.halves[side].last_data_time;
    let arrives = layers.http2.sides[side].credited_at.map_or(stopped, |credit| credit.time.saturating_add(near));
    let late = at.time.saturating_sub(arrives).max(0);
    late.saturating_mul(4) <= at.time.saturating_sub(stopped)
}

/// Whether bytes were flowing: more than one segment in flight, and a pause well below a round trip, as a full link or
/// a pacing sender spaces segments. Windows that bind pause for a round trip.
pub(super) fn flows(layers: &Layers<'_>, side: usize, stop: &Stop, at: At) -> bool {
    let segment = layers.tcp.segment_size(side);
    let pause = at.time.saturating_sub(layers.tcp.halves[side].last_data_time);
    let in_flight = stop.in_flight.is_some_and(|bytes| segment > 0 && bytes > segment);
    in_flight && layers.tcp.transport.round_trip().is_some_and(|rtt| pause.saturating_mul(4) <= rtt)
}

/// Whether HTTP/2's windows allowed DATA at the stop. Where they are not known they did if the side is still inside a
/// frame, all of which they had allowed, if what is known to be left proves it, or if no WINDOW_UPDATE arrived right before the
/// sender resumed: it was not what the sender waited for.
pub(super) fn are_open(layers: &Layers<'_>, side: usize, stop: &Stop, right_before: bool) -> bool {
    match (stop.stream_window, stop.connection_window) {
        (Some(stream), Some(connection)) => stream > 0 && connection > 0,
        _ => {
            let in_frame = layers.http2.sides[side].owed_in_frame() > 0;
            in_frame || !right_before || stop.least_window.is_some_and(|window| window > 0)
        }
    }
}

/// What a writer cares to send: a segment, or all that is owed.
fn least_to_send(stop: &Stop, segment: i64) -> i64 {
    i64::try_from(stop.owed).unwrap_or(i64::MAX).min(segment).max(1)
}

/// The HTTP/2 window that allowed no DATA at the stop, or less than a writer cares to send: less than a segment and
/// than what is owed.
pub(super) fn closed_window(stop: &Stop, segment: i64) -> Option<Cause> {
    let least = least_to_send(stop, segment);
    let closed = |window: Option<i64>| window.is_some_and(|window| window < least);
    let connection = closed(stop.connection_window).then_some(Cause::ConnectionWindow);
    connection.or_else(|| closed(stop.stream_window).then_some(Cause::StreamWindow))
}

/// Of two windows that allowed no DATA at the stop, the one that opened last held the sender: the stream's, if the connection's
/// was open again before, and the sender did not resume.
fn last_to_open(layers: &Layers<'_>, side: usize, stop: &Stop, closed: Cause, at: At) -> Cause {
    let segment = layers.tcp.segment_size(side);
    let least = least_to_send(stop, segment);
    let both = closed == Cause::ConnectionWindow && stop.stream_window.is_some_and(|window| window < least);
    let (right_before, since) = arrival(layers, side, layers.http2.sides[side].connection_credited, at);
    let is_open = || layers.http2.connection_window(side).is_some_and(|window| window >= least);
    if both && since && !right_before && is_open() { Cause::StreamWindow } else { closed }
}

/// Whether a WINDOW_UPDATE arrived right before the sender resumed, and whether any came since it stopped.
pub(super) fn credit(layers: &Layers<'_>, side: usize, at: At) -> (bool, bool) {
    let credit = layers.http2.sides[side].credited_at;
    credit.map_or((false, false), |credit| arrival(layers, side, credit.time, at))
}

/// An ACK released the sender: it waited for the receive window if that had no room for a segment, for the congestion
/// window if there was none and HTTP/2 allowed more. There was none if the estimate says so; if a window not yet grown
/// was full by its count of segments; and after a loss, when in-flight bytes that end a message's flow until an ACK
/// comes are the window.
pub(super) fn tcp_window(
    layers: &Layers<'_>,
    side: usize,
    stop: &Stop,
    length: i64,
    ack: Ack,
    open: bool,
    at: At,
) -> Cause {
    let Some(in_flight) = stop.in_flight else { return Cause::Unexplained };
    let half = &layers.tcp.halves[side];
    let segment = layers.tcp.segment_size(side);
    let has_room = |bytes: i64| stop.receive_window.is_none_or(|window| window - in_flight >= bytes);
    if segment == 0 || in_flight < segment {
        let short = in_flight > 0 && half.sent_short && length < segment && has_room(length);
        let nagle = open && short && !half.sends_at_once && is_delayed(layers, side, ack);
        return if nagle { Cause::DelayedAck } else { Cause::Unexplained };
    }
    if !has_room(segment) {
        return Cause::ReceiveWindow;
    }
    // a window that idle time halved is rounded down to whole segments, and halves the error of the estimate before
    let near = stop.congestion_window - in_flight < 2 * segment || !first_after_idle(layers, side);
    let stands = near && is_known(layers, side) && stands_at_its_window(layers, side, stop, in_flight, at);
    let full = is_full(layers, side, stop, in_flight) || stands;
    if open && (full || half.congestion.is_after_loss()) { Cause::CongestionWindow } else { Cause::Unexplained }
}

/// Whether there was no room for a segment in the congestion window by its estimate, or by a count of segments.
pub(super) fn is_full(layers: &Layers<'_>, side: usize, stop: &Stop, in_flight: i64) -> bool {
    let segment = layers.tcp.segment_size(side);
    let full =
        stop.congestion_window - in_flight < segment || fills_initial_window(&layers.tcp.halves[side], stop, segment);
    full && is_known(layers, side)
}

/// Whether the congestion window was followed from the connection's beginning, or from an idle time that reduced it.
fn is_known(layers: &Layers<'_>, side: usize) -> bool {
    !layers.tcp.halves[side].congestion.assumed || !layers.http2.begun_late
}

/// The estimate has outgrown the window: cubic leaves slow start by itself when delays grow (`hystart_update`,
/// net/ipv4/tcp_cubic.c), which no packet tells. Where it was captured, a sender that is blocked for half a round trip
/// or more with every other window open, and goes on at an ACK, stood at its congestion window. An estimate that is
/// still in slow start is no more than twice that.
pub(super) fn stands_at_its_window(layers: &Layers<'_>, side: usize, stop: &Stop, in_flight: i64, at: At) -> bool {
    let near = layers.tcp.transport.near_rtt[side];
    let segment = layers.tcp.segment_size(side);
    let pause = at.time.saturating_sub(layers.tcp.halves[side].last_data_time);
    let long = layers.tcp.transport.round_trip().is_some_and(|rtt| pause.saturating_mul(2) >= rtt);
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
pub(super) fn first_after_idle(layers: &Layers<'_>, side: usize) -> bool {
    let half = &layers.tcp.halves[side];
    let near = layers.tcp.transport.near_rtt[side].max(0);
    let kept = half.rtt.retransmission_timeout(near).is_some_and(|timeout| half.flight.idle_before <= timeout);
    let into_flight = half.last_data_time.saturating_sub(half.flight.start_time);
    let later = layers.tcp.transport.round_trip().is_some_and(|rtt| into_flight.saturating_mul(2) >= rtt);
    !kept && !later
}

/// Linux's window counts segments: ten short ones fill the initial window too.
pub(super) fn fills_initial_window(half: &Half, stop: &Stop, segment: i64) -> bool {
    let initial = CongestionWindow::initial(segment);
    let segments = half.sent.behind(half.acked_at_send);
    stop.congestion_window <= initial && segments.is_some_and(|segments| segments * segment >= initial)
}

/// The peer acknowledged everything so far, and not before its delayed-ACK timer ran out: 40 ms in Linux (TCP_DELACK_MIN,
/// include/net/tcp.h), up to 200 ms elsewhere, 5 ms more or less. Nagle's algorithm (RFC 9293 section 3.7.4) holds a
/// short segment back until then. An ACK of what comes only now was recorded too early.
pub(super) fn is_delayed(layers: &Layers<'_>, side: usize, ack: Ack) -> bool {
    const DELAYS: std::ops::RangeInclusive<i64> = half::SHORTEST_DELAYED_ACK..=205_000_000;
    let half = &layers.tcp.halves[side];
    let there_and_back = layers.tcp.transport.near_rtt[1 - side];
    let delay = ack.time.saturating_sub(half.last_data_time).saturating_sub(there_and_back);
    there_and_back >= 0 && ack.offset == half.highest && DELAYS.contains(&delay)
}

/// No packet released the sender. Where it was captured, with every window open and no ACK awaited for longer than a
/// round trip, nothing but its own application, library or host held it; whatever was in flight, or used up, long before.
pub(super) fn own_pause(
    layers: &Layers<'_>,
    side: usize,
    stop: &Stop,
    in_flight: i64,
    at: At,
    right_before: bool,
) -> Cause {
    let near = layers.tcp.transport.near_rtt[side];
    let segment = layers.tcp.segment_size(side);
    let duration = at.time.saturating_sub(layers.tcp.halves[side].last_data_time);
    let known = (0..=half::NEAR).contains(&near) && layers.tcp.transport.round_trip().is_some_and(|rtt| duration > rtt);
    let room = |window: i64| window - in_flight >= segment;
    let tcp = room(stop.congestion_window) && stop.receive_window.is_some_and(room);
    let room_for_more = closed_window(stop, LITTLE).is_none() && are_open(layers, side, stop, right_before);
    let free = tcp && room_for_more || is_long_free(layers, side, stop, at);
    if known && segment > 0 && free {
        return if side == layers.http2.client { Cause::Client } else { Cause::Server };
    }
    Cause::Unexplained
}

/// A sender is free for as long as this, and for several round trips, before its silence is its own, nanoseconds: longer than a
/// delayed ACK, or a window that is probed, holds anything back.
const LONG: i64 = 1_000_000_000;

/// Whether nothing held a sender for long, and for most of its silence: all that it had sent was acknowledged, nothing of it was
/// retransmitted, and every window was open.
fn is_long_free(layers: &Layers<'_>, side: usize, stop: &Stop, at: At) -> bool {
    let (half, sender) = (&layers.tcp.halves[side], &layers.http2.sides[side]);
    let (segment, near) = (layers.tcp.segment_size(side), layers.tcp.transport.near_rtt[side].max(0));
    let rtt = layers.tcp.transport.round_trip().unwrap_or(i64::MAX);
    let room = |window: Option<i64>| window.is_some_and(|window| window >= segment);
    let receive_window = layers.tcp.halves[1 - side].window.and_then(|window| i64::try_from(window).ok());
    let open = room(stop.stream_window) && room(layers.http2.connection_window(side)) && room(receive_window);
    let Some(acked) = half.acks.first_of_all(half.highest) else { return false };
    let credited = sender.credited_at.map_or(i64::MIN, |credit| credit.time);
    let since = acked.time.max(credited).max(half.window_grew.time).saturating_add(near);
    let (free, silence) = (at.time.saturating_sub(since), at.time.saturating_sub(half.last_data_time));
    open && half.retransmissions_since == 0 && free >= LONG.max(rtt.saturating_mul(8)) && free >= silence / 4 * 3
}
