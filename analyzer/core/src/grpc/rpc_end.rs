//! Ends RPCs: by END_STREAM, by RST_STREAM, or with their connection or the capture (PROTOCOL-HTTP2.md).

use crate::at::At;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::state::End;
use crate::http2::connection::streams::NONE;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::tables::RepeatRow;
use crate::tcp::transport::Transport;

use super::call::Call;
use super::data::end_unframed;
use super::late::settle_late_stream;
use super::other::note_end;
use super::protocol::Kind;
use super::repeats::{Ended, Repeats};
use super::rows::{Closed, OPEN_FOR, Sender, charge_act, push_open, request_ends, settle, write_rpc};
use super::state::Http2;
use super::status::{self, Ending, Source};

/// END_STREAM of `side`. From the server it ends the RPC, with the status of its header fields, or one made
/// from the HTTP status; the stream itself ends when both sides have ended. `slot` is the stream's, if it is open.
#[inline]
pub(super) fn end_direction(h2: &mut Http2, side: usize, id: u32, slot: u32, at: At, reading: &mut Reading<'_>) {
    let (is_client, late) = (side == h2.client, h2.begun_late);
    let Some(call) = h2.streams.state_mut(slot) else {
        if !is_client && h2.opened_before(id) {
            settle_late_stream(h2, id);
        }
        return;
    };
    let from = Sender { connection: h2.connection, is_client, side };
    charge_act(call, from, at, reading.transport, h2.application.gap_time, reading.cx);
    call.directions[side].ended = true;
    if call.kind == Kind::ConnectUnary {
        end_unframed(h2, side, slot, at, reading);
    }
    let Some(call) = h2.streams.state_mut(slot) else { return };
    h2.application.turns.update(call, h2.client, is_client, at, reading.transport.near_rtt[h2.client]);
    if is_client && reading.cx.options.keeps_requests() {
        request_ends(call, at, reading.cx);
    }
    let over = call.directions[1 - side].ended;
    if !is_client && !call.finished {
        let lacks = call.may_lack_its_end();
        let hidden = call.status_hidden || call.may_be_no_rpc() || lacks || (late && call.http_status == 0);
        let tails = &h2.application.tails;
        let ending = match tails.of_body(call) {
            Some(ending) => ending,
            None if hidden => Ending::NOT_SEEN,
            None => tails.without_end(call),
        };
        finish_stream(h2, slot, ending, at, reading);
    }
    if over {
        remove_stream(h2, slot, reading.cx);
    }
}

/// RST_STREAM of either side: both directions end.
pub(super) fn reset(h2: &mut Http2, side: usize, id: u32, code: u32, at: At, reading: &mut Reading<'_>) {
    let client = h2.client;
    let direction = h2.direction(side);
    let slot = h2.streams.slot(id).unwrap_or(NONE);
    if side == client {
        charge_used_up(h2, id, at, reading);
    }
    if let Some(call) = h2.streams.state_mut(slot) {
        // a client that gives up waiting ends a time in which the answer was owed to it
        let held = if side == client && call.turn_since >= 0 { 1 - side } else { side };
        if reading.transport.unheard[held] {
            call.charge(at.ready_time, Cause::CaptureGap);
        }
        if let Some(sent) = reading.transport.in_vain().filter(|_| side == client) {
            call.charge(sent.heard.1, if held == client { Cause::Client } else { Cause::Server });
            call.charge_in_vain(at.time, sent);
        } else if let Some(since) = lost_since(call, client, reading.transport).filter(|_| side == client) {
            call.charge(since.min(at.time), if held == client { Cause::Client } else { Cause::Server });
            call.charge(at.time, Cause::LossRecovery);
        } else if side == client {
            call.charge_unfinished(at.time, 1 - client, reading.transport);
        }
        call.charge_activity(held, held == client, &at, reading.transport, h2.application.gap_time);
        call.reset = Some((direction, code));
        let ending = if let Some(ending) = h2.application.tails.of_body(call) {
            ending
        } else if call.may_be_no_rpc() {
            Ending::NOT_SEEN
        } else if call.is_answered_otherwise() {
            Ending::without_grpc_status(call.http_status)
        } else if side == client && reading.transport.fins[1 - client].is_some_and(|fin| fin.time <= at.time) {
            Ending::CONNECTION_CLOSED
        } else if side == client {
            let fields_unknown = call.headers_unknown || call.begun_before;
            Ending::reset_by_client(at.time.saturating_sub(call.first.time), call.timeout_ns, fields_unknown)
        } else {
            Ending { status: status::from_rst_stream(code), source: Source::ServerReset }
        };
        finish_stream(h2, slot, ending, at, reading);
        remove_stream(h2, slot, reading.cx);
    } else if h2.opened_before(id) {
        settle_late_stream(h2, id);
    }
}

