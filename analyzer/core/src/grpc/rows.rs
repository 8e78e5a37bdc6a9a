//! Writes the rows of RPCs and counts them: when they begin, carry messages, and end.

use std::ops::Range;

use crate::at::{At, place};
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::limits;
use crate::store::budget::{Budget, Cause};
use crate::store::context::{Context, NO_METHOD};
use crate::store::disorder::Stream;
use crate::store::largest::scatter;
use crate::store::tables::{DelayRow, FailureRow, MessageRow, OpenRpcRow, RpcRow, RpcSizesRow, rpc_flag};

use super::activity::Activity;
use super::call::Call;
use super::connection::{Grpc, Http2, Parser};
use super::headers::Summary;
use super::message::Message;
use super::status::{self, Ending};

/// Writes columns of a row that a table has already.
macro_rules! set {
    ($table:expr, $place:ident, $row:ident, $($column:ident),+) => {
        $(if let Some(cell) = $table.$column.get_mut($place) {
            *cell = $row.$column;
        })+
    };
}

/// An RPC hangs only if it has no packet for at least this long: 100 ms.
pub(super) const OPEN_FOR: i64 = 100_000_000;

/// What ended an RPC that waited in vain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Closed {
    /// Nothing: it is open at the capture's end.
    Not = 0,
    /// Its client's FIN or RST.
    WithConnection = 1,
    /// Its client's RST_STREAM.
    ByReset = 2,
    /// Its server's RST_STREAM or END_STREAM.
    ByServer = 3,
}

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// Notes an RPC that is open at its connection's or the capture's end, or at its reset, and had no packet of its own
    /// in the time `open`. `blocked` is the sender whose window is used up, and that window.
    #[cold]
    pub(super) fn push_open(&mut self, id: u32, open: Range<i64>, blocked: Option<(usize, Cause)>, closed: Closed) {
        let (h2, transport) = (&mut *self.h2, self.transport);
        let client = h2.client;
        let windows = blocked.map(|(side, _)| (h2.stream_window(side, id), h2.connection_window(side)));
        let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
        if self.cx.open_rpcs.len() >= limits::OPEN_RPCS + limits::ROWS_AHEAD {
            return;
        }
        // a receiver that gives no credit is waited for
        let waits_for = blocked.map_or(call.owing_side(client), |(side, _)| 1 - side);
        let last = usize::from(call.last_side);
        // bytes that were not acknowledged may not have arrived
        let arrived = last == waits_for || call.has_arrived(transport);
        let own = if waits_for == client { Cause::Client } else { Cause::Server };
        let cause = blocked.map_or(if arrived { own } else { Cause::Unexplained }, |(_, cause)| cause);
        let heard = transport.unanswered[1 - waits_for].heard;
        let (stream_window, connection_window) = windows.unwrap_or_default();
        self.cx.open_rpcs.push(OpenRpcRow {
            connection: h2.connection,
            stream: id,
            method: call.method,
            start_time_ns: call.first.time,
            first_packet: call.first.packet,
            since_time_ns: open.start,
            last_packet: call.last_packet.max(call.first.packet),
            last_time_ns: call.last_time.max(call.first.time),
            end_time_ns: open.end,
            waits_for: u8::from(waits_for != client),
            cause: cause as u8,
            heard_packet: heard.0,
            heard_time_ns: heard.1,
            request_messages: call.directions[client].reader.messages,
            response_messages: call.directions[1 - client].reader.messages,
            timeout_ns: call.timeout_ns,
            closed: closed as u8,
            headers_unknown: u8::from(call.may_lack_fields()),
            stream_window_bytes: stream_window.unwrap_or(i64::MIN),
            connection_window_bytes: connection_window.unwrap_or(i64::MIN),
        });
    }
}

