//! Divides the RPCs of a connection at a cut: open ones are reported as if the capture ended there, and go on.

use crate::at::At;
use crate::http2::connection::application::Application;
use crate::http2::connection::http2::End;
use crate::http2::connection::streams::{NONE, Stream};
use crate::store::interval_parts::{OpenTime, Parts};
use crate::store::strings::UsedNames;
use crate::tcp::transport::Transport;

use super::call::Call;
use super::connection::{Grpc, Http2, Parser};
use super::headers::HeaderClass;
use super::outcome::report_unread;
use super::rpc_end::note_half_closed;

/// Reports the open streams of a connection, whose rows move on.
pub fn report_open(h2: &mut Http2, at: At, transport: &Transport, parts: &mut Parts) -> OpenTime {
    Parser { side: h2.client, h2: &mut *h2, at, cx: &mut parts.done, transport, watch: &mut () }.end_arrived();
    let (budget, loss) = (h2.application.budget, h2.application.loss);
    let open_rpcs = h2.application.open_rpcs;
    (h2.application.budget, h2.application.loss) = Default::default();
    for id in h2.streams.ids() {
        note_half_closed(h2, id, at);
        let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { continue };
        if !call.kind.is_rpc() {
            move_request(call, parts);
        } else if call.finished && !call.unread {
            call.rpc = NONE;
        } else {
            report_call(h2, id, at, transport, parts);
        }
    }
    let open = OpenTime { budget: h2.application.budget, loss: h2.application.loss };
    (h2.application.budget, h2.application.loss) = (budget, loss);
    h2.application.open_rpcs = open_rpcs;
    let calls = h2.streams.slots().filter(|stream| stream.id != 0 && stream.state.kind.is_rpc());
    let starts = calls.filter(|stream| goes_on(&stream.state)).map(|stream| stream.state.first.time);
    let first = starts.fold(at.time, i64::min);
    if let Some(repeats) = &mut h2.application.repeats {
        repeats.finish_before(first, h2.connection, &mut parts.done);
    }
    open
}

fn report_call(h2: &mut Http2, id: u32, at: At, transport: &Transport, parts: &mut Parts) {
    let Some(call) = h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
    let mut goes_on = *call;
    if let Some(row) = parts.done.open_row(call.rpc) {
        parts.moved[0].push(call.rpc);
        goes_on.rpc = parts.next.push_open_row(&row);
        call.rpc = parts.open.push_open_row(&row);
    }
    if let Some(unread) = h2.application.unread.iter().find(|unread| unread.stream == id).copied() {
        report_unread(h2, &unread, transport, &mut parts.open);
    } else {
        let mut parser = Parser { side: h2.client, h2: &mut *h2, at, cx: &mut parts.open, transport, watch: &mut () };
        parser.end_open_call(id, End::CaptureEnds);
    }
    if let Some(stream) = h2.streams.find_mut(id) {
        stream.state = goes_on;
    }
}

fn move_request(call: &mut Call, parts: &mut Parts) {
    let number = std::mem::replace(&mut call.other_request, NONE);
    if let Some(row) = parts.done.other_requests.get(number as usize).filter(|row| row.duration_ns < 0) {
        parts.moved[1].push(number);
        parts.open.push_open_request(row);
        call.other_request = parts.next.push_open_request(row);
    }
}

/// Whether the outcome of an RPC is not written.
fn goes_on(call: &Call) -> bool {
    !call.finished || call.unread
}

/// Whether failed calls may still be repeated.
pub fn awaits_repeats(h2: &Http2) -> bool {
    h2.application.repeats.as_ref().is_some_and(|repeats| !repeats.is_empty())
}

/// Whether calls are open: also RPCs that a hole has put in doubt, and requests that are no RPCs.
pub fn is_open(h2: &Http2) -> bool {
    let is_open = |call: &Call| call.kind.is_rpc() && goes_on(call) || (call.rpc, call.other_request) != (NONE, NONE);
    h2.application.open_rpcs > 0 || h2.streams.slots().any(|Stream { id, state, .. }| *id != 0 && is_open(state))
}

/// Begins to count the RPCs of a connection anew.
pub fn begin_interval(h2: &mut Http2) {
    let grpc = &mut h2.application;
    grpc.rpcs_before = grpc.followed();
    (grpc.rpcs, grpc.retries, grpc.hedged, grpc.other_streams, grpc.stalls) = (0, 0, 0, 0, 0);
    (grpc.budget, grpc.loss) = Default::default();
    grpc.max_open_rpcs = grpc.open_rpcs;
    grpc.methods.clear();
    grpc.unacknowledged.clear(); // they were reported
    for Stream { id, state, .. } in h2.streams.slots_mut() {
        state.reported = *id == 0 || !goes_on(state);
        if !state.reported && state.kind.is_rpc() {
            grpc.methods.note(state.method);
        }
    }
}

/// Notes the names that a connection refers to, and forgets what it remembers of header blocks, which may refer to more.
pub fn note_names(h2: &mut Http2, used: &mut UsedNames) {
    let Grpc { client_agent, server_agent, ref late, ref repeats, .. } = h2.application;
    used.methods.extend(repeats.iter().flat_map(|repeats| repeats.methods()));
    used.agents.extend(client_agent.into_iter().chain(server_agent));
    used.methods.extend(late.labels.iter().map(|&(_, number)| number));
    for stream in h2.streams.slots_mut() {
        used.methods.insert(stream.state.method);
        used.agents.insert(stream.state.answered_by);
        used.errors.insert(stream.state.grpc_message);
    }
    h2.forget_seen_blocks();
    h2.each_class(&mut |class| {
        match class {
            HeaderClass::Path(number) | HeaderClass::ConnectPath(number) => used.methods.insert(number),
            HeaderClass::UserAgent(number) | HeaderClass::Server(number) => used.agents.insert(number),
            HeaderClass::GrpcMessage(number) => used.errors.insert(number),
            HeaderClass::Trace(number) => used.traces.insert(number),
            _ => false,
        };
    });
}
