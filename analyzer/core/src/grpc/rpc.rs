//! RPCs on HTTP/2 streams: how they begin, what they carry, how they end (PROTOCOL-HTTP2.md).

use crate::at::At;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::state::{End, Http2};
use crate::http2::connection::streams::{Kind, NONE, Stream};
use crate::http2::connection::watch::Watch;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::{Context, NO_METHOD};
use crate::store::tables::{Layer, WaitRow};
use crate::tcp::send_queue::BlockedInterval;

use super::headers::Summary;
use super::message::Event;
use super::rows::{count_message, push_delay, push_rpc, request_ends, settle, touch_gap, write_rpc};
use super::status;

/// Bytes of other streams that take less time than this are a sender's usual turns, nanoseconds: 1 ms.
const HEAD_OF_LINE: i64 = 1_000_000;

/// DATA this long after HEADERS is late: 1 ms, as the shortest wait.
const LATE_DATA: i64 = 1_000_000;

/// A whole header block on a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderBlock<'a> {
    /// Who sent it.
    pub side: usize,
    /// The stream.
    pub stream: u32,
    /// What its fields say.
    pub summary: &'a Summary,
    /// It ends its side of the stream.
    pub end_stream: bool,
    /// The first byte of its first frame.
    pub first: At,
    /// The last byte of its last frame.
    pub last: At,
}

impl Http2 {
    /// Takes a header block: it opens a stream, answers it, or ends it.
    #[inline]
    pub(crate) fn header_block<W: Watch + ?Sized>(&mut self, block: &HeaderBlock<'_>, reading: &mut Reading<'_, W>) {
        let &HeaderBlock { side, stream, summary, last, .. } = block;
        self.sides[side].last_stream = stream;
        if summary.request {
            self.set_client(side, last, reading.cx);
        } else if !self.roles_certain {
            self.roles_from_answer(side, summary, last, reading.cx);
        }
        if side == self.client {
            self.request_headers(block, reading);
            if block.end_stream {
                let slot = self.streams.slot(stream).unwrap_or(NONE);
                self.end_direction(side, stream, slot, last, reading);
            }
        } else {
            let slot = self.streams.slot(stream).unwrap_or(NONE);
            self.response_headers(side, stream, slot, summary, last, reading);
            if block.end_stream {
                // `grpc-status` ends the RPC when it comes in trailers, with or without messages before
                if let Some(status) = summary.grpc_status {
                    self.finish_stream(slot, status, last, reading);
                }
                self.end_direction(side, stream, slot, last, reading);
            }
        }
    }

    /// A header block that is no request, while it is not known who the client is. `:status` and `grpc-status` come
    /// from servers alone. Every request has `:method` and `:scheme`, for which gRPC's values are in HPACK's static
    /// table (RFC 7541 appendix A): without either the sender is no client as it seems, and a later frame may prove it.
    #[cold]
    fn roles_from_answer(&mut self, side: usize, summary: &Summary, at: At, cx: &mut Context) {
        if summary.http_status.is_some() || summary.grpc_status.is_some() {
            self.set_client(1 - side, at, cx);
        } else if self.rpcs == 0 {
            self.client = 1 - side;
        }
    }

    #[inline]
    fn request_headers<W: Watch + ?Sized>(&mut self, block: &HeaderBlock<'_>, reading: &mut Reading<'_, W>) {
        let &HeaderBlock { side, stream: id, summary, last, .. } = block;
        if id <= self.highest_stream() {
            if let Some(stream) = self.streams.find_mut(id) {
                stream.charge_activity(
                    side,
                    true,
                    &last,
                    reading.transport.near_rtt[side],
                    &reading.transport.queues,
                    self.gap_time,
                );
            }
            return; // trailers of the client, or a stream that is over
        }
        self.raise_highest_stream(id);
        self.note_first_stream(id);
        let kind = match summary.grpc_content {
            Some(true) => Kind::Grpc,
            Some(false) => Kind::Other,
            // content-type unknown after a late begin: gRPC clients alone must send `te: trailers`
            None if summary.unknown > 0 || summary.te_trailers => Kind::Grpc,
            None => Kind::Other,
        };
        self.open_stream(block, kind, reading);
    }

