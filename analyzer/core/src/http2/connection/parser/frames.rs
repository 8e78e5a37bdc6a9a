//! Reads frame headers, and the payload of frames other than DATA.

use crate::at::At;
use crate::http2::connection::application::Application;
use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::State;
use crate::http2::connection::state::Http2;
use crate::http2::connection::watch::Watch;
use crate::http2::connection::{blocks, control};
use crate::http2::frame::header::{DEFAULT_MAX_FRAME_SIZE, FrameHeader, FrameType, HEADER_LEN};
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::Layer;

use super::data::begin_data;
use super::end::end_frame;

#[inline]
pub(super) fn read_header<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let sender = &mut h2.sides[side];
    if sender.head_have == 0
        && let Some((octets, rest)) = bytes.split_first_chunk::<HEADER_LEN>()
    {
        sender.frame_first = at;
        h2.bytes.decoded += HEADER_LEN as u64;
        let header = FrameHeader::parse(octets);
        return begin_frame(h2, side, header, rest, at, reading, watch);
    }
    if sender.head_have == 0 {
        sender.frame_first = at;
    }
    let take = bytes.len().min(HEADER_LEN - sender.head_have);
    let (part, rest) = bytes.split_at(take);
    if let Some(room) = sender.head.get_mut(sender.head_have..sender.head_have + take) {
        room.copy_from_slice(part);
    }
    sender.head_have += take;
    h2.bytes.decoded += take as u64;
    if sender.head_have < HEADER_LEN {
        return rest;
    }
    sender.head_have = 0;
    begin_cut_frame(h2, side, rest, at, reading, watch)
}

/// A header cut over segments; apart, because the usual one is read in place and inlined.
#[cold]
pub(super) fn begin_cut_frame<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let header = FrameHeader::parse(&h2.sides[side].head);
    begin_frame(h2, side, header, rest, at, reading, watch)
}

#[inline(always)]
pub(super) fn begin_frame<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    watch.frame(header, rest.len());
    let sender = &mut h2.sides[side];
    sender.frame = header;
    let usual = header.length() <= DEFAULT_MAX_FRAME_SIZE && sender.block.is_none();
    match header.kind() {
        FrameType::DATA if usual && header.stream != 0 => {
            sender.habits.frame_begins(FrameType::DATA);
            begin_data(h2, side, header, rest, at, reading, watch)
        }
        FrameType::HEADERS if usual && header.stream != 0 => {
            sender.habits.frame_begins(FrameType::HEADERS);
            begin_headers(h2, side, header, rest, at, reading, watch)
        }
        FrameType::WINDOW_UPDATE if usual && header.length() == 4 => {
            sender.habits.frame_begins(FrameType::WINDOW_UPDATE);
            begin_window_update(h2, side, header, rest, at, reading, watch)
        }
        _ => begin_any_frame(h2, side, header, rest, at, reading, watch),
    }
}

/// A frame that is less usual, or wrong.
#[inline(never)]
pub(super) fn begin_any_frame<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    h2.sides[side].habits.frame_begins(header.kind());
    if h2.sides[side].block.is_some() && header.kind() != FrameType::CONTINUATION {
        blocks::abandon(h2, side, at, reading.cx);
    }
    if let Err(error) = header.check() {
        h2.problem(Layer::Http2, error.reason, at, reading.cx);
        h2.sides[side].doubtful = Some(header);
        return begin_wrong_frame(h2, side, header, rest, at, reading.cx);
    }
    if header.length() > DEFAULT_MAX_FRAME_SIZE {
        check_frame_size(h2, side, header, at, reading.cx);
    }
    match header.kind() {
        FrameType::DATA => begin_data(h2, side, header, rest, at, reading, watch),
        kind if kind.is_known() => begin_control(h2, side, header, rest, at, reading, watch),
        _ => {
            h2.sides[side].doubtful = Some(header);
            begin_skip(h2, side, header, rest, at, reading.cx)
        }
    }
}

