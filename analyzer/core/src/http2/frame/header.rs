//! The nine-octet frame header (RFC 9113 section 4.1) and what every frame type shares.

use serde::{Deserialize, Serialize};

use std::fmt;

use crate::store::context::FRAME_COUNTS;

/// Octets of a frame header.
pub const HEADER_LEN: usize = 9;
/// The smallest and the initial SETTINGS_MAX_FRAME_SIZE (RFC 9113 section 6.5.2).
pub const DEFAULT_MAX_FRAME_SIZE: u32 = 16_384;

/// Flag bits (RFC 9113 section 6); their meaning depends on the frame type.
pub mod flag {
    /// DATA, HEADERS: the last frame of this side on the stream.
    pub const END_STREAM: u8 = 0x01;
    /// SETTINGS, PING: acknowledges the peer's frame.
    pub const ACK: u8 = 0x01;
    /// HEADERS, PUSH_PROMISE, CONTINUATION: the header block is complete.
    pub const END_HEADERS: u8 = 0x04;
    /// DATA, HEADERS, PUSH_PROMISE: a pad length octet comes first.
    pub const PADDED: u8 = 0x08;
    /// HEADERS: priority fields come before the header block.
    pub const PRIORITY: u8 = 0x20;
}

/// HTTP/2 error codes (RFC 9113 section 7) that a decoder raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// 0x01
    Protocol = 1,
    /// 0x06
    FrameSize = 6,
}

/// Why a frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The error code RFC 9113 names for this defect.
    pub code: ErrorCode,
    /// What is wrong, in words.
    pub reason: &'static str,
}

impl FrameError {
    /// A PROTOCOL_ERROR.
    pub const fn protocol(reason: &'static str) -> Self {
        Self { code: ErrorCode::Protocol, reason }
    }

    /// A FRAME_SIZE_ERROR.
    pub const fn size(reason: &'static str) -> Self {
        Self { code: ErrorCode::FrameSize, reason }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

/// A frame type; `Unknown` types are ignored by peers (RFC 9113 section 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameType(pub u8);

impl FrameType {
    /// Section 6.1.
    pub const DATA: Self = Self(0);
    /// Section 6.2.
    pub const HEADERS: Self = Self(1);
    /// Section 6.3.
    pub const PRIORITY: Self = Self(2);
    /// Section 6.4.
    pub const RST_STREAM: Self = Self(3);
    /// Section 6.5.
    pub const SETTINGS: Self = Self(4);
    /// Section 6.6.
    pub const PUSH_PROMISE: Self = Self(5);
    /// Section 6.7.
    pub const PING: Self = Self(6);
    /// Section 6.8.
    pub const GOAWAY: Self = Self(7);
    /// Section 6.9.
    pub const WINDOW_UPDATE: Self = Self(8);
    /// Section 6.10.
    pub const CONTINUATION: Self = Self(9);
    /// Number of types that RFC 9113 defines.
    pub const KNOWN: usize = FRAME_COUNTS - 1;
    /// Names in the order of their numbers, as Wireshark and the RFC write them.
    pub const NAMES: [&'static str; Self::KNOWN] = [
        "DATA",
        "HEADERS",
        "PRIORITY",
        "RST_STREAM",
        "SETTINGS",
        "PUSH_PROMISE",
        "PING",
        "GOAWAY",
        "WINDOW_UPDATE",
        "CONTINUATION",
    ];

    /// Whether RFC 9113 defines this type.
    pub const fn is_known(self) -> bool {
        (self.0 as usize) < Self::KNOWN
    }

    /// Its place among counts by type, of which the last one counts the types that RFC 9113 does not define.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0).min(Self::KNOWN)
    }

    /// The flags that RFC 9113 section 6 defines for this type.
    pub const fn defined_flags(self) -> u8 {
        match self {
            Self::DATA => flag::END_STREAM | flag::PADDED,
            Self::HEADERS => flag::END_STREAM | flag::END_HEADERS | flag::PADDED | flag::PRIORITY,
            Self::PUSH_PROMISE => flag::END_HEADERS | flag::PADDED,
            Self::SETTINGS | Self::PING => flag::ACK,
            Self::CONTINUATION => flag::END_HEADERS,
            _ => 0,
        }
    }
}

/// A frame header. Two words, so that it is passed in registers: it is, several times for every frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHeader {
    /// Length, type and flags: the first five octets.
    head: u64,
    /// The stream identifier without the reserved bit.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the nine octets; the reserved bit is ignored as section 4.1 demands.
    #[inline]
    pub fn parse(octets: &[u8; HEADER_LEN]) -> Self {
        let [first @ .., last] = *octets;
        let word = u64::from_be_bytes(first);
        Self { head: word >> 24, stream: ((word as u32) << 8 | u32::from(last)) & 0x7fff_ffff }
    }

