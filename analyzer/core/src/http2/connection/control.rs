//! Applies frames other than DATA once they are whole.

use std::collections::VecDeque;

use crate::at::At;
use crate::http2::connection::reading::Reading;
use crate::http2::frame::header::{FrameError, FrameHeader, FrameType, flag};
use crate::http2::frame::{goaway, ping, rst_stream, settings, window_update};
use crate::http2::observe::implementation::Implementation;
use crate::store::context::Context;
use crate::store::tables::Layer;
use crate::tcp::transport::Transport;

use super::application::Application;
use super::events::Events;
use super::side::Credit;
use super::state::Http2;
use super::watch::Watch;
use super::{blocks, pings};

/// A side farther than this from the capture point, nanoseconds there and back, sends before it has what was captured.
const FAR: i64 = 200_000;

/// Applies a frame of `side` to the connection; a defect is noted and the frame left out.
#[inline]
pub(in crate::http2) fn apply<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let done = match header.kind() {
        FrameType::HEADERS => return headers(h2, side, header, payload, at, reading, watch),
        FrameType::CONTINUATION => {
            h2.sides[side].habits.header_block(payload.len());
            blocks::continuation(h2, side, header, payload, at, reading, watch)
        }
        FrameType::PUSH_PROMISE => blocks::push_promise(h2, side, header, payload, at, reading, watch),
        FrameType::WINDOW_UPDATE => {
            window_update::parse(&header, payload).map(|n| credit(h2, side, header.stream, n, at, reading.transport))
        }
        FrameType::PING => {
            ping::parse(&header, payload).map(|payload| note_ping(h2, side, header, payload, at, reading.cx))
        }
        FrameType::SETTINGS if header.has(flag::ACK) => {
            acknowledge(h2, side, at, reading.cx);
            Ok(())
        }
        FrameType::SETTINGS => {
            settings::parse(&header, payload).and_then(|pairs| announce(h2, side, pairs, at, reading.cx))
        }
        FrameType::RST_STREAM => {
            rst_stream::parse(&header, payload).map(|code| A::reset(h2, side, header.stream, code, at, reading))
        }
        FrameType::GOAWAY => {
            goaway::parse(&header, payload).map(|frame| pings::goaway(h2, side, &frame, at, reading.cx))
        }
        _ => Ok(()),
    };
    if let Err(error) = done {
        leave_out(h2, side, header, error, at, reading.cx);
    }
}

/// A HEADERS frame.
#[inline(always)]
pub(in crate::http2) fn headers<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    h2.sides[side].habits.header_block(payload.len());
    if let Err(error) = blocks::headers(h2, side, header, payload, at, reading, watch) {
        leave_out(h2, side, header, error, at, reading.cx);
    }
}

#[cold]
fn leave_out<A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    error: FrameError,
    at: At,
    cx: &mut Context,
) {
    blocks::forget_left_out(h2, side, header.kind());
    h2.problem(Layer::Http2, error.reason, at, cx);
}

/// A WINDOW_UPDATE frame; an increment of 0 is noted and left out.
#[inline]
pub(in crate::http2) fn window_update<A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    payload: &[u8; 4],
    at: At,
    reading: &mut Reading<'_>,
) {
    match window_update::parse(&header, payload) {
        Ok(increment) => credit(h2, side, header.stream, increment, at, reading.transport),
        Err(error) => h2.problem(Layer::Http2, error.reason, at, reading.cx),
    }
}

/// A WINDOW_UPDATE of `side` lets its peer send `increment` bytes more; above 2^31-1 is FLOW_CONTROL_ERROR
/// (RFC 9113 section 6.9.1), which is left to the peers.
#[inline]
fn credit<A: Application>(h2: &mut Http2<A>, side: usize, stream: u32, increment: u32, at: At, transport: &Transport) {
    let peer = 1 - side;
    h2.sides[peer].credited_at = Some(at);
    let near = transport.near_rtt[peer];
    if near > FAR {
        h2.sides[peer].remember_credit(Credit { time: at.time, stream, increment }, near);
    }
    if stream == 0 {
        let sender = &mut h2.sides[peer];
        sender.connection_credit = sender.connection_credit.saturating_add(i64::from(increment));
        sender.most_connection_credit = sender.most_connection_credit.max(sender.connection_credit);
    } else if let Some(stream) = h2.streams.find_mut(stream) {
        let credit = &mut stream.credit[peer];
        *credit = credit.saturating_add(i64::from(increment));
    }
}

fn note_ping<A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    payload: [u8; 8],
    at: At,
    cx: &mut Context,
) {
    let is_ack = header.has(flag::ACK);
    pings::ping(h2, side, is_ack, payload, at, cx);
    if is_ack {
        h2.sides[side].pinged = None;
    } else {
        h2.sides[1 - side].pinged.get_or_insert(at);
    }
    if !is_ack && h2.sides[side].implementation == Implementation::Unknown {
        h2.sides[side].implementation = Implementation::from_ping(payload);
    }
}

/// SETTINGS of `side`: in force for its peer once acknowledged (RFC 9113 section 6.5.3).
fn announce<A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    pairs: settings::Pairs<'_>,
    at: At,
    cx: &mut Context,
) -> Result<(), FrameError> {
    if h2.sides[side].settings_at.is_none() && h2.sides[side].implementation == Implementation::Unknown {
        h2.sides[side].implementation = Implementation::from_settings(pairs, side != h2.client);
    }
    let sender = &mut h2.sides[side];
    let (announced, wrong) = sender.newest().with(pairs);
    if !sender.announce(announced, at) {
        h2.problem(Layer::Http2, "too many SETTINGS frames without an acknowledgement", at, cx);
    }
    h2.sides[1 - side].announce_table_size(announced.header_table_size);
    wrong.map_or(Ok(()), Err)
}

/// `side` acknowledges its peer's oldest SETTINGS: the values bind the frames of `side` from here on. Stream windows
/// follow a new initial window at once, because they are kept relative to it (section 6.9.2).
fn acknowledge<A: Application>(h2: &mut Http2<A>, side: usize, at: At, cx: &mut Context) {
    let peer = 1 - side;
    let Some(values) = h2.sides[peer].pending.pop_front() else {
        if !h2.begun_late && h2.sides[peer].gaps == 0 {
            h2.problem(Layer::Http2, "SETTINGS acknowledgement without SETTINGS", at, cx);
        }
        return;
    };
    if h2.sides[peer].pending.is_empty() {
        h2.sides[peer].pending = VecDeque::new(); // most connections announce settings once
    }
    let before = h2.sides[peer].in_force;
    h2.sides[peer].in_force = values;
    if values.initial_window_size > before.initial_window_size {
        h2.sides[side].credited_at = Some(at);
    }
    if values.header_table_size != before.header_table_size {
        h2.sides[side].allow_table_size(values.header_table_size);
    }
}
