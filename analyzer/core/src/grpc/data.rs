//! Reads the messages in DATA, and charges the time for which they waited.

use crate::at::At;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::Side;
use crate::http2::connection::watch::Watch;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::tables::{Layer, WaitRow};
use crate::tcp::send_queue::BlockedInterval;

use super::call::Call;
use super::message::Event;
use super::protocol::Kind;
use super::rows::{Sender, charge_act, count_message, note_idle, push_delay, touch_gap};
use super::state::{Grpc, Http2};
use super::tail::begins_end;

/// Bytes of other streams that take less time than this are a sender's usual turns, nanoseconds: 1 ms.
const HEAD_OF_LINE: i64 = 1_000_000;

/// DATA this long after HEADERS is late: 1 ms, as the shortest wait.
const LATE_DATA: i64 = 1_000_000;

/// DATA of a stream, without padding.
#[inline]
pub(super) fn stream_data<W: Watch<Grpc> + ?Sized>(
    h2: &mut Http2,
    side: usize,
    slot: u32,
    data: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let from = Sender { connection: h2.connection, is_client: side == h2.client, side };
    let gaps = h2.sides[side].gaps;
    let Some(call) = h2.streams.state_mut(slot) else { return };
    let behind = std::mem::replace(&mut h2.sides[side].data_slot, slot) != slot
        && call.is_inside(side)
        && call.directions[side].gaps == gaps
        && !reading.transport.queues[side].late;
    if behind && at.time.saturating_sub(call.since) >= HEAD_OF_LINE {
        went_behind(call, from, at, reading.cx);
    }
    charge_act(call, from, at, reading.transport, h2.application.gap_time, reading.cx);
    if !call.has_messages_alone && !reads_messages(call, from) {
        if call.kind.is_rpc() {
            call.tail_cut |= h2.sides[side].gap_touches(call.directions[side].gaps, call.first.packet);
            watch.stream_end(call, data);
            keep_tail(h2, slot, data, at, reading.cx);
        }
        return;
    }
    let sender = &mut h2.sides[side];
    let gap = sender.gap_touches(call.directions[side].gaps, call.first.packet);
    let direction = &mut call.directions[side];
    if direction.gaps != gaps {
        if gap {
            direction.reader.lose();
        }
        direction.gaps = gaps;
    }
    if direction.reader.is_lost() && call.kind != Kind::ConnectUnary {
        direction.reader.resume(data, sender.frame_from(data.len()));
    }
    watch.stream_data(call, data, sender.frame_from(data.len()).is_some());
    let foreign = read_messages(call, sender, &mut h2.application, from, data, at, reading.cx);
    if call.begun_before {
        call.answers_before(h2.client);
    }
    h2.application.turns.update(call, h2.client, from.is_client, at, reading.transport.near_rtt[h2.client]);
    note_idle(from.connection, call, &mut h2.application.turns, at, reading.cx);
    if gap {
        touch_gap(slot, &mut h2.streams, reading.cx);
    }
    if let Some(octets) = foreign
        && !may_stand(h2, slot, from, octets, at, reading.cx)
    {
        h2.problem(Layer::Grpc, "DATA is not length-prefixed messages", at, reading.cx);
    }
}

/// Whether DATA is messages, and not a page or the RPC's end.
#[cold]
fn reads_messages(call: &Call, from: Sender) -> bool {
    call.kind.is_rpc() && (from.is_client || !(call.in_tail || call.is_refused()))
}

/// Keeps octets that may end an RPC: pages do not.
#[cold]
fn keep_tail(h2: &mut Http2, slot: u32, octets: &[u8], at: At, cx: &mut Context) {
    let Some(call) = h2.streams.state_mut(slot) else { return };
    let may_end = call.in_tail || call.kind == Kind::ConnectUnary;
    if may_end && !h2.application.tails.add(call.id, octets, &mut cx.tail_bytes) {
        h2.problem(Layer::Grpc, "too many RPCs end in their bodies at once: not all ends are read", at, cx);
    }
}

/// Whether octets that are no message may stand in a response: as the RPC's end in the body, which is kept.
#[cold]
fn may_stand(h2: &mut Http2, slot: u32, from: Sender, octets: &[u8], at: At, cx: &mut Context) -> bool {
    let Some(call) = h2.streams.state_mut(slot) else { return false };
    let begins = !from.is_client && begins_end(call.kind, octets);
    call.in_tail |= begins;
    if begins {
        keep_tail(h2, slot, octets, at, cx);
    }
    begins
}

/// Ends the message of a direction whose body is one message without a prefix.
#[cold]
pub(super) fn end_unframed(h2: &mut Http2, side: usize, slot: u32, at: At, reading: &mut Reading<'_>) {
    let from = Sender { connection: h2.connection, is_client: side == h2.client, side };
    let Some(call) = h2.streams.state_mut(slot) else { return };
    let refused = !from.is_client && call.is_refused();
    if !call.finished && !refused {
        read_messages(call, &mut h2.sides[side], &mut h2.application, from, &[], at, reading.cx);
    }
}

