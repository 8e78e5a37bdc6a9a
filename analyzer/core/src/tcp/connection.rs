//! One TCP connection: both senders, what they delivered in order, and the HTTP/2 read from it.

use crate::at::At;
use crate::http2::connection::state::{End, Http2, Protocol};
use crate::limits;
use crate::packet::{Segment, TcpFlags};
use crate::store::budget::Budget;
use crate::store::context::Context;
use crate::store::tables::{ConnectionRow, DirectionRow, PacketRow, TurnRow};

use super::encrypted::Encrypted;
use super::half::{self, Ack, Half};
use super::note::Note;
use super::roles::{self, RolesFrom};

mod data;
mod holes;

const CLOSING: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::RST.0);

/// What is left of a connection that is over.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its row, without addresses.
    pub row: ConnectionRow,
    /// The budgets of its RPCs, summed.
    pub budget: Budget,
    /// The habits of the client and of the server.
    pub directions: [DirectionRow; 2],
    /// Whose turn it was.
    pub turns: TurnRow,
}

/// Where the capture ends, and up to where it is whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureEnd {
    /// Its last TCP packet.
    pub last: At,
    /// The last packet in front of damage that cost packets: what connections did that sent no packet after it is not
    /// known. 0 without such damage.
    pub damage: u32,
}

/// Counters of a connection that no other layer keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub(super) packets: [u32; 2],
    pub(super) bytes: [u64; 2],
    pub(super) retransmitted: u32,
    pub(super) timeouts: u32,
    /// Retransmissions that the receiver said it had already (RFC 2883).
    pub(super) needless: u32,
    pub(super) recovery: Recovery,
    pub(super) duplicates: u32,
    pub(super) keep_alives: u32,
    pub(super) out_of_order: u32,
    pub(super) urgent: u32,
    pub(super) missing_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) retransmitted_bytes: u64,
    pub(super) outgoing: [u32; 2],
    pub(super) incoming: [u32; 2],
}

/// The longest time from a loss to its repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    pub(super) ns: i64,
    pub(super) from_packet: u32,
    pub(super) to: At,
}

/// A connection that still receives packets.
#[derive(Debug)]
pub struct Connection {
    /// Its row.
    pub row: u32,
    /// Side 0 sent the first packet.
    pub halves: [Half; 2],
    /// What is read from it.
    pub http2: Http2,
    /// Its TLS, when it begins with a TLS record.
    pub(super) tls: Option<Box<Encrypted>>,
    /// Payload has been read: what it is is decided.
    begun: bool,
    /// No further packet comes.
    ending: bool,
    /// Somebody is shown its bytes, and counts them as they are counted here.
    is_shown: bool,
    pub(super) counters: Counters,
    pub(super) roles_from: RolesFrom,
    pub(super) syn_time: Option<i64>,
    pub(super) syn_ack_time: Option<i64>,
    pub(super) handshake: Option<(i64, i64)>,
    pub(super) first: At,
    pub(super) last: At,
    pub(super) opening_seen: bool,
    /// The first FIN of each side.
    pub(super) fins: [Option<At>; 2],
    /// The first RST.
    pub(super) reset: Option<At>,
    /// Who sent the first FIN or RST.
    pub(super) closed_by: Option<usize>,
}

impl Connection {
    /// A connection whose first packet is `segment`, from side 0. `client` is the side its addresses suggest.
    pub fn new(row: u32, segment: &Segment<'_>, client: usize, at: At, cx: &mut Context) -> Self {
        let (client, roles_from) = roles::from_first_segment(segment, client);
        let opening_seen = segment.flags.contains(TcpFlags::SYN);
        let certain = roles_from == RolesFrom::Syn;
        let mut http2 = Http2::new(row, client, certain, !opening_seen, &mut cx.strings);
        let mut halves: [Half; 2] = Default::default();
        for half in &mut halves {
            half.congestion.assumed = !opening_seen;
        }
        if cx.options.ports.iter().any(|&port| port == segment.source_port || port == segment.destination_port) {
            http2.assume_http2();
        }
        Self {
            row,
            halves,
            http2,
            tls: None,
            begun: false,
            ending: false,
            is_shown: cx.tap.is_some(),
            counters: Counters::default(),
            roles_from,
            syn_time: None,
            syn_ack_time: None,
            handshake: None,
            first: at,
            last: at,
            opening_seen,
            fins: [None; 2],
            reset: None,
            closed_by: None,
        }
    }

