//! CONTINUATION (RFC 9113 section 6.10): the rest of a header block that did not fit into one frame.

use super::header::{FrameError, FrameHeader};

/// Parses a whole payload into the header block's next part; there is no padding.
pub fn parse<'a>(_header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], FrameError> {
    Ok(payload)
}