/// Accounts the time in which a used-up window held up a message's rest, until the client gave up its call.
fn charge_used_up(h2: &mut Http2, id: u32, at: At, reading: &mut Reading<'_>) {
    let (client, transport) = (h2.client, reading.transport);
    let Some(blocked) = find_used_up(h2, id) else { return };
    let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
    let read =
        [0, 1].into_iter().all(|side| h2.sides[side].is_read_whole(call.directions[side].gaps, call.first.packet));
    let lost = lost_since(call, client, transport).is_some() || transport.in_vain().is_some();
    if !read || lost || transport.unheard.contains(&true) || call.finished || !call.is_inside(blocked.0) {
        return;
    }
    let since = call.last_time;
    call.charge_open(at.time, client, Some(blocked.1), transport);
    if at.time.saturating_sub(since) >= OPEN_FOR {
        push_open(h2, id, since, Some(blocked), Closed::ByReset, at, reading);
    }
}

/// Since when lost bytes hold up a call, of which nothing can be read any more: the server's, or its own request's.
fn lost_since(call: &Call, client: usize, transport: &Transport) -> Option<i64> {
    let sent_behind = |offset: i64| usize::from(call.last_side) == client && call.position > offset;
    let request = transport.lost_since[client].filter(|&(offset, _)| sent_behind(offset));
    transport.lost_since[1 - client].into_iter().chain(request).map(|(_, since)| since).min()
}

#[inline]
fn remove_stream(h2: &mut Http2, slot: u32, cx: &mut Context) {
    let client = h2.client;
    let Some(call) = h2.streams.state_mut(slot) else { return };
    let id = call.id;
    settle(call, client, cx);
    if call.kind != Kind::Grpc {
        h2.application.tails.forget(id, &mut cx.tail_bytes);
    }
    for (side, direction) in h2.sides.iter_mut().zip(&call.directions) {
        if direction.reader.is_inside() && direction.gaps == side.gaps {
            side.unfinished_messages = side.unfinished_messages.saturating_sub(1);
        }
    }
    h2.streams.remove(id);
}

/// Ends a stream's request. Of an RPC it writes the row: its budget is complete and its duration is the budget's sum.
#[inline]
pub(super) fn finish_stream(h2: &mut Http2, slot: u32, ending: Ending, at: At, reading: &mut Reading<'_>) {
    let client = h2.client;
    let Some(call) = h2.streams.state_mut(slot) else { return };
    if !call.kind.is_rpc() {
        return note_end(call, at, reading.cx);
    }
    if call.finished {
        return;
    }
    call.finished = true;
    let ending = correct_ending(call, client, ending, at, reading.transport);
    h2.application.turns.update(call, client, false, at, reading.transport.near_rtt[client]);
    if call.counted {
        h2.application.turns.ended(h2.application.open_rpcs, h2.sides[1 - client].announced.max_concurrent_streams, at);
        h2.application.open_rpcs = h2.application.open_rpcs.saturating_sub(1);
    }
    h2.application.budget.add_all(&call.budget);
    h2.application.loss.add(&call.loss);
    if ending.status != status::OK || h2.application.repeats.is_some() {
        note_repeat(h2.connection, call, client, ending, at, &mut h2.application.repeats, reading.cx);
    }
    write_rpc(h2.connection, call, client, ending, true, at, reading.cx);
}

