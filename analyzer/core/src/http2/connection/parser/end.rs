//! Finishes a frame when its last byte is in.

use crate::at::At;
use crate::http2::connection::application::Application;
use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::State;
use crate::http2::connection::state::Http2;
use crate::http2::connection::streams;
use crate::http2::frame::header::{FrameHeader, FrameType, flag};
use crate::store::context::Context;
use crate::store::tables::FrameRow;

/// Between two parts of a DATA frame its stream may have been reset, and another one may have its slot.
#[inline]
pub(super) fn forget_ended_stream<A: Application>(h2: &mut Http2<A>, side: usize) {
    let (slot, id) = (h2.sides[side].slot, h2.sides[side].frame.stream);
    if slot != streams::NONE && h2.streams.get_mut(slot).is_none_or(|stream| stream.id != id) {
        h2.sides[side].slot = streams::NONE;
    }
}

#[inline]
pub(super) fn end_data<A: Events>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    at: At,
    reading: &mut Reading<'_>,
) {
    if header.has(flag::END_STREAM) {
        let slot = match h2.sides[side].slot {
            streams::NONE => h2.streams.slot(header.stream).unwrap_or(streams::NONE),
            slot => slot,
        };
        A::end_stream(h2, side, header.stream, slot, at, reading);
    }
    end_frame(h2, side, FrameType::DATA, at, reading.cx);
}

/// The frame's last byte is in.
#[inline(always)]
pub(super) fn end_frame<A: Application>(h2: &mut Http2<A>, side: usize, kind: FrameType, at: At, cx: &mut Context) {
    let sender = &mut h2.sides[side];
    sender.state = State::Header;
    sender.habits.frame_ends(kind);
    if cx.options.frames {
        push_row(h2, side, at, cx);
    }
}

#[inline(never)]
pub(super) fn push_row<A: Application>(h2: &Http2<A>, side: usize, at: At, cx: &mut Context) {
    let sender = &h2.sides[side];
    let (frame, first) = (sender.frame, sender.frame_first);
    let (last_packet, last_time_ns) = at.completes(&first);
    cx.push_frame(FrameRow {
        connection: h2.connection,
        direction: h2.direction(side),
        stream: frame.stream,
        kind: frame.kind().0,
        flags: frame.flags(),
        length: frame.length(),
        first_packet: first.packet,
        first_time_ns: first.time,
        last_packet,
        last_time_ns,
    });
}
