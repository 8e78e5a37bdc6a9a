//! Begins RPCs on HTTP/2 streams, and takes the header blocks that answer them (PROTOCOL-HTTP2.md).

use crate::at::At;
use crate::http2::connection::application::Application;
use crate::http2::connection::detect::Http1Head;
use crate::http2::connection::events::HeaderBlock;
use crate::http2::connection::side::Side;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::limits;
use crate::store::context::NO_METHOD;
use crate::store::tables::Layer;

use super::activity::Activity;
use super::call::Call;
use super::connection::{Grpc, Parser};
use super::headers::{Summary, classify_path};
use super::other::{note_answer, push_request};
use super::protocol::{Content, Kind};
use super::rows::{begin_rpc, keep_attempts_before, note_context, touch_gap};
use super::status::{Ending, Source};

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// Takes a header block: it opens a stream, answers it, or ends it.
    #[inline]
    pub(super) fn take_header_block(&mut self, block: &HeaderBlock<'_, Summary>) {
        let &HeaderBlock { stream: id, summary, end_stream, .. } = block;
        self.h2.sides[self.side].last_stream = id;
        if summary.request {
            self.h2.set_client(self.side, self.at, self.cx);
        } else if !self.h2.roles_certain {
            self.roles_from_answer(summary);
        }
        if self.side == self.h2.client {
            self.take_request(block);
            if end_stream {
                let slot = self.h2.streams.slot(id).unwrap_or(NONE);
                self.end_direction(id, slot);
            }
        } else {
            self.charge_closed_window(id, end_stream);
            let slot = self.h2.streams.slot(id).unwrap_or_else(|| self.open_answered(block));
            self.take_response(id, slot, summary);
            if end_stream {
                // `grpc-status` ends the RPC when it comes in trailers, with or without messages before
                if let Some(status) = summary.grpc_status {
                    self.finish_stream(slot, Ending { status, source: Source::Trailers });
                } else if summary.unknown > 0 {
                    self.take_hidden_end(slot, summary);
                }
                self.end_direction(id, slot);
            }
        }
    }

    /// A header block that is no request, while it is not known who the client is. `:status` and `grpc-status` come
    /// from servers alone. Every request has `:method` and `:scheme`, for which gRPC's values are in HPACK's static
    /// table (RFC 7541 appendix A): without either the sender is no client as it seems, and a later frame may prove it.
    #[cold]
    fn roles_from_answer(&mut self, summary: &Summary) {
        if summary.http_status.is_some() || summary.grpc_status.is_some() {
            self.h2.set_client(1 - self.side, self.at, self.cx);
        } else if self.h2.application.followed() == 0 {
            self.h2.client = 1 - self.side;
        }
    }

    #[inline]
    fn take_request(&mut self, block: &HeaderBlock<'_, Summary>) {
        let &HeaderBlock { stream: id, summary, .. } = block;
        if id <= self.h2.highest_stream() {
            let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
            if let Some(call) = self.h2.streams.find_mut(id).map(|stream| &mut stream.state) {
                activity.charge(call, self.cx);
            }
            return; // trailers of the client, or a stream that is over
        }
        self.h2.raise_highest_stream(id);
        self.h2.note_first_stream(id);
        let kind = match summary.content {
            // content-type unknown after a late begin: gRPC clients alone must send `te: trailers`
            Content::None if !summary.connect && (summary.unknown > 0 || summary.te_trailers) => Kind::Grpc,
            content => content.opens(summary.connect),
        };
        self.open_stream(block, kind);
    }

    #[inline]
    fn open_stream(&mut self, block: &HeaderBlock<'_, Summary>, kind: Kind) {
        let &HeaderBlock { stream: id, summary, first, .. } = block;
        if !self.h2.application.unread.is_empty() {
            self.end_arrived();
        }
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let (h2, cx) = (&mut *self.h2, &mut *self.cx);
        let gaps = [h2.sides[0].gaps, h2.sides[1].gaps];
        if summary.previous_attempts > 0 {
            keep_attempts_before(h2, summary, activity.connection, cx);
        }
        let Some(call) = h2.streams.open(id).map(|stream| &mut stream.state) else {
            return self.problem(Layer::Http2, "too many open streams: further ones are not followed");
        };
        let acked = activity.transport.acked[1 - activity.side];
        if call.receipt > acked {
            h2.application.keep_unacknowledged(call, acked);
        }
        call.begin(id, kind, first, gaps);
        call.gaps_seen = activity.gap.count;
        call.last_side = activity.side as u8;
        if !kind.is_rpc() {
            h2.application.other_streams += 1;
            cx.totals.other_streams += 1;
            return push_request(activity.connection, call, summary.method.unwrap_or(NO_METHOD), cx);
        }
        call.method = summary.method.unwrap_or(NO_METHOD);
        call.method_unnamed = summary.unnamed;
        call.timeout_ns = summary.timeout_ns.unwrap_or(-1);
        call.headers_unknown = summary.unknown > 0;
        call.is_guessed = summary.content == Content::None && summary.unknown > 0 && !summary.te_trailers;
        call.previous_attempts = summary.previous_attempts;
        (call.request_id, call.trace) = (summary.request_id, summary.trace);
        let grpc = &mut h2.application;
        let retry = summary.previous_attempts > 0;
        grpc.retries += u32::from(retry);
        let example = retry && grpc.retries <= limits::RETRIES;
        if begin_rpc(grpc, activity.connection, call, example, cx) {
            note_context(call, cx);
        }
        activity.charge(call, cx);
        call.directions[activity.side].headers = (activity.at.time, activity.at.packet);
        let began = Activity { at: &first, ..activity };
        began.update_turns(call, &mut grpc.turns);
        began.note_idle(call, &mut grpc.turns, cx);
        let allowed = h2.sides[1 - activity.side].announced.max_concurrent_streams;
        grpc.turns.opened(grpc.open_rpcs, allowed, first, activity.transport.near_rtt[activity.side]);
        if let Some(agent) = summary.agent {
            grpc.client_agent.get_or_insert(agent);
        }
    }

    #[inline]
    fn take_response(&mut self, id: u32, slot: u32, summary: &Summary) {
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let h2 = &mut *self.h2;
        if let Some(server) = summary.server {
            h2.application.server_agent.get_or_insert(server);
        }
        if let Some(call) = h2.streams.state_mut(slot) {
            activity.charge(call, self.cx);
            if summary.http_status.is_some_and(|status| (100..200).contains(&status)) {
                return; // an interim response (RFC 9113 section 8.1): the answer is still to come
            }
            if let Some(http_status) = summary.http_status {
                // a response begins here: nothing of it was in a gap before
                call.directions[activity.side].gaps = h2.sides[activity.side].gaps;
                call.http_status = http_status;
                call.content = summary.content;
                call.status_in_headers = summary.grpc_status;
                call.answered_by = summary.server.unwrap_or(NONE);
                // what is coded holds the end too, and is not read
                call.in_trailers |= summary.coded && matches!(call.kind, Kind::GrpcWeb | Kind::ConnectStream);
                if !call.kind.is_rpc() {
                    note_answer(call, self.cx);
                }
                if call.is_guessed {
                    correct_kind(call, summary.content, &mut h2.sides);
                }
                call.has_messages_alone = call.kind == Kind::Grpc && !call.is_refused();
            }
            call.grpc_message = summary.grpc_message.unwrap_or(call.grpc_message);
            call.status_hidden |= summary.unknown > 0;
            let headers = &mut call.directions[activity.side].headers;
            if headers.0 < 0 {
                *headers = (activity.at.time, activity.at.packet);
            }
        } else if h2.opened_before(id) {
            if !matches!(summary.content, Content::None | Content::Grpc) {
                h2.application.late.settle(id);
            }
        } else if id > h2.highest_stream() {
            h2.application.answered_early = true;
        }
    }

    /// A response whose request is not in the capture, which lacks all bytes of the client: it is known from here on. Gives
    /// the slot of its stream.
    #[cold]
    fn open_answered(&mut self, block: &HeaderBlock<'_, Summary>) -> u32 {
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let (h2, id) = (&mut *self.h2, block.stream);
        let kind = block.summary.content.opens(false);
        let begins = block.summary.http_status.is_some_and(|status| status >= 200);
        if !activity.transport.unheard[1 - activity.side] || !begins || !kind.is_rpc() {
            return NONE;
        }
        let gaps = [h2.sides[0].gaps, h2.sides[1].gaps];
        let Some(call) = h2.streams.open(id).map(|stream| &mut stream.state) else { return NONE };
        call.begin(id, kind, block.first, gaps);
        call.gaps_seen = activity.gap.count;
        call.last_side = activity.side as u8;
        call.begun_before = true;
        begin_rpc(&mut h2.application, activity.connection, call, false, self.cx);
        touch_gap(call, self.cx);
        h2.raise_highest_stream(id);
        h2.streams.slot(id).unwrap_or(NONE)
    }

    /// The server accepted an upgrade to h2c: the HTTP/1.1 request is stream 1, half-closed by the client
    /// (RFC 7540 section 3.2), and its `HTTP2-Settings` are in force.
    pub(super) fn open_upgraded(&mut self, head: &Http1Head, first: At) {
        let content = Content::from_header(&head.content_type);
        let mut summary = Summary { request: true, content, ..Summary::default() };
        summary.add(classify_path(&mut self.cx.strings, &head.path));
        self.side = 1 - self.side; // the client's request
        self.take_request(&HeaderBlock { stream: 1, summary: &summary, end_stream: true, first });
        let slot = self.h2.streams.slot(1).unwrap_or(NONE);
        self.end_direction(1, slot);
        self.side = 1 - self.side;
    }
}

/// The `content-type` of the response says what a stream carries whose request does not say it.
#[cold]
fn correct_kind(call: &mut Call, content: Content, sides: &mut [Side<Grpc>; 2]) {
    let kind = content.opens(false);
    if kind == call.kind || !kind.is_rpc() {
        return;
    }
    for (direction, side) in call.directions.iter_mut().zip(sides) {
        if call.kind == Kind::ConnectUnary && direction.reader.is_inside() {
            // what was read as one message may be several
            let counted = u32::from(direction.gaps == side.gaps);
            side.unfinished_messages = side.unfinished_messages.saturating_sub(counted);
            direction.reader.lose();
        }
    }
    (call.kind, call.is_guessed) = (kind, false);
}