    /// Reads what its next packets will need, and nothing else: all of it is fetched at once, while another connection
    /// is worked on.
    #[inline]
    pub fn touch(&self) {
        let own = self.last.time as u64 ^ u64::from(self.counters.packets[0]) ^ self.counters.payload_bytes;
        let halves = self.halves[0].touch() ^ self.halves[1].touch();
        std::hint::black_box(own ^ halves ^ self.http2.touch());
    }

    /// Whether it has carried no payload.
    pub fn is_empty(&self) -> bool {
        self.counters.payload_bytes == 0
    }

    /// The number of its last packet.
    pub fn last_packet(&self) -> u32 {
        self.last.packet
    }

    /// Takes one segment of `side`.
    #[inline]
    pub fn segment(&mut self, side: usize, segment: &Segment<'_>, at: At, cx: &mut Context) {
        let half = &mut self.halves[side];
        if !half.started {
            half.start(segment.seq.wrapping_add(u32::from(segment.flags.contains(TcpFlags::SYN))));
        }
        let offset = half.offset(segment.seq);
        let end = offset + i64::from(segment.payload_len);
        let suspect = segment.payload_len == 0 || end <= half.highest;
        if half.recent.is_duplicate(segment, at.time, suspect) {
            self.counters.duplicates += 1;
            self.counters.payload_bytes += segment.payload.len() as u64;
            self.counters.retransmitted_bytes += segment.payload.len() as u64;
            return self.row_of(side, segment, offset, at, Note::Duplicate, cx);
        }
        self.count(side, segment, at);
        if segment.flags.contains(TcpFlags::SYN) {
            self.syn(side, segment, at);
        }
        if segment.flags.contains(TcpFlags::ACK) {
            self.acknowledgement(side, segment, at);
        }
        let note = if segment.payload_len > 0 {
            let first_byte = offset + i64::from(segment.flags.contains(TcpFlags::SYN));
            self.data(side, segment, first_byte, at, cx)
        } else {
            Note::None
        };
        if cx.options.packets {
            self.row_of(side, segment, offset, at, note, cx);
        }
        if segment.flags.intersects(CLOSING) {
            self.closing(side, segment, end, at);
        }
        self.check_holes(at, cx);
    }

    #[inline]
    fn count(&mut self, side: usize, segment: &Segment<'_>, at: At) {
        let counters = &mut self.counters;
        counters.packets[side] += 1;
        counters.bytes[side] += u64::from(segment.payload_len);
        counters.payload_bytes += segment.payload.len() as u64;
        counters.urgent += u32::from(segment.flags.contains(TcpFlags::URG));
        match segment.packet_direction {
            crate::packet::PacketDirection::Outgoing => counters.outgoing[side] += 1,
            crate::packet::PacketDirection::Incoming => counters.incoming[side] += 1,
            crate::packet::PacketDirection::Unknown => {}
        }
        if at.time >= self.last.time {
            self.last = at;
        }
        let half = &mut self.halves[side];
        half.timestamps |= segment.timestamps.is_some(); // a RST comes without
        half.longest_payload = half.longest_payload.max(segment.payload_len);
    }

    fn syn(&mut self, side: usize, segment: &Segment<'_>, at: At) {
        let half = &mut self.halves[side];
        half.isn = Some(segment.seq);
        half.mss = segment.mss;
        half.window_scale = segment.window_scale.map(|shift| shift.min(14)); // RFC 7323 section 2.3
        half.answered_syn = segment.flags.contains(TcpFlags::ACK);
        if segment.flags.contains(TcpFlags::ACK) {
            self.syn_ack_time = Some(at.time);
        } else {
            self.syn_time = Some(at.time);
        }
    }

