//! DATA (RFC 9113 section 6.1): one side's bytes of a stream; in gRPC, pieces of length-prefixed messages.

use serde::{Deserialize, Serialize};

use super::header::{FrameError, FrameHeader, strip_padding};

/// A DATA frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The bytes without padding.
    pub data: &'a [u8],
    /// The padding; `None` when the frame has no pad length octet.
    pub padding: Option<&'a [u8]>,
}

/// Parses a whole payload.
pub fn parse<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<Data<'a>, FrameError> {
    let (data, padding) = strip_padding(header, payload)?;
    Ok(Data { data, padding })
}

/// The part of a DATA frame that is still to come, when the frame is read piece by piece and never kept whole.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Remaining {
    /// The next octet is the pad length.
    pub pad_length_due: bool,
    /// Octets of data before the padding.
    pub data: u32,
    /// Octets of padding.
    pub padding: u32,
}

impl Remaining {
    /// At the frame's first payload octet.
    pub fn new(length: u32, padded: bool) -> Self {
        Self { pad_length_due: padded && length > 0, data: length - u32::from(padded && length > 0), padding: 0 }
    }

    /// Takes note of the pad length; "padding exceeds the frame" is PROTOCOL_ERROR (section 6.1).
    pub fn set_pad_length(&mut self, pad: u8) -> Result<(), FrameError> {
        self.pad_length_due = false;
        self.padding = u32::from(pad);
        match self.data.checked_sub(u32::from(pad)) {
            Some(data) => {
                self.data = data;
                Ok(())
            }
            None => {
                self.padding = self.data;
                self.data = 0;
                Err(FrameError::protocol("padding is longer than the frame"))
            }
        }
    }

    /// Octets until the frame's end.
    pub fn total(&self) -> u32 {
        u32::from(self.pad_length_due) + self.data + self.padding
    }
}
