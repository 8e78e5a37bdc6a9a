//! One TCP connection: both senders, and the bytes that they deliver in order to the layer above.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::packet::{Segment, TcpFlags};

use super::closing::Closing;
use super::half::Half;
use super::sent_again::Recovery;
use super::transport::Transport;
use super::unanswered::Outage;

mod data;
mod flight;
mod holes;
mod segment;

/// Capture points mix the order of packets that come within this time, nanoseconds: 1 ms.
pub const MIXED: i64 = 1_000_000;

/// Counts of packets and bytes; of pairs, each side's.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Packets.
    pub packets: [u32; 2],
    /// Payload bytes on the wire.
    pub bytes: [u64; 2],
    /// Packets that were retransmitted.
    pub retransmitted: u32,
    /// Retransmissions after a timeout.
    pub timeouts: u32,
    /// Retransmissions that the receiver said it had already (RFC 2883).
    pub needless: u32,
    /// The longest recovery.
    pub recovery: Recovery,
    /// The longest outage.
    pub outage: Outage,
    /// Packets recorded twice.
    pub duplicates: u32,
    /// Keep-alives.
    pub keep_alives: u32,
    /// Packets that came before the bytes in front of them.
    pub out_of_order: u32,
    /// Packets with URG.
    pub urgent: u32,
    /// Bytes that the capture lacks.
    pub missing_bytes: u64,
    /// Payload bytes in the capture.
    pub payload_bytes: u64,
    /// Of them, bytes that were delivered before.
    pub retransmitted_bytes: u64,
    /// Packets that a cooked capture marks as outgoing.
    pub outgoing: [u32; 2],
    /// Packets that a cooked capture marks as incoming.
    pub incoming: [u32; 2],
}

impl Counters {
    /// What was counted since the counters were as `before`, with the longest recovery so far.
    pub fn since(&self, before: &Self) -> Self {
        let both = |now: [u32; 2], then: [u32; 2]| [0, 1].map(|side: usize| now[side].wrapping_sub(then[side]));
        Self {
            packets: both(self.packets, before.packets),
            bytes: [0, 1].map(|side: usize| self.bytes[side].wrapping_sub(before.bytes[side])),
            retransmitted: self.retransmitted.wrapping_sub(before.retransmitted),
            timeouts: self.timeouts.wrapping_sub(before.timeouts),
            needless: self.needless.wrapping_sub(before.needless),
            recovery: self.recovery,
            outage: self.outage,
            duplicates: self.duplicates.wrapping_sub(before.duplicates),
            keep_alives: self.keep_alives.wrapping_sub(before.keep_alives),
            out_of_order: self.out_of_order.wrapping_sub(before.out_of_order),
            urgent: self.urgent.wrapping_sub(before.urgent),
            missing_bytes: self.missing_bytes.wrapping_sub(before.missing_bytes),
            payload_bytes: self.payload_bytes.wrapping_sub(before.payload_bytes),
            retransmitted_bytes: self.retransmitted_bytes.wrapping_sub(before.retransmitted_bytes),
            outgoing: both(self.outgoing, before.outgoing),
            incoming: both(self.incoming, before.incoming),
        }
    }
}

/// A connection that still receives packets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Its row.
    pub row: u32,
    /// Side 0 sent the first packet.
    pub halves: [Half; 2],
    /// The state of TCP that the layers above read.
    pub transport: Transport,
    /// No further packet comes.
    ending: bool,
    /// At the end, by side: its peer never received bytes before others that the capture has.
    pub undelivered: [bool; 2],
    /// A tap sees its bytes, and counts them as they are counted here.
    is_shown: bool,
    /// What is counted.
    pub counters: Counters,
    /// When the SYN came.
    pub syn_time: Option<i64>,
    /// When the SYN-ACK came.
    pub syn_ack_time: Option<i64>,
    /// SYNs, without SYN-ACKs.
    pub syns: u32,
    /// The first SYN-ACK.
    pub syn_ack: Option<At>,
    /// The server's and the client's half of the handshake, nanoseconds.
    pub handshake: Option<(i64, i64)>,
    /// The first packet.
    pub first: At,
    /// The last packet.
    pub last: At,
    /// The first packet has SYN.
    pub opening_seen: bool,
    /// The first RST.
    pub reset: Option<At>,
    /// Who sent the first FIN or RST.
    pub closed_by: Option<usize>,
    /// By side: what it had acknowledged when it sent that.
    closing_acks: [i64; 2],
    /// The first FIN and the first RST of each side.
    pub closings: Vec<Closing>,
}