    /// The segment's ACK and window: they speak of the other side's bytes and of this side's buffer.
    #[inline]
    fn acknowledgement(&mut self, side: usize, segment: &Segment<'_>, at: At) {
        self.note_handshake(side, segment, at);
        let peer = &self.halves[1 - side];
        let shift = self.halves[side].window_shift(peer, segment.flags.contains(TcpFlags::SYN));
        let window = shift.map(|shift| u64::from(segment.window) << shift);
        if self.http2.near_rtt[1 - side] > half::NEAR && window != self.halves[side].window {
            self.halves[side].windows.push(at.time, window);
        }
        self.halves[side].window = window;
        if !self.halves[1 - side].started && !self.hears_of(side, segment) {
            return;
        }
        let peer = &self.halves[1 - side];
        let offset = peer.offset(segment.ack);
        if !segment.sack.is_empty() {
            self.selective(side, segment, offset, at);
        }
        let peer = &self.halves[1 - side];
        if offset <= peer.acked {
            return;
        }
        self.http2.unheard[1 - side] = self.counters.bytes[1 - side] == 0 && offset > 1; // one may be a FIN
        let peer = &mut self.halves[1 - side];
        peer.acked = offset;
        peer.acks.push(Ack { time: at.time, offset, packet: at.packet });
        peer.rtt.acknowledged(offset, at.time);
        self.refresh_near(1 - side);
    }

    /// `side` acknowledges a peer of which the capture has no packet: its SYN was answered, or it has talked to somebody
    /// for long. The peer's bytes then count from this ACK on, and what is acknowledged later is missing.
    #[cold]
    fn hears_of(&mut self, side: usize, segment: &Segment<'_>) -> bool {
        // where somebody counts with us, by what both see
        let for_long = !self.is_shown && self.counters.packets[side] > limits::MISSING_AFTER_PACKETS;
        let answered = self.halves[side].isn.is_some() || for_long;
        let unheard = answered && !segment.flags.contains(TcpFlags::SYN);
        if unheard {
            self.halves[1 - side].start(segment.ack);
        }
        unheard
    }

    /// Whether the capture has no payload of `side`, though its peer has acknowledged some, or has no packet of it at all.
    pub(super) fn is_unheard(&self, side: usize) -> bool {
        let nothing = self.halves[side].started && self.counters.packets[side] == 0;
        nothing || self.http2.unheard[side] && self.counters.bytes[side] == 0
    }

    /// An ACK with SACK blocks (RFC 2018) releases its receiver too. A first block below the ACK says that those bytes
    /// came twice (RFC 2883).
    #[cold]
    fn selective(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At) {
        let peer = &mut self.halves[1 - side];
        if let Some(&(left, right)) = segment.sack.as_slice().first()
            && peer.offset(right) <= offset
        {
            let twice = peer.offset(left);
            self.http2.held[1 - side].was_not_missing(twice);
            let sent_again = peer.sent_again.iter().position(|&again| again == twice);
            if let Some(place) = sent_again {
                peer.sent_again.swap_remove(place);
                self.counters.needless += 1;
            }
        }
        let peer = &mut self.halves[1 - side];
        if offset <= peer.acked {
            peer.acks.push(Ack { time: at.time, offset: peer.acked, packet: at.packet });
        }
    }

    /// The halves of the handshake give the first round-trip times: SYN to SYN-ACK is the server's side of the path,
    /// SYN-ACK to ACK the client's.
    #[inline]
    fn note_handshake(&mut self, side: usize, segment: &Segment<'_>, at: At) {
        if self.handshake.is_some() || segment.flags.contains(TcpFlags::SYN) {
            return;
        }
        let (Some(syn), Some(syn_ack)) = (self.syn_time, self.syn_ack_time) else { return };
        if side != self.http2.client {
            return;
        }
        let (server_half, client_half) = (syn_ack.saturating_sub(syn), at.time.saturating_sub(syn_ack));
        self.handshake = Some((server_half, client_half));
        let client = self.http2.client;
        self.halves[client].rtt.sample(server_half);
        self.halves[1 - client].rtt.sample(client_half);
        self.refresh_near(0);
        self.refresh_near(1);
    }

    /// `halves[sender].rtt` times the way from the capture point to the sender's peer and back.
    #[inline]
    fn refresh_near(&mut self, sender: usize) {
        if let Some(min) = self.halves[sender].rtt.min {
            self.http2.near_rtt[1 - sender] = min;
        }
    }

    /// FIN or RST.
    fn closing(&mut self, side: usize, segment: &Segment<'_>, end: i64, at: At) {
        self.closed_by.get_or_insert(side);
        if segment.flags.contains(TcpFlags::FIN) {
            self.halves[side].fin.get_or_insert(end);
            self.fins[side].get_or_insert(at);
        }
        if segment.flags.contains(TcpFlags::RST) {
            self.reset.get_or_insert(at);
        }
    }