/// What the client makes of an end that comes too late: behind a RST in the server's name, which closed the client's socket
/// (RFC 9293 section 3.5.3), or when its deadline had passed.
#[inline]
fn correct_ending(call: &Call, client: usize, ending: Ending, at: At, transport: &Transport) -> Ending {
    if transport.resets[1 - client].is_some_and(|reset| reset < at.time) {
        return Ending::CONNECTION_CLOSED;
    }
    ending.after(at.ready_time.saturating_sub(call.first.time), call.timeout_ns)
}

/// Notes an RPC that may be repeated, or that repeats such a one. Clients do not repeat what they give up before its
/// deadline, and number the attempts that their library makes: where not all header fields are known there may be a number.
#[cold]
fn note_repeat(
    connection: u32,
    call: &Call,
    client: usize,
    ending: Ending,
    at: At,
    repeats: &mut Option<Box<Repeats>>,
    cx: &mut Context,
) {
    let fields_unknown = call.headers_unknown || call.begun_before;
    if fields_unknown || call.previous_attempts > 0 || ending.source == Source::ClientReset {
        return;
    }
    let row = RepeatRow {
        stream: call.id,
        method: call.method,
        status: ending.status,
        packet: at.packet,
        time_ns: at.time,
        ..RepeatRow::default()
    };
    let reader = &call.directions[client].reader;
    let ended = Ended {
        request: (call.method, reader.messages, reader.bytes),
        id: call.request_id,
        failed: ending.status != status::OK,
        row,
    };
    repeats.get_or_insert_default().take(ended, call.first, connection, cx);
}

/// The connection or the capture ends before the stream.
pub(super) fn end_open_stream(h2: &mut Http2, id: u32, end: End, at: At, reading: &mut Reading<'_>) {
    if h2.streams.find_mut(id).is_some_and(|stream| !stream.state.finished && stream.state.kind.is_rpc()) {
        end_open_call(h2, id, end, at, reading);
    }
    note_half_closed(h2, id, at);
    let client = h2.client;
    if let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) {
        settle(call, client, reading.cx);
    }
    h2.application.tails.forget(id, &mut reading.cx.tail_bytes);
    h2.streams.remove(id);
}

/// Counts a stream that the server has ended, and up to `at` the client has not.
pub(super) fn note_half_closed(h2: &mut Http2, id: u32, at: At) {
    let client = h2.client;
    let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
    let [by_client, by_server] = [client, 1 - client].map(|side| call.directions[side].ended);
    let read = h2.sides[client].is_read_whole(call.directions[client].gaps, call.first.packet);
    if call.kind.is_rpc() && !call.touches_gap && read && by_server && !by_client {
        h2.application.turns.stays_half_closed(call.last_packet, call.last_time, at.time);
    }
}

/// Ends an RPC that is open at the end of its connection, or of the capture.
pub(super) fn end_open_call(h2: &mut Http2, id: u32, end: End, at: At, reading: &mut Reading<'_>) {
    let client = h2.client;
    let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
    // only if the server's answer cannot have been missed
    let read = h2.sides[1 - client].is_read_whole(call.directions[1 - client].gaps, call.first.packet);
    let whole = read && !h2.application.answered_early;
    let end_known = read && end != End::NotKnown;
    if end_known {
        charge_end(h2, id, end, whole, at, reading);
    }
    let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
    let unavailable = end == End::ServerCloses && whole;
    let without_end = if unavailable { Ending::CONNECTION_CLOSED } else { Ending::NOT_SEEN };
    let ending = h2.application.tails.of_body(call).unwrap_or(without_end);
    h2.application.open_rpcs = h2.application.open_rpcs.saturating_sub(u32::from(call.counted));
    h2.application.budget.add_all(&call.budget);
    h2.application.loss.add(&call.loss);
    call.touches_gap |= !end_known;
    let complete = end_known && end != End::CaptureEnds;
    call.end_missing = !end_known;
    write_rpc(h2.connection, call, client, ending, complete, at, reading.cx);
}

