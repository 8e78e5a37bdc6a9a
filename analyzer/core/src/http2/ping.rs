//! PING (RFC 9113 section 6.7): keepalive, drain, or a bandwidth-delay estimator; the payload tells which.

use super::frame::{FrameError, FrameHeader};

/// Parses a whole payload into the eight opaque octets.
pub fn parse(_header: &FrameHeader, payload: &[u8]) -> Result<[u8; 8], FrameError> {
    <[u8; 8]>::try_from(payload).map_err(|_| FrameError::size("PING is not 8 octets long"))
}
