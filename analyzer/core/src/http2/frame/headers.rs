//! HEADERS (RFC 9113 section 6.2): opens a stream, answers it, or ends it with trailers.

use super::header::{FrameError, FrameHeader, flag, strip_padding};
use super::priority::Priority;

/// A HEADERS frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    /// Priority fields, when the PRIORITY flag is set (deprecated, still sent).
    pub priority: Option<Priority>,
    /// The header block, or its first part when END_HEADERS is not set.
    pub fragment: &'a [u8],
    /// The padding; `None` when the frame has no pad length octet.
    pub padding: Option<&'a [u8]>,
}

/// Parses a whole payload.
#[inline]
pub fn parse<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<Headers<'a>, FrameError> {
    let (content, padding) = strip_padding(header, payload)?;
    if !header.has(flag::PRIORITY) {
        return Ok(Headers { priority: None, fragment: content, padding });
    }
    match content.split_first_chunk::<5>() {
        Some((fields, fragment)) => Ok(Headers { priority: Some(Priority::parse(fields)), fragment, padding }),
        None => Err(FrameError::size("HEADERS with PRIORITY is shorter than its priority fields")),
    }
}