    /// Octets of payload, without the nine of the header.
    #[inline]
    pub const fn length(&self) -> u32 {
        (self.head >> 16) as u32
    }

    /// The type.
    #[inline]
    pub const fn kind(&self) -> FrameType {
        FrameType((self.head >> 8) as u8)
    }

    /// The flags as sent.
    #[inline]
    pub const fn flags(&self) -> u8 {
        self.head as u8
    }

    /// Whether `bits` of [`flag`] are all set.
    #[inline]
    pub const fn has(&self, bits: u8) -> bool {
        self.flags() & bits == bits
    }

    /// Checks what can be said before the payload is read: the stream identifier and lengths fixed by the type
    /// (RFC 9113 sections 6.1 to 6.10).
    pub fn check(&self) -> Result<(), FrameError> {
        let on_connection = self.stream == 0;
        match self.kind() {
            FrameType::DATA | FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION
                if on_connection =>
            {
                Err(FrameError::protocol("frame belongs to a stream but has stream identifier 0"))
            }
            FrameType::PRIORITY | FrameType::RST_STREAM if on_connection => {
                Err(FrameError::protocol("frame belongs to a stream but has stream identifier 0"))
            }
            FrameType::SETTINGS | FrameType::PING | FrameType::GOAWAY if !on_connection => {
                Err(FrameError::protocol("frame belongs to the connection but has a stream identifier"))
            }
            _ => self.check_length(),
        }
    }

    fn check_length(&self) -> Result<(), FrameError> {
        let right = match self.kind() {
            FrameType::PRIORITY => self.length() == 5,
            FrameType::RST_STREAM | FrameType::WINDOW_UPDATE => self.length() == 4,
            FrameType::PING => self.length() == 8,
            FrameType::GOAWAY => self.length() >= 8,
            FrameType::SETTINGS if self.has(flag::ACK) => self.length() == 0,
            FrameType::SETTINGS => self.length().is_multiple_of(6),
            _ => true,
        };
        if right { Ok(()) } else { Err(FrameError::size("frame length is not what its type demands")) }
    }

    /// Whether this could be a frame header at all, for finding frame boundaries in the middle of a connection:
    /// a type RFC 9113 defines, only flags that type has, an odd stream identifier, a usual length.
    pub fn is_plausible(&self) -> bool {
        self.kind().is_known()
            && self.kind() != FrameType::PUSH_PROMISE
            && self.flags() & !self.kind().defined_flags() == 0
            && (self.stream == 0 || self.stream % 2 == 1)
            && self.length() <= DEFAULT_MAX_FRAME_SIZE
            && self.check().is_ok()
    }

    /// Whether a peer has a reason to send this frame, whose payload begins with `octets`: not so an empty DATA that
    /// ends nothing, an empty header block, or credit of nothing, which zeros in a message look like.
    pub fn carries_something(&self, octets: &[u8]) -> bool {
        match self.kind() {
            FrameType::DATA => self.length() > 0 || self.has(flag::END_STREAM),
            FrameType::HEADERS | FrameType::CONTINUATION => self.length() > 0,
            FrameType::WINDOW_UPDATE => take_u32(octets).is_none_or(|(increment, _)| increment > 0),
            _ => true,
        }
    }
}

/// Splits padding off the payload of a DATA, HEADERS or PUSH_PROMISE frame; `None` when the frame is not padded.
/// A pad length that reaches beyond the payload is a connection error PROTOCOL_ERROR (sections 6.1, 6.2, 6.6).
#[inline]
pub fn strip_padding<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), FrameError> {
    if !header.has(flag::PADDED) {
        return Ok((payload, None));
    }
    let Some((&pad, rest)) = payload.split_first() else {
        return Err(FrameError::size("padded frame without a pad length"));
    };
    match rest.len().checked_sub(usize::from(pad)) {
        Some(content) => {
            let (content, padding) = rest.split_at(content);
            Ok((content, Some(padding)))
        }
        None => Err(FrameError::protocol("padding is longer than the frame")),
    }
}

/// Reads a big-endian `u32` at the front; `None` when there are fewer than four octets.
#[inline]
pub fn take_u32(octets: &[u8]) -> Option<(u32, &[u8])> {
    octets.split_first_chunk::<4>().map(|(head, rest)| (u32::from_be_bytes(*head), rest))
}
