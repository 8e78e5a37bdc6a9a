//! The octets of one direction, cut into frames. DATA is read in place and never kept; other frames are kept only
//! when they are cut over segments.

use crate::at::At;
use crate::context::Context;
use crate::limits;
use crate::tables::{FrameRow, Layer};

use super::data::Remaining;
use super::detect::{self, Opening};
use super::frame::{DEFAULT_MAX_FRAME_SIZE, FrameHeader, FrameType, HEADER_LEN, flag};
use super::resync::Search;
use super::side::State;
use super::watch::Watch;
use super::{Http2, Protocol, blocks, control, late, streams};

/// Takes the next bytes of `side`.
#[inline]
pub(super) fn feed<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    bytes: &[u8],
    at: At,
    cx: &mut Context,
    watch: &mut W,
) {
    let sender = &mut h2.sides[side];
    let inside = sender.inside();
    sender.habits.packet_begins(inside);
    watch.reads(0);
    read(h2, side, bytes, at, cx, watch);
    if h2.sides[side].replay.is_some() {
        replay(h2, side, cx, watch);
    }
    h2.sides[side].habits.packet_ends();
}

/// Reads bytes; every turn of the loop consumes a byte or leaves its state.
#[inline]
fn read<W: Watch + ?Sized>(h2: &mut Http2, side: usize, bytes: &[u8], at: At, cx: &mut Context, watch: &mut W) {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = match h2.sides[side].state {
            State::Header => read_header(h2, side, rest, at, cx, watch),
            State::Data => read_data(h2, side, rest, at, cx, watch),
            State::Control => read_control(h2, side, rest, at, cx, watch),
            State::Skip(left) => read_skip(h2, side, rest, left, at, cx),
            State::Opening => read_opening(h2, side, rest, at, cx, watch),
            State::Http1Body(left) => read_http1_body(h2, side, rest, left),
            State::Lost => search(h2, side, rest, at, watch),
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
    cx: &mut Context,
    watch: &mut W,
) -> &'a [u8] {
    let sender = &mut h2.sides[side];
    if sender.head_have == 0
        && let Some((octets, rest)) = bytes.split_first_chunk::<HEADER_LEN>()
    {
        sender.frame_first = at;
        h2.bytes.decoded += HEADER_LEN as u64;
        let header = FrameHeader::parse(octets);
        return begin_frame(h2, side, header, rest, at, cx, watch);
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
    begin_cut_frame(h2, side, rest, at, cx, watch)
}

/// A header cut over segments; apart, because the usual one is read in place and inlined.
#[cold]
fn begin_cut_frame<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    rest: &'a [u8],
    at: At,
    cx: &mut Context,
    watch: &mut W,
) -> &'a [u8] {
    let header = FrameHeader::parse(&h2.sides[side].head);
    begin_frame(h2, side, header, rest, at, cx, watch)
}

#[inline(always)]
fn begin_frame<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    cx: &mut Context,
    watch: &mut W,
) -> &'a [u8] {
    watch.frame(header, rest.len());
    h2.sides[side].frame = header;
    h2.sides[side].habits.frame_begins(header.kind());
    if h2.sides[side].block.is_some() && header.kind() != FrameType::CONTINUATION {
        blocks::abandon(h2, side, at, cx);
    }
    if let Err(error) = header.check() {
        h2.problem(Layer::Http2, error.reason, at, cx);
        return begin_wrong_frame(h2, side, header, rest, at, cx);
    }
    if header.length() > DEFAULT_MAX_FRAME_SIZE {
        check_frame_size(h2, side, header, at, cx);
    }
    if header.kind() == FrameType::WINDOW_UPDATE
        && let Some((payload, rest)) = rest.split_first_chunk::<4>()
    {
        // as many as DATA in many captures: read without the detour
        h2.bytes.decoded += payload.len() as u64;
        watch.control(header, payload);
        control::window_update(h2, side, header, payload, at, cx);
        end_frame(h2, side, at, cx);
        return rest;
    }
    match header.kind() {
        FrameType::DATA => begin_data(h2, side, header, rest, at, cx),
        kind if kind.is_known() => begin_control(h2, side, header, rest, at, cx, watch),
        _ => begin_skip(h2, side, header, rest, at, cx),
    }
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
        end_frame(h2, side, at, cx);
    }
    rest
}

