//! Where a byte of a connection is in the capture.

use serde::{Deserialize, Serialize};

/// The packet and time of one byte of a direction's stream of bytes.
///
/// `packet` recorded the byte; it became readable in order at `ready_packet`, which is later only when an earlier
/// byte was lost or reordered on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// Capture time of the packet that carried the byte, nanoseconds since the epoch.
    pub time: i64,
    /// Capture time of the packet at which all bytes up to this one had come, nanoseconds since the epoch.
    pub ready_time: i64,
    /// Number of the packet that carried the byte, from 1.
    pub packet: u32,
    /// Number of the packet at which all bytes up to this one had come.
    pub ready_packet: u32,
}

impl At {
    /// A byte that came in order.
    pub fn new(packet: u32, time: i64) -> Self {
        Self { packet, time, ready_packet: packet, ready_time: time }
    }

    /// When all bytes from `first` to this one had come: packet and time, never before those of `first`, which may
    /// itself have filled a hole.
    pub fn completes(&self, first: &Self) -> (u32, i64) {
        (self.ready_packet.max(first.packet), self.ready_time.max(first.time))
    }

    /// A byte that waited for `hole`, the packet that filled the hole before it.
    pub fn waited(self, hole: Self) -> Self {
        Self { ready_packet: hole.packet, ready_time: hole.time.max(self.time), ..self }
    }
}

/// The packet and time of a place, 0 and -1 where there is none.
pub fn place(at: Option<At>) -> (u32, i64) {
    at.map_or((0, -1), |at| (at.packet, at.time))
}