impl Connection {
    /// A connection whose first packet is `segment`, from side 0. With `is_shown` a tap sees its bytes.
    pub fn new(row: u32, segment: &Segment<'_>, at: At, is_shown: bool) -> Self {
        let opening_seen = segment.flags.contains(TcpFlags::SYN);
        let mut halves: [Half; 2] = Default::default();
        for half in &mut halves {
            half.congestion.assumed = !opening_seen;
        }
        Self {
            row,
            halves,
            transport: Transport::default(),
            ending: false,
            undelivered: [false; 2],
            is_shown,
            counters: Counters::default(),
            syn_time: None,
            syn_ack_time: None,
            syns: 0,
            syn_ack: None,
            handshake: None,
            first: at,
            last: at,
            opening_seen,
            reset: None,
            closed_by: None,
            closing_acks: [0; 2],
            closings: Vec::new(),
        }
    }

    /// Reads what its next packets will need, and nothing else: all of it is fetched at once, while another connection
    /// is worked on.
    #[inline]
    pub fn touch(&self) -> u64 {
        let own = self.last.time as u64 ^ u64::from(self.counters.packets[0]) ^ self.counters.payload_bytes;
        let queues = self.transport.queues[0].position ^ self.transport.queues[1].position;
        own ^ queues as u64 ^ self.halves[0].touch() ^ self.halves[1].touch()
    }

    /// Whether the connection has carried no payload.
    pub fn is_empty(&self) -> bool {
        self.counters.payload_bytes == 0
    }

    /// The number of its last packet.
    pub fn last_packet(&self) -> u32 {
        self.last.packet
    }

    /// Whether the capture has no payload of `side`, though its peer has acknowledged some, or has no packet of it at all.
    pub fn is_unheard(&self, side: usize) -> bool {
        let nothing = self.halves[side].started && self.counters.packets[side] == 0;
        nothing || self.transport.unheard[side] && self.counters.bytes[side] == 0
    }

    /// Whether all bytes of `side` were acknowledged.
    pub fn is_acknowledged(&self, side: usize) -> bool {
        self.halves[side].acked >= self.halves[side].highest
    }

    /// Tells the layers above what was acknowledged of both sides, and which of them is sending, when no more bytes come.
    pub fn note_acknowledged(&mut self) {
        self.transport.is_acknowledged = [0, 1].map(|side| self.is_acknowledged(side));
        self.transport.acked = [0, 1].map(|side| self.halves[side].acked);
        let near = self.transport.near_rtt.map(|near| near.max(0));
        self.transport.sends_since = [0, 1].map(|side| self.halves[side].sends_since(self.last.time, near[side]));
    }

    /// Payload bytes of a full segment of `side`; 0 if it is not known.
    #[inline]
    pub fn segment_size(&self, side: usize) -> i64 {
        i64::from(self.halves[side].segment_size(&self.halves[1 - side]))
    }

    /// The bytes of `side` that its peer never acknowledged and the capture does not show, and the packet behind them.
    pub fn hole(&self, side: usize) -> Option<(u64, At)> {
        let half = &self.halves[side];
        let (first, kept) = half.out_of_order.as_ref()?.head()?;
        (half.acked > 0 && half.acked <= half.next && first > half.next).then(|| (first.abs_diff(half.next), kept.at))
    }

    /// Whether both sides have closed, or one has reset.
    pub fn is_finished(&self) -> bool {
        self.reset.is_some() || self.transport.fins.iter().all(Option::is_some)
    }

    /// Whether `side` sent a RST that acknowledges nothing, as a host does that does not know the connection: it does not tell
    /// what arrived there before.
    pub fn is_gone(&self, side: usize) -> bool {
        self.closings.iter().any(|closing| closing.side == side && closing.is_reset && !closing.acknowledges)
    }

    /// The first FIN or RST.
    pub fn closed_at(&self) -> Option<At> {
        self.reset.into_iter().chain(self.transport.fins.into_iter().flatten()).min_by_key(|at| at.time)
    }
}
