//! The octets of one direction, cut into frames. DATA is read in place and never kept; other frames are kept only
//! when they are cut over segments.

use crate::at::At;
use crate::http2::connection::reading::Reading;
use crate::http2::frame::boundary_search;
use crate::http2::frame::data::Remaining;
use crate::http2::frame::header::{DEFAULT_MAX_FRAME_SIZE, FrameHeader, FrameType, HEADER_LEN, flag};
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::{FrameRow, Layer};

use super::side::State;
use super::state::{Http2, Protocol};
use super::watch::Watch;
use super::{blocks, control, late, streams};

mod lost;
mod opening;

pub(in crate::http2) use lost::gap;
use lost::{lose, search};
use opening::{read_http1_body, read_opening, replay};

/// Takes the next bytes of `side`.
#[inline]
pub(in crate::http2) fn feed<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    bytes: &[u8],
    at: At,
    reading: &mut Reading<'_, W>,
) {
    let is_cut = reading.transport.is_cut[side];
    let sender = &mut h2.sides[side];
    if sender.state == State::Header && sender.head_have == 0 && !is_cut {
        sender.habits.packet_begins_with_frame();
    } else {
        let inside = sender.inside();
        sender.habits.packet_begins(inside, is_cut);
    }
    reading.watch.reads(0);
    if h2.sides[side].doubtful.is_some() {
        doubt(h2, side, bytes, at, reading);
    }
    read(h2, side, bytes, at, reading);
    if h2.sides[side].replay.is_some() {
        replay(h2, side, reading);
    }
    h2.sides[side].habits.packet_ends();
}

/// Leaves a frame whose length may be none where a packet begins that is a run of frames: damaged octets ended before it.
#[cold]
fn doubt<W: Watch + ?Sized>(h2: &mut Http2, side: usize, bytes: &[u8], at: At, reading: &mut Reading<'_, W>) {
    let sender = &mut h2.sides[side];
    let inside = matches!(sender.state, State::Skip(_) | State::Data | State::Control);
    if !inside || sender.doubtful != Some(sender.frame) {
        sender.doubtful = None;
    } else if h2.highest_plausible().is_some_and(|highest| boundary_search::is_run_of_frames(bytes, highest)) {
        h2.sides[side].doubtful = None;
        lose(h2, side, u64::MAX, at, reading);
    }
}

/// Reads bytes; every turn of the loop consumes a byte or leaves its state.
#[inline]
fn read<W: Watch + ?Sized>(h2: &mut Http2, side: usize, bytes: &[u8], at: At, reading: &mut Reading<'_, W>) {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = match h2.sides[side].state {
            State::Header => read_header(h2, side, rest, at, reading),
            State::Data => read_data(h2, side, rest, at, reading),
            State::Control => read_control(h2, side, rest, at, reading),
            State::Skip(left) => read_skip(h2, side, rest, left, at, reading.cx),
            State::Opening => read_opening(h2, side, rest, at, reading),
            State::Http1Body(left) => read_http1_body(h2, side, rest, left),
            State::Lost => search(h2, side, rest, at, reading),
            State::Foreign => {
                match h2.protocol {
                    Protocol::Tls => h2.bytes.encrypted += rest.len() as u64,
                    Protocol::Http2 => h2.bytes.undecoded += rest.len() as u64,
                    _ => h2.bytes.not_http2 += rest.len() as u64,
                }
                &[]
            }
        };
    }
}

#[inline]
fn read_header<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let sender = &mut h2.sides[side];
    if sender.head_have == 0
        && let Some((octets, rest)) = bytes.split_first_chunk::<HEADER_LEN>()
    {
        sender.frame_first = at;
        h2.bytes.decoded += HEADER_LEN as u64;
        let header = FrameHeader::parse(octets);
        return begin_frame(h2, side, header, rest, at, reading);
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
    begin_cut_frame(h2, side, rest, at, reading)
}

/// A header cut over segments; apart, because the usual one is read in place and inlined.
#[cold]
fn begin_cut_frame<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let header = FrameHeader::parse(&h2.sides[side].head);
    begin_frame(h2, side, header, rest, at, reading)
}