impl Activity<'_> {
    /// Notes that a stream's first DATA came late after its HEADERS.
    #[cold]
    pub fn push_delay(&self, call: &Call, headers: (i64, u32), cx: &mut Context) {
        if cx.delays.len() < limits::DELAYS + limits::ROWS_AHEAD {
            cx.delays.push(DelayRow {
                connection: self.connection,
                stream: call.id,
                direction: self.direction(),
                headers_packet: headers.1,
                headers_time_ns: headers.0,
                data_packet: self.at.packet,
                duration_ns: self.at.time - headers.0,
                method: call.method,
            });
        }
    }

    #[inline]
    pub fn count_message(&self, call: &Call, message: &Message<'_>, cx: &mut Context) {
        cx.totals.messages += 1;
        cx.totals.compressed_messages += u64::from(message.compressed);
        cx.method(call.method).messages += 1;
        if cx.options.messages {
            let (last_packet, last_time_ns) = self.at.completes(message.first);
            cx.messages.push(MessageRow {
                connection: self.connection,
                stream: call.id,
                direction: self.direction(),
                index: message.index,
                length: message.length,
                compressed: u8::from(message.compressed),
                first_packet: message.first.packet,
                first_time_ns: message.first.time,
                last_packet,
                last_time_ns,
            });
            cx.note_row(Stream::Messages);
        }
    }

    /// Writes what an RPC's time was up to the end of its request: what follows is the server's, and the way there and
    /// back.
    #[cold]
    pub fn end_request(&self, call: &Call, cx: &mut Context) {
        if call.finished || !call.kind.is_rpc() {
            return;
        }
        let Some(row) = cx.emitted.place(call.rpc) else { return };
        if let Some(cell) = cx.request_ends.get_mut(row) {
            *cell = self.at.completes(&call.first).0;
        }
        if let Some(budget) = cx.request_budgets.get_mut(row) {
            *budget = call.budget;
        }
    }

    /// Takes an RPC in at its end: into its method's statistics, and into a row of its own if it has one or deserves it.
    #[inline]
    pub fn write_rpc(&self, call: &mut Call, ending: Ending, complete: bool, cx: &mut Context) {
        let status = ending.status;
        let stats = cx.method(call.method);
        stats.touch_gaps += u64::from(call.touches_gap);
        stats.end_missing += u64::from(call.end_missing);
        let place = [call.first.packet, call.id];
        let long = stats.add_rpc(status, complete, !call.begun_before, call.first.time, place, &call.budget)
            | (cx.options.slowest > 0 && cx.slowest.takes(call.budget.total(), place))
            | (cx.options.sampled > 0 && cx.sampled.takes(scatter(place), place));
        let failed = status != status::OK && complete;
        if call.rpc == NONE && (long || failed) {
            push_rpc(self.connection, call, cx);
            if let Some(flags) = cx.rpcs.flags.last_mut().filter(|_| !failed) {
                *flags |= rpc_flag::LONG;
            }
        }
        if call.rpc != NONE {
            let marks = if call.is_example { rpc_flag::EXAMPLE } else { 0 } | if long { rpc_flag::LONG } else { 0 };
            self.write_row(call, ending, complete, if cx.options.marks_examples { marks } else { 0 }, cx);
        }
        if failed {
            self.push_failure(call, None, cx);
        }
    }

    /// Writes a row for an RPC that is over.
    #[cold]
    pub(super) fn push_ended(&self, call: &mut Call, ending: Ending, cx: &mut Context) {
        push_rpc(self.connection, call, cx);
        self.write_row(call, ending, true, 0, cx);
    }

    /// Fills an RPC's row.
    fn write_row(&self, call: &Call, ending: Ending, complete: bool, marks: u8, cx: &mut Context) {
        write_counts(call, self.client(), cx);
        let row = RpcRow {
            duration_ns: i64::try_from(call.budget.total()).unwrap_or(i64::MAX),
            status: ending.status,
            status_source: ending.source as u8,
            http_status: call.http_status,
            protocol: call.kind.protocol(),
            flags: marks
                | if complete { rpc_flag::COMPLETE } else { 0 }
                | if call.touches_gap { rpc_flag::TOUCHES_GAP } else { 0 }
                | if call.headers_unknown { rpc_flag::HEADERS_UNKNOWN } else { 0 }
                | if call.end_missing { rpc_flag::END_MISSING } else { 0 },
            last_packet: if complete { self.at.completes(&call.first).0 } else { 0 },
            grpc_message: call.grpc_message,
            ..RpcRow::default()
        };
        let Some(place) = cx.emitted.place(call.rpc) else {
            return cx.emitted.write_row(call.rpc, &row, &call.budget);
        };
        set!(cx.rpcs, place, row, duration_ns, status, status_source, http_status, grpc_message, protocol, last_packet);
        if let Some(cell) = cx.rpcs.flags.get_mut(place) {
            *cell |= row.flags;
        }
        if let Some(budget) = cx.rpc_budgets.get_mut(place) {
            *budget = call.budget;
        }
    }

    /// Notes an RPC that ended otherwise than OK, or whose client `refused` a complete response.
    #[cold]
    pub(super) fn push_failure(&self, call: &Call, refused: Option<At>, cx: &mut Context) {
        if cx.failures.len() >= limits::FAILURES + limits::ROWS_AHEAD {
            return;
        }
        let (client, server) = (self.client(), 1 - self.client());
        let (refused_packet, refused_time_ns) = place(refused);
        let (reset_by, reset_code) = call.reset.unwrap_or((2, 0));
        let (silence_from_packet, silence_to_packet) = call.silence_packets;
        let (headers_time_ns, headers_packet) = call.directions[server].headers;
        let [request, response] = [client, server].map(|side| call.directions[side].reader.announced());
        let [(cut_request_packet, cut_request_time_ns), (cut_response_packet, cut_response_time_ns)] =
            [request, response].map(|cut| place(cut.map(|(_, at)| at)));
        cx.failures.push(FailureRow {
            rpc: cx.emitted.taken_as(call.rpc),
            last_packet: self.at.completes(&call.first).0,
            reset_by,
            reset_code,
            answered_by: call.answered_by,
            foreign: u8::from(call.is_answered_otherwise()),
            silence_ns: call.silence_ns,
            silence_from_packet,
            silence_to_packet,
            headers_packet,
            headers_time_ns,
            cut_request_bytes: request.map_or(0, |(length, _)| length),
            cut_request_packet,
            cut_request_time_ns,
            cut_response_bytes: response.map_or(0, |(length, _)| length),
            cut_response_packet,
            cut_response_time_ns,
            response_messages: call.directions[server].reader.messages,
            since_answer_ns: call.since_answer_ns,
            since_bytes_ns: call.since_bytes_ns,
            refused_packet,
            refused_time_ns,
        });
        cx.failure_budgets.push(call.budget);
    }
}

