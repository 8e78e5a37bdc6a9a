//! Measures the waits of a sender that owes bytes, from its last bytes to its next ones.

use crate::at::At;
use crate::grpc::data::charge_wait;
use crate::store::budget::Cause;
use crate::store::context::{Context, NO_METHOD};
use crate::store::tables::WaitRow;
use crate::tcp::queue::TARGET;
use crate::tcp::send_queue::BlockedInterval;

use super::cause::{cause, credit, stands_at_its_window, window_grew};
use super::layers::{Layers, SHORTEST};
use super::release::release;
use super::row::row;
use super::stop::Stop;

/// A queue stands for this many times a pause in it at the least (heuristic: one that a path held back at once is as long as that).
const STANDS: i64 = 4;

/// `side` paused inside a message between `start` and `at`, behind bytes of its peer that the capture lacks: with them
/// what it waited for is missing.
#[cold]
pub fn not_judged(layers: &mut Layers<'_>, side: usize, start: i64, at: At) {
    if at.time - start >= SHORTEST && layers.owes(side) {
        let interval = BlockedInterval::new(start, at.time, Cause::Unexplained);
        charge_wait(layers.http2, side, &interval);
    }
}

/// `side`, which owed bytes since `stop`, sends `length` new ones: if it was silent long enough, that was a wait.
pub fn resumed(layers: &mut Layers<'_>, side: usize, stop: &Stop, length: i64, at: At, cx: &mut Context) {
    let half = &layers.tcp.halves[side];
    let (start, packet) = (half.last_data_time, half.last_data_packet);
    let duration = at.time - start;
    if duration < SHORTEST {
        return;
    }
    if layers.http2.begun_late {
        note_stop_for_credit(layers, side, stop, at);
    }
    let released = release(layers, side, at);
    let cause = cause(layers, side, stop, length, released, at);
    let after_loss = cause == Cause::CongestionWindow && layers.tcp.halves[side].congestion.is_after_loss();
    let full = fills_the_link(layers, side, cause, at);
    let named = if full { Cause::Transmission } else { cause };
    let interval = BlockedInterval { after_loss: after_loss && !full, ..BlockedInterval::new(start, at.time, named) };
    let (streams, apart) = charge_wait(layers.http2, side, &interval);
    if apart > 0 && apart == streams {
        layers.tcp.transport.queues[side].clear(); // no other stream had anything to send
        return;
    }
    let grew = (cause == Cause::ReceiveWindow).then(|| window_grew(layers, side, stop, at)).flatten();
    let row = row(layers, side, stop, released.or(grew), at);
    hold(layers, side, cause, interval);
    let congestion_window_bytes = at_its_window(layers, side, stop, cause, after_loss, released.is_some(), at);
    let waits = if layers.is_encrypted() { &mut cx.record_waits } else { &mut cx.waits };
    waits.push(WaitRow {
        congestion_window_bytes,
        start_time_ns: start,
        duration_ns: duration,
        cause: named as u8,
        stopped_at_packet: packet,
        streams,
        method: layers.http2.streams.find_mut(stop.stream).map_or(NO_METHOD, |stream| stream.state.method),
        after_loss: u8::from(after_loss && !full),
        ..row
    });
}

/// Whether bytes of `side` were moving all the time, in a queue of the path, though its window was used up: a larger window would
/// only lengthen the queue. Behind the capture point, without the queue, what opened the window had come before the sender
/// stopped: the queue is longer than the path, so more than twice of what the link carries in a round trip was in flight. Or it is
/// half as long, which a sender does not empty that sends half as much after a loss, and stands for much longer than the pause.
/// In front of the capture point, these bytes joined the queue well before those that came last had left it.
fn fills_the_link(layers: &Layers<'_>, side: usize, cause: Cause, at: At) -> bool {
    let window = [Cause::CongestionWindow, Cause::ReceiveWindow, Cause::StreamWindow, Cause::ConnectionWindow];
    let (start, behind) = (layers.tcp.halves[side].last_data_time, layers.tcp.transport.queued_behind[side]);
    let in_front = layers.tcp.transport.queued[side];
    let pause = at.time.saturating_sub(start);
    let stands = |queue: i64| queue >= TARGET && queue / STANDS >= pause;
    let long =
        layers.tcp.transport.round_trip().is_some_and(|rtt| behind.0 >= rtt || behind.0 >= rtt / 2 && stands(behind.0));
    window.contains(&cause) && (stands(in_front) || long && is_never_empty(behind, start, at.time))
}

