//! PUSH_PROMISE (RFC 9113 section 6.6): gRPC never pushes, but the header block moves the HPACK table all the same.

use super::header::{FrameError, FrameHeader, strip_padding, take_u32};

/// A PUSH_PROMISE frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushPromise<'a> {
    /// The stream the server reserves; even.
    pub promised_stream: u32,
    /// The header block, or its first part when END_HEADERS is not set.
    pub fragment: &'a [u8],
    /// The padding; `None` when the frame has no pad length octet.
    pub padding: Option<&'a [u8]>,
}

/// Parses a whole payload. A promised identifier that a server cannot choose (0 or odd, section 5.1.1) is
/// PROTOCOL_ERROR.
pub fn parse<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<PushPromise<'a>, FrameError> {
    let (content, padding) = strip_padding(header, payload)?;
    let Some((word, fragment)) = take_u32(content) else {
        return Err(FrameError::size("PUSH_PROMISE is shorter than its promised stream identifier"));
    };
    let promised_stream = word & 0x7fff_ffff;
    if promised_stream == 0 || promised_stream % 2 == 1 {
        return Err(FrameError::protocol("PUSH_PROMISE promises a stream that a server cannot open"));
    }
    Ok(PushPromise { promised_stream, fragment, padding })
}