    #[inline]
    fn open_stream<W: Watch + ?Sized>(&mut self, block: &HeaderBlock<'_>, kind: Kind, reading: &mut Reading<'_, W>) {
        let &HeaderBlock { side, stream: id, summary, first, last, .. } = block;
        let gaps = [self.sides[0].gaps, self.sides[1].gaps];
        let Some(stream) = self.streams.open(id) else {
            return self.problem(
                Layer::Http2,
                "too many open streams: further ones are not followed",
                last,
                reading.cx,
            );
        };
        stream.begin(id, kind, first, gaps);
        stream.last_side = side as u8;
        if kind != Kind::Grpc {
            self.other_streams += 1;
            reading.cx.totals.other_streams += 1;
            return;
        }
        stream.method = summary.method.unwrap_or(NO_METHOD);
        stream.method_unnamed = summary.unnamed;
        stream.timeout_ns = summary.timeout_ns.unwrap_or(-1);
        stream.headers_unknown = summary.unknown > 0;
        if self.rpcs < limits::FIRST_RPCS || reading.cx.options.rpc_rows {
            push_rpc(self.connection, stream, reading.cx);
        }
        let method = stream.method;
        stream.charge_activity(side, true, &last, -1, &reading.transport.queues, self.gap_time);
        stream.directions[side].headers = (last.time, last.packet);
        self.turns.update(stream, side, true, first, reading.transport.near_rtt[side]);
        self.rpcs += 1;
        self.open_rpcs += 1;
        stream.counted = true;
        self.methods.note(method);
        let allowed = self.sides[1 - side].announced.max_concurrent_streams;
        self.turns.opened(self.open_rpcs, allowed, first, reading.transport.near_rtt[side]);
        self.max_open_rpcs = self.max_open_rpcs.max(self.open_rpcs);
        if let Some(agent) = summary.agent {
            self.client_agent.get_or_insert(agent);
        }
    }

