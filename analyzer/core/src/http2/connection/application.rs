//! The protocol on top of HTTP/2: the types of its state that a connection keeps.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http2::hpack::Classifier;
use crate::store::context::Context;

/// What the protocol on top keeps: of a connection (the type itself), and of streams and header fields.
pub trait Application: Debug + Default + Serialize + DeserializeOwned {
    /// Gives header fields their meaning.
    type Fields: Classifier;
    /// Collects the fields of a header block while it is decoded.
    type Block: Default;
    /// What the fields of a header block say.
    type Summary: Copy + Debug + Default;
    /// The state of a stream.
    type Stream: Debug + Default + Serialize + DeserializeOwned;

    /// What gives header fields their meaning in this run.
    fn fields(cx: &mut Context) -> &mut Self::Fields;

    /// How many streams of the protocol were followed so far.
    fn followed(&self) -> u32;

    /// How many of them are open.
    fn open(&self) -> u32;

    /// The media type under which the header fields and bodies of an HTTP/1.1 message with this `content-type` are read,
    /// and whether its body is base64; `None` where the protocol is not carried so.
    fn content_over_http1(content_type: &[u8]) -> Option<(&'static [u8], bool)>;

    /// Whether a request of HTTP/1.1 of another `content-type` is read as it is: by its path, or by its fields' values.
    fn is_over_http1<'a>(is_get: bool, path: &[u8], value: &dyn Fn(&[u8]) -> Option<&'a [u8]>) -> bool;

    /// Bytes of an unfinished message that `side` still owes on a stream.
    fn owed(stream: &Self::Stream, side: usize) -> u64;

    /// Whether a stream was opened before the capture.
    fn begun_before(stream: &Self::Stream) -> bool;

    /// Reads the state of the connection that its next packets will need.
    fn touch(&self) -> u64;

    /// Reads the state of a stream that its next packets will need.
    fn touch_stream(stream: &Self::Stream) -> u64;
}
