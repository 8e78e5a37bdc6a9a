//! Collects and decodes header blocks (RFC 9113 section 4.3): one HEADERS or PUSH_PROMISE frame and the CONTINUATION
//! frames after it.

use crate::http2::frame::header::{FrameError, FrameHeader, FrameType, flag};
use crate::http2::frame::{continuation, headers as headers_frame, push_promise as push_promise_frame};
use crate::limits;
use crate::store::tables::Layer;

use super::application::Application;
use super::events::{Events, HeaderBlock};
use super::reading::Parser;
use super::side::{OpenBlock, Side};
use super::watch::Watch;

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    /// A HEADERS frame. The block is decoded in place when the frame holds all of it.
    #[inline(always)]
    pub(super) fn read_headers(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        let fragment = headers_frame::parse(&header, payload)?.fragment;
        let (stream, first, end_stream) = (header.stream, self.sender().frame_first, header.has(flag::END_STREAM));
        let (changes, watched) = (self.sender().hpack.table_changes(), self.watch.watches());
        if !header.has(flag::END_HEADERS) {
            let octets = fragment.to_vec();
            self.sender().block = Some(OpenBlock { stream, end_stream, promise: false, first, octets });
        } else if !watched && let Some(seen) = self.sender().seen_blocks.take(fragment, changes) {
            A::headers(self, &HeaderBlock { stream, summary: &seen.summary, end_stream, first });
            self.sender().seen_blocks.put_back(fragment, seen);
        } else {
            let summary = &self.decode_block(fragment);
            A::headers(self, &HeaderBlock { stream, summary, end_stream, first });
        }
        Ok(())
    }

    /// A HEADERS frame of which only the first octets were captured: its stream opens, or is answered, with the fields
    /// they hold.
    pub(in crate::http2) fn read_cut_headers(&mut self, header: FrameHeader, octets: &[u8]) {
        if header.has(flag::PADDED) || header.has(flag::PRIORITY) || !header.has(flag::END_HEADERS) {
            return; // rare, and not worth a second way to read them
        }
        // the block ends in the middle of a field, or lacks some: either way there are unknown ones
        let mut fields = A::Block::default();
        self.h2.sides[self.side].hpack.decode_part(octets, A::fields(self.cx), &mut |field| {
            self.watch.field(field.name, field.value, field.representation);
            A::field(&mut fields, &field);
        });
        self.watch.block(octets, false);
        let summary = &A::block_ends(self.h2, fields, false, self.cx);
        let (stream, first, end_stream) = (header.stream, self.sender().frame_first, header.has(flag::END_STREAM));
        A::headers(self, &HeaderBlock { stream, summary, end_stream, first });
    }

    /// A CONTINUATION frame: only ever right after the frame it continues, on the same stream (section 6.10).
    pub(super) fn read_continuation(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        let fragment = continuation::parse(&header, payload)?;
        let Some(mut block) = self.sender().block.take() else {
            return Err(FrameError::protocol("CONTINUATION without a header block to continue"));
        };
        if block.stream != header.stream {
            self.sender().forget_block();
            return Err(FrameError::protocol("CONTINUATION on another stream than its header block"));
        }
        if block.octets.len() + fragment.len() > limits::HEADER_BLOCK {
            self.sender().forget_block();
            self.problem(Layer::Http2, "header block is too long to keep: left out");
            return Ok(());
        }
        block.octets.extend_from_slice(fragment);
        self.keep_block(header, block);
        Ok(())
    }

    /// A PUSH_PROMISE frame: its block moves the HPACK table; the promised stream is not gRPC's.
    pub(super) fn read_push_promise(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), FrameError> {
        let octets = push_promise_frame::parse(&header, payload)?.fragment.to_vec();
        let (stream, first) = (header.stream, self.sender().frame_first);
        self.keep_block(header, OpenBlock { stream, end_stream: false, promise: true, first, octets });
        Ok(())
    }

    /// Decodes a block that is whole, and keeps another one for its next frame.
    fn keep_block(&mut self, header: FrameHeader, block: OpenBlock) {
        if !header.has(flag::END_HEADERS) {
            self.sender().block = Some(block);
            return;
        }
        let summary = &self.decode_block(&block.octets);
        if !block.promise {
            let OpenBlock { stream, end_stream, first, .. } = block;
            A::headers(self, &HeaderBlock { stream, summary, end_stream, first });
        }
    }

    /// Another frame came inside a header block (PROTOCOL_ERROR, section 4.3).
    #[cold]
    pub(in crate::http2) fn abandon_block(&mut self) {
        self.breach("a header block was interrupted by another frame");
        self.sender().forget_block();
    }

    fn decode_block(&mut self, block: &[u8]) -> A::Summary {
        let sender = &mut self.h2.sides[self.side];
        let before = sender.hpack.table_changes();
        let mut fields = A::Block::default();
        let done = sender.hpack.decode(block, A::fields(self.cx), &mut |field| {
            A::field(&mut fields, &field);
            self.watch.field(field.name, field.value, field.representation);
        });
        self.watch.block(block, done.is_ok());
        let summary = A::block_ends(self.h2, fields, done.is_ok(), self.cx);
        let sender = self.sender();
        if done.is_err() {
            self.breach("HPACK: header block cannot be decoded to its end");
        } else if sender.hpack.table_changes() == before {
            sender.seen_blocks.remember(block, before, summary);
        }
        summary
    }
}

impl<A: Application> Side<A> {
    /// A frame is left out: if it carried a header block, what that did to the HPACK table is unknown.
    pub(in crate::http2) fn forget_left_out(&mut self, kind: FrameType) {
        if matches!(kind, FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION) {
            self.forget_block();
        }
    }

    /// `bytes` bytes of a frame are not in the capture, in which a header block may have inserted entries.
    pub(in crate::http2) fn lack_block(&mut self, kind: FrameType, bytes: u64) {
        if matches!(kind, FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION) {
            let open = self.block.take().map_or(0, |block| block.octets.len() as u64);
            self.hpack.mark_hole(bytes.saturating_add(open));
        }
    }

    /// A header block is not decoded: what it did to the HPACK table is unknown.
    pub(in crate::http2) fn forget_block(&mut self) {
        self.block = None;
        self.hpack.mark_begun_late();
    }
}
