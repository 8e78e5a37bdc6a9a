//! What is known of one direction of a call, of frames that are missing, and which side owes the next bytes.

use serde::{Deserialize, Serialize};

use crate::tcp::queue::FILLS;
use crate::tcp::transport::Transport;

use super::call::Call;
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
    /// The rest of the message may be in missing frames: no byte of the stream has come since.
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

/// A request whose END_STREAM comes later than this behind its last message is one that its client ended late: 1 ms (heuristic:
/// what one write brings in two packets is closer).
const LATE_END: i64 = 1_000_000;

impl Call {
    /// The request is over. A response that comes from now on may have waited for that, if it would have been here before:
    /// within a round trip behind the request's last message.
    #[inline]
    pub fn await_after_end(&mut self, now: i64, round_trip: i64) {
        if self.turn_since >= 0 && now - self.turn_since > round_trip.max(LATE_END) {
            self.turn_since = now;
        }
    }

    /// The side that owes the next bytes, as far as the messages tell.
    pub fn owing_side(&self, client: usize) -> usize {
        if self.turn_since >= 0 || self.directions[client].ended { 1 - client } else { client }
    }

    /// How much of the time for which bytes of its request, the latest of `side`, were `queued` behind the capture point they
    /// waited behind others of this request: it has nearly all bytes of its flight, whose first ones were queued for less.
    pub(super) fn queue_of_its_own(&self, side: usize, queued: i64, transport: &Transport) -> i64 {
        let ((start, first), reader) = (transport.flights[side], &self.directions[side].reader);
        let own = i64::try_from(reader.bytes).unwrap_or(i64::MAX);
        let alone = reader.messages == 1 && self.position.saturating_sub(start).saturating_sub(own) <= FILLS;
        first.filter(|_| alone).map_or(0, |first| queued.saturating_sub(first).max(0))
    }

    /// Whether bytes of a message may move while `side` is waited for: its own, or those of its peer.
    pub(super) fn is_doubtful(&self, side: usize) -> bool {
        let (own, peer) = (&self.directions[side], &self.directions[1 - side]);
        own.may_be_inside() || !peer.ended && peer.may_be_inside()
    }
}
