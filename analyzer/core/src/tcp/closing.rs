//! Remembers what a FIN or RST looked like, and what came before it: whether its sender is the one it claims to be, and why it
//! may have closed.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::packet::{Segment, TcpFlags};
use crate::state_fields;

use super::half::Half;

/// A side's first FIN, or its first RST.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Closing {
    /// Its sender, as its addresses say.
    #[serde(deserialize_with = "state_fields::side")]
    pub side: usize,
    /// The packet.
    pub at: At,
    /// It is a RST.
    pub is_reset: bool,
    /// It has an acknowledgement. A RST without one is of a host that does not know the connection (RFC 9293 section 3.5.2).
    pub acknowledges: bool,
    /// Its acknowledgement lacks bytes of the peer that came before: it crossed them, or they were lost.
    pub lacks: bool,
    /// Its time to live.
    pub ttl: u8,
    /// The least and the highest of the side's other packets before, zeros for none.
    pub ttls: [u8; 2],
    /// Its IPv4 identification.
    pub ip_id: Option<u16>,
    /// The one of the side's packet before.
    pub ip_id_before: Option<u16>,
    /// The side's last packet with new bytes, 0 for none, and its time.
    pub own: (u32, i64),
    /// The peer's last packet with new bytes, 0 for none, and its time.
    pub peer: (u32, i64),
    /// How long the peer had sent nothing before its latest flight, nanoseconds, negative when not known.
    pub peer_idle: i64,
    /// Packets of the side after it that are no RST.
    pub later: u32,
    /// The first of these later packets.
    pub later_at: At,
}

impl Closing {
    /// The FIN or RST `segment` of `side`.
    pub fn new(side: usize, segment: &Segment<'_>, is_reset: bool, halves: &[Half; 2], at: At) -> Self {
        let (own, peer) = (&halves[side], &halves[1 - side]);
        let acknowledges = segment.flags.contains(TcpFlags::ACK);
        Self {
            side,
            at,
            is_reset,
            acknowledges,
            lacks: acknowledges && peer.last_data_packet > 0 && peer.offset(segment.ack) < peer.highest,
            ttl: segment.ttl,
            ttls: own.ttls,
            ip_id: segment.ip_id,
            ip_id_before: own.ip_id,
            own: (own.last_data_packet, own.last_data_time),
            peer: (peer.last_data_packet, peer.last_data_time),
            peer_idle: peer.flight.idle_before,
            later: 0,
            later_at: At::default(),
        }
    }

    /// A packet of the same side that is no RST comes after it.
    pub fn goes_on(&mut self, at: At) {
        if self.later == 0 {
            self.later_at = at;
        }
        self.later += 1;
    }
}
