//! SETTINGS (RFC 9113 section 6.5): what a side announces, and when it is in force for the other.

use serde::{Deserialize, Serialize};

use super::header::{DEFAULT_MAX_FRAME_SIZE, FrameError, FrameHeader, take_u32};

/// The initial flow-control window of streams and of the connection (RFC 9113 section 6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;

/// The values one side has announced; a receiver is bound by them from its acknowledgement on (section 6.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Bytes of the HPACK table that the peer's encoder may use.
    pub header_table_size: u32,
    /// Streams the peer may have open; `None` when never announced (no limit).
    pub max_concurrent_streams: Option<u32>,
    /// Flow-control window of each stream for the peer's DATA.
    pub initial_window_size: u32,
    /// Longest frame the peer may send.
    pub max_frame_size: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header_table_size: 4_096,
            max_concurrent_streams: None,
            initial_window_size: DEFAULT_WINDOW,
            max_frame_size: DEFAULT_MAX_FRAME_SIZE,
        }
    }
}

/// The pairs of one SETTINGS frame, in order.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a>(&'a [u8]);

impl Iterator for Pairs<'_> {
    type Item = (u16, u32);

    fn next(&mut self) -> Option<(u16, u32)> {
        let (id, rest) = self.0.split_first_chunk::<2>()?;
        let (value, rest) = take_u32(rest)?;
        self.0 = rest;
        Some((u16::from_be_bytes(*id), value))
    }
}

/// Parses a whole payload into identifier and value pairs.
pub fn parse<'a>(_header: &FrameHeader, payload: &'a [u8]) -> Result<Pairs<'a>, FrameError> {
    if payload.len().is_multiple_of(6) {
        Ok(Pairs(payload))
    } else {
        Err(FrameError::size("SETTINGS is not a multiple of 6 octets long"))
    }
}

/// The pairs of a payload without its frame, as `HTTP2-Settings` carries them; an incomplete last pair is left out.
pub fn pairs(payload: &[u8]) -> Pairs<'_> {
    Pairs(payload)
}

impl Settings {
    /// These values with the pairs of a frame applied in order; unknown identifiers are ignored (section 6.5.2).
    /// Values that section 6.5.2 forbids are left out and named in the error beside the rest.
    pub fn with(mut self, pairs: Pairs<'_>) -> (Self, Option<FrameError>) {
        let mut wrong = None;
        for (id, value) in pairs {
            match id {
                1 => self.header_table_size = value,
                3 => self.max_concurrent_streams = Some(value),
                4 if value <= 0x7fff_ffff => self.initial_window_size = value,
                4 => wrong = Some(FrameError::protocol("SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1")),
                5 if (DEFAULT_MAX_FRAME_SIZE..=0xff_ffff).contains(&value) => self.max_frame_size = value,
                5 => wrong = Some(FrameError::protocol("SETTINGS_MAX_FRAME_SIZE outside 16,384 to 16,777,215")),
                _ => {}
            }
        }
        (self, wrong)
    }
}