fn read_skip<'a>(h2: &mut Http2, side: usize, bytes: &'a [u8], left: u32, at: At, cx: &mut Context) -> &'a [u8] {
    let take = bytes.len().min(left as usize);
    h2.bytes.decoded += take as u64;
    let left = left - take as u32;
    h2.sides[side].state = State::Skip(left);
    if left == 0 {
        end_frame(h2, side, at, cx);
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
    cx: &mut Context,
    watch: &mut W,
) -> &'a [u8] {
    if let Some((payload, rest)) = rest.split_at_checked(header.length() as usize) {
        h2.bytes.decoded += payload.len() as u64;
        watch.control(header, payload);
        control::apply(h2, side, header, payload, at, cx, watch);
        end_frame(h2, side, at, cx);
        return rest;
    }
    let most = match header.kind() {
        FrameType::HEADERS | FrameType::CONTINUATION | FrameType::PUSH_PROMISE => limits::HEADER_BLOCK,
        _ => limits::CONTROL_FRAME,
    };
    if header.length() as usize > most {
        h2.problem(Layer::Http2, "frame is too long to keep: skipped", at, cx);
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
    cx: &mut Context,
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
        control::apply(h2, side, header, &payload, at, cx, watch);
        h2.sides[side].kept = payload;
        h2.sides[side].kept.clear();
        end_frame(h2, side, at, cx);
    }
    rest
}

#[inline]
fn begin_data<'a>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    cx: &mut Context,
) -> &'a [u8] {
    let slot = h2.streams.slot(header.stream).unwrap_or(streams::NONE);
    let sender = &mut h2.sides[side];
    sender.connection_credit -= i64::from(header.length());
    sender.last_stream = header.stream;
    sender.slot = slot;
    sender.data = Remaining::new(header.length(), header.has(flag::PADDED));
    sender.state = State::Data;
    if let Some(stream) = h2.streams.get_mut(slot) {
        stream.directions[side].credit -= i64::from(header.length());
    }
    if h2.begun_late {
        h2.note_least_credit(side, slot);
    }
    if header.length() == 0 {
        end_data(h2, side, header, at, cx);
    }
    rest
}

#[inline]
fn read_data<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    bytes: &'a [u8],
    at: At,
    cx: &mut Context,
    watch: &mut W,
) -> &'a [u8] {
    let mut bytes = bytes;
    if h2.sides[side].data.pad_length_due
        && let Some((&pad, rest)) = bytes.split_first()
    {
        h2.bytes.decoded += 1;
        watch.pad_length(pad, rest.len());
        if let Err(error) = h2.sides[side].data.set_pad_length(pad) {
            h2.problem(Layer::Http2, error.reason, at, cx);
        }
        bytes = rest;
    }
    let sender = &mut h2.sides[side];
    let unread = sender.slot == streams::NONE && late::at_start(&sender.data, sender.frame);
    let take = bytes.len().min(sender.data.data as usize);
    watch.data(bytes.len());
    let (chunk, rest) = bytes.split_at(take);
    sender.data.data -= take as u32;
    let pad = rest.len().min(if sender.data.data == 0 { sender.data.padding as usize } else { 0 });
    sender.data.padding -= pad as u32;
    let (whole, mut slot) = (sender.data.total() == 0, sender.slot);
    h2.bytes.decoded += (take + pad) as u64;
    if unread && h2.begun_late {
        let header = h2.sides[side].frame;
        slot = h2.late_data(side, header, chunk, cx, watch);
        h2.sides[side].slot = slot;
    }
    if !chunk.is_empty() && slot != streams::NONE {
        h2.stream_data(side, slot, chunk, at, cx, watch);
    }
    if whole {
        let header = h2.sides[side].frame;
        end_data(h2, side, header, at, cx);
    }
    rest.get(pad..).unwrap_or_default()
}

#[inline]
fn end_data(h2: &mut Http2, side: usize, header: FrameHeader, at: At, cx: &mut Context) {
    if header.has(flag::END_STREAM) {
        h2.end_direction(side, header.stream, at, cx);
    }
    end_frame(h2, side, at, cx);
}

