//! One TCP connection: both senders, what they delivered in order, and the HTTP/2 read from it.

use crate::at::At;
use crate::budget::{Budget, Cause};
use crate::context::Context;
use crate::http2::held::Interval;
use crate::http2::{End, Http2, Protocol};
use crate::limits;
use crate::packet::{Segment, TcpFlags};
use crate::tables::{ConnectionRow, DirectionRow, Layer, PacketRow, TurnRow};
use crate::waits;

use super::encrypted::Encrypted;
use super::half::{self, Ack, Half};
use super::note::Note;
use super::reassembly::New;
use super::roles::{self, RolesFrom};
use super::rtt;

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
        let peer = &self.halves[1 - side];
        if !peer.started {
            return;
        }
        let offset = peer.offset(segment.ack);
        if !segment.sack.is_empty() {
            self.selective(side, segment, offset, at);
        }
        let peer = &self.halves[1 - side];
        if offset <= peer.acked {
            return;
        }
        let peer = &mut self.halves[1 - side];
        peer.acked = offset;
        peer.acks.push(Ack { time: at.time, offset, packet: at.packet });
        peer.rtt.acknowledged(offset, at.time);
        self.refresh_near(1 - side);
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

    /// Payload of `side` from `offset` on.
    #[inline]
    fn data(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At, cx: &mut Context) -> Note {
        let end = offset + i64::from(segment.payload_len);
        if end <= self.halves[side].next {
            return self.old_data(side, segment, offset, at);
        }
        let note = self.note_late(side, segment, offset, at);
        if note == Note::Retransmission {
            self.note_retransmission(side, offset, at);
        }
        self.new_data(side, offset, end, at, cx);
        if offset > self.halves[side].next || self.answers_the_unseen(side) {
            return self.keep_out_of_order(side, segment, offset, note, at, cx);
        }
        if self.halves[side].out_of_order.is_some() {
            self.fill(side, segment, offset, note, at, cx);
        } else {
            self.deliver(side, segment.payload, offset, end, at, cx);
        }
        waits::stopped(self, side);
        note
    }

    /// `side` has acknowledged bytes of its peer that the capture has not shown yet: what it sends may answer them, and
    /// is kept until they come. Capture points with several queues mix the order of directions.
    #[inline]
    fn answers_the_unseen(&self, side: usize) -> bool {
        let peer = &self.halves[1 - side];
        peer.started && self.is_unseen(1 - side, peer.acked)
    }

    /// Whether bytes of `side` before `offset` are not in the capture, or not yet.
    #[inline]
    fn is_unseen(&self, side: usize, offset: i64) -> bool {
        let half = &self.halves[side];
        (1..limits::MIXED_BYTES).contains(&(half.payload_before(offset) - half.next))
    }

    /// All of it was delivered before: a retransmission, or a keep-alive that repeats the last byte
    /// (RFC 9293 section 3.8.4).
    fn old_data(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At) -> Note {
        let end = offset + i64::from(segment.payload_len);
        self.counters.retransmitted_bytes += segment.payload.len() as u64;
        let half = &self.halves[side];
        if segment.payload_len == 1 && end == half.next && half.acked >= end {
            self.counters.keep_alives += 1;
            return Note::KeepAlive;
        }
        self.note_retransmission(side, offset, at);
        Note::Retransmission
    }

    /// Bytes that are new although later ones came before: reordered on the way if they are late by less than a round
    /// trip, for a sender cannot know sooner that they are lost; else sent again (Wireshark's rule, 3 ms when the
    /// round trip is not known). The sender's clock decides where it can: it does not run backwards along the bytes
    /// (RFC 7323 section 3.2), so that bytes whose clock is past that of later ones were sent after those.
    #[inline]
    fn note_late(&self, side: usize, segment: &Segment<'_>, offset: i64, at: At) -> Note {
        const UNKNOWN_ROUND_TRIP: i64 = 3_000_000;
        let half = &self.halves[side];
        if offset >= half.highest {
            return Note::None;
        }
        let round_trip = match self.http2.near_rtt {
            [a, b] if a >= 0 && b >= 0 => a + b,
            _ => UNKNOWN_ROUND_TRIP,
        };
        let store = half.out_of_order.as_ref();
        let behind = store.and_then(|store| store.clock_behind(offset));
        let clocks = segment.timestamps.map(|(clock, _)| clock).zip(behind);
        if clocks.is_some_and(|(now, then)| now.wrapping_sub(then) as i32 > 0) {
            return Note::Retransmission;
        }
        match store.and_then(|store| store.behind(offset)) {
            Some(before) if at.time.saturating_sub(before.time) < round_trip => Note::OutOfOrder,
            _ => Note::Retransmission,
        }
    }

    fn note_retransmission(&mut self, side: usize, offset: i64, at: At) {
        let segment_size = i64::from(self.halves[side].segment_size(&self.halves[1 - side]));
        let round_trip = self.http2.near_rtt.iter().fold(0_i64, |sum, half| sum.saturating_add((*half).max(0)));
        self.counters.retransmitted += 1;
        let half = &mut self.halves[side];
        half.retransmissions_since += 1;
        if half.sent_again.len() < limits::RETRANSMISSIONS_KEPT {
            half.sent_again.push(offset);
        }
        half.rtt.retransmitted();
        // Linux's timeout is the round trip and at least this
        let silent = at.time.saturating_sub(half.last_data_time.max(half.last_retransmission));
        let timeout = silent >= rtt::RTO_MIN.saturating_add(round_trip);
        half.last_retransmission = at.time;
        self.counters.timeouts += u32::from(timeout);
        // a hole shows by the first packet behind it, a repeated segment by the sender's last before
        let behind = half.out_of_order.as_ref().and_then(|store| store.first_at());
        let (from, from_packet) =
            behind.map_or((half.last_data_time, half.last_data_packet), |behind| (behind.time, behind.packet));
        let ns = at.time.saturating_sub(from);
        if ns > self.counters.recovery.ns {
            self.counters.recovery = Recovery { ns, from_packet, to: at };
        }
        half.congestion.lost(offset, half.highest, segment_size, timeout);
        self.http2.held[side].resent(offset, at.time);
    }

    /// Bytes not sent before: the moment at which waits end and flights begin.
    #[inline]
    fn new_data(&mut self, side: usize, offset: i64, end: i64, at: At, cx: &mut Context) {
        if end <= self.halves[side].highest {
            return;
        }
        // behind a hole it is not known what the side owes, nor when it last sent
        if self.halves[side].out_of_order.is_none() && offset <= self.halves[side].highest {
            if self.owes(side) {
                waits::resumed(self, side, end - offset, at, cx);
            } else if self.http2.held[side].is_held()
                || self.halves[side].congestion.is_after_loss()
                || self.halves[side].paused_behind_a_short_segment(at.time)
            {
                waits::began(self, side, end - offset, at, cx);
            }
        }
        waits::sent(self, side, offset, end, at);
    }

    /// A segment in front of kept ones: if it was sent again, its bytes would have come before theirs.
    #[cold]
    fn fill(&mut self, side: usize, segment: &Segment<'_>, offset: i64, note: Note, at: At, cx: &mut Context) {
        let end = offset + i64::from(segment.payload_len);
        let lost = note == Note::Retransmission;
        let behind = self.halves[side].out_of_order.as_ref().and_then(|store| store.first_at());
        if let (true, Some(behind)) = (lost, behind) {
            let interval = Interval { start: behind.time, end: at.time, cause: Cause::LossRecovery, after_loss: true };
            self.http2.held[side].add(interval);
            self.deliver(side, segment.payload, offset, end, at, cx);
            self.http2.held[side].take_back();
        } else {
            self.deliver(side, segment.payload, offset, end, at, cx);
        }
        self.halves[side].filled = Some((at, lost));
        self.halves[side].hole_patience = 0; // the next hole may be filled as well
        self.http2.held[side].lost = lost;
        self.drain(side, Some(at), cx);
        self.http2.held[side].lost = false;
    }

    /// Delivers what is new of a segment that begins at or before the expected byte.
    #[inline]
    fn deliver(&mut self, side: usize, payload: &[u8], offset: i64, end: i64, at: At, cx: &mut Context) {
        let half = &mut self.halves[side];
        let known = (half.next - offset).max(0);
        half.advance(end);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let fresh = payload.get(known..).unwrap_or_default();
        self.counters.retransmitted_bytes += (payload.len() - fresh.len()) as u64;
        let cut = (end - offset) as u64 - (payload.len().max(known)) as u64;
        self.http2.sides[side].habits.is_cut = cut > 0;
        if !fresh.is_empty() {
            self.http2.held[side].position = end;
            if cx.tap.is_some() {
                self.show(side, fresh, offset + known as i64, at, cx);
            } else {
                self.read(side, fresh, at, cx);
            }
        }
        if cut > 0 {
            self.counters.missing_bytes += cut;
            self.lack(side, cut, at, cx);
        }
    }

    /// Reads the next bytes, and shows them to who wants to see them.
    #[cold]
    fn show(&mut self, side: usize, bytes: &[u8], offset: i64, at: At, cx: &mut Context) {
        let Some(mut tap) = cx.tap.take() else { return };
        self.begin(bytes, cx);
        tap.delivered(self.row, side, offset, bytes, self.tls.is_some());
        match &mut self.tls {
            Some(tls) => tls.feed(&mut self.http2, side, bytes, at, cx),
            None => self.http2.feed_watched(side, bytes, at, cx, &mut *tap),
        }
        cx.tap = Some(tap);
    }

    /// TLS when the connection begins as TLS does.
    #[inline]
    fn begin(&mut self, bytes: &[u8], cx: &mut Context) {
        if !self.begun {
            self.begun = true;
            self.tls = Encrypted::if_begins(bytes, cx);
        }
    }

    /// Reads the next bytes.
    #[inline]
    fn read(&mut self, side: usize, bytes: &[u8], at: At, cx: &mut Context) {
        self.begin(bytes, cx);
        match &mut self.tls {
            Some(tls) => tls.feed(&mut self.http2, side, bytes, at, cx),
            None => self.http2.feed(side, bytes, at, cx),
        }
    }

    /// Bytes of `side` are missing from the capture.
    fn lack(&mut self, side: usize, length: u64, at: At, cx: &mut Context) {
        let mut tap = cx.tap.take();
        if let Some(tap) = &mut tap {
            tap.missing(self.row, side, length);
        }
        match (&mut self.tls, &mut tap) {
            (Some(tls), _) => tls.gap(&mut self.http2, side, length, at, cx),
            (None, Some(tap)) => self.http2.gap_watched(side, length, at, cx, &mut **tap),
            (None, None) => self.http2.gap(side, length, at, cx),
        }
        cx.tap = tap;
    }

    /// Keeps a segment until the bytes in front of it come; `note` is what its place says so far.
    fn keep_out_of_order(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        offset: i64,
        note: Note,
        at: At,
        cx: &mut Context,
    ) -> Note {
        self.counters.out_of_order += 1;
        let answers = self.halves[1 - side].acked;
        let half = &mut self.halves[side];
        let store = half.out_of_order.get_or_insert_default();
        let before = store.bytes();
        let room = cx.out_of_order_bytes + segment.payload.len() <= limits::OUT_OF_ORDER_TOTAL;
        let (bytes, length, lost) = (segment.payload, i64::from(segment.payload_len), note == Note::Retransmission);
        let clock = segment.timestamps.map(|(clock, _)| clock);
        let kept = room && store.insert(&New { bytes, offset, length, at, answers, lost, clock });
        let grown = store.bytes() - before.min(store.bytes());
        cx.out_of_order_bytes += grown;
        // bytes that are not kept again were seen before, or cannot be kept
        self.counters.retransmitted_bytes +=
            if kept { (segment.payload.len() - grown.min(segment.payload.len())) as u64 } else { 0 };
        if !kept {
            self.give_up(side, at, cx);
            if self.halves[side].out_of_order.as_ref().is_none_or(|store| store.first().is_none()) {
                self.halves[side].out_of_order = None;
                self.skip(side, offset, at, at, cx); // no other hole is in front
            }
            if offset <= self.halves[side].next {
                let end = offset + i64::from(segment.payload_len);
                self.deliver(side, segment.payload, offset, end.max(self.halves[side].next), at, cx);
            } else {
                self.http2.bytes.undecoded += segment.payload.len() as u64;
            }
        }
        let again = kept && grown == 0 && !segment.payload.is_empty(); // kept before, all of it
        match note {
            Note::Retransmission => note,
            _ if again => {
                self.note_retransmission(side, offset, at);
                Note::Retransmission
            }
            _ => Note::OutOfOrder,
        }
    }

    /// Delivers the kept segments of `side` that have become due; `hole` filled the gap before them.
    fn drain(&mut self, side: usize, hole: Option<At>, cx: &mut Context) {
        while self.deliver_kept(side, hole, cx) {}
    }

    /// Delivers the first kept segment of `side` if it is due. Without a `hole` that was filled the capture lacks the
    /// packets before it, and its receiver waited only for those in front of it that came later.
    fn deliver_kept(&mut self, side: usize, hole: Option<At>, cx: &mut Context) -> bool {
        let half = &mut self.halves[side];
        let next = half.next;
        let Some(store) = &mut half.out_of_order else { return false };
        let Some((offset, kept)) = store.take_ready(next) else { return false };
        if store.first().is_none() {
            half.out_of_order = None;
        }
        cx.out_of_order_bytes = cx.out_of_order_bytes.saturating_sub(kept.bytes.len());
        let end = offset + kept.length;
        self.http2.held[side].late = true;
        if end <= next {
            self.counters.retransmitted_bytes += kept.bytes.len() as u64;
        } else if let Some(hole) = hole {
            self.deliver(side, &kept.bytes, offset, end, kept.at.waited(hole), cx);
        } else if let Some((filled, lost)) = half.filled.filter(|(filled, _)| filled.time > kept.at.time) {
            self.http2.held[side].lost = lost;
            self.deliver(side, &kept.bytes, offset, end, kept.at.waited(filled), cx);
            self.http2.held[side].lost = false;
        } else {
            half.filled = Some((kept.at, kept.lost));
            self.deliver(side, &kept.bytes, offset, end, kept.at, cx);
        }
        self.http2.held[side].late = false;
        true
    }

    /// The packet of the first kept segment of `side` if that continues what was read, and answers nothing unseen.
    fn due(&self, side: usize) -> Option<u32> {
        let half = &self.halves[side];
        let (offset, kept) = half.out_of_order.as_ref()?.head()?;
        (offset <= half.next && !self.is_unseen(1 - side, kept.answers)).then_some(kept.at.packet)
    }

    /// Delivers what is due of both sides in the order in which it was recorded: requests before their answers.
    #[cold]
    fn catch_up(&mut self, cx: &mut Context) {
        loop {
            let side = match [self.due(0), self.due(1)] {
                [None, None] => return,
                [Some(first), Some(second)] => usize::from(second < first),
                [first, _] => usize::from(first.is_none()),
            };
            self.deliver_kept(side, None, cx);
        }
    }

    /// A hole that the receiver has acknowledged will not be filled: the capture lacks the packet. Some patience
    /// allows for capture points that record an ACK before its data.
    #[inline]
    fn check_holes(&mut self, at: At, cx: &mut Context) {
        for side in 0..2 {
            let half = &self.halves[side];
            let Some(first) = half.out_of_order.as_ref().and_then(|store| store.first()) else {
                self.halves[side].hole_patience = 0;
                continue;
            };
            let is_hole = first > half.next;
            if !is_hole && self.due(side).is_some() {
                self.catch_up(cx);
            } else if !is_hole || half.acked >= first {
                self.lose_patience(side, at, cx);
            }
        }
    }

    fn lose_patience(&mut self, side: usize, at: At, cx: &mut Context) {
        let half = &mut self.halves[side];
        half.hole_patience += 1;
        if half.hole_patience > limits::MISSING_AFTER_PACKETS {
            half.hole_patience = 0;
            self.give_up(side, at, cx);
        }
    }

    /// Gives up on what holds the first kept segment of `side` back: a hole in front of it, or bytes of the other side
    /// that it answers. What holds earlier packets of the other side back comes first, if that is missing too.
    fn give_up(&mut self, side: usize, at: At, cx: &mut Context) {
        let Some((until, _, _)) = self.head(side) else { return };
        while let Some((_, behind, _)) = self.head(side).filter(|head| head.0 <= until) {
            let other = self.head(1 - side).filter(|head| head.1.packet < behind.packet);
            let half = &self.halves[1 - side];
            let first = other.is_some_and(|(offset, _, _)| offset <= half.next.max(half.acked));
            self.pass(if first { 1 - side } else { side }, at, cx);
            self.catch_up(cx);
        }
    }

    /// Takes away what holds the first kept segment of `side` back, or a part of it.
    fn pass(&mut self, side: usize, at: At, cx: &mut Context) {
        // the receiver went on when it had what comes behind the hole, not when the hole is given up here
        let Some((first, behind, answers)) = self.head(side) else { return };
        let passed = if first > self.halves[side].next {
            self.skip(side, first, behind, at, cx)
        } else {
            self.skip_unseen(1 - side, answers, behind, at, cx)
        };
        if !passed {
            self.deliver_kept(side, None, cx); // two segments that answer each other: no host sends that
        }
    }

    /// Where the first kept segment of `side` begins, its packet, and what it answers.
    fn head(&self, side: usize) -> Option<(i64, At, i64)> {
        let (first, kept) = self.halves[side].out_of_order.as_ref()?.head()?;
        Some((first, kept.at, kept.answers))
    }

    /// Bytes of `side` up to `offset` were acknowledged and are not in the capture; what is behind them may be.
    fn skip_unseen(&mut self, side: usize, offset: i64, behind: At, at: At, cx: &mut Context) -> bool {
        if !self.is_unseen(side, offset) {
            return false;
        }
        let kept = self.head(side).filter(|head| head.0 < offset).map(|(first, at, _)| (first, at));
        let (end, behind) = kept.unwrap_or((self.halves[side].payload_before(offset), behind));
        self.skip(side, end, behind, at, cx)
    }

    /// Gives up on the bytes of `side` up to `offset`; `behind` is the packet that shows that they were there.
    fn skip(&mut self, side: usize, offset: i64, behind: At, at: At, cx: &mut Context) -> bool {
        let missing = offset.saturating_sub(self.halves[side].next);
        if missing <= 0 {
            return false;
        }
        let lost = self.lost_bytes(side, offset);
        self.halves[side].advance(offset);
        if lost > 0 {
            self.counters.missing_bytes += lost.unsigned_abs();
            cx.problem(Layer::Tcp, "bytes are missing from the capture", self.row, at.packet, at.time);
        }
        self.lack(side, missing.unsigned_abs(), behind, cx);
        true
    }

    /// How many of the bytes of `side` up to `offset` the capture lacks. Where it ends before the connection, what nobody
    /// has acknowledged is on its way, or comes again.
    fn lost_bytes(&self, side: usize, offset: i64) -> i64 {
        let half = &self.halves[side];
        let comes = self.ending && half.acked > 0 && self.closed_at().is_none();
        let end = if comes { offset.min(half.acked) } else { offset };
        end.saturating_sub(half.next).max(0)
    }

    /// The connection is over: holes are given up in the order of what lies behind them. Last come bytes that were
    /// acknowledged and after which the capture has nothing; a single one may be a FIN that is not in the capture.
    fn give_up_all(&mut self, cx: &mut Context) {
        let at = self.last;
        self.ending = true;
        loop {
            let heads = [0, 1].map(|side| self.halves[side].out_of_order.as_ref().and_then(|store| store.first_at()));
            let side = match heads.map(|head| head.map(|at| at.packet)) {
                [None, None] => break,
                [Some(first), Some(second)] => usize::from(second < first),
                [first, _] => usize::from(first.is_none()),
            };
            // nobody has acknowledged the hole yet: its bytes may come again, and what is behind it is not readable
            let waits = self.head(side).is_some_and(|(first, _, _)| first > self.halves[side].acked.max(1));
            self.http2.unproven |= waits && self.closed_at().is_none() && self.halves[side].acked > 0;
            self.give_up(side, at, cx);
        }
        for side in 0..2 {
            let half = &self.halves[side];
            if half.started && half.acked - half.next > 1 {
                self.skip_unseen(side, half.acked, at, at, cx);
            }
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
    fn end_of_rpcs(&self, replaced: bool, capture_end: At) -> (End, At) {
        let server = 1 - self.http2.client;
        let last = self.reset.into_iter().chain(self.fins[server]).min_by_key(|at| at.time);
        match (last, self.closed_by) {
            (Some(at), Some(side)) if side == server => (End::ServerCloses, at),
            (Some(at), _) => (End::ClientCloses, at),
            (None, _) if replaced => (End::Replaced, self.last),
            (None, _) => (End::CaptureEnds, capture_end),
        }
    }

    /// Ends the connection: holes are given up, open RPCs end, the row is made.
    pub fn finish(mut self, replaced: bool, capture_end: At, cx: &mut Context) -> Ended {
        self.give_up_all(cx);
        let (end, at) = self.end_of_rpcs(replaced, capture_end);
        if let Some(tap) = &mut cx.tap {
            for side in 0..2 {
                self.http2.undecided(side).into_iter().for_each(|kept| tap.unread(self.row, side, kept));
            }
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
