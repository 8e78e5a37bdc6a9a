//! Corrects the outcomes of RPCs whose client never acknowledged the response: it was heard after retransmissions of it, and had
//! not received them.

use crate::at::At;
use crate::http2::connection::http2::End;
use crate::http2::connection::streams::NONE;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::tables::rpc_flag;
use crate::tcp::rtt::RTO_MIN;
use crate::tcp::transport::Transport;

use super::activity::Activity;
use super::call::Call;
use super::connection::{Grpc, Http2};
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
    let (client, acked) = (h2.client, transport.acked[1 - h2.client]);
    let kept = std::mem::take(&mut h2.application.unacknowledged);
    let Some(heard) = heard_in_vain(client, since, transport) else { return };
    let removed = h2.streams.slots().map(|stream| stream.state);
    let unreceived: Vec<Call> = kept.into_iter().chain(removed).filter(|call| call.receipt > acked).collect();
    for mut call in unreceived.into_iter().filter(|call| !call.touches_gap && !call.reported) {
        let ending = end_unreceived(&call, end, heard, at);
        let over_at = At::new(at.packet.max(call.first.packet), at.time);
        Activity::new(h2, client, &over_at, transport).correct_to(&mut call, ending, end, &mut h2.application, cx);
    }
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

impl Activity<'_> {
    /// Changes the outcome of an RPC that ended with OK here, unless its row was emitted. It waited for lost bytes until its
    /// deadline, or the end.
    fn correct_to(&self, call: &mut Call, ending: Ending, end: End, grpc: &mut Grpc, cx: &mut Context) {
        let place = if call.rpc == NONE { Some(None) } else { cx.emitted.place(call.rpc).map(Some) };
        let Some(place) = place else { return };
        let at = [call.first.packet, call.id];
        if !cx.method(call.method).take_back(status::OK, !call.begun_before, at, &call.budget) {
            return;
        }
        cx.slowest.take_back(call.budget.total(), at);
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