/// Reads the messages in DATA; gives the octets from where it is something else. Of a body that is one message none are
/// its end.
#[inline(always)]
fn read_messages<'a>(
    call: &mut Call,
    sender: &mut Side<Grpc>,
    grpc: &mut Grpc,
    from: Sender,
    data: &'a [u8],
    at: At,
    cx: &mut Context,
) -> Option<&'a [u8]> {
    let unframed = call.kind == Kind::ConnectUnary;
    let (id, method, turns, gap_time) = (call.id, call.method, &mut grpc.turns, grpc.gap_time);
    let (direction, turn_since) = (&mut call.directions[from.side], &mut call.turn_since);
    let (unfinished, habits) = (&mut sender.unfinished_messages, &mut sender.habits);
    let mut foreign = None;
    let mut headers = if direction.reader.messages == 0 { direction.headers } else { (-1, 0) };
    let mut on_event = |event: Event<'_>| match event {
        Event::Begin => {
            *unfinished += 1;
            turns.message_begins(from.is_client, at.time);
            if headers.0 > gap_time && at.time.saturating_sub(headers.0) >= LATE_DATA {
                push_delay([from.connection, id, method], from.direction(), headers, at, cx);
            }
            headers.0 = -1;
            if !from.is_client && *turn_since > gap_time {
                let turnaround = at.time.saturating_sub(*turn_since).max(0);
                cx.method(method).add_turnaround(turnaround as u64);
                *turn_since = -1;
            }
        }
        Event::End(message) => {
            *unfinished = unfinished.saturating_sub(1);
            if from.is_client {
                *turn_since = at.ready_time;
            }
            habits.message(message.length, at);
            count_message([from.connection, id], from.direction(), method, &message, at, cx);
        }
        Event::NotGrpc(left) => foreign = Some(left),
    };
    match data {
        _ if !unframed => direction.reader.feed(data, at, &mut on_event),
        [] => direction.reader.end_unframed(at, &mut on_event),
        _ => direction.reader.feed_unframed(data, at, &mut on_event),
    }
    foreign.and_then(|left| data.get(data.len().saturating_sub(left)..))
}

/// `length` bytes of a stream's DATA are not in the capture.
pub(super) fn stream_gap(h2: &mut Http2, side: usize, slot: u32, length: u32, at: At, reading: &mut Reading<'_>) {
    let gaps = h2.sides[side].gaps;
    let Some(call) = h2.streams.state_mut(slot) else { return };
    call.charge(at.time, Cause::CaptureGap);
    call.tail_cut |= side != h2.client && (call.in_tail || call.is_refused());
    let direction = &mut call.directions[side];
    let was_inside = direction.reader.is_inside() && direction.gaps == gaps;
    if direction.reader.lacks(length) {
        stream_cut_tail(h2, side, slot, length, at, reading);
    } else {
        direction.reader.skip(length);
        if was_inside && !direction.reader.is_inside() {
            let unfinished = &mut h2.sides[side].unfinished_messages;
            *unfinished = unfinished.saturating_sub(1);
        }
    }
    touch_gap(slot, &mut h2.streams, reading.cx);
}

/// The missing bytes are exactly the rest of a message: its length is proved by its prefix.
fn stream_cut_tail(h2: &mut Http2, side: usize, slot: u32, length: u32, at: At, reading: &mut Reading<'_>) {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut left = length as usize;
    while left > 0 {
        let piece = left.min(ZEROS.len());
        stream_data(h2, side, slot, ZEROS.get(..piece).unwrap_or_default(), at, reading, &mut ());
        left -= piece;
    }
}

/// Charges a wait of `side` to the RPCs whose messages it interrupted, and gives how many they were. Of a connection with
/// very many open streams only the first [`limits::STREAMS_SEARCHED_PER_WAIT`] slots are looked at, in their order.
///
/// A stream whose own window is used up waited for that, not for `wait`, if other streams could send: also gives how many did.
pub fn charge_wait(h2: &mut Http2, side: usize, wait: &BlockedInterval) -> (u32, u32) {
    let initial = h2.window_sizes(side).map(|[stream, _]| stream);
    let in_frame = h2.stream_in_frame(side);
    let by_window = matches!(wait.cause, Cause::StreamWindow | Cause::ConnectionWindow);
    let searched = h2.streams.slots_mut().take(limits::STREAMS_SEARCHED_PER_WAIT);
    let unfinished = searched.filter(|stream| stream.id != 0 && stream.state.is_inside(side));
    let (mut streams, mut apart) = (0, 0);
    for stream in unfinished.take(limits::STREAMS_PER_WAIT) {
        let none_left = initial.is_some_and(|initial| initial + stream.credit[side] <= 0);
        let used_up = none_left && !by_window && in_frame != Some(stream.id);
        let cause = if used_up { Cause::StreamWindow } else { wait.cause };
        stream.state.charge(wait.start, if used_up { cause } else { Cause::Transmission });
        stream.state.charge_interval(wait.end, &BlockedInterval { cause, ..*wait });
        streams += 1;
        apart += u32::from(used_up);
    }
    (streams, apart)
}

/// Inside its message a stream's bytes come after those of other streams: they went first.
#[cold]
fn went_behind(call: &mut Call, from: Sender, at: At, cx: &mut Context) {
    cx.waits.push(WaitRow {
        connection: from.connection,
        direction: from.direction(),
        stream: call.id,
        start_time_ns: call.since,
        duration_ns: at.time.saturating_sub(call.since),
        cause: Cause::HeadOfLine as u8,
        owed_bytes: u64::from(call.directions[from.side].reader.owed()),
        stopped_at_packet: call.last_packet,
        stopped_time_ns: call.last_time,
        resumed_at_packet: at.packet,
        streams: 1,
        method: call.method,
        ..WaitRow::NOTHING_KNOWN
    });
    call.charge(at.time, Cause::HeadOfLine);
}
