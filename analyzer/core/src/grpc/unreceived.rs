//! Corrects the outcomes of RPCs whose client never acknowledged the response: it was heard after retransmissions of it, and had
//! not received them.

use crate::at::At;
use crate::http2::connection::state::End;
use crate::http2::connection::streams::NONE;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::piece::{OpenTime, Parts};
use crate::store::tables::rpc_flag;
use crate::tcp::rtt::RTO_MIN;
use crate::tcp::transport::Transport;

use super::act::Act;
use super::call::Call;
use super::rows::settle;
use super::state::{Grpc, Http2};
use super::status::{self, Ending, Source};

impl Grpc {
    /// Keeps an RPC that is over, whose place another one takes before its client has acknowledged the response.
    #[cold]
    pub(super) fn keep_unacknowledged(&mut self, call: &Call, acked: i64) {
        let kept = &mut self.unacknowledged;
        while kept.len() >= limits::UNACKNOWLEDGED_RESPONSES || kept.front().is_some_and(|kept| kept.receipt <= acked) {
            kept.pop_front();
        }
        kept.push_back(*call);
    }
}

/// Corrects the outcomes of responses that their client had not received when it was last heard, and that the server had
/// retransmitted `since` then. `at` is where the connection or the capture ends.
pub fn correct_unreceived(h2: &mut Http2, since: i64, end: End, at: At, transport: &Transport, cx: &mut Context) {
    let unreceived = take_unreceived(h2, transport);
    let Some(heard) = heard_in_vain(h2.client, since, transport) else { return };
    for mut call in unreceived {
        correct(h2, &mut call, heard, end, at, transport, cx);
    }
}

/// Whether calls moved on at the last cut whose clients had not acknowledged the response.
pub fn awaits_receipt(h2: &Http2) -> bool {
    !h2.application.unacknowledged.is_empty()
}

/// Moves calls on at a cut that ended with OK, and whose clients have not acknowledged the response: whether they receive it shows
/// later. They are reported as if the capture ended `at` there.
pub fn report_unreceived(
    h2: &mut Http2,
    since: Option<i64>,
    at: At,
    transport: &Transport,
    parts: &mut Parts,
) -> OpenTime {
    let mut open = OpenTime::default();
    let heard = since.and_then(|since| heard_in_vain(h2.client, since, transport));
    let unreceived = take_unreceived(h2, transport);
    for mut call in unreceived.into_iter().take(limits::UNACKNOWLEDGED_RESPONSES) {
        let Some(mut here) = move_ended(&mut call, parts) else { continue };
        h2.application.budget.take_back(&call.budget);
        h2.application.loss.take_back(&call.loss);
        open.budget.add_all(&call.budget);
        open.loss.add(&call.loss);
        let done = std::mem::replace(&mut h2.application.budget, open.budget);
        count_ok(h2, &mut here, transport, &mut parts.open);
        if let Some(heard) = heard {
            correct(h2, &mut here, heard, End::CaptureEnds, at, transport, &mut parts.open);
        }
        open.budget = std::mem::replace(&mut h2.application.budget, done);
        h2.application.unacknowledged.push_back(call);
    }
    open
}

/// Counts calls that moved on at a cut in the piece behind it.
pub fn begin_piece_with_unreceived(h2: &mut Http2, transport: &Transport, cx: &mut Context) {
    let Grpc { budget, loss, methods, unacknowledged, .. } = &mut h2.application;
    for call in unacknowledged {
        budget.add_all(&call.budget);
        loss.add(&call.loss);
        methods.note(call.method);
    }
    count_unreceived(h2, transport, cx);
}

/// Counts them in tables that do not have them, as after a run was saved.
pub fn count_unreceived(h2: &mut Http2, transport: &Transport, cx: &mut Context) {
    let mut unreceived = std::mem::take(&mut h2.application.unacknowledged);
    unreceived.iter_mut().for_each(|call| count_ok(h2, call, transport, cx));
    h2.application.unacknowledged = unreceived;
}

/// Takes the calls that ended with OK since the last cut, and whose clients have not acknowledged the response.
fn take_unreceived(h2: &mut Http2, transport: &Transport) -> Vec<Call> {
    let acked = transport.acked[1 - h2.client];
    let kept = std::mem::take(&mut h2.application.unacknowledged).into_iter().filter(|call| call.receipt > acked);
    let last = h2.streams.slots_mut().map(|stream| &mut stream.state);
    let last = last.filter(|call| call.receipt > acked && !call.unread && !call.reported);
    let taken = last.map(|call| Call { receipt: std::mem::take(&mut call.receipt), ..*call });
    kept.chain(taken).filter(|call| !call.touches_gap).collect()
}