/// The frame's last byte is in.
#[inline(always)]
fn end_frame(h2: &mut Http2, side: usize, at: At, cx: &mut Context) {
    let sender = &mut h2.sides[side];
    sender.state = State::Header;
    sender.habits.frame_ends(sender.frame.kind());
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

fn read_opening<'a, W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    bytes: &'a [u8],
    at: At,
    cx: &mut Context,
    watch: &mut W,
) -> &'a [u8] {
    let mut kept = h2.sides[side].search.take().unwrap_or_default();
    h2.bytes.undecoded += kept.add(bytes, at);
    match judge_opening(h2, side, &kept, at, cx, watch) {
        Some(used) => h2.sides[side].replay = Some((kept, used)),
        None => h2.sides[side].search = Some(kept),
    }
    &[]
}

/// Reads kept bytes again, from an offset on, in the state they have led to. What they lead to may be lost, kept and
/// found again: one after the other, for recursion would be as deep as the input has it.
#[cold]
fn replay<W: Watch + ?Sized>(h2: &mut Http2, side: usize, cx: &mut Context, watch: &mut W) {
    let mut left = Vec::new();
    while let Some((kept, from)) = h2.sides[side].replay.take().or_else(|| left.pop()) {
        let Some((piece, at)) = kept.piece(from) else { continue };
        let end = from + piece.len();
        watch.reads(kept.len() - end);
        read(h2, side, piece, at, cx, watch);
        if end < kept.len() {
            left.push((kept, end));
        }
    }
}

/// Decides what a direction's first bytes are and sets the state that reads them; gives how many of them need no
/// further reading, or `None` to wait for more.
fn judge_opening<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    kept: &Search,
    at: At,
    cx: &mut Context,
    watch: &mut W,
) -> Option<usize> {
    let bytes = kept.bytes();
    let what = detect::opening(bytes);
    let (state, used) = match what {
        Opening::Undecided => return None,
        Opening::Preface => {
            h2.protocol = Protocol::Http2;
            h2.set_client(side, at, cx);
            h2.opens(side);
            h2.bytes.decoded += detect::PREFACE.len() as u64;
            h2.sides[side].habits.other_content();
            (State::Header, detect::PREFACE.len())
        }
        Opening::Settings => {
            h2.protocol = Protocol::Http2;
            h2.opens(side);
            (State::Header, 0)
        }
        Opening::Http1Request | Opening::Http1Response => return judge_http1(h2, side, kept, at, cx, watch),
        Opening::Tls => {
            h2.protocol = Protocol::Tls;
            (State::Foreign, 0)
        }
        Opening::Other if h2.begun_late || h2.forced || h2.protocol == Protocol::Http2 => {
            h2.sides[side].hpack.mark_begun_late();
            (State::Lost, 0)
        }
        Opening::Other => {
            watch.foreign(bytes.len());
            h2.protocol = if h2.protocol == Protocol::Undecided { Protocol::Other } else { h2.protocol };
            (State::Foreign, 0)
        }
    };
    watch.opening(bytes, what);
    h2.sides[side].state = state;
    Some(used)
}

/// HTTP/1.1: an upgrade to h2c is followed (RFC 7540 section 3.2), all else is another protocol.
fn judge_http1<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    kept: &Search,
    at: At,
    cx: &mut Context,
    watch: &mut W,
) -> Option<usize> {
    let head = match detect::http1_head(kept.bytes()) {
        Some(head) => head,
        None if kept.len() < limits::UPGRADE_HEAD => return None,
        None => detect::Http1Head::default(),
    };
    let used = head.length;
    let agreed = head.switching && head.upgrade_h2c && h2.upgrade.is_some();
    let asked = head.upgrade_h2c && !head.switching;
    watch.http1(kept.bytes(), used, asked || agreed, agreed);
    if agreed {
        h2.protocol = Protocol::Http2;
        h2.sides[side].state = State::Header;
        h2.upgraded(side, at, cx);
    } else if asked {
        h2.set_client(side, at, cx);
        h2.sides[side].frame_first = kept.first();
        let body = head.content_length;
        h2.sides[side].state = if body > 0 { State::Http1Body(body) } else { State::Opening };
        h2.upgrade = Some(head);
    } else {
        h2.protocol = Protocol::Other;
        h2.sides[side].state = State::Foreign;
        return Some(0);
    }
    h2.bytes.decoded += used as u64;
    Some(used)
}

fn read_http1_body<'a>(h2: &mut Http2, side: usize, bytes: &'a [u8], left: u64) -> &'a [u8] {
    let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    let left = left - take as u64;
    h2.bytes.decoded += take as u64;
    h2.sides[side].state = if left == 0 { State::Opening } else { State::Http1Body(left) };
    bytes.get(take..).unwrap_or_default()
}

