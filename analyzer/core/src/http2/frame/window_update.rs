//! WINDOW_UPDATE (RFC 9113 section 6.9): lets the peer send more DATA on a stream, or on the connection (stream 0).

use super::header::{FrameError, FrameHeader, take_u32};

/// Parses a whole payload into the increment; 0 is a PROTOCOL_ERROR.
pub fn parse(_header: &FrameHeader, payload: &[u8]) -> Result<u32, FrameError> {
    match take_u32(payload) {
        Some((word, [])) if word & 0x7fff_ffff > 0 => Ok(word & 0x7fff_ffff),
        Some((_, [])) => Err(FrameError::protocol("WINDOW_UPDATE with an increment of 0")),
        _ => Err(FrameError::size("WINDOW_UPDATE is not 4 octets long")),
    }
}
