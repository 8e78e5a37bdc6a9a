//! What layers above TCP read of a connection: how far each side is from the capture point, and what blocked its bytes.

use serde::{Deserialize, Serialize};

use crate::at::At;

use super::arrivals::Arrivals;
use super::half::NEAR;
use super::held_path::HeldPath;
use super::late_acks::{LateAcks, may_take};
use super::send_queue::SendQueue;
use super::shut_window::ShutWindow;
use super::unanswered::Unanswered;

/// The state of both senders that the layers above TCP read; arrays have one entry per side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transport {
    /// Round trip from the capture point to each side and back, nanoseconds, negative when not measured.
    pub near_rtt: [i64; 2],
    /// The same may hold the time that the side's application took to answer.
    pub near_is_bound: [bool; 2],
    /// Of the packet that is being read, if it is of this side: how long it was queued on the way to the capture point at
    /// least, nanoseconds.
    pub queued: [i64; 2],
    /// Since when each side has had bytes to send all the time, before the packet that is being read, if it is of this side: its
    /// packets have filled the queue in front of the capture point, or were full segments.
    pub sends_since: [Option<i64>; 2],
    /// How long bytes of each side were queued behind the capture point, nanoseconds, and when the ACK came that shows it;
    /// zeros where no queue stands.
    pub queued_behind: [(i64, i64); 2],
    /// Offset of each side's last flight, before which nothing was in flight, and how long the first bytes of it were queued behind
    /// the capture point, if an ACK shows that.
    pub flights: [(i64, Option<i64>); 2],
    /// What held up each side's bytes.
    pub queues: [SendQueue; 2],
    /// What each side sent since its peer was last heard.
    pub unanswered: [Unanswered; 2],
    /// The last outage in which each side sent in vain: its begin and its end, zeros for none.
    pub outages: [(i64, i64); 2],
    /// When each side's first RST came that fits the bytes before it, so that its receiver takes it.
    pub resets: [Option<i64>; 2],
    /// The first bytes of each side that were not acknowledged, if they are known to be lost: their offset, and since when,
    /// nanoseconds since the epoch.
    pub lost_since: [Option<(i64, i64)>; 2],
    /// Of these bytes: only packets as long as theirs are lost, so the peer lives.
    pub too_long: [bool; 2],
    /// The receive window of each side's peer, while it is closed.
    pub shut: [ShutWindow; 2],
    /// All bytes of each side were acknowledged: of the peer of what is handed up, and of both at the connection's end.
    pub is_acknowledged: [bool; 2],
    /// Offset of the first of the bytes of each side that were handed up last.
    pub delivered_from: [i64; 2],
    /// How many more short segments each side acknowledged in time, by packets without payload, than others late; of the latest.
    pub acks_soon: [i8; 2],
    /// ACKs of the bytes of each side that came late; `None` before the first.
    pub late_acks: [Option<Box<LateAcks>>; 2],
    /// Bytes of each side that the path held behind the capture point; `None` before the first.
    pub held: [Option<Box<HeldPath>>; 2],
    /// When bytes of each side arrived at a peer that is not near; `None` before the first.
    pub arrivals: [Option<Box<Arrivals>>; 2],
    /// Offset behind the bytes of each side that its peer has acknowledged.
    pub acked: [i64; 2],
    /// Sides of which the capture has no payload though some was acknowledged.
    pub unheard: [bool; 2],
    /// The first FIN of each side; bytes handed up late may be older.
    pub fins: [Option<At>; 2],
    /// The packet that acknowledges the FIN of each side, 0 before; the FIN may be captured later, or not at all.
    pub fins_acknowledged: [u32; 2],
    /// By side: the snaplen cut the packet whose bytes were handed up last.
    pub is_cut: [bool; 2],
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            near_rtt: [-1; 2],
            near_is_bound: [false; 2],
            queued: [0; 2],
            sends_since: [None; 2],
            queued_behind: [(0, 0); 2],
            flights: [(0, None); 2],
            queues: Default::default(),
            unanswered: Default::default(),
            outages: [(0, 0); 2],
            resets: [None; 2],
            lost_since: [None; 2],
            too_long: [false; 2],
            shut: Default::default(),
            is_acknowledged: [false; 2],
            delivered_from: [0; 2],
            acks_soon: [0; 2],
            late_acks: [None, None],
            held: [None, None],
            arrivals: [None, None],
            acked: [0; 2],
            unheard: [false; 2],
            fins: [None; 2],
            fins_acknowledged: [0; 2],
            is_cut: [false; 2],
        }
    }
}

impl Transport {
    /// What a side sent in vain, because its peer is not heard any more; the earliest if both sides did.
    pub fn in_vain(&self) -> Option<&Unanswered> {
        [0, 1].into_iter().filter_map(|side| self.in_vain_of(side)).min_by_key(|sent| sent.first.time)
    }

    /// What `side` sent in vain, because its peer is not heard any more.
    pub fn in_vain_of(&self, side: usize) -> Option<&Unanswered> {
        self.unanswered_of(side).filter(|sent| sent.is_in_vain())
    }

    /// The same also if the capture holds no packet of the peer at all.
    pub fn unanswered_of(&self, side: usize) -> Option<&Unanswered> {
        let sent = self.unanswered.get(side)?;
        (sent.is_unanswered() && self.too_long.get(side) == Some(&false)).then_some(sent)
    }

    /// When the first ACK came that shows that the bytes of `side` before `offset` had arrived, if it may have come late; `now` when
    /// none has come. Beside it how long it may take. Nothing on the way to a host that is near can delay them; and a host that
    /// is mostly late may delay its ACKs for longer by itself.
    pub fn shown_late(&self, side: usize, offset: i64, now: i64) -> Option<(i64, i64)> {
        let near = self.near_rtt[1 - side];
        if near <= NEAR || self.acks_soon[1 - side] < 0 {
            return None;
        }
        let shown = if self.acked[side] < offset { now } else { self.late_acks[side].as_ref()?.covers(offset)? };
        Some((shown.min(now), self.may_take(side)?))
    }

    /// The time until which the path held the last byte of `side` before `offset`, and the time of its ACK;
    /// nanoseconds.
    #[inline]
    pub fn held_until(&self, side: usize, offset: i64) -> Option<(i64, i64)> {
        self.held[side].as_ref()?.covers(offset)
    }

    /// When the bytes of `side` before `offset` had arrived, as far as ACKs tell that are not delayed.
    #[inline]
    pub fn arrived(&self, side: usize, offset: i64) -> Option<i64> {
        self.arrivals[side].as_ref()?.arrived(offset)
    }

    /// How long an ACK of the bytes of `side` may take; `None` where that is not known.
    pub fn may_take(&self, side: usize) -> Option<i64> {
        let near = self.near_rtt[1 - side];
        (near >= 0).then(|| may_take(near, self.round_trip().unwrap_or(near)))
    }

    /// The time up to `now` in which the closed receive window of its peer is known to have blocked `side`.
    pub fn closed_window(&self, side: usize, now: i64) -> Option<(i64, i64)> {
        self.shut.get(side)?.blocks(now, self.round_trip().unwrap_or(0))
    }

    /// Both halves of the path, nanoseconds.
    pub fn round_trip(&self) -> Option<i64> {
        match self.near_rtt {
            [a, b] if a >= 0 && b >= 0 => Some(a + b),
            _ => None,
        }
    }
}
