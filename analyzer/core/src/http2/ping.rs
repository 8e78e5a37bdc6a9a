//! PING (RFC 9113 section 6.7): keepalive, drain, or a bandwidth-delay estimator; the payload tells which.

use super::frame::{FrameError, FrameHeader};

/// Parses a whole payload into the eight opaque octets.
pub fn parse(_header: &FrameHeader, payload: &[u8]) -> Result<[u8; 8], FrameError> {
    <[u8; 8]>::try_from(payload).map_err(|_| FrameError::size("PING is not 8 octets long"))
}

/// What a PING is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Purpose {
    /// Neither its payload nor its time tells.
    #[default]
    Unknown = 0,
    /// A bandwidth-delay estimator's.
    Bdp = 1,
    /// Keepalive.
    Keepalive = 2,
    /// A graceful shutdown's.
    Drain = 3,
    /// A round trip measured for window scaling (.NET).
    Rtt = 4,
}

/// Names in the order of [`Purpose`].
pub const PURPOSES: [&str; 5] = ["unknown", "bdp", "keepalive", "drain", "rtt"];