    /// Whether both sides have closed, or one has reset.
    pub fn is_finished(&self) -> bool {
        self.reset.is_some() || self.fins.iter().all(Option::is_some)
    }

    /// The first FIN or RST.
    pub(super) fn closed_at(&self) -> Option<At> {
        self.reset.into_iter().chain(self.fins.into_iter().flatten()).min_by_key(|at| at.time)
    }

    /// How open RPCs end: no answer comes after the server's FIN or a reset, but one may after the client's FIN.
    fn end_of_rpcs(&self, replaced: bool, capture_end: CaptureEnd) -> (End, At) {
        let server = 1 - self.http2.client;
        let last = self.reset.into_iter().chain(self.fins[server]).min_by_key(|at| at.time);
        match (last, self.closed_by) {
            (Some(at), Some(side)) if side == server => (End::ServerCloses, at),
            (Some(at), _) => (End::ClientCloses, at),
            (None, _) if replaced => (End::Replaced, self.last),
            (None, _) if self.last.packet <= capture_end.damage => (End::NotKnown, self.last),
            (None, _) => (End::CaptureEnds, capture_end.last),
        }
    }

    /// Ends the connection: holes are given up, open RPCs end, the row is made.
    pub fn finish(mut self, replaced: bool, capture_end: CaptureEnd, cx: &mut Context) -> Ended {
        self.give_up_all(cx);
        let (end, at) = self.end_of_rpcs(replaced, capture_end);
        if let Some(tap) = &mut cx.tap {
            for side in 0..2 {
                self.http2.undecided(side).into_iter().for_each(|kept| tap.unread(self.row, side, kept));
            }
            tap.over(self.row);
        }
        if let Some(tls) = &mut self.tls {
            tls.finish(&mut self.http2, at, cx);
        }
        self.http2.finish(end, at, cx);
        self.http2.methods.write(self.row, cx);
        let client = self.http2.client;
        if let Some(tls) = &self.tls {
            tls.write(self.row, client, cx);
        }
        Ended {
            row: super::summary::row(&self),
            budget: self.http2.budget,
            directions: [client, 1 - client].map(|side| self.http2.sides[side].habits.row()),
            turns: self.http2.turns.finish(self.row, at.time, &mut cx.idles),
        }
    }

    fn row_of(&self, side: usize, segment: &Segment<'_>, offset: i64, at: At, note: Note, cx: &mut Context) {
        if !cx.options.packets {
            return;
        }
        let peer = &self.halves[1 - side];
        let ack = if segment.flags.contains(TcpFlags::ACK) && peer.started { peer.offset(segment.ack) } else { 0 };
        cx.packets.push(PacketRow {
            packet: at.packet,
            time_ns: at.time,
            connection: self.row,
            direction: self.http2.direction(side),
            flags: u32::from(segment.flags.0),
            seq: offset.max(0) as u64,
            ack: ack.max(0) as u64,
            window: self.halves[side].window.unwrap_or(u64::from(segment.window)),
            payload_bytes: segment.payload_len,
            captured_payload_bytes: segment.payload.len() as u32,
            note: note as u8,
            identification: segment.ip_id.map_or(u32::MAX, u32::from),
            timestamp: segment.timestamps.map_or(0, |(value, _)| value),
        });
    }

    /// Whether `side` has begun a message, a frame, or a record of TLS that is not decrypted, and not sent all of it.
    #[inline]
    pub fn owes(&self, side: usize) -> bool {
        self.http2.owes(side) || self.tls.as_ref().is_some_and(|tls| tls.owed(side) > 0)
    }

    /// Bytes that `side` owes as far as is known: of `stream`'s message, of a frame, or of a record.
    pub fn owed(&mut self, side: usize, stream: u32) -> u64 {
        self.http2.owed(side, stream).max(self.tls.as_ref().map_or(0, |tls| tls.owed(side)))
    }

    /// Whether it is TLS of which nothing was decrypted.
    pub fn is_encrypted(&self) -> bool {
        self.http2.protocol == Protocol::Tls
    }

    /// Whether HTTP/2 was recognised.
    pub fn is_http2(&self) -> bool {
        self.http2.protocol == Protocol::Http2
    }
}
