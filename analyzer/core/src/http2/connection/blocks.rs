//! Header blocks (RFC 9113 section 4.3): one HEADERS or PUSH_PROMISE frame and the CONTINUATION frames after it.

use crate::at::At;
use crate::grpc::headers::{Origin, Summary};
use crate::grpc::rpc::HeaderBlock;
use crate::http2::connection::reading::Reading;
use crate::http2::frame::header::{FrameError, FrameHeader, FrameType, flag};
use crate::http2::frame::{continuation, headers as headers_frame, push_promise as push_promise_frame};
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::Layer;

use super::side::OpenBlock;
use super::state::Http2;
use super::watch::Watch;

/// A HEADERS frame. The block is decoded in place when the frame holds all of it.
#[inline]
pub(in crate::http2) fn headers<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> Result<(), FrameError> {
    let fragment = headers_frame::parse(&header, payload)?.fragment;
    let first = h2.sides[side].frame_first;
    let end_stream = header.has(flag::END_STREAM);
    if header.has(flag::END_HEADERS) {
        let summary = decode(h2, side, fragment, at, reading);
        let block = HeaderBlock { side, stream: header.stream, summary: &summary, end_stream, first, last: at };
        h2.header_block(&block, reading);
    } else {
        let octets = fragment.to_vec();
        h2.sides[side].block = Some(OpenBlock { stream: header.stream, end_stream, promise: false, first, octets });
    }
    Ok(())
}

/// A HEADERS frame of which only the first octets were captured: its stream opens, or is answered, with the fields
/// they hold.
pub(in crate::http2) fn headers_cut<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    octets: &[u8],
    at: At,
    reading: &mut Reading<'_, W>,
) {
    if header.has(flag::PADDED) || header.has(flag::PRIORITY) || !header.has(flag::END_HEADERS) {
        return; // rare, and not worth a second way to read them
    }
    let mut summary = Summary::default();
    // the block ends in the middle of a field, or lacks some: either way there are unknown ones
    h2.sides[side].hpack.decode_part(octets, &mut reading.cx.strings, &mut |field| {
        reading.watch.field(field.name, field.value, field.representation);
        summary.add(field.class);
    });
    reading.watch.block(octets, false);
    summary.unknown += 1;
    let (stream, first) = (header.stream, h2.sides[side].frame_first);
    let end_stream = header.has(flag::END_STREAM);
    h2.header_block(&HeaderBlock { side, stream, summary: &summary, end_stream, first, last: at }, reading);
}

/// A CONTINUATION frame: only ever right after the frame it continues, on the same stream (section 6.10).
pub(in crate::http2) fn continuation<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_, W>,
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
        finish(h2, side, &block, at, reading);
    } else {
        h2.sides[side].block = Some(block);
    }
    Ok(())
}

/// A PUSH_PROMISE frame: its block moves the HPACK table; the promised stream is not gRPC's.
pub(in crate::http2) fn push_promise<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    payload: &[u8],
    at: At,
    reading: &mut Reading<'_, W>,
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
        finish(h2, side, &block, at, reading);
    } else {
        h2.sides[side].block = Some(block);
    }
    Ok(())
}

fn finish<W: Watch + ?Sized>(h2: &mut Http2, side: usize, block: &OpenBlock, at: At, reading: &mut Reading<'_, W>) {
    let summary = decode(h2, side, &block.octets, at, reading);
    if !block.promise {
        let &OpenBlock { stream, end_stream, first, .. } = block;
        h2.header_block(&HeaderBlock { side, stream, summary: &summary, end_stream, first, last: at }, reading);
    }
}

/// Another frame came inside a header block (PROTOCOL_ERROR, section 4.3).
#[cold]
pub(in crate::http2) fn abandon(h2: &mut Http2, side: usize, at: At, cx: &mut Context) {
    h2.problem(Layer::Http2, "a header block was interrupted by another frame", at, cx);
    forget(h2, side);
}

/// A frame is left out: if it carried a header block, what that did to the HPACK table is unknown.
pub(in crate::http2) fn forget_left_out(h2: &mut Http2, side: usize, kind: FrameType) {
    if matches!(kind, FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION) {
        forget(h2, side);
    }
}

/// `bytes` bytes of a frame are not in the capture, in which a header block may have inserted entries.
pub(in crate::http2) fn lack(h2: &mut Http2, side: usize, kind: FrameType, bytes: u64) {
    if matches!(kind, FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION) {
        let open = h2.sides[side].block.take().map_or(0, |block| block.octets.len() as u64);
        h2.sides[side].hpack.mark_hole(bytes.saturating_add(open));
    }
}

/// A header block is not decoded: what it did to the HPACK table is unknown.
pub(in crate::http2) fn forget(h2: &mut Http2, side: usize) {
    h2.sides[side].block = None;
    h2.sides[side].hpack.mark_begun_late();
}

