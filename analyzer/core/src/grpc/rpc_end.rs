//! Ends RPCs: by END_STREAM, by RST_STREAM, or with their connection or the capture (PROTOCOL-HTTP2.md).

use crate::at::At;
use crate::http2::connection::http2::{End, Protocol};
use crate::http2::connection::side::Side;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::tables::RepeatRow;
use crate::tcp::transport::Transport;

use super::activity::Activity;
use super::call::{Call, Gap};
use super::closed_window::{ClosedWindow, find_used_up, lost_since};
use super::connection::{Grpc, Http2, Parser};
use super::other::note_end;
use super::protocol::Kind;
use super::repeats::{Ended, Repeats};
use super::rows::{Closed, OPEN_FOR, settle, touch_gap};
use super::status::{self, Ending, Source};
use super::unread::Unread;

/// RFC 9113 section 7. A server may reset a request with it whose response is complete (section 8.1).
const NO_ERROR: u32 = 0;

/// The HTTP status of every response of gRPC.
const HTTP_OK: u16 = 200;

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// END_STREAM. From the server it ends the RPC, with the status of its header fields, or one made from the HTTP
    /// status; the stream itself ends when both sides have ended. `slot` is the stream's, if it is open.
    #[inline]
    pub(super) fn end_direction(&mut self, id: u32, slot: u32) {
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let Some(call) = self.h2.streams.state_mut(slot) else {
            if !activity.is_client && self.h2.opened_before(id) {
                self.h2.application.late.settle(id);
            }
            return;
        };
        activity.charge(call, self.cx);
        call.directions[activity.side].ended = true;
        if call.kind == Kind::ConnectUnary {
            self.end_unframed(slot);
        }
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let Some(call) = self.h2.streams.state_mut(slot) else { return };
        activity.update_turns(call, &mut self.h2.application.turns);
        if activity.is_client {
            call.await_after_end(activity.at.ready_time, activity.transport.near_rtt[1 - activity.side]);
            if self.cx.options.keeps_requests() {
                activity.end_request(call, self.cx);
            }
        }
        let over = call.directions[1 - activity.side].ended;
        if !activity.is_client && !call.finished {
            let lacks = call.may_lack_its_end();
            let late = call.http_status == 0 && (self.h2.begun_late || call.touches_gap);
            let otherwise = call.may_be_no_rpc() || lacks || late;
            let error = call.hidden_error.filter(|_| call.http_status == HTTP_OK && !otherwise);
            let trailers = &self.h2.application.trailers;
            let ending = match trailers.of_body(call) {
                Some(ending) => ending,
                None if call.status_hidden || otherwise => {
                    Ending { source: error.unwrap_or(Source::None), ..Ending::NOT_SEEN }
                }
                None => trailers.without_end(call),
            };
            self.finish_stream(slot, ending);
        }
        if over && !self.is_unread(slot) {
            self.remove_stream(slot);
        }
    }

    /// RST_STREAM of either side: both directions end.
    pub(super) fn reset_stream(&mut self, id: u32, code: u32) {
        let (at, transport) = (self.at, self.transport);
        let activity = Activity::new(self.h2, self.side, &at, transport);
        let client = activity.client();
        let slot = self.h2.streams.slot(id).unwrap_or(NONE);
        if activity.is_client {
            self.charge_used_up(id);
        }
        self.charge_closed_window(id, true);
        let Some(call) = self.h2.streams.state_mut(slot) else {
            if self.h2.opened_before(id) {
                self.h2.application.late.settle(id);
            }
            return self.reset_removed(id, code);
        };
        if call.unread {
            return self.reset_unread(id, slot, code);
        }
        if call.finished {
            self.remove_stream(slot);
            return self.reset_removed(id, code);
        }
        let lacks = lack(&self.h2.sides, call);
        if lacks.contains(&true) {
            touch_gap(call, self.cx);
        }
        // a client that gives up waiting ends a time in which the answer, or the rest of it, was owed to it
        let held = if activity.is_client { call.owing_side(client) } else { activity.side };
        if transport.unheard[held] || held == client && lacks[client] && !call.directions[client].ended {
            call.charge(at.ready_time, Cause::CaptureGap);
        }
        if activity.is_client {
            call.since_bytes_ns = (at.ready_time - call.last_time).max(0);
            let own = if held == client { Cause::Client } else { Cause::Server };
            charge_given_up(call, own, &self.h2.sides, client, at, transport);
        }
        if !activity.is_client && call.turn_since < 0 && !call.directions[client].ended {
            // it answered all that the client had sent: for whom it waited is not known
            call.charge(at.ready_time, Cause::Unexplained);
        }
        call.charge_activity(held, held == client, &at, transport, activity.gap);
        call.reset = Some((activity.direction(), code));
        let ending = if let Some(ending) = self.h2.application.trailers.of_body(call) {
            ending
        } else if call.may_be_no_rpc() {
            Ending::NOT_SEEN
        } else if call.is_answered_otherwise() {
            Ending::without_grpc_status(call.http_status)
        } else if !activity.is_client && lacks[activity.side] && code == NO_ERROR {
            Ending::NOT_SEEN // it follows a complete response, whose end may be missing
        } else if !activity.is_client {
            let unknown = call.timeout_ns < 0 && call.may_lack_fields();
            Ending::reset_by_server(code, at.time - call.first.time, call.timeout_ns, unknown)
        } else if (1..=at.packet).contains(&transport.fins_acknowledged[1 - client]) {
            Ending::CONNECTION_CLOSED
        } else {
            let unknown = call.timeout_ns < 0 && call.may_lack_fields() || lacks[1 - client];
            let ending = Ending::reset_by_client(at.time - call.first.time, call.timeout_ns, unknown);
            let refused = is_refused_by_goaway(&self.h2.sides[1 - client], id, at, transport.near_rtt[client]);
            if refused && ending.source == Source::ClientReset { Ending::CONNECTION_CLOSED } else { ending }
        };
        self.finish_stream(slot, ending);
        self.remove_stream(slot);
    }

    /// Accounts the time in which a used-up window held up a message's rest, until the client gave up its call.
    fn charge_used_up(&mut self, id: u32) {
        let (h2, client, transport) = (&mut *self.h2, self.side, self.transport);
        let Some(blocked) = find_used_up(h2, id) else { return };
        let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
        let read =
            h2.sides.iter().zip(&call.directions).all(|(side, kept)| side.is_read_whole(kept.gaps, call.first.packet));
        let lost = lost_since(call, client, transport).is_some() || transport.in_vain().is_some();
        if !read || lost || transport.unheard.contains(&true) || call.finished || !call.is_inside(blocked.side) {
            return;
        }
        let since = call.last_time.max(blocked.since);
        call.charge_used_up(self.at.time, client, &blocked, transport);
        if self.at.time - since >= OPEN_FOR {
            self.push_open(id, since..self.at.time, Some((blocked.side, blocked.window)), Closed::ByReset);
        }
    }

    #[inline]
    fn is_unread(&mut self, slot: u32) -> bool {
        self.h2.streams.state_mut(slot).is_some_and(|call| call.unread)
    }

    #[inline]
    pub(super) fn remove_stream(&mut self, slot: u32) {
        let h2 = &mut *self.h2;
        let Some(call) = h2.streams.state_mut(slot) else { return };
        let id = call.id;
        settle(call, h2.client, self.cx);
        if call.kind != Kind::Grpc {
            h2.application.trailers.forget(id, &mut self.cx.trailer_bytes);
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
    pub(super) fn finish_stream(&mut self, slot: u32, ending: Ending) {
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let (h2, client, at) = (&mut *self.h2, activity.client(), *activity.at);
        let Some(call) = h2.streams.state_mut(slot) else { return };
        if !call.kind.is_rpc() {
            return note_end(call, at, self.cx);
        }
        if call.finished {
            return;
        }
        call.finished = true;
        let ending = if h2.roles_guessed {
            call.budget.hide_sides();
            Ending::NOT_SEEN
        } else if h2.protocol == Protocol::Http1 {
            correct_ending_over_http1(call, client, ending, at, activity.transport)
        } else {
            correct_ending(call, client, ending, at, activity.transport)
        };
        if !activity.is_client && ending.status == status::OK {
            call.receipt = activity.transport.delivered_from[activity.side] + 1;
        }
        let grpc = &mut h2.application;
        grpc.turns.update(call, client, false, at, activity.transport.near_rtt[client]);
        if call.counted {
            grpc.turns.ended(grpc.open_rpcs, h2.sides[1 - client].announced.max_concurrent_streams, at);
            grpc.open_rpcs = grpc.open_rpcs.saturating_sub(1);
        }
        if let Some(unread) = Unread::of(call, client, ending, at, activity.transport) {
            return self.await_reading(unread);
        }
        activity.conclude(call, ending, grpc, self.cx);
    }

    /// The connection or the capture ends before the stream.
    pub(super) fn end_open_stream(&mut self, id: u32, end: End) {
        if self.h2.streams.find_mut(id).is_some_and(|stream| !stream.state.finished && stream.state.kind.is_rpc()) {
            self.end_open_call(id, end);
        }
        self.end_unread_stream(id, end);
        note_half_closed(self.h2, id, self.at);
        if let Some(stream) = self.h2.streams.find_mut(id) {
            settle(&stream.state, self.h2.client, self.cx);
        }
        self.h2.application.trailers.forget(id, &mut self.cx.trailer_bytes);
        self.h2.streams.remove(id);
    }

    /// Ends an RPC that is open at the end of its connection, or of the capture.
    pub(super) fn end_open_call(&mut self, id: u32, end: End) {
        let server = &self.h2.sides[1 - self.h2.client];
        let Some(call) = self.h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
        // only if neither the server's answer nor the client's RST_STREAM can have been missed
        let answer_read = server.is_read_whole(call.directions[1 - self.h2.client].gaps, call.first.packet);
        let may_be_reset = lack(&self.h2.sides, call)[self.h2.client] && call.last_time <= self.h2.application.gap.time;
        let read = answer_read && !may_be_reset;
        let whole = read && !self.h2.application.answered_early;
        let end_known = read && end != End::NotKnown;
        if end_known {
            self.charge_end(id, end, whole);
        }
        let (activity, grpc) = (Activity::new(self.h2, self.side, &self.at, self.transport), &mut self.h2.application);
        let Some(call) = self.h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
        let guessed = self.h2.roles_guessed;
        if guessed {
            call.budget.hide_sides();
        }
        let after = activity.at.time - call.first.time;
        let without_end = match end {
            _ if guessed => Ending::NOT_SEEN,
            End::ServerCloses if whole => Ending::CONNECTION_CLOSED.after(after, call.timeout_ns, -1),
            // HTTP/1.1 has no other way to give up a request
            End::ClientCloses if whole && self.h2.protocol == Protocol::Http1 => {
                Ending::given_up(after, call.timeout_ns)
            }
            _ => Ending::NOT_SEEN,
        };
        let ending = grpc.trailers.of_body(call).unwrap_or(without_end);
        grpc.open_rpcs = grpc.open_rpcs.saturating_sub(u32::from(call.counted));
        grpc.budget.add_all(&call.budget);
        grpc.loss.add(&call.loss);
        call.touches_gap |= !end_known;
        call.end_missing = !end_known;
        activity.write_rpc(call, ending, end_known && end != End::CaptureEnds, self.cx);
    }

    /// Accounts the time of an open RPC up to the end of its connection, or of the capture. `whole` says that none of the
    /// server's bytes were missed.
    fn charge_end(&mut self, id: u32, end: End, whole: bool) {
        let (h2, now, transport) = (&mut *self.h2, self.at.time, self.transport);
        let (client, gap_time) = (h2.client, h2.application.gap.time);
        let blocked = find_used_up(h2, id);
        let windows_known = [0, 1].map(|side| h2.stream_window(side, id).is_some());
        let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
        // bytes that are missing may have ended the request, or used up a window
        let may_be_blocked = call.touches_gap && !windows_known[call.owing_side(client)];
        let may_have_ended = !call.directions[client].ended && lack(&h2.sides, call)[client];
        let is_hidden = blocked.is_none() && (may_be_blocked || may_have_ended);
        let last = call.last_time.max(call.first.time);
        let since = last.max(call.last_resent(transport).unwrap_or(last));
        let in_vain = transport.in_vain();
        let alive = in_vain.map_or(now, |sent| sent.heard.1.min(now));
        let lost = lost_since(call, client, transport).filter(|_| in_vain.is_none());
        let lost_at = lost.map_or(alive, |(since, _)| since.min(alive));
        let seen = whole && !transport.unheard[1 - client] && transport.unanswered[client].heard.0 != 0;
        let is_plain = seen && blocked.is_none() && !is_hidden && gap_time <= last && lost_at == now;
        let shut = call.find_closed_window(now, client, transport).filter(|_| is_plain);
        let stuck =
            given_up_since(&h2.sides, client, call).into_iter().chain(shut.and_then(ClosedWindow::unknown_since));
        let until = stuck.min().map_or(lost_at, |since| since.min(lost_at));
        if let Some(shut) = shut {
            call.charge_closed_window(shut);
        }
        if seen && (end == End::CaptureEnds || blocked.is_some()) {
            call.charge(if is_hidden { until } else { gap_time.min(until) }, Cause::CaptureGap);
            match &blocked {
                Some(used_up) => call.charge_used_up(until, client, used_up, transport),
                None => call.charge_open(until, client, transport),
            }
        } else {
            if whole {
                call.charge_resent(until, transport);
            }
            call.charge(until, if is_hidden { Cause::CaptureGap } else { held_at_the_end(call, client, end, whole) });
        }
        if until < lost_at {
            call.charge(lost_at, Cause::Unexplained);
        }
        if let Some((_, sender)) = lost {
            call.charge_loss(alive, transport.outages[sender]);
        }
        if let Some(sent) = in_vain {
            call.charge_in_vain(now, sent);
        }
        let read = h2.sides[client].is_read_whole(call.directions[client].gaps, call.first.packet);
        let answered = h2.application.trailers.of_body(call).is_some();
        let open = whole && read && !answered && matches!(end, End::CaptureEnds | End::ClientCloses);
        if open && now - last >= OPEN_FOR {
            let closed = if end == End::ClientCloses { Closed::WithConnection } else { Closed::Not };
            // of what it waited for in turn, the side that has to act or its window, the longer one
            let blocked = blocked.filter(|used_up| 2 * (now - used_up.since) >= now - last);
            let since = blocked.map_or(since, |used_up| since.max(used_up.since));
            let window = blocked.map(|used_up| (used_up.side, used_up.window));
            let (blocked, open) = shut.map_or((window, since..now), |shut| (Some(shut.blocked()), shut.shown(now)));
            self.push_open(id, open, blocked, closed);
        }
    }
}

impl Activity<'_> {
    /// Writes how an RPC ended, counts its time, and compares it with those before it.
    #[inline]
    pub(super) fn conclude(&self, call: &mut Call, ending: Ending, grpc: &mut Grpc, cx: &mut Context) {
        let now = self.at.ready_time;
        if ending.status == status::OK {
            if now >= grpc.last_answer.0 {
                grpc.last_answer = (now, call.method);
            }
        } else if grpc.last_answer.1 == call.method && grpc.last_answer.0 >= call.first.time {
            call.since_answer_ns = now - grpc.last_answer.0;
        }
        if ending.status != status::OK || grpc.repeats.is_some() {
            self.note_repeat(call, ending, &mut grpc.repeats, cx);
        }
        grpc.budget.add_all(&call.budget);
        grpc.loss.add(&call.loss);
        self.write_rpc(call, ending, true, cx);
    }

    /// Notes an RPC that may be repeated, or that repeats such a one. Clients do not repeat what they give up before its
    /// deadline, and number the attempts that their library makes: where not all header fields are known there may be a
    /// number.
    #[cold]
    fn note_repeat(&self, call: &Call, ending: Ending, repeats: &mut Option<Box<Repeats>>, cx: &mut Context) {
        if call.may_lack_fields() || call.previous_attempts > 0 || ending.source == Source::ClientReset {
            return;
        }
        let row = RepeatRow {
            stream: call.id,
            method: call.method,
            status: ending.status,
            packet: self.at.packet,
            time_ns: self.at.time,
            ..RepeatRow::default()
        };
        let reader = &call.directions[self.client()].reader;
        let request = (call.method, reader.messages, reader.bytes);
        let ended = Ended { request, id: call.request_id as u32, failed: ending.status != status::OK, row };
        repeats.get_or_insert_default().take(ended, call.first, self.connection, cx);
    }
}