/// Looks for the next frame boundary; when it is found, what follows it is read again as frames.
fn search<'a, W: Watch + ?Sized>(h2: &mut Http2, side: usize, bytes: &'a [u8], at: At, watch: &mut W) -> &'a [u8] {
    let mut search = h2.sides[side].search.take().unwrap_or_default();
    h2.bytes.undecoded += search.add(bytes, at);
    let found = search.find(h2.highest_plausible());
    watch.searched(bytes.len(), found.map(|found| search.len() - found));
    let Some(found) = found else {
        if watch.watches() {
            watch.held(&search.held());
        }
        if search.given_up() && h2.protocol != Protocol::Http2 {
            h2.protocol = Protocol::Other;
            h2.bytes.not_http2 += search.len() as u64;
            h2.sides[side].state = State::Foreign;
            watch.foreign(0);
        } else {
            h2.sides[side].search = Some(search);
        }
        return &[];
    };
    h2.bytes.undecoded += found as u64;
    h2.protocol = Protocol::Http2;
    let until = found.checked_sub(1).and_then(|last| search.piece(last)).map_or(0, |(_, at)| at.packet);
    h2.sides[side].found_boundary(found, until);
    h2.sides[side].replay = Some((search, found));
    &[]
}

/// `length` bytes of `side` are not in the capture. Inside a frame that is read past, decoding goes on; else the
/// boundary is lost.
pub(super) fn gap<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    length: u64,
    at: At,
    cx: &mut Context,
    watch: &mut W,
) {
    let Ok(short) = u32::try_from(length) else {
        return lose(h2, side, length, at, cx, watch);
    };
    match h2.sides[side].state {
        State::Data if !h2.sides[side].data.pad_length_due && short <= h2.sides[side].data.total() => {
            gap_in_data(h2, side, short, at, cx);
        }
        State::Skip(left) if short <= left => {
            h2.sides[side].state = State::Skip(left - short);
            if left == short {
                end_frame(h2, side, at, cx);
            }
        }
        State::Control => gap_in_control(h2, side, short, at, cx, watch),
        State::Foreign => {}
        State::Opening => {
            if h2.protocol != Protocol::Other && h2.protocol != Protocol::Tls {
                lose(h2, side, length, at, cx, watch);
            }
        }
        _ => lose(h2, side, length, at, cx, watch),
    }
}

fn gap_in_data(h2: &mut Http2, side: usize, length: u32, at: At, cx: &mut Context) {
    let sender = &mut h2.sides[side];
    let in_data = length.min(sender.data.data);
    sender.data.data -= in_data;
    sender.data.padding -= length - in_data;
    let (slot, whole, header) = (sender.slot, sender.data.total() == 0, sender.frame);
    h2.stream_gap(side, slot, in_data, at, cx);
    if whole {
        end_data(h2, side, header, at, cx);
    }
}

/// The frame's length is known, so is its end; a header block gives the fields that came before the gap.
fn gap_in_control<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    length: u32,
    at: At,
    cx: &mut Context,
    watch: &mut W,
) {
    let sender = &mut h2.sides[side];
    let header = sender.frame;
    let kept = std::mem::take(&mut sender.kept);
    let left = (header.length() as usize).checked_sub(kept.len() + length as usize);
    if header.kind() == FrameType::HEADERS {
        blocks::headers_cut(h2, side, header, &kept, at, cx, watch);
    }
    blocks::lack(h2, side, header.kind(), kept.len() as u64 + u64::from(length));
    match left {
        Some(0) => end_frame(h2, side, at, cx),
        Some(left) => h2.sides[side].state = State::Skip(left as u32),
        None => lose(h2, side, u64::from(length), at, cx, watch),
    }
}

fn lose<W: Watch + ?Sized>(h2: &mut Http2, side: usize, missing: u64, at: At, cx: &mut Context, watch: &mut W) {
    if let Some(search) = h2.sides[side].search.take() {
        if h2.sides[side].state == State::Opening {
            watch.undecided(search.bytes());
        }
        h2.bytes.undecoded += search.len() as u64;
    }
    h2.sides[side].lose(missing, at.packet);
    h2.doubt_open_rpcs(at);
    if !h2.unproven {
        h2.problem(Layer::Http2, "bytes are missing: frames are unknown up to the next boundary", at, cx);
    }
}
