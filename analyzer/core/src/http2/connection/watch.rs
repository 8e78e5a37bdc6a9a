//! Reports what the octets of a connection are, at the moment they are read. In the ordinary run nobody watches, and that
//! costs nothing: the functions that read are compiled once for each kind of watcher.

use crate::http2::frame::header::FrameHeader;
use crate::http2::hpack::Representation;

use super::application::Application;
use super::detect::Opening;

/// Receives what the octets are. Every call is about the side whose bytes are being read, or are missing. Places are given by
/// `left`, the octets from there to the end of the slice that is being read.
pub trait Watch<A: Application> {
    /// Whether this watcher looks at what is read; an ordinary run has none that does.
    fn watches(&self) -> bool {
        false
    }

    /// The slice that is read next ends so many octets before the end of the bytes that the side was given last.
    fn reads(&mut self, _behind: usize) {}

    /// A side's first octets, `kept` up to now, are decided; HTTP/1 has [`http1`](Self::http1).
    fn opening(&mut self, _kept: &[u8], _what: Opening) {}

    /// The first octets of `kept` are an HTTP/1 head: of an upgrade to h2c, and `agreed` is its answer, or of another
    /// protocol's. 0 when it has no end.
    fn http1(&mut self, _kept: &[u8], _head: usize, _upgrade: bool, _agreed: bool) {}

    /// A side's first octets end before they tell what they are.
    fn undecided(&mut self, _kept: &[u8]) {}

    /// The next octets were searched for a frame boundary. `boundary` is how many octets are behind it, when there is
    /// one.
    fn searched(&mut self, _left: usize, _boundary: Option<usize>) {}

    /// No boundary is found yet, as these may be frame headers: how many octets before the end of the slice each one
    /// begins, and the length in it.
    fn held(&mut self, _headers: &[(usize, u32)]) {}

    /// The last `left` octets, and what follows them, are another protocol.
    fn foreign(&mut self, _left: usize) {}

    /// A frame header; `left` counts from its end.
    fn frame(&mut self, _header: FrameHeader, _left: usize) {}

    /// The whole payload of a frame other than DATA, right behind its header.
    fn control(&mut self, _header: FrameHeader, _payload: &[u8]) {}

    /// A field of a header block; `None` where it is not known.
    fn field(&mut self, _name: Option<&[u8]>, _value: Option<&[u8]>, _representation: Representation) {}

    /// The header block whose fields these were; `whole` when it was read to its end.
    fn block(&mut self, _octets: &[u8], _whole: bool) {}

    /// The pad length of a DATA frame, and behind it `left` octets.
    fn pad_length(&mut self, _pad: u8, _left: usize) {}

    /// The last `left` octets, and what follows them, are the content of a DATA frame.
    fn data(&mut self, _left: usize) {}

    /// DATA of a stream that was opened before the capture, and that shows no message boundary yet.
    fn beginnings(&mut self, _octets: &[u8], _header: FrameHeader) {}

    /// DATA that the protocol on top reads, with its state of the stream before that. `begins`: the octets are the first of
    /// their frame.
    fn stream_data(&mut self, _stream: &A::Stream, _octets: &[u8], _begins: bool) {}

    /// DATA that is a message which is read as a whole: it shows the state of a server and no more.
    fn stream_health(&mut self, _octets: &[u8]) {}

    /// DATA without messages: a page, an error, or trailers in the body.
    fn stream_end(&mut self, _stream: &A::Stream, _octets: &[u8]) {}
}

/// The watcher of an ordinary run, which looks at nothing.
impl<A: Application> Watch<A> for () {}
