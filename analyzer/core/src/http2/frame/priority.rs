//! PRIORITY (RFC 9113 section 6.3): deprecated, still on the wire.

use super::header::{FrameError, FrameHeader};

/// The priority fields of PRIORITY and HEADERS frames (RFC 7540 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The stream that this one depends on.
    pub dependency: u32,
    /// Whether the dependency is exclusive.
    pub exclusive: bool,
    /// Weight from 1 to 256.
    pub weight: u16,
}

impl Priority {
    /// Reads the five octets.
    pub fn parse(octets: &[u8; 5]) -> Self {
        let [d0, d1, d2, d3, weight] = *octets;
        let word = u32::from_be_bytes([d0, d1, d2, d3]);
        Self { dependency: word & 0x7fff_ffff, exclusive: word >> 31 == 1, weight: u16::from(weight) + 1 }
    }
}

/// Parses a whole payload.
pub fn parse(_header: &FrameHeader, payload: &[u8]) -> Result<Priority, FrameError> {
    <&[u8; 5]>::try_from(payload).map(Priority::parse).map_err(|_| FrameError::size("PRIORITY is not 5 octets long"))
}
