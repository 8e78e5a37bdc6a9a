//! Receives the events of HTTP/2 for gRPC.

use crate::at::At;
use crate::http2::connection::application::Application;
use crate::http2::connection::detect::Http1Head;
use crate::http2::connection::events::{Events, FieldOf, HeaderBlock};
use crate::http2::connection::http2::End;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::FrameHeader;
use crate::store::context::Context;
use crate::store::strings::Strings;

use super::call::Call;
use super::connection::{Grpc, Http2, Parser};
use super::headers::{Block, Summary, is_connect_get};
use super::protocol::Content;
use super::rpc_end::doubt_open_rpcs;

impl Application for Grpc {
    type Fields = Strings;
    type Block = Block;
    type Summary = Summary;
    type Stream = Call;

    #[inline]
    fn fields(cx: &mut Context) -> &mut Strings {
        &mut cx.strings
    }

    #[inline]
    fn followed(&self) -> u32 {
        self.rpcs.saturating_add(self.rpcs_before)
    }

    #[inline]
    fn open(&self) -> u32 {
        self.open_rpcs
    }

    fn content_over_http1(content_type: &[u8]) -> Option<(&'static [u8], bool)> {
        Content::over_http1(content_type)
    }

    fn is_over_http1<'a>(is_get: bool, path: &[u8], value: &dyn Fn(&[u8]) -> Option<&'a [u8]>) -> bool {
        let content = || Content::from_header(&value(b"content-type").unwrap_or_default().to_ascii_lowercase());
        is_get && is_connect_get(path) || !is_get && content().is_connect(value(b"connect-protocol-version").is_some())
    }

    #[inline]
    fn owed(call: &Call, side: usize) -> u64 {
        u64::from(call.directions[side].reader.owed())
    }

    fn begun_before(call: &Call) -> bool {
        call.begun_before
    }

    #[inline]
    fn touch(&self) -> u64 {
        u64::from(self.rpcs) ^ self.budget.0[0] ^ self.budget.0[8]
    }

    #[inline]
    fn touch_stream(call: &Call) -> u64 {
        call.since as u64
    }
}

impl Events for Grpc {
    #[inline]
    fn field(block: &mut Block, field: &FieldOf<'_, Self>) {
        block.add(field);
    }

    #[inline]
    fn block_ends(h2: &mut Http2, block: Block, whole: bool, cx: &mut Context) -> Summary {
        let Block { mut summary, origin } = block;
        if !whole {
            summary.unknown += 1;
        } else if summary.unknown > 0 && summary.request && summary.method.is_none() && h2.begun_late {
            h2.application.late.label_method(h2.connection, &mut summary, &origin, cx);
        }
        summary
    }

    #[inline]
    fn headers<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, W>, block: &HeaderBlock<'_, Summary>) {
        parser.take_header_block(block);
    }

    #[inline]
    fn data<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, W>, slot: u32, data: &[u8]) {
        parser.take_data(slot, data);
    }

    #[inline]
    fn late_data<W>(parser: &mut Parser<'_, W>, header: FrameHeader, octets: &[u8]) -> u32
    where
        W: Watch<Self> + ?Sized,
    {
        parser.take_late_data(header, octets)
    }

    fn data_lacks<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, W>, slot: u32, length: u32) {
        parser.take_gap(slot, length);
    }

    #[inline]
    fn end_stream<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, W>, id: u32, slot: u32) {
        parser.end_direction(id, slot);
    }

    fn reset<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, W>, id: u32, code: u32) {
        parser.reset_stream(id, code);
    }

    fn upgraded<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, W>, head: &Http1Head, first: At) {
        parser.open_upgraded(head, first);
    }

    fn doubt(h2: &mut Http2, until: At) {
        doubt_open_rpcs(h2, until);
    }

    fn end_open_stream(parser: &mut Parser<'_, ()>, id: u32, end: End) {
        parser.end_open_stream(id, end);
    }
}
