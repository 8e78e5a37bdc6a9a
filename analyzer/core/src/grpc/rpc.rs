//! Begins RPCs on HTTP/2 streams, and takes the header blocks that answer them (PROTOCOL-HTTP2.md).

use crate::at::At;
use crate::http2::connection::application::Application;
use crate::http2::connection::detect::Http1Head;
use crate::http2::connection::events::HeaderBlock;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::Side;
use crate::http2::connection::streams::NONE;
use crate::limits;
use crate::store::context::{Context, NO_METHOD};
use crate::store::tables::Layer;

use super::call::Call;
use super::headers::{Summary, classify_path};
use super::late::settle_late_stream;
use super::other::{note_answer, push_request};
use super::protocol::{Content, Kind};
use super::rows::{Sender, begin_rpc, charge_act, note_context, note_idle};
use super::rpc_end::{end_direction, finish_stream};
use super::state::{Grpc, Http2};
use super::status::{Ending, Source};

/// Takes a header block: it opens a stream, answers it, or ends it.
#[inline]
pub(super) fn header_block(h2: &mut Http2, block: &HeaderBlock<'_, Summary>, reading: &mut Reading<'_>) {
    let &HeaderBlock { side, stream, summary, last, .. } = block;
    h2.sides[side].last_stream = stream;
    if summary.request {
        h2.set_client(side, last, reading.cx);
    } else if !h2.roles_certain {
        roles_from_answer(h2, side, summary, last, reading.cx);
    }
    if side == h2.client {
        request_headers(h2, block, reading);
        if block.end_stream {
            let slot = h2.streams.slot(stream).unwrap_or(NONE);
            end_direction(h2, side, stream, slot, last, reading);
        }
    } else {
        let slot = h2.streams.slot(stream).unwrap_or(NONE);
        response_headers(h2, side, stream, slot, summary, last, reading);
        if block.end_stream {
            // `grpc-status` ends the RPC when it comes in trailers, with or without messages before
            if let Some(status) = summary.grpc_status {
                finish_stream(h2, slot, Ending { status, source: Source::Trailers }, last, reading);
            }
            end_direction(h2, side, stream, slot, last, reading);
        }
    }
}

/// A header block that is no request, while it is not known who the client is. `:status` and `grpc-status` come
/// from servers alone. Every request has `:method` and `:scheme`, for which gRPC's values are in HPACK's static
/// table (RFC 7541 appendix A): without either the sender is no client as it seems, and a later frame may prove it.
#[cold]
fn roles_from_answer(h2: &mut Http2, side: usize, summary: &Summary, at: At, cx: &mut Context) {
    if summary.http_status.is_some() || summary.grpc_status.is_some() {
        h2.set_client(1 - side, at, cx);
    } else if h2.application.followed() == 0 {
        h2.client = 1 - side;
    }
}

#[inline]
fn request_headers(h2: &mut Http2, block: &HeaderBlock<'_, Summary>, reading: &mut Reading<'_>) {
    let &HeaderBlock { side, stream: id, summary, last, .. } = block;
    if id <= h2.highest_stream() {
        if let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) {
            let from = Sender { connection: h2.connection, is_client: true, side };
            charge_act(call, from, last, reading.transport, h2.application.gap_time, reading.cx);
        }
        return; // trailers of the client, or a stream that is over
    }
    h2.raise_highest_stream(id);
    h2.note_first_stream(id);
    let kind = match summary.content {
        // content-type unknown after a late begin: gRPC clients alone must send `te: trailers`
        Content::None if !summary.connect && (summary.unknown > 0 || summary.te_trailers) => Kind::Grpc,
        content => content.opens(summary.connect),
    };
    open_stream(h2, block, kind, reading);
}