    /// Follows a stream that was opened before the capture, from a message boundary of `side` at `first` on.
    #[cold]
    pub(crate) fn resume_stream<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        id: u32,
        first: At,
        reading: &mut Reading<'_, W>,
    ) -> u32 {
        let gaps = [self.sides[0].gaps, self.sides[1].gaps];
        let Some(stream) = self.streams.open(id) else {
            self.problem(Layer::Http2, "too many open streams: further ones are not followed", first, reading.cx);
            return NONE;
        };
        stream.begin(id, Kind::Grpc, first, gaps);
        stream.begun_before = true;
        stream.last_side = side as u8;
        stream.method = NO_METHOD;
        stream.timeout_ns = -1;
        if self.rpcs < limits::FIRST_RPCS || reading.cx.options.rpc_rows {
            push_rpc(self.connection, stream, reading.cx);
        }
        stream.counted = true;
        self.turns.update(stream, self.client, side == self.client, first, reading.transport.near_rtt[self.client]);
        self.raise_highest_stream(id);
        self.rpcs += 1;
        self.open_rpcs += 1;
        self.methods.note(NO_METHOD);
        reading.cx.totals.begun_before += 1;
        self.max_open_rpcs = self.max_open_rpcs.max(self.open_rpcs);
        self.streams.slot(id).unwrap_or(NONE)
    }

    #[inline]
    fn response_headers<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        id: u32,
        slot: u32,
        summary: &Summary,
        at: At,
        reading: &mut Reading<'_, W>,
    ) {
        let (near, gaps) = (reading.transport.near_rtt[side], self.sides[side].gaps);
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.charge_activity(side, false, &at, near, &reading.transport.queues, self.gap_time);
            if let Some(http_status) = summary.http_status {
                // a response begins here: nothing of it was in a gap before
                stream.directions[side].gaps = gaps;
                stream.http_status = http_status;
            }
            stream.status_hidden |= summary.unknown > 0;
            let headers = &mut stream.directions[side].headers;
            if headers.0 < 0 {
                *headers = (at.time, at.packet);
            }
        } else if self.opened_before(id) {
            if summary.grpc_content == Some(false) {
                self.settle_late_stream(id);
            }
        } else if id > self.highest_stream() {
            self.answered_early = true;
        }
    }

    /// END_STREAM of `side`. From the server it ends the RPC, with the status its header fields told, or one made
    /// from the HTTP status; the stream itself ends when both sides have ended. `slot` is the stream's, if it is open.
    #[inline]
    pub(crate) fn end_direction<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        id: u32,
        slot: u32,
        at: At,
        reading: &mut Reading<'_, W>,
    ) {
        let (is_client, near, late) = (side == self.client, reading.transport.near_rtt[side], self.begun_late);
        let Some(stream) = self.streams.get_mut(slot) else {
            if !is_client && self.opened_before(id) {
                self.settle_late_stream(id);
            }
            return;
        };
        stream.charge_activity(side, is_client, &at, near, &reading.transport.queues, self.gap_time);
        stream.directions[side].ended = true;
        self.turns.update(stream, self.client, is_client, at, reading.transport.near_rtt[self.client]);
        if is_client && reading.cx.options.keeps_requests() {
            request_ends(stream, at, reading.cx);
        }
        let over = stream.directions[1 - side].ended;
        if !is_client && !stream.finished {
            let hidden = stream.status_hidden || (late && stream.http_status == 0);
            let status = if hidden { status::NOT_SEEN } else { status::from_http(stream.http_status) };
            self.finish_stream(slot, status, at, reading);
        }
        if over {
            self.remove_stream(slot, reading.cx);
        }
    }

    /// RST_STREAM of either side: both directions end.
    pub(crate) fn reset<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        id: u32,
        code: u32,
        at: At,
        reading: &mut Reading<'_, W>,
    ) {
        let client = self.client;
        let (near, direction) = (reading.transport.near_rtt, self.direction(side));
        let slot = self.streams.slot(id).unwrap_or(NONE);
        if let Some(stream) = self.streams.get_mut(slot) {
            // a client that gives up waiting ends a time in which the answer was owed to it
            let held = if side == client && stream.turn_since >= 0 { 1 - side } else { side };
            if reading.transport.unheard[held] {
                stream.charge(at.ready_time, Cause::CaptureGap);
            }
            stream.charge_activity(held, held == client, &at, near[held], &reading.transport.queues, self.gap_time);
            stream.reset = Some((direction, code));
            self.finish_stream(slot, status::from_rst_stream(code), at, reading);
            self.remove_stream(slot, reading.cx);
        } else if self.opened_before(id) {
            self.settle_late_stream(id);
        }
    }

    #[inline]
    fn remove_stream(&mut self, slot: u32, cx: &mut Context) {
        let client = self.client;
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let id = stream.id;
        settle(stream, client, cx);
        for (side, direction) in self.sides.iter_mut().zip(&stream.directions) {
            if direction.reader.is_inside() && direction.gaps == side.gaps {
                side.unfinished_messages = side.unfinished_messages.saturating_sub(1);
            }
        }
        self.streams.remove(id);
    }

    /// Ends a stream's RPC and writes its row; its budget is complete and its duration is the budget's sum.
    #[inline]
    fn finish_stream<W: Watch + ?Sized>(&mut self, slot: u32, status: u8, at: At, reading: &mut Reading<'_, W>) {
        let client = self.client;
        let Some(stream) = self.streams.get_mut(slot) else { return };
        if stream.finished || stream.kind != Kind::Grpc {
            return;
        }
        stream.finished = true;
        self.turns.update(stream, client, false, at, reading.transport.near_rtt[client]);
        if stream.counted {
            self.turns.ended(self.open_rpcs, self.sides[1 - client].announced.max_concurrent_streams, at);
            self.open_rpcs = self.open_rpcs.saturating_sub(1);
        }
        self.budget.add_all(&stream.budget);
        self.after_loss_ns = self.after_loss_ns.wrapping_add(stream.after_loss_ns); // as budgets do
        write_rpc(self.connection, stream, client, status, !reading.transport.unproven, at, reading.cx);
    }

    /// The connection or the capture ends before the stream.
    pub(crate) fn end_open_stream<W: Watch + ?Sized>(
        &mut self,
        id: u32,
        end: End,
        at: At,
        reading: &mut Reading<'_, W>,
    ) {
        let client = self.client;
        let Some(stream) = self.streams.find_mut(id) else { return };
        if !stream.finished && stream.kind == Kind::Grpc {
            // only if the server's answer cannot have been missed
            let read = self.sides[1 - client].is_read_whole(stream.directions[1 - client].gaps, stream.first.packet);
            let whole = read && !self.answered_early;
            let end_known = read && end != End::NotKnown;
            if end_known {
                stream.charge(at.time, held_at_the_end(stream, client, end, whole));
            }
            let unavailable = end == End::ServerCloses && whole;
            let status = if unavailable { status::UNAVAILABLE } else { status::NOT_SEEN };
            self.open_rpcs = self.open_rpcs.saturating_sub(u32::from(stream.counted));
            self.budget.add_all(&stream.budget);
            self.after_loss_ns = self.after_loss_ns.wrapping_add(stream.after_loss_ns); // as budgets do
            stream.touches_gap |= !end_known;
            let complete = end_known && end != End::CaptureEnds;
            stream.end_missing = !end_known;
            write_rpc(self.connection, stream, client, status, complete, at, reading.cx);
        }
        settle(stream, client, reading.cx);
        self.streams.remove(id);
    }

    /// DATA of a stream, without padding.
    #[inline]
    pub(crate) fn stream_data<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        slot: u32,
        data: &[u8],
        at: At,
        reading: &mut Reading<'_, W>,
    ) {
        let (is_client, near, gaps) = (side == self.client, reading.transport.near_rtt[side], self.sides[side].gaps);
        let direction_code = self.direction(side);
        let Some(stream) = self.streams.get_mut(slot) else { return };
        let behind = std::mem::replace(&mut self.sides[side].data_slot, slot) != slot
            && stream.is_inside(side)
            && stream.directions[side].gaps == gaps
            && !reading.transport.queues[side].late;
        if behind && at.time.saturating_sub(stream.since) >= HEAD_OF_LINE {
            went_behind(
                stream,
                side,
                WaitRow { connection: self.connection, direction: direction_code, ..WaitRow::NOTHING_KNOWN },
                at,
                reading.cx,
            );
        }
        stream.charge_activity(side, is_client, &at, near, &reading.transport.queues, self.gap_time);
        if stream.kind != Kind::Grpc {
            return;
        }
        let (id, method, opened) = (stream.id, stream.method, stream.first.packet);
        let (directions, turn_since) = (&mut stream.directions, &mut stream.turn_since);
        let direction = &mut directions[side];
        let gap = self.sides[side].gap_touches(direction.gaps, opened);
        if direction.gaps != gaps {
            if gap {
                direction.reader.lose();
            }
            direction.gaps = gaps;
        }
        if direction.reader.is_lost() {
            direction.reader.resume(data, self.sides[side].frame_from(data.len()));
        }
        reading.watch.messages(&direction.reader, data, self.sides[side].frame_from(data.len()).is_some());
        let sender = &mut self.sides[side];
        let (unfinished, habits, turns) = (&mut sender.unfinished_messages, &mut sender.habits, &mut self.turns);
        let (connection, gap_time) = (self.connection, self.gap_time);
        let mut wrong = false;
        let mut headers = if direction.reader.messages == 0 { direction.headers } else { (-1, 0) };
        direction.reader.feed(data, at, &mut |event| match event {
            Event::Begin => {
                *unfinished += 1;
                turns.message_begins(is_client);
                if headers.0 > gap_time && at.time.saturating_sub(headers.0) >= LATE_DATA {
                    push_delay([connection, id, method], direction_code, headers, at, reading.cx);
                }
                headers.0 = -1;
                if !is_client && *turn_since > gap_time {
                    let turnaround = at.time.saturating_sub(*turn_since).max(0);
                    reading.cx.method(method).add_turnaround(turnaround as u64);
                    *turn_since = -1;
                }
            }
            Event::End(message) => {
                *unfinished = unfinished.saturating_sub(1);
                if is_client {
                    *turn_since = at.ready_time;
                }
                habits.message(message.length, at);
                count_message([connection, id], direction_code, method, &message, at, reading.cx);
            }
            Event::NotGrpc(_) => wrong = true,
        });
        if stream.begun_before {
            stream.answers_before(self.client);
        }
        self.turns.update(stream, self.client, is_client, at, reading.transport.near_rtt[self.client]);
        if gap {
            touch_gap(slot, &mut self.streams, reading.cx);
        }
        if wrong {
            self.problem(Layer::Grpc, "DATA is not length-prefixed messages", at, reading.cx);
        }
    }

    /// `length` bytes of a stream's DATA are not in the capture.
    pub(crate) fn stream_gap<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        slot: u32,
        length: u32,
        at: At,
        reading: &mut Reading<'_, W>,
    ) {
        let gaps = self.sides[side].gaps;
        let Some(stream) = self.streams.get_mut(slot) else { return };
        stream.charge(at.time, Cause::CaptureGap);
        let direction = &mut stream.directions[side];
        let was_inside = direction.reader.is_inside() && direction.gaps == gaps;
        if direction.reader.lacks(length) {
            self.stream_cut_tail(side, slot, length, at, reading);
        } else {
            direction.reader.skip(length);
            if was_inside && !direction.reader.is_inside() {
                let unfinished = &mut self.sides[side].unfinished_messages;
                *unfinished = unfinished.saturating_sub(1);
            }
        }
        touch_gap(slot, &mut self.streams, reading.cx);
    }

    /// The missing bytes are exactly the rest of a message: its length is proved by its prefix.
    fn stream_cut_tail<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        slot: u32,
        length: u32,
        at: At,
        reading: &mut Reading<'_, W>,
    ) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut unwatched = Reading { cx: reading.cx, transport: reading.transport, watch: &mut () };
        let mut left = length as usize;
        while left > 0 {
            let piece = left.min(ZEROS.len());
            self.stream_data(side, slot, ZEROS.get(..piece).unwrap_or_default(), at, &mut unwatched);
            left -= piece;
        }
    }

    /// The server accepted an upgrade to h2c: the HTTP/1.1 request is stream 1, half-closed by the client
    /// (RFC 7540 section 3.2), and its `HTTP2-Settings` are in force.
    pub(crate) fn upgraded<W: Watch + ?Sized>(&mut self, server: usize, at: At, reading: &mut Reading<'_, W>) {
        let Some(head) = self.take_upgrade() else { return };
        let client = 1 - server;
        let pairs = crate::http2::frame::settings::pairs(&head.settings);
        self.sides[client].in_force = self.sides[client].in_force.with(pairs).0;
        self.sides[server].allow_table_size(self.sides[client].in_force.header_table_size);
        let grpc = head.content_type.starts_with(b"application/grpc");
        let mut summary = Summary { request: true, grpc_content: Some(grpc), ..Summary::default() };
        if grpc {
            summary.method = Some(reading.cx.strings.method(&head.path));
        }
        let first = self.sides[client].frame_first();
        let request = HeaderBlock { side: client, stream: 1, summary: &summary, end_stream: true, first, last: at };
        self.request_headers(&request, reading);
        let slot = self.streams.slot(1).unwrap_or(NONE);
        self.end_direction(client, 1, slot, at, reading);
    }

    /// Charges a wait of `side` to the RPCs whose messages it interrupted; gives how many they were.
    pub(crate) fn charge_wait(&mut self, side: usize, wait: &BlockedInterval) -> u32 {
        let mut streams = 0;
        for stream in self.streams.unfinished(side, limits::STREAMS_PER_WAIT) {
            stream.charge(wait.start, Cause::Transmission);
            stream.charge_interval(wait.end, wait);
            streams += 1;
        }
        streams
    }
}

