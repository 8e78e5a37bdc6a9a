//! GOAWAY (RFC 9113 section 6.8): the sender accepts no new streams; later streams were never processed.

use super::header::{FrameError, FrameHeader, take_u32};

/// A GOAWAY frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goaway<'a> {
    /// The last stream the sender has processed or may process; 2^31-1 announces a graceful close.
    pub last_stream: u32,
    /// The error code.
    pub error_code: u32,
    /// Opaque debug data, such as `too_many_pings`.
    pub debug_data: &'a [u8],
}

/// Parses a whole payload.
pub fn parse<'a>(_header: &FrameHeader, payload: &'a [u8]) -> Result<Goaway<'a>, FrameError> {
    let short = FrameError::size("GOAWAY is shorter than 8 octets");
    let (word, rest) = take_u32(payload).ok_or(short)?;
    let (error_code, debug_data) = take_u32(rest).ok_or(short)?;
    Ok(Goaway { last_stream: word & 0x7fff_ffff, error_code, debug_data })
}
