//! The events of a connection. The protocol on top of HTTP/2 implements the trait that receives them.

use crate::at::At;
use crate::http2::frame::header::FrameHeader;
use crate::http2::hpack::{Classifier, Field};
use crate::store::context::Context;

use super::application::Application;
use super::detect::Http1Head;
use super::http2::{End, Http2};
use super::reading::Parser;
use super::watch::Watch;

/// A whole header block on a stream.
#[derive(Clone, Copy, Debug)]
pub struct HeaderBlock<'a, Summary> {
    /// The stream.
    pub stream: u32,
    /// What its fields say.
    pub summary: &'a Summary,
    /// It ends its side of the stream.
    pub end_stream: bool,
    /// The first byte of its first frame.
    pub first: At,
}

/// A field of a header block, with its meaning.
pub type FieldOf<'a, A> = Field<'a, <<A as Application>::Fields as Classifier>::Class>;

/// Receives the events of a connection. Its functions are compiled into those of HTTP/2, so a call costs nothing.
///
/// `slot` is the place of a stream among [`Http2::streams`], or [`NONE`](super::streams::NONE).
pub trait Events: Application {
    /// The next field of the header block that is being decoded.
    fn field(block: &mut Self::Block, field: &FieldOf<'_, Self>);

    /// The header block has no more fields; `whole` when it was read to its end.
    fn block_ends(h2: &mut Http2<Self>, block: Self::Block, whole: bool, cx: &mut Context) -> Self::Summary;

    /// A whole header block.
    fn headers<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, Self, W>, block: &HeaderBlock<'_, Self::Summary>);

    /// DATA of a stream, without padding.
    fn data<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, Self, W>, slot: u32, data: &[u8]);

    /// The first octets of a DATA frame on a stream that is not followed. Gives the slot of the stream if they show that
    /// it has to be.
    fn late_data<W>(parser: &mut Parser<'_, Self, W>, header: FrameHeader, octets: &[u8]) -> u32
    where
        W: Watch<Self> + ?Sized;

    /// `length` bytes of a stream's DATA are not in the capture.
    fn data_lacks<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, Self, W>, slot: u32, length: u32);

    /// END_STREAM on stream `id`.
    fn end_stream<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, Self, W>, id: u32, slot: u32);

    /// RST_STREAM on stream `id`, with an error code.
    fn reset<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, Self, W>, id: u32, code: u32);

    /// The server accepted an upgrade to h2c: the HTTP/1.1 request `head`, whose first byte is `first`, is stream 1, half-closed
    /// by the client (RFC 7540 section 3.2).
    fn upgraded<W: Watch<Self> + ?Sized>(parser: &mut Parser<'_, Self, W>, head: &Http1Head, first: At);

    /// Frames of any stream are missing up to `until`.
    fn doubt(h2: &mut Http2<Self>, until: At);

    /// The connection or the capture ends before stream `id`.
    fn end_open_stream(parser: &mut Parser<'_, Self, ()>, id: u32, end: End);
}