/// Whether frames of each side are missing that may have been of this call.
fn lack(sides: &[Side<Grpc>; 2], call: &Call) -> [bool; 2] {
    [0, 1].map(|side| sides[side].gap_touches(call.directions[side].gaps, call.first.packet))
}

/// Since when the server may have worked on nothing: it sent a GOAWAY with an error, behind which it is to close the
/// connection (RFC 9113 section 5.4.1), and nothing of the call since.
fn given_up_since(sides: &[Side<Grpc>; 2], client: usize, call: &Call) -> Option<i64> {
    let goaway = sides[1 - client].goaway.filter(|goaway| goaway.code != NO_ERROR)?;
    (call.last_time <= goaway.time || usize::from(call.last_side) == client).then_some(goaway.time)
}

/// Charges the time in which a client gives up a call without an answer: what it waited for, as far as packets show it.
fn charge_given_up(call: &mut Call, own: Cause, sides: &[Side<Grpc>; 2], client: usize, at: At, transport: &Transport) {
    if let Some(sent) = transport.in_vain() {
        call.charge(sent.heard.1, own);
        call.charge_in_vain(at.time, sent);
    } else if let Some((since, sender)) = lost_since(call, client, transport) {
        call.charge(since.min(at.time), own);
        call.charge_loss(at.time, transport.outages[sender]);
    } else if let Some(since) = given_up_since(sides, client, call) {
        call.charge_open(since.min(at.time), client, transport);
        call.charge(at.time, Cause::Unexplained);
    } else {
        call.charge_unfinished(at.time, 1 - client, transport);
    }
}

