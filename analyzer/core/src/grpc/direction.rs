//! What is known of one direction of a call, and of frames that are missing.

use serde::{Deserialize, Serialize};

use super::message::Reader;

/// One direction of a call.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CallDirection {
    /// Messages in this direction's DATA.
    pub reader: Reader,
    /// The end of the first header block: its time, negative before, and its packet.
    pub headers: (i64, u32),
    /// END_STREAM was sent.
    pub ended: bool,
    /// The side's gap count when the stream opened: message boundaries are known only while it is unchanged.
    pub gaps: u32,
    /// The rest of its message may be among missing frames: none of its bytes have come since.
    pub doubtful: bool,
}

impl CallDirection {
    /// Whether it may be inside a message, since frames are missing.
    pub fn may_be_inside(&self) -> bool {
        self.doubtful && self.reader.is_inside() || self.reader.is_lost()
    }
}

/// Missing frames, which may have been of any stream.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// Until when they are missing, nanoseconds since the epoch; -1 when none are.
    pub time: i64,
    /// How often some were.
    pub count: u32,
}