/// Accounts the time of an open RPC up to the end of its connection, or of the capture. `whole` says that none of the
/// server's bytes were missed.
fn charge_end(h2: &mut Http2, id: u32, end: End, whole: bool, at: At, reading: &mut Reading<'_>) {
    let (client, transport) = (h2.client, reading.transport);
    let blocked = find_used_up(h2, id);
    let gap_time = h2.application.gap_time;
    let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
    let last = call.last_time.max(call.first.time);
    let since = last.max(call.last_resent(transport).unwrap_or(last));
    let in_vain = transport.in_vain();
    let alive = in_vain.map_or(at.time, |sent| sent.heard.1.min(at.time));
    let lost = lost_since(call, client, transport).filter(|_| in_vain.is_none());
    let until = lost.map_or(alive, |since| since.min(alive));
    let seen = whole && !transport.unheard[1 - client] && transport.unanswered[client].heard.0 != 0;
    let window = blocked.map(|(_, cause)| cause);
    if seen && (end == End::CaptureEnds || window.is_some()) {
        call.charge(gap_time.min(until), Cause::CaptureGap);
        call.charge_open(until, client, window, transport);
    } else {
        call.charge(until, held_at_the_end(call, client, end, whole));
    }
    if lost.is_some() {
        call.charge(alive, Cause::LossRecovery);
    }
    if let Some(sent) = in_vain {
        call.charge_in_vain(at.time, sent);
    }
    let read = h2.sides[client].is_read_whole(call.directions[client].gaps, call.first.packet);
    let answered = h2.application.tails.of_body(call).is_some();
    let open = whole && read && !answered && matches!(end, End::CaptureEnds | End::ClientCloses);
    if open && at.time.saturating_sub(last) >= OPEN_FOR {
        let closed = if end == End::ClientCloses { Closed::WithConnection } else { Closed::Not };
        push_open(h2, id, since, blocked, closed, at, reading);
    }
}

/// The sender whose HTTP/2 window allows no more DATA of this stream, and which window that is.
fn find_used_up(h2: &mut Http2, id: u32) -> Option<(usize, Cause)> {
    let ended = h2.streams.find_mut(id).map(|stream| stream.state.directions.map(|direction| direction.ended))?;
    [h2.client, 1 - h2.client].into_iter().filter(|&side| !ended[side]).find_map(|side| {
        if h2.stream_in_frame(side) == Some(id) {
            return None; // both windows allowed the rest of the frame
        }
        let used_up = |window: Option<i64>| window.is_some_and(|window| window <= 0);
        let connection = used_up(h2.connection_window(side)).then_some(Cause::ConnectionWindow);
        let cause = connection.or_else(|| used_up(h2.stream_window(side, id)).then_some(Cause::StreamWindow));
        cause.map(|cause| (side, cause))
    })
}

/// Whose turn it was in an RPC that ended with its connection: the side that owed the next bytes. `whole` says that
/// none of the server's were missed.
fn held_at_the_end(call: &Call, client: usize, end: End, whole: bool) -> Cause {
    let inside = call.is_inside(0) || call.is_inside(1);
    match end {
        End::CaptureEnds => Cause::CaptureGap,
        End::ServerCloses | End::ClientCloses if whole && !inside => {
            let owed = call.turn_since >= 0 || call.directions[client].ended;
            if owed { Cause::Server } else { Cause::Client }
        }
        _ => Cause::Unexplained,
    }
}

/// Frames are missing, which may have ended any RPC that is open: those that go on are seen again. They do not count
/// as open any more, for else each hole would leave some open for ever.
#[cold]
pub(super) fn doubt_open_rpcs(h2: &mut Http2, until: At) {
    let grpc = &mut h2.application;
    grpc.gap_time = grpc.gap_time.max(until.time);
    if grpc.open_rpcs == 0 {
        return; // also the bound of what holes cost: each stream is doubted once
    }
    for stream in h2.streams.slots_mut().filter(|stream| stream.id != 0) {
        let call = &mut stream.state;
        if call.kind.is_rpc() && !call.finished {
            call.waiting = false;
            call.counted = false;
        }
    }
    grpc.open_rpcs = 0;
    grpc.turns.doubt();
}
