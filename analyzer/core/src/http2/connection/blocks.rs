//! Collects and decodes header blocks (RFC 9113 section 4.3): one HEADERS or PUSH_PROMISE frame and the CONTINUATION
//! frames after it.

use crate::at::At;
use crate::http2::connection::reading::Reading;
use crate::http2::frame::header::{FrameError, FrameHeader, FrameType, flag};
use crate::http2::frame::{continuation, headers as headers_frame, push_promise as push_promise_frame};
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::Layer;

use super::application::Application;
use super::events::{Events, HeaderBlock};
use super::side::OpenBlock;
use super::state::Http2;
use super::watch::Watch;

/// A HEADERS frame. The block is decoded in place when the frame holds all of it.
#[inline]
pub(in crate::http2) fn headers<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> Result<(), FrameError> {
    let fragment = headers_frame::parse(&header, payload)?.fragment;
    let first = h2.sides[side].frame_first;
    let end_stream = header.has(flag::END_STREAM);
    if header.has(flag::END_HEADERS) {
        let summary = decode(h2, side, fragment, at, reading, watch);
        let block = HeaderBlock { side, stream: header.stream, summary: &summary, end_stream, first, last: at };
        A::headers(h2, &block, reading);
    } else {
        let octets = fragment.to_vec();
        h2.sides[side].block = Some(OpenBlock { stream: header.stream, end_stream, promise: false, first, octets });
    }
    Ok(())
}

/// A HEADERS frame of which only the first octets were captured: its stream opens, or is answered, with the fields
/// they hold.
pub(in crate::http2) fn headers_cut<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    octets: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    if header.has(flag::PADDED) || header.has(flag::PRIORITY) || !header.has(flag::END_HEADERS) {
        return; // rare, and not worth a second way to read them
    }
    // the block ends in the middle of a field, or lacks some: either way there are unknown ones
    let mut fields = A::Block::default();
    h2.sides[side].hpack.decode_part(octets, A::fields(reading.cx), &mut |field| {
        watch.field(field.name, field.value, field.representation);
        A::field(&mut fields, &field);
    });
    watch.block(octets, false);
    let summary = A::block_ends(h2, fields, false, reading.cx);
    let (stream, first) = (header.stream, h2.sides[side].frame_first);
    let end_stream = header.has(flag::END_STREAM);
    A::headers(h2, &HeaderBlock { side, stream, summary: &summary, end_stream, first, last: at }, reading);
}

/// A CONTINUATION frame: only ever right after the frame it continues, on the same stream (section 6.10).
pub(in crate::http2) fn continuation<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> Result<(), FrameError> {
    let fragment = continuation::parse(&header, payload)?;
    let Some(mut block) = h2.sides[side].block.take() else {
        return Err(FrameError::protocol("CONTINUATION without a header block to continue"));
    };
    if block.stream != header.stream {
        forget(h2, side);
        return Err(FrameError::protocol("CONTINUATION on another stream than its header block"));
    }
    if block.octets.len() + fragment.len() > limits::HEADER_BLOCK {
        forget(h2, side);
        return Err(FrameError::protocol("header block is too long to keep: left out"));
    }
    block.octets.extend_from_slice(fragment);
    if header.has(flag::END_HEADERS) {
        finish(h2, side, &block, at, reading, watch);
    } else {
        h2.sides[side].block = Some(block);
    }
    Ok(())
}

/// A PUSH_PROMISE frame: its block moves the HPACK table; the promised stream is not gRPC's.
pub(in crate::http2) fn push_promise<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> Result<(), FrameError> {
    let fragment = push_promise_frame::parse(&header, payload)?.fragment;
    let block = OpenBlock {
        stream: header.stream,
        end_stream: false,
        promise: true,
        first: h2.sides[side].frame_first,
        octets: fragment.to_vec(),
    };
    if header.has(flag::END_HEADERS) {
        finish(h2, side, &block, at, reading, watch);
    } else {
        h2.sides[side].block = Some(block);
    }
    Ok(())
}

fn finish<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    block: &OpenBlock,
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let summary = decode(h2, side, &block.octets, at, reading, watch);
    if !block.promise {
        let &OpenBlock { stream, end_stream, first, .. } = block;
        A::headers(h2, &HeaderBlock { side, stream, summary: &summary, end_stream, first, last: at }, reading);
    }
}

/// Another frame came inside a header block (PROTOCOL_ERROR, section 4.3).
#[cold]
pub(in crate::http2) fn abandon<A: Application>(h2: &mut Http2<A>, side: usize, at: At, cx: &mut Context) {
    h2.problem(Layer::Http2, "a header block was interrupted by another frame", at, cx);
    forget(h2, side);
}

/// A frame is left out: if it carried a header block, what that did to the HPACK table is unknown.
pub(in crate::http2) fn forget_left_out<A: Application>(h2: &mut Http2<A>, side: usize, kind: FrameType) {
    if matches!(kind, FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION) {
        forget(h2, side);
    }
}

/// `bytes` bytes of a frame are not in the capture, in which a header block may have inserted entries.
pub(in crate::http2) fn lack<A: Application>(h2: &mut Http2<A>, side: usize, kind: FrameType, bytes: u64) {
    if matches!(kind, FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION) {
        let open = h2.sides[side].block.take().map_or(0, |block| block.octets.len() as u64);
        h2.sides[side].hpack.mark_hole(bytes.saturating_add(open));
    }
}

/// A header block is not decoded: what it did to the HPACK table is unknown.
pub(in crate::http2) fn forget<A: Application>(h2: &mut Http2<A>, side: usize) {
    h2.sides[side].block = None;
    h2.sides[side].hpack.mark_begun_late();
}

#[inline]
fn decode<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    block: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> A::Summary {
    let sender = &mut h2.sides[side];
    let before = sender.hpack.table_changes();
    if !watch.watches()
        && let Some(summary) = sender.seen_blocks.find(block, before)
    {
        return summary;
    }
    let mut fields = A::Block::default();
    let done = sender.hpack.decode(block, A::fields(reading.cx), &mut |field| {
        A::field(&mut fields, &field);
        watch.field(field.name, field.value, field.representation);
    });
    watch.block(block, done.is_ok());
    let summary = A::block_ends(h2, fields, done.is_ok(), reading.cx);
    let sender = &mut h2.sides[side];
    if done.is_err() {
        h2.problem(Layer::Http2, "HPACK: header block cannot be decoded to its end", at, reading.cx);
    } else if sender.hpack.table_changes() == before {
        sender.seen_blocks.remember(block, before, summary);
    }
    summary
}