/// HEADERS, which have most often come whole: read without the detour that other frames take.
#[inline(always)]
pub(super) fn begin_headers<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let Some((payload, rest)) = rest.split_at_checked(header.length() as usize) else {
        return begin_control(h2, side, header, rest, at, reading, watch);
    };
    h2.bytes.decoded += payload.len() as u64;
    watch.control(header, payload);
    control::headers(h2, side, header, payload, at, reading, watch);
    end_frame(h2, side, FrameType::HEADERS, at, reading.cx);
    rest
}

/// WINDOW_UPDATE, as many as DATA in many captures.
#[inline(always)]
pub(super) fn begin_window_update<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let Some((payload, rest)) = rest.split_first_chunk::<4>() else {
        return begin_control(h2, side, header, rest, at, reading, watch);
    };
    h2.bytes.decoded += payload.len() as u64;
    watch.control(header, payload);
    control::window_update(h2, side, header, payload, at, reading);
    end_frame(h2, side, FrameType::WINDOW_UPDATE, at, reading.cx);
    rest
}

/// A frame whose header contradicts its type. After a late begin the boundary was wrong; else its payload is skipped.
#[cold]
pub(super) fn begin_wrong_frame<'a, A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    cx: &mut Context,
) -> &'a [u8] {
    if h2.begun_late || h2.sides[side].gaps > 0 {
        h2.sides[side].lose(u64::MAX, at.packet);
        return rest;
    }
    blocks::forget_left_out(h2, side, header.kind());
    begin_skip(h2, side, header, rest, at, cx)
}

#[cold]
pub(super) fn check_frame_size<A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    at: At,
    cx: &mut Context,
) {
    let allowed = h2.binding(side).max_frame_size.max(h2.sides[1 - side].announced.max_frame_size);
    if header.length() > allowed && !h2.begun_late {
        h2.sides[side].doubtful = Some(header);
        h2.problem(Layer::Http2, "frame is longer than the peer's SETTINGS_MAX_FRAME_SIZE", at, cx);
    }
}

pub(super) fn begin_skip<'a, A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    cx: &mut Context,
) -> &'a [u8] {
    h2.sides[side].state = State::Skip(header.length());
    if header.length() == 0 {
        end_frame(h2, side, header.kind(), at, cx);
    }
    rest
}

pub(super) fn read_skip<'a, A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
    left: u32,
    at: At,
    cx: &mut Context,
) -> &'a [u8] {
    let take = bytes.len().min(left as usize);
    h2.bytes.decoded += take as u64;
    let left = left - take as u32;
    h2.sides[side].state = State::Skip(left);
    if left == 0 {
        let kind = h2.sides[side].frame.kind();
        end_frame(h2, side, kind, at, cx);
    }
    bytes.get(take..).unwrap_or_default()
}

#[inline]
pub(super) fn begin_control<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    if let Some((payload, rest)) = rest.split_at_checked(header.length() as usize) {
        h2.bytes.decoded += payload.len() as u64;
        watch.control(header, payload);
        control::apply(h2, side, header, payload, at, reading, watch);
        end_frame(h2, side, header.kind(), at, reading.cx);
        return rest;
    }
    let most = match header.kind() {
        FrameType::HEADERS | FrameType::CONTINUATION | FrameType::PUSH_PROMISE => limits::HEADER_BLOCK,
        _ => limits::CONTROL_FRAME,
    };
    if header.length() as usize > most {
        h2.problem(Layer::Http2, "frame is too long to keep: skipped", at, reading.cx);
        blocks::forget(h2, side);
        h2.sides[side].state = State::Skip(header.length());
    } else {
        h2.sides[side].kept.clear();
        h2.sides[side].state = State::Control;
    }
    rest
}

pub(super) fn read_control<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let sender = &mut h2.sides[side];
    let header = sender.frame;
    let take = bytes.len().min((header.length() as usize).saturating_sub(sender.kept.len()));
    let (part, rest) = bytes.split_at(take);
    sender.kept.extend_from_slice(part);
    h2.bytes.decoded += take as u64;
    if sender.kept.len() >= header.length() as usize {
        let payload = std::mem::take(&mut sender.kept);
        watch.control(header, &payload);
        control::apply(h2, side, header, &payload, at, reading, watch);
        h2.sides[side].kept = payload;
        h2.sides[side].kept.clear();
        end_frame(h2, side, header.kind(), at, reading.cx);
    }
    rest
}