/// Inside its message a stream's bytes come after those of other streams: they went first.
#[cold]
fn went_behind(stream: &mut Stream, side: usize, row: WaitRow, at: At, cx: &mut Context) {
    cx.waits.push(WaitRow {
        stream: stream.id,
        start_time_ns: stream.since,
        duration_ns: at.time.saturating_sub(stream.since),
        cause: Cause::HeadOfLine as u8,
        owed_bytes: u64::from(stream.directions[side].reader.owed()),
        stopped_at_packet: stream.last_packet,
        resumed_at_packet: at.packet,
        streams: 1,
        method: stream.method,
        ..row
    });
    stream.charge(at.time, Cause::HeadOfLine);
}

/// Who held the ball of an RPC that its connection's end ended: the side that owed the next bytes. `whole` says that
/// none of the server's were missed.
fn held_at_the_end(stream: &Stream, client: usize, end: End, whole: bool) -> Cause {
    let inside = stream.is_inside(0) || stream.is_inside(1);
    match end {
        End::CaptureEnds => Cause::CaptureGap,
        End::ServerCloses | End::ClientCloses if whole && !inside => {
            let owed = stream.turn_since >= 0 || stream.directions[client].ended;
            if owed { Cause::Server } else { Cause::Client }
        }
        _ => Cause::Unexplained,
    }
}