/// Writes how much was sent, if wanted: a side may not know yet that the RPC is over, and the rest still comes.
#[inline]
pub(super) fn write_counts(call: &Call, client: usize, cx: &mut Context) {
    if !cx.options.rpc_rows {
        return;
    }
    let (request, response) = (&call.directions[client].reader, &call.directions[1 - client].reader);
    let row = RpcSizesRow {
        request_messages: request.messages,
        request_bytes: request.bytes,
        response_messages: response.messages,
        response_bytes: response.bytes,
        settled: 0,
    };
    match cx.emitted.place(call.rpc) {
        Some(place) => {
            set!(cx.rpc_sizes, place, row, request_messages, request_bytes, response_messages, response_bytes);
        }
        None => cx.emitted.write_sizes(call.rpc, row),
    }
}

/// Nothing more comes of a stream that is about to be forgotten: what it carried is written, and the row stays so.
#[inline]
pub(super) fn settle(call: &Call, client: usize, cx: &mut Context) {
    if !cx.options.rpc_rows {
        return;
    }
    if call.finished {
        write_counts(call, client, cx);
    }
    match cx.emitted.place(call.rpc) {
        Some(row) => {
            if let Some(settled) = cx.rpc_sizes.settled.get_mut(row) {
                *settled = 1;
            }
        }
        None => cx.emitted.settle(call.rpc),
    }
}

/// Bytes of a stream are not in the capture; its RPC may be over already.
pub(super) fn touch_gap(call: &mut Call, cx: &mut Context) {
    if call.touches_gap || !call.kind.is_rpc() {
        return;
    }
    call.touches_gap = true;
    if call.finished && !call.unread {
        cx.method(call.method).touch_gaps += 1;
        match cx.emitted.place(call.rpc) {
            Some(row) => {
                if let Some(flags) = cx.rpcs.flags.get_mut(row) {
                    *flags |= rpc_flag::TOUCHES_GAP;
                }
            }
            None => cx.emitted.touch_gap(call.rpc),
        }
    }
}