/// Whether a client resets a stream because the GOAWAY that just reached it says that the server did not act on it (RFC 9113
/// section 6.8). C-core does that, and its calls end with UNAVAILABLE.
fn is_refused_by_goaway(server: &Side<Grpc>, id: u32, at: At, near: i64) -> bool {
    let near = near.max(0);
    server.goaway.is_some_and(|goaway| {
        let since = at.time - goaway.time;
        id > goaway.last_stream && since >= near / 8 * 7 && since <= near.saturating_add(status::LATE)
    })
}

/// What the client makes of an end that comes too late: behind a RST in the server's name, which closed the client's socket
/// (RFC 9293 section 3.5.3), or when its deadline had passed.
#[inline]
fn correct_ending(call: &Call, client: usize, ending: Ending, at: At, transport: &Transport) -> Ending {
    if transport.resets[1 - client].is_some_and(|reset| reset < at.time) {
        return Ending::CONNECTION_CLOSED;
    }
    // a client whose bytes were lost meanwhile cannot say that it gave up
    let client_rtt = if call.budget.get(Cause::LossRecovery) > 0 { -1 } else { transport.near_rtt[client] };
    ending.after(at.ready_time - call.first.time, call.timeout_ns, client_rtt)
}

/// The same over HTTP/1.1, where a client that gives up a request closes its connection: what comes then is not read.
#[cold]
fn correct_ending_over_http1(call: &Call, client: usize, ending: Ending, at: At, transport: &Transport) -> Ending {
    let closes = transport.fins[client].map(|fin| fin.time).into_iter().chain(transport.resets[client]);
    match closes.filter(|&closed| closed < at.time).min() {
        Some(closed) => Ending::given_up(closed - call.first.time, call.timeout_ns),
        None => correct_ending(call, client, ending, at, transport),
    }
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

/// The side that had to send next in an RPC that ended with its connection. `whole` says that
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
    grpc.gap = Gap { time: grpc.gap.time.max(until.time), count: grpc.gap.count.wrapping_add(1) };
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
