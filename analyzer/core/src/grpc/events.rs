//! Receives the events of HTTP/2 for gRPC.

use crate::at::At;
use crate::http2::connection::application::Application;
use crate::http2::connection::detect::Http1Head;
use crate::http2::connection::events::{Events, FieldOf, HeaderBlock};
use crate::http2::connection::reading::Reading;
use crate::http2::connection::state::End;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::FrameHeader;
use crate::store::context::Context;
use crate::store::strings::Strings;

use super::call::Call;
use super::headers::{Block, Summary};
use super::protocol::Content;
use super::state::{Grpc, Http2};
use super::{data, late, rpc, rpc_end};

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
        } else if summary.unknown > 0 && summary.request && summary.method.is_none() {
            late::label_method(h2, &mut summary, &origin, cx);
        }
        summary
    }

    #[inline]
    fn headers(h2: &mut Http2, block: &HeaderBlock<'_, Summary>, reading: &mut Reading<'_>) {
        rpc::header_block(h2, block, reading);
    }

    #[inline]
    fn data<W: Watch<Self> + ?Sized>(
        h2: &mut Http2,
        side: usize,
        slot: u32,
        data: &[u8],
        at: At,
        reading: &mut Reading<'_>,
        watch: &mut W,
    ) {
        data::stream_data(h2, side, slot, data, at, reading, watch);
    }

    #[inline]
    fn late_data<W: Watch<Self> + ?Sized>(
        h2: &mut Http2,
        side: usize,
        header: FrameHeader,
        octets: &[u8],
        reading: &mut Reading<'_>,
        watch: &mut W,
    ) -> u32 {
        late::late_data(h2, side, header, octets, reading, watch)
    }

    fn data_lacks(h2: &mut Http2, side: usize, slot: u32, length: u32, at: At, reading: &mut Reading<'_>) {
        data::stream_gap(h2, side, slot, length, at, reading);
    }

    #[inline]
    fn end_stream(h2: &mut Http2, side: usize, id: u32, slot: u32, at: At, reading: &mut Reading<'_>) {
        rpc_end::end_direction(h2, side, id, slot, at, reading);
    }

    fn reset(h2: &mut Http2, side: usize, id: u32, code: u32, at: At, reading: &mut Reading<'_>) {
        rpc_end::reset(h2, side, id, code, at, reading);
    }

    fn upgraded(h2: &mut Http2, client: usize, head: &Http1Head, first: At, at: At, reading: &mut Reading<'_>) {
        rpc::upgraded(h2, client, head, first, at, reading);
    }

    fn doubt(h2: &mut Http2, until: At) {
        rpc_end::doubt_open_rpcs(h2, until);
    }

    fn end_open_stream(h2: &mut Http2, id: u32, end: End, at: At, reading: &mut Reading<'_>) {
        rpc_end::end_open_stream(h2, id, end, at, reading);
    }
}