#[inline(always)]
fn begin_frame<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    reading.watch.frame(header, rest.len());
    let sender = &mut h2.sides[side];
    sender.frame = header;
    let usual = header.length() <= DEFAULT_MAX_FRAME_SIZE && sender.block.is_none();
    match header.kind() {
        FrameType::DATA if usual && header.stream != 0 => {
            sender.habits.frame_begins(FrameType::DATA);
            begin_data(h2, side, header, rest, at, reading)
        }
        FrameType::HEADERS if usual && header.stream != 0 => {
            sender.habits.frame_begins(FrameType::HEADERS);
            begin_headers(h2, side, header, rest, at, reading)
        }
        FrameType::WINDOW_UPDATE if usual && header.length() == 4 => {
            sender.habits.frame_begins(FrameType::WINDOW_UPDATE);
            begin_window_update(h2, side, header, rest, at, reading)
        }
        _ => begin_any_frame(h2, side, header, rest, at, reading),
    }
}

/// A frame that is less usual, or wrong.
#[inline(never)]
fn begin_any_frame<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
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
        FrameType::DATA => begin_data(h2, side, header, rest, at, reading),
        kind if kind.is_known() => begin_control(h2, side, header, rest, at, reading),
        _ => {
            h2.sides[side].doubtful = Some(header);
            begin_skip(h2, side, header, rest, at, reading.cx)
        }
    }
}

/// HEADERS, which have most often come whole: read without the detour that other frames take.
#[inline(always)]
fn begin_headers<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let Some((payload, rest)) = rest.split_at_checked(header.length() as usize) else {
        return begin_control(h2, side, header, rest, at, reading);
    };
    h2.bytes.decoded += payload.len() as u64;
    reading.watch.control(header, payload);
    control::headers(h2, side, header, payload, at, reading);
    end_frame(h2, side, FrameType::HEADERS, at, reading.cx);
    rest
}

/// WINDOW_UPDATE, as many as DATA in many captures.
#[inline(always)]
fn begin_window_update<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let Some((payload, rest)) = rest.split_first_chunk::<4>() else {
        return begin_control(h2, side, header, rest, at, reading);
    };
    h2.bytes.decoded += payload.len() as u64;
    reading.watch.control(header, payload);
    control::window_update(h2, side, header, payload, at, reading);
    end_frame(h2, side, FrameType::WINDOW_UPDATE, at, reading.cx);
    rest
}

/// A frame whose header contradicts its type. After a late begin the boundary was wrong; else its payload is skipped.
#[cold]
fn begin_wrong_frame<'a>(
    h2: &mut Http2,
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
fn check_frame_size(h2: &mut Http2, side: usize, header: FrameHeader, at: At, cx: &mut Context) {
    let allowed = h2.binding(side).max_frame_size.max(h2.sides[1 - side].announced.max_frame_size);
    if header.length() > allowed && !h2.begun_late {
        h2.sides[side].doubtful = Some(header);
        h2.problem(Layer::Http2, "frame is longer than the peer's SETTINGS_MAX_FRAME_SIZE", at, cx);
    }
}

fn begin_skip<'a>(
    h2: &mut Http2,
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

fn read_skip<'a>(h2: &mut Http2, side: usize, bytes: &'a [u8], left: u32, at: At, cx: &mut Context) -> &'a [u8] {
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
fn begin_control<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    if let Some((payload, rest)) = rest.split_at_checked(header.length() as usize) {
        h2.bytes.decoded += payload.len() as u64;
        reading.watch.control(header, payload);
        control::apply(h2, side, header, payload, at, reading);
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

fn read_control<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let sender = &mut h2.sides[side];
    let header = sender.frame;
    let take = bytes.len().min((header.length() as usize).saturating_sub(sender.kept.len()));
    let (part, rest) = bytes.split_at(take);
    sender.kept.extend_from_slice(part);
    h2.bytes.decoded += take as u64;
    if sender.kept.len() >= header.length() as usize {
        let payload = std::mem::take(&mut sender.kept);
        reading.watch.control(header, &payload);
        control::apply(h2, side, header, &payload, at, reading);
        h2.sides[side].kept = payload;
        h2.sides[side].kept.clear();
        end_frame(h2, side, header.kind(), at, reading.cx);
    }
    rest
}

