//! Delays the outcome of an RPC whose client may reach its deadline before the response arrives. A RST_STREAM that the client sent
//! before any of the response's last packet arrived shows that it did not read the status.

use crate::http2::connection::http2::End;
use crate::http2::connection::watch::Watch;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::tcp::rtt::RTO_MIN;
use crate::tcp::transport::Transport;

use super::activity::Activity;
use super::connection::{Grpc, Http2, Parser};
use super::status::Ending;
use super::unread::Unread;

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// Delays the outcome of an RPC until it is known whether its client read the response.
    #[cold]
    pub(super) fn await_reading(&mut self, unread: Unread) {
        if self.h2.application.unread.len() >= limits::UNREAD_RESPONSES {
            self.end_oldest_unread();
        }
        if let Some(stream) = self.h2.streams.find_mut(unread.stream) {
            stream.state.unread = true;
            self.h2.application.unread.push_back(unread);
        }
    }

    /// Writes the outcomes of responses that have begun to arrive: a RST_STREAM proves nothing any more.
    #[cold]
    pub(super) fn end_arrived(&mut self) {
        let (client, transport) = (self.h2.client, self.transport);
        while self.h2.application.unread.front().is_some_and(|unread| unread.has_arrived(client, transport)) {
            self.end_oldest_unread();
        }
    }

    fn end_oldest_unread(&mut self) {
        let Some(unread) = self.h2.application.unread.pop_front() else { return };
        self.end_unread(&unread);
        if let Some(slot) = self.h2.streams.slot(unread.stream) {
            self.remove_stream(slot);
        }
    }

    /// RST_STREAM for a stream whose response is complete.
    #[cold]
    pub(super) fn reset_unread(&mut self, id: u32, slot: u32, code: u32) {
        let (at, transport) = (self.at, self.transport);
        let activity = Activity::new(self.h2, self.side, &at, transport);
        let Some(mut unread) = self.h2.application.take_unread(id) else { return };
        let Some(call) = self.h2.streams.state_mut(slot) else { return };
        if activity.is_client && !unread.has_arrived(activity.side, transport) {
            call.reset = Some((activity.direction(), code));
            call.since_bytes_ns = (at.ready_time - call.last_time).max(0);
            call.charge(at.time.min(call.since + transport.near_rtt[activity.side].max(0)), Cause::Network);
            call.charge(at.time, Cause::Unexplained);
            unread.ending = Ending::reset_by_client(at.time - call.first.time, call.timeout_ns, false);
            unread.at = at;
        }
        self.end_unread(&unread);
        self.remove_stream(slot);
        self.reset_removed(id, code);
    }

    /// Writes the outcome of an RPC at its connection's or the capture's end, if that was delayed. Behind the capture's end a
    /// RST_STREAM may follow.
    pub(super) fn end_unread_stream(&mut self, id: u32, end: End) {
        let Some(unread) = self.h2.application.take_unread(id) else { return };
        let may_follow = matches!(end, End::CaptureEnds | End::NotKnown) && !self.is_deadline_over(id);
        if may_follow && !unread.has_arrived(self.h2.client, self.transport) {
            report_unread(self.h2, &unread, self.transport, self.cx);
        } else {
            self.end_unread(&unread);
        }
    }

    /// Whether a RST_STREAM at the deadline of an RPC would be in the capture.
    fn is_deadline_over(&mut self, id: u32) -> bool {
        let near = self.transport.near_rtt[self.h2.client].max(0);
        let call = self.h2.streams.find_mut(id).map(|stream| &stream.state);
        call.is_some_and(|call| self.at.time - call.first.time > call.timeout_ns.saturating_add(near + RTO_MIN))
    }

    fn end_unread(&mut self, unread: &Unread) {
        let activity = Activity::new(self.h2, self.side, &unread.at, self.transport);
        let Some(call) = self.h2.streams.find_mut(unread.stream).map(|stream| &mut stream.state) else { return };
        call.unread = false;
        activity.conclude(call, unread.ending, &mut self.h2.application, self.cx);
    }
}

impl Grpc {
    fn take_unread(&mut self, id: u32) -> Option<Unread> {
        let place = self.unread.iter().position(|unread| unread.stream == id)?;
        self.unread.remove(place)
    }
}

/// Reports the RPC of a response that is not known to be read, as one whose end the capture does not hold.
pub(super) fn report_unread(h2: &mut Http2, unread: &Unread, transport: &Transport, cx: &mut Context) {
    let activity = Activity::new(h2, h2.client, &unread.at, transport);
    let Some(call) = h2.streams.find_mut(unread.stream).map(|stream| &mut stream.state) else { return };
    call.unread = false;
    h2.application.budget.add_all(&call.budget);
    h2.application.loss.add(&call.loss);
    activity.write_rpc(call, Ending::NOT_SEEN, false, cx);
}