/// Longest block that is remembered: a gRPC client's steady requests are some ten octets of indices.
const REMEMBERED: usize = 24;

/// The meaning of header blocks that came before. RPCs of one method repeat the same few octets; while the HPACK
/// table stays, so does their meaning.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::http2) struct SeenBlocks([SeenBlock; 4]);

#[derive(Clone, Copy, Debug, Default)]
struct SeenBlock {
    octets: Octets,
    table_changes: u64,
    summary: Summary,
}

/// At most [`REMEMBERED`] octets as words, which are compared without a call, and their number.
type Octets = ([u64; REMEMBERED / 8], usize);

/// The octets as words that overlap where the length is no multiple of theirs; `None` when they are too many or none.
#[inline(always)]
fn octets(block: &[u8]) -> Option<Octets> {
    let eight =
        |from: usize| block.get(from..).and_then(|rest| rest.first_chunk()).map(|&word| u64::from_le_bytes(word));
    let words = match block.len() {
        8..=16 => [eight(0)?, eight(block.len() - 8)?, 0],
        17..=REMEMBERED => [eight(0)?, eight(8)?, eight(block.len() - 8)?],
        4..=7 => {
            let (first, last) = (block.first_chunk::<4>()?, block.last_chunk::<4>()?);
            [u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)), 0]
        }
        1..=3 => {
            let (first, middle, last) = (block.first()?, block.get(block.len() / 2)?, block.last()?);
            [u64::from(*first), u64::from(*middle), u64::from(*last)]
        }
        _ => return None,
    };
    Some((words, block.len()))
}

impl SeenBlocks {
    /// Reads all of them.
    #[inline]
    pub(in crate::http2) fn touch(&self) -> u64 {
        let words = |seen: &SeenBlock| seen.table_changes ^ u64::from(seen.summary.unknown);
        self.0.iter().fold(0, |all, seen| all ^ words(seen))
    }

    /// A slot per kind of block: request, response and trailers differ in length or last octet.
    #[inline]
    fn slot(&mut self, block: &[u8]) -> Option<&mut SeenBlock> {
        let last = *block.last()?;
        let slots = self.0.len();
        self.0.get_mut((block.len() ^ usize::from(last)) % slots)
    }

    #[inline]
    fn find(&mut self, block: &[u8], table_changes: u64) -> Option<Summary> {
        let octets = octets(block)?;
        let seen = self.slot(block)?;
        (seen.table_changes == table_changes && seen.octets == octets).then_some(seen.summary)
    }

    fn remember(&mut self, block: &[u8], table_changes: u64, summary: Summary) {
        if let (Some(octets), Some(seen)) = (octets(block), self.slot(block)) {
            *seen = SeenBlock { octets, table_changes, summary };
        }
    }
}

#[inline]
fn decode<W: Watch + ?Sized>(
    h2: &mut Http2,
    side: usize,
    block: &[u8],
    at: At,
    reading: &mut Reading<'_, W>,
) -> Summary {
    let sender = &mut h2.sides[side];
    let before = sender.hpack.table_changes();
    if !reading.watch.watches()
        && let Some(summary) = sender.seen_blocks.find(block, before)
    {
        return summary;
    }
    let (mut summary, mut origin) = (Summary::default(), Origin::default());
    let done = sender.hpack.decode(block, &mut reading.cx.strings, &mut |field| {
        if field.name.is_none() || field.value.is_none() {
            origin.add_unknown(field.class, field.entry);
        } else {
            origin.add(field.class);
        }
        summary.add(field.class);
        reading.watch.field(field.name, field.value, field.representation);
    });
    reading.watch.block(block, done.is_ok());
    if summary.unknown > 0 && summary.request && summary.method.is_none() && done.is_ok() {
        h2.label_method(&mut summary, &origin, reading.cx);
    }
    let sender = &mut h2.sides[side];
    if done.is_err() {
        summary.unknown += 1;
        h2.problem(Layer::Http2, "HPACK: header block cannot be decoded to its end", at, reading.cx);
    } else if sender.hpack.table_changes() == before {
        sender.seen_blocks.remember(block, before, summary);
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Blocks that differ in any octet, or in length, have other words: one is never taken for another.
        #[test]
        fn words_tell_blocks_apart(block in prop::collection::vec(any::<u8>(), 1..=REMEMBERED), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let mut other = block.clone();
            other[at.index(block.len())] ^= 1 << bit;
            let words = octets(&block);
            prop_assert!(words.is_some());
            prop_assert_eq!(octets(&block), words);
            prop_assert_ne!(octets(&other), words);
            prop_assert_ne!(octets(&[&block[..], &[0]].concat()), words);
        }
    }

    #[test]
    fn no_words_for_none_and_for_too_many() {
        assert_eq!(octets(&[]), None);
        assert_eq!(octets(&[0; REMEMBERED + 1]), None);
    }
}