/// Counts an RPC that begins. Whether it has a row: the first ones have, and every `example`.
#[inline]
pub(super) fn begin_rpc(grpc: &mut Grpc, connection: u32, call: &mut Call, example: bool, cx: &mut Context) -> bool {
    let further = connection >= limits::CONNECTIONS_OF_FIRST_RPCS;
    let first = if further { limits::FIRST_RPCS_OF_FURTHER } else { limits::FIRST_RPCS };
    call.is_example = example || grpc.rpcs < first;
    let has_row = call.is_example || cx.options.rpc_rows;
    if has_row {
        push_rpc(connection, call, cx);
    }
    call.counted = true;
    grpc.rpcs += 1;
    grpc.open_rpcs += 1;
    grpc.max_open_rpcs = grpc.max_open_rpcs.max(grpc.open_rpcs);
    grpc.methods.note(call.method);
    has_row
}

/// Attempts of a call that are open when the next one begins have rows, too: a hedged one is known by them (gRFC A6).
#[cold]
pub(super) fn keep_attempts_before(h2: &mut Http2, next: &Summary, connection: u32, cx: &mut Context) {
    let (grpc, method) = (&mut h2.application, next.method.unwrap_or(NO_METHOD));
    let number = next.previous_attempts.saturating_sub(1);
    for stream in h2.streams.slots_mut().take(limits::STREAMS_SEARCHED_PER_WAIT) {
        let (id, call) = (stream.id, &mut stream.state);
        let is_before = call.method == method && call.previous_attempts == number;
        let is_open = id != 0 && call.kind.is_rpc() && !call.finished;
        if is_open && is_before && !call.is_example && grpc.hedged < limits::RETRIES {
            grpc.hedged += 1;
            call.is_example = true;
            if call.rpc == NONE {
                push_rpc(connection, call, cx);
            }
        }
    }
}

/// Adds the row of an RPC, which is filled when it ends.
fn push_rpc(connection: u32, call: &mut Call, cx: &mut Context) {
    let row = cx.rpcs.connection.len(); // of one column: `len` asks them all
    call.rpc = cx.emitted.number(row);
    cx.rpcs.push(RpcRow {
        connection,
        stream: call.id,
        method: call.method,
        start_time_ns: call.first.time,
        status: status::NOT_SEEN,
        protocol: call.kind.protocol(),
        flags: if call.method == NO_METHOD || call.method_unnamed { rpc_flag::METHOD_UNKNOWN } else { 0 }
            | if call.begun_before { rpc_flag::BEGUN_BEFORE } else { 0 },
        first_packet: call.first.packet,
        grpc_message: NONE,
        previous_attempts: call.previous_attempts,
        ..RpcRow::default()
    });
    if call.timeout_ns >= 0 || !cx.deadlines.is_empty() {
        cx.deadlines.resize(row, -1);
        cx.deadlines.push(call.timeout_ns);
    }
    if cx.options.sorts_rpcs() {
        cx.rpc_order.push();
    }
    if cx.options.keeps_budgets() {
        cx.rpc_budgets.push(Budget::default());
    }
    if cx.options.rpc_rows {
        cx.rpc_sizes.push(RpcSizesRow::default());
        if cx.options.keeps_requests() {
            cx.request_budgets.push(Budget::default());
            cx.request_ends.push(0);
        }
    }
}

/// Writes into the last row what its request says of the call that it belongs to.
pub(super) fn note_context(call: &Call, cx: &mut Context) {
    let Some(row) = cx.rpcs.len().checked_sub(1) else { return };
    if let Some(trace) = call.trace.map(|number| cx.strings.traces.get(number)) {
        cx.rpcs.trace_high[row] = trace.trace_high;
        cx.rpcs.trace_low[row] = trace.trace_low;
        cx.rpcs.span_id[row] = trace.span;
    }
    cx.rpcs.request_id[row] = call.request_id;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_first_rpcs_of_thousands_of_connections_have_rows() {
        let mut cx = Context::default();
        cx.options.rpc_rows = false;
        let last = limits::CONNECTIONS_OF_FIRST_RPCS - 1;
        for (connection, expected) in [(last, limits::FIRST_RPCS), (last + 1, limits::FIRST_RPCS_OF_FURTHER)] {
            let (mut grpc, before) = (Grpc::default(), cx.rpcs.len());
            let has_row = |_: &u32| begin_rpc(&mut grpc, connection, &mut Call::default(), false, &mut cx);
            let rows = (0..2 * limits::FIRST_RPCS).filter(has_row).last();
            assert_eq!(rows, Some(expected - 1), "the first ones");
            assert_eq!((cx.rpcs.len() - before) as u32, expected);
        }
    }
}