/// Whether a queue was never empty from `start` to `end` that took `queued` by an ACK at `acknowledged`: what joined it up to
/// then had not left it before as much time had passed again.
fn is_never_empty((queued, acknowledged): (i64, i64), start: i64, end: i64) -> bool {
    queued >= end.saturating_sub(start.min(acknowledged))
}

/// A sender that stopped inside a message, behind a whole DATA frame, resumes right when a WINDOW_UPDATE arrives: that may prove
/// where the connection's window is used up.
#[cold]
fn note_stop_for_credit(layers: &mut Layers<'_>, side: usize, stop: &Stop, at: At) {
    let Some(credits) = stop.credits else { return };
    let whole = stop.owed > 0 && layers.http2.sides[side].owed_in_frame() == 0;
    if whole && layers.tcp.halves[side].retransmissions_since == 0 && credit(layers, side, at).0 {
        let segment = layers.tcp.segment_size(side);
        layers.http2.note_stop_for_credit(side, stop.stream, credits, segment);
    }
}

/// The congestion window at the stop, bytes. If it was binding, it is what was in flight.
fn at_its_window(
    layers: &mut Layers<'_>,
    side: usize,
    stop: &Stop,
    cause: Cause,
    after_loss: bool,
    released: bool,
    at: At,
) -> i64 {
    let segment = layers.tcp.segment_size(side);
    let Some(in_flight) = stop.in_flight else { return stop.congestion_window };
    if after_loss {
        layers.tcp.halves[side].congestion.proved(in_flight, segment);
        return stop.congestion_window.min(in_flight.max(segment));
    }
    let less = stop.congestion_window - in_flight >= segment && released;
    if less
        && matches!(cause, Cause::CongestionWindow | Cause::Unexplained)
        && stands_at_its_window(layers, side, stop, in_flight, at)
    {
        layers.tcp.halves[side].congestion.outgrown(in_flight, segment);
        return in_flight;
    }
    stop.congestion_window
}

/// Bytes that TCP blocks wait in a queue, and so do bytes that are written meanwhile. While the connection's window is used up,
/// no stream can begin a message: whether one had anything to send is not known. Where bytes flow on, what comes last may have
/// waited all the time, or not. Other waits show that the queue was empty.
fn hold(layers: &mut Layers<'_>, side: usize, cause: Cause, interval: BlockedInterval) {
    let opened = layers.http2.sides[side].connection_credited > layers.tcp.halves[side].last_data_time;
    let held = &mut layers.tcp.transport.queues[side];
    match cause {
        Cause::CongestionWindow | Cause::ReceiveWindow | Cause::LossRecovery | Cause::DelayedAck => held.add(interval),
        Cause::ConnectionWindow if opened => {
            held.clear();
            held.add(BlockedInterval { cause: Cause::Unexplained, ..interval });
        }
        Cause::Transmission | Cause::Unexplained => held.doubt(),
        _ => held.clear(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_known_for_as_long_as_it_was() {
        assert!(is_never_empty((30, 100), 90, 120));
        assert!(!is_never_empty((30, 100), 90, 121), "shorter than the wait");
        assert!(is_never_empty((30, 100), 110, 130));
        assert!(!is_never_empty((30, 100), 110, 131), "the ACK is from before the wait, and too old");
        assert!(!is_never_empty((0, 0), 110, 120), "no queue stands");
    }
}