/// Takes a call that ended with OK out of what is done at a cut; its row goes on, and stands in what is open.
fn move_ended(call: &mut Call, parts: &mut Parts) -> Option<Call> {
    let row = parts.done.open_row(call.rpc);
    if row.is_none() && call.rpc != NONE || !take_back(call, &mut parts.done) {
        return None;
    }
    call.last_packet = row.map_or(call.last_packet, |row| row.last_packet());
    let mut here = *call;
    if let Some(row) = row {
        parts.moved[0].push(call.rpc);
        (call.rpc, here.rpc) = (parts.next.push_open_row(&row), parts.open.push_open_row(&row));
    }
    Some(here)
}

/// Counts a call that ended with OK, and writes its row.
fn count_ok(h2: &Http2, call: &mut Call, transport: &Transport, cx: &mut Context) {
    let ended = At::new(call.last_packet, call.since);
    let ending = Ending { status: status::OK, source: Source::Trailers };
    Act::new(h2, h2.client, &ended, transport).write_rpc(call, ending, true, cx);
    settle(call, h2.client, cx);
}

/// Takes a call that ended with OK out of the statistics; `false` if that is no longer possible.
fn take_back(call: &Call, cx: &mut Context) -> bool {
    let place = [call.first.packet, call.id];
    let possible = cx.method(call.method).take_back(status::OK, !call.begun_before, place, &call.budget);
    if possible {
        cx.slowest.take_back(call.budget.total(), place);
    }
    possible
}

/// Corrects the outcome of a call whose client had not received the response when it was last `heard`.
fn correct(h2: &mut Http2, call: &mut Call, heard: i64, end: End, at: At, transport: &Transport, cx: &mut Context) {
    let ending = end_unreceived(call, end, heard, at);
    let over_at = At::new(at.packet.max(call.first.packet), at.time);
    Act::new(h2, h2.client, &over_at, transport).correct_to(call, ending, end, &mut h2.application, cx);
}

/// When the client was last heard, if that shows that its TCP lacked what the server had retransmitted `since`: each packet but
/// a RST acknowledges all that has arrived (RFC 9293 section 3.4).
fn heard_in_vain(client: usize, since: i64, transport: &Transport) -> Option<i64> {
    let near = transport.near_rtt[client].max(0);
    let heard = transport.unanswered[1 - client].heard.1 - near;
    (heard - since > RTO_MIN).then_some(heard)
}

/// How an RPC ends whose client had not received the response when it was last `heard`.
fn end_unreceived(call: &Call, end: End, heard: i64, at: At) -> Ending {
    let over = call.timeout_ns >= 0 && heard - call.first.time >= call.timeout_ns.saturating_add(status::LATE);
    match end {
        _ if over => Ending { status: status::DEADLINE_EXCEEDED, source: Source::ClientDeadline },
        End::ServerCloses => Ending::CONNECTION_CLOSED.after(at.time - call.first.time, call.timeout_ns, 0),
        _ => Ending::NOT_SEEN,
    }
}

impl Act<'_> {
    /// Changes the outcome of an RPC that ended with OK here, unless its row was handed on. It waited for lost bytes until its
    /// deadline, or the end.
    fn correct_to(&self, call: &mut Call, ending: Ending, end: End, grpc: &mut Grpc, cx: &mut Context) {
        let place = if call.rpc == NONE { Some(None) } else { cx.handed_on.place(call.rpc).map(Some) };
        let Some(place) = place else { return };
        if !take_back(call, cx) {
            return;
        }
        let is_over = ending.source == Source::ClientDeadline || !matches!(end, End::CaptureEnds | End::NotKnown);
        // a row without an end is there only for being long: whether it was when it ended depends on other threads
        let long = if is_over || cx.options.rpc_rows { rpc_flag::LONG } else { 0 };
        if let Some(flags) = place.and_then(|place| cx.rpcs.flags.get_mut(place)) {
            *flags &= !(rpc_flag::COMPLETE | long);
        }
        let deadline = if call.timeout_ns < 0 { i64::MAX } else { call.first.time.saturating_add(call.timeout_ns) };
        let before = call.budget.get(Cause::LossRecovery);
        call.charge(self.at.time.min(deadline), Cause::LossRecovery);
        grpc.budget.add(Cause::LossRecovery, call.budget.get(Cause::LossRecovery).wrapping_sub(before));
        call.end_missing = end == End::NotKnown;
        self.write_rpc(call, ending, is_over, cx);
    }
}