#[inline]
fn begin_data<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let slot = h2.streams.slot(header.stream).unwrap_or(streams::NONE);
    let sender = &mut h2.sides[side];
    sender.connection_credit -= i64::from(header.length());
    sender.last_stream = header.stream;
    sender.slot = slot;
    if let Some(stream) = h2.streams.get_mut(slot) {
        stream.directions[side].credit -= i64::from(header.length());
    }
    if h2.begun_late {
        h2.note_least_credit(side, slot);
    } else if (1..=rest.len()).contains(&(header.length() as usize)) && !header.has(flag::PADDED) {
        return whole_data(h2, side, header, rest, at, reading);
    }
    let sender = &mut h2.sides[side];
    sender.data = Remaining::new(header.length(), header.has(flag::PADDED));
    sender.state = State::Data;
    if header.length() == 0 {
        end_data(h2, side, header, at, reading);
    }
    rest
}

/// All of a DATA frame without padding, which `rest` begins with: what [`read_data`] does with the pieces of others.
#[inline(always)]
fn whole_data<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let (data, behind) = rest.split_at(rest.len().min(header.length() as usize));
    let sender = &mut h2.sides[side];
    let slot = sender.slot;
    sender.data = Remaining::default();
    h2.bytes.decoded += data.len() as u64;
    reading.watch.data(rest.len());
    if slot != streams::NONE {
        h2.stream_data(side, slot, data, at, reading);
    }
    end_data(h2, side, header, at, reading);
    behind
}

#[inline]
fn read_data<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> &'a [u8] {
    let mut bytes = bytes;
    if h2.sides[side].data.pad_length_due
        && let Some((&pad, rest)) = bytes.split_first()
    {
        h2.bytes.decoded += 1;
        reading.watch.pad_length(pad, rest.len());
        if let Err(error) = h2.sides[side].data.set_pad_length(pad) {
            h2.problem(Layer::Http2, error.reason, at, reading.cx);
        }
        bytes = rest;
    }
    forget_ended_stream(h2, side);
    let sender = &mut h2.sides[side];
    let unread = sender.slot == streams::NONE && late::at_start(&sender.data, sender.frame);
    let take = bytes.len().min(sender.data.data as usize);
    reading.watch.data(bytes.len());
    let (chunk, rest) = bytes.split_at(take);
    sender.data.data -= take as u32;
    let pad = rest.len().min(if sender.data.data == 0 { sender.data.padding as usize } else { 0 });
    sender.data.padding -= pad as u32;
    let (whole, mut slot) = (sender.data.total() == 0, sender.slot);
    h2.bytes.decoded += (take + pad) as u64;
    if unread && h2.begun_late {
        let header = h2.sides[side].frame;
        slot = h2.late_data(side, header, chunk, reading);
        h2.sides[side].slot = slot;
    }
    if !chunk.is_empty() && slot != streams::NONE {
        h2.stream_data(side, slot, chunk, at, reading);
    }
    if whole {
        let header = h2.sides[side].frame;
        end_data(h2, side, header, at, reading);
    }
    rest.get(pad..).unwrap_or_default()
}

/// Between two parts of a DATA frame its stream may have been reset, and another one may have its slot.
#[inline]
fn forget_ended_stream(h2: &mut Http2, side: usize) {
    let (slot, id) = (h2.sides[side].slot, h2.sides[side].frame.stream);
    if slot != streams::NONE && h2.streams.get_mut(slot).is_none_or(|stream| stream.id != id) {
        h2.sides[side].slot = streams::NONE;
    }
}

#[inline]
fn end_data<W: Watch + ?Sized>(h2: &mut Http2, side: usize, header: FrameHeader, at: At, reading: &mut Reading<'_, W>) {
    if header.has(flag::END_STREAM) {
        let slot = match h2.sides[side].slot {
            streams::NONE => h2.streams.slot(header.stream).unwrap_or(streams::NONE),
            slot => slot,
        };
        h2.end_direction(side, header.stream, slot, at, reading);
    }
    end_frame(h2, side, FrameType::DATA, at, reading.cx);
}

/// The frame's last byte is in.
#[inline(always)]
fn end_frame(h2: &mut Http2, side: usize, kind: FrameType, at: At, cx: &mut Context) {
    let sender = &mut h2.sides[side];
    sender.state = State::Header;
    sender.habits.frame_ends(kind);
    if cx.options.frames {
        push_row(h2, side, at, cx);
    }
}

#[inline(never)]
fn push_row(h2: &Http2, side: usize, at: At, cx: &mut Context) {
    let sender = &h2.sides[side];
    let (frame, first) = (sender.frame, sender.frame_first);
    let (last_packet, last_time_ns) = at.completes(&first);
    cx.frames.push(FrameRow {
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
