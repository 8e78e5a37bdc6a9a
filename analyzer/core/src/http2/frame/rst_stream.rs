//! RST_STREAM (RFC 9113 section 6.4): ends a stream at once; gRPC maps the code to a status.

use super::header::{FrameError, FrameHeader, take_u32};

/// Parses a whole payload into the error code.
pub fn parse(_header: &FrameHeader, payload: &[u8]) -> Result<u32, FrameError> {
    match take_u32(payload) {
        Some((code, [])) => Ok(code),
        _ => Err(FrameError::size("RST_STREAM is not 4 octets long")),
    }
}