#[inline]
fn open_stream(h2: &mut Http2, block: &HeaderBlock<'_, Summary>, kind: Kind, reading: &mut Reading<'_>) {
    let &HeaderBlock { side, stream: id, summary, first, last, .. } = block;
    let gaps = [h2.sides[0].gaps, h2.sides[1].gaps];
    let Some(call) = h2.streams.open(id).map(|stream| &mut stream.state) else {
        return h2.problem(Layer::Http2, "too many open streams: further ones are not followed", last, reading.cx);
    };
    call.begin(id, kind, first, gaps);
    call.last_side = side as u8;
    if !kind.is_rpc() {
        h2.application.other_streams += 1;
        reading.cx.totals.other_streams += 1;
        return push_request(h2.connection, call, summary.method.unwrap_or(NO_METHOD), reading.cx);
    }
    call.method = summary.method.unwrap_or(NO_METHOD);
    call.method_unnamed = summary.unnamed;
    call.timeout_ns = summary.timeout_ns.unwrap_or(-1);
    call.headers_unknown = summary.unknown > 0;
    call.is_guessed = summary.content == Content::None && summary.unknown > 0 && !summary.te_trailers;
    call.previous_attempts = summary.previous_attempts;
    call.request_id = summary.request_id as u32; // enough to tell requests of one method and size apart
    let retry = summary.previous_attempts > 0;
    h2.application.retries += u32::from(retry);
    let example = retry && h2.application.retries <= limits::RETRIES;
    if begin_rpc(&mut h2.application, h2.connection, call, example, reading.cx) {
        note_context(summary, reading.cx);
    }
    let from = Sender { connection: h2.connection, is_client: true, side };
    charge_act(call, from, last, reading.transport, h2.application.gap_time, reading.cx);
    call.directions[side].headers = (last.time, last.packet);
    h2.application.turns.update(call, side, true, first, reading.transport.near_rtt[side]);
    note_idle(h2.connection, call, &mut h2.application.turns, first, reading.cx);
    let allowed = h2.sides[1 - side].announced.max_concurrent_streams;
    h2.application.turns.opened(h2.application.open_rpcs, allowed, first, reading.transport.near_rtt[side]);
    if let Some(agent) = summary.agent {
        h2.application.client_agent.get_or_insert(agent);
    }
}

#[inline]
fn response_headers(
    h2: &mut Http2,
    side: usize,
    id: u32,
    slot: u32,
    summary: &Summary,
    at: At,
    reading: &mut Reading<'_>,
) {
    let gaps = h2.sides[side].gaps;
    if let Some(server) = summary.server {
        h2.application.server_agent.get_or_insert(server);
    }
    if let Some(call) = h2.streams.state_mut(slot) {
        let from = Sender { connection: h2.connection, is_client: false, side };
        charge_act(call, from, at, reading.transport, h2.application.gap_time, reading.cx);
        if summary.http_status.is_some_and(|status| (100..200).contains(&status)) {
            return; // an interim response (RFC 9113 section 8.1): the answer is still to come
        }
        if let Some(http_status) = summary.http_status {
            // a response begins here: nothing of it was in a gap before
            call.directions[side].gaps = gaps;
            call.http_status = http_status;
            call.content = summary.content;
            call.status_in_headers = summary.grpc_status;
            call.answered_by = summary.server.unwrap_or(NONE);
            // what is coded holds the end too, and is not read
            call.in_tail |= summary.coded && matches!(call.kind, Kind::GrpcWeb | Kind::ConnectStream);
            if !call.kind.is_rpc() {
                note_answer(call, reading.cx);
            }
            if call.is_guessed {
                correct_kind(call, summary.content, &mut h2.sides);
            }
            call.has_messages_alone = call.kind == Kind::Grpc && !call.is_refused();
        }
        call.grpc_message = summary.grpc_message.unwrap_or(call.grpc_message);
        call.status_hidden |= summary.unknown > 0;
        let headers = &mut call.directions[side].headers;
        if headers.0 < 0 {
            *headers = (at.time, at.packet);
        }
    } else if h2.opened_before(id) {
        if !matches!(summary.content, Content::None | Content::Grpc) {
            settle_late_stream(h2, id);
        }
    } else if id > h2.highest_stream() {
        h2.application.answered_early = true;
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

/// The server accepted an upgrade to h2c: the HTTP/1.1 request is stream 1, half-closed by the client
/// (RFC 7540 section 3.2), and its `HTTP2-Settings` are in force.
pub(super) fn upgraded(h2: &mut Http2, client: usize, head: &Http1Head, first: At, at: At, reading: &mut Reading<'_>) {
    let content = Content::from_header(&head.content_type);
    let mut summary = Summary { request: true, content, ..Summary::default() };
    summary.add(classify_path(&mut reading.cx.strings, &head.path));
    let request = HeaderBlock { side: client, stream: 1, summary: &summary, end_stream: true, first, last: at };
    request_headers(h2, &request, reading);
    let slot = h2.streams.slot(1).unwrap_or(NONE);
    end_direction(h2, client, 1, slot, at, reading);
}
