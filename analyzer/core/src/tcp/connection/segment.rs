//! Reads what a segment says about its connection: handshake, acknowledgements, windows, and the end.

use crate::at::At;
use crate::limits;
use crate::packet::{PacketDirection, Segment, TcpFlags};
use crate::store::tables::{Layer, PacketRow};

use super::super::closing::Closing;
use super::super::events::Events;
use super::super::half::{self, Ack};
use super::super::late_acks::TimedAck;
use super::super::note::Note;
use super::super::path_delay::PathDelay;
use super::super::queue::{self, TARGET};
use super::super::unanswered::Outage;
use super::{Connection, MIXED};

const CLOSING: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::RST.0);

impl Connection {
    /// Takes one segment of `side`.
    #[inline]
    pub fn segment<U: Events>(&mut self, side: usize, segment: &Segment<'_>, at: At, above: &mut U) {
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
            return self.row_of(side, segment, offset, at, Note::Duplicate, above);
        }
        self.count(side, segment, at);
        if self.transport.shut[side].is_shut() && end + 1 == self.halves[side].highest && segment.payload_len == 0 {
            self.transport.shut[side].probe(at.time);
        }
        self.measure_delay(side, segment, at, above);
        if segment.flags.contains(TcpFlags::SYN) {
            self.syn(side, segment, at);
        }
        if segment.flags.contains(TcpFlags::ACK) {
            self.acknowledgement(side, segment, at, above);
        }
        let note = if segment.payload_len > 0 {
            let first_byte = offset + i64::from(segment.flags.contains(TcpFlags::SYN));
            self.data(side, segment, first_byte, at, above)
        } else {
            Note::None
        };
        if above.context().options.packets {
            self.row_of(side, segment, offset, at, note, above);
        }
        if segment.flags.intersects(CLOSING) {
            self.closing(side, segment, end, at, above);
        }
        self.halves[side].note_header(segment);
        self.check_holes(at, above);
    }

    #[inline]
    fn count(&mut self, side: usize, segment: &Segment<'_>, at: At) {
        let counters = &mut self.counters;
        counters.packets[side] += 1;
        counters.bytes[side] += u64::from(segment.payload_len);
        counters.payload_bytes += segment.payload.len() as u64;
        counters.urgent += u32::from(segment.flags.contains(TcpFlags::URG));
        match segment.packet_direction {
            PacketDirection::Outgoing => counters.outgoing[side] += 1,
            PacketDirection::Incoming => counters.incoming[side] += 1,
            PacketDirection::Unknown => {}
        }
        if at.time >= self.last.time {
            self.last = at;
        }
        let half = &mut self.halves[side];
        half.timestamps |= segment.timestamps.is_some(); // a RST comes without
        half.longest_payload = half.longest_payload.max(segment.payload_len);
        if !segment.flags.contains(TcpFlags::RST) {
            for closing in self.closings.iter_mut().filter(|closing| closing.side == side && closing.is_reset) {
                closing.goes_on(at);
            }
        }
        if let Some(from) = self.transport.unanswered[1 - side].hear(at) {
            self.end_outage(1 - side, from, at);
        }
        if segment.payload_len > 0 || segment.flags.contains(TcpFlags::FIN) {
            self.transport.unanswered[side].send(at, segment.payload_len);
        }
    }

    /// The peer of a side that sent in vain is heard again. A peer that only long packets do not reach was there all the
    /// time.
    #[cold]
    fn end_outage(&mut self, side: usize, from: At, to: At) {
        if self.transport.too_long[side] {
            return;
        }
        self.transport.outages[side] = (from.time, to.time);
        let ns = to.time - from.time;
        if ns > self.counters.outage.ns {
            let (from_packet, to_packet, to_time) = (from.packet, to.packet, to.time);
            self.counters.outage = Outage { side, ns, from_packet, to_packet, to_time };
        }
    }

    /// How long the packet was queued on the way to the capture point, and since when its sender has had others to send.
    #[inline]
    fn measure_delay<U: Events>(&mut self, side: usize, segment: &Segment<'_>, at: At, above: &mut U) {
        self.transport.queued = [0; 2];
        self.transport.sends_since = [None; 2];
        self.transport.sends_since[side] = self.halves[side].sends_since(at.time, self.transport.near_rtt[side].max(0));
        if let Some((clock, _)) = segment.timestamps {
            let place = (self.row, u8::from(side != above.client()), 0);
            let mut queued = self.halves[side].delay.packet(clock, at.time);
            if queued > 0 && self.is_clock_set(at, above) {
                queued = 0;
            }
            let half = &mut self.halves[side];
            half.path_queues[0].packet(queued, segment.payload_len, at, place, above.context());
            self.transport.queued[side] = queued;
            if let Some(filled) = half.path_queues[0].filled_since() {
                let since = &mut self.transport.sends_since[side];
                *since = Some(since.map_or(filled, |since| since.min(filled)));
            }
        }
    }

    /// Whether packets are late because the capture's clock was set forward. What looked like a queue until now was none.
    #[cold]
    fn is_clock_set<U: Events>(&mut self, at: At, above: &mut U) -> bool {
        let [one, other] = &mut self.halves;
        let is_set = PathDelay::have_shifted(&mut [&mut one.delay, &mut other.delay]);
        if is_set {
            self.halves.iter_mut().for_each(|half| half.path_queues[0].forget());
            let text = "packets of both directions are late by the same: the capture's clock may have been set";
            above.context().problem(Layer::Tcp, text, self.row, at.packet, at.time);
        }
        is_set
    }

    /// `side` has acknowledged `bytes` of its peer by a packet that echoes the timestamp `echo`: how long they were queued
    /// behind the capture point. The ACK's own way back is measured by its timestamp. A receiver may put ACKs off, but not those
    /// of two full segments (RFC 9293 section 3.8.6.3), and a queue must stand to count.
    fn measure_behind<U: Events>(&mut self, side: usize, echo: u32, bytes: i64, at: At, above: &mut U) {
        let back = self.transport.queued[side];
        let peer = &mut self.halves[1 - side];
        let (Some(least), Some(sent)) = (peer.rtt.min, peer.delay.captured_at(echo)) else { return };
        let longer = at.time.saturating_sub(sent).saturating_sub(least).saturating_sub(back);
        let queued = if longer >= TARGET { longer } else { 0 };
        let place = (self.row, u8::from(side == above.client()), 1);
        let [front, behind] = &mut peer.path_queues;
        if !front.is_seen() {
            behind.packet(queued, u32::try_from(bytes).unwrap_or(u32::MAX), at, place, above.context());
            self.transport.flights[1 - side].1.get_or_insert(queued);
            self.transport.queued_behind[1 - side] = if behind.stands() { (queued, at.time) } else { (0, 0) };
        }
    }

    fn syn(&mut self, side: usize, segment: &Segment<'_>, at: At) {
        let half = &mut self.halves[side];
        half.isn = Some(segment.seq);
        half.mss = segment.mss;
        half.window_scale = segment.window_scale.map(|shift| shift.min(14)); // RFC 7323 section 2.3
        half.permits_reports = segment.sack_permitted;
        half.answered_syn = segment.flags.contains(TcpFlags::ACK);
        if segment.flags.contains(TcpFlags::ACK) {
            self.syn_ack_time = Some(at.time);
            self.syn_ack.get_or_insert(at);
        } else {
            self.syns += 1;
            self.syn_time = Some(at.time);
        }
    }

    /// The segment's ACK and window: they speak of the other side's bytes and of this side's buffer.
    #[inline]
    fn acknowledgement<U: Events>(&mut self, side: usize, segment: &Segment<'_>, at: At, above: &mut U) {
        self.note_handshake(side, segment, at, above.client());
        let peer = &self.halves[1 - side];
        let shift = self.halves[side].window_shift(peer, segment.flags.contains(TcpFlags::SYN));
        let window = shift.map(|shift| u64::from(segment.window) << shift);
        if self.transport.near_rtt[1 - side] > half::NEAR && window != self.halves[side].window {
            self.halves[side].windows.push(at.time, window);
        }
        self.halves[side].echo = segment.timestamps.map_or(0, |(_, echo)| echo);
        let before = std::mem::replace(&mut self.halves[side].window, window);
        let grew = window > before;
        if !self.halves[1 - side].started && !self.hears_of(side, segment) {
            return;
        }
        let peer = &self.halves[1 - side];
        let offset = peer.offset(segment.ack);
        if !segment.sack.is_empty() {
            self.selective(side, segment, offset, at);
        }
        if segment.window == 0 || self.transport.shut[1 - side].is_shut() {
            self.note_shut_window(side, segment, offset, at);
        }
        let peer = &mut self.halves[1 - side];
        if offset <= peer.acked {
            let is_bare = segment.payload_len == 0 && segment.sack.is_empty();
            if grew {
                peer.window_grew = Ack { time: at.time, offset, packet: at.packet };
            } else if peer.sent_again.has_proved() && offset == peer.acked && is_bare {
                self.note_repeated_ack(1 - side, at);
            }
            return;
        }
        self.transport.unheard[1 - side] = self.counters.bytes[1 - side] == 0 && offset > 1; // one may be a FIN
        let acked = self.halves[1 - side].acked;
        let segment_size = self.segment_size(1 - side);
        let at_once = segment_size > 0 && offset - acked >= 2 * segment_size;
        if at_once && (window >= before || self.halves[1 - side].reported > acked) {
            self.note_arrival(side, acked, offset, at.time);
        }
        if let Some((_, echo)) = segment.timestamps {
            self.transport.queues[1 - side].answered(offset, echo);
            if at_once {
                self.measure_behind(side, echo, offset - acked, at, above);
            }
        }
        let peer = &mut self.halves[1 - side];
        if let Some((end, time)) = peer.sent_early.take() {
            // one up to there that comes right after the bytes may have been recorded behind them
            peer.sends_at_once = offset != end || at.time.saturating_sub(time) >= MIXED;
        }
        let before = std::mem::replace(&mut peer.acked, offset);
        peer.undelivered.acknowledge(offset);
        if self.transport.lost_since[1 - side].is_some_and(|lost| lost.0 < offset) {
            let behind = peer.out_of_order.as_ref().and_then(|store| store.behind_hole(offset));
            self.transport.lost_since[1 - side] = behind.map(|at| (offset, at.time));
        }
        self.transport.too_long[1 - side] = false;
        peer.acks.push(Ack { time: at.time, offset, packet: at.packet });
        if self.transport.fins_acknowledged[1 - side] == 0 && offset == peer.fin.unwrap_or(peer.highest) + 1 {
            self.transport.fins_acknowledged[1 - side] = at.packet;
        }
        let echo = segment.timestamps.map(|(_, echo)| echo);
        let resent = peer.sent_again.awaits(offset);
        let are_first = !resent || peer.sent_again.first_copies_arrived(offset, echo);
        let last = (peer.highest, peer.last_data_time);
        let taken = peer.rtt.acknowledged(offset, at.time, segment.payload_len > 0, at_once, last);
        let sent = taken.filter(|_| are_first).map(|taken| at.time - taken);
        let ack = TimedAck { from: before, to: offset, time: at.time, packet: at.packet, sent };
        self.note_delay(side, taken, ack, segment.payload_len == 0);
        self.refresh_near(1 - side);
        if resent {
            self.judge_retransmissions(side, offset, echo, at);
        }
        if are_first && self.is_slow(side, taken) {
            self.note_held(side, ack, echo, above);
        }
    }

    /// Whether an ACK of `side`, which took so long, may show that the path held bytes. Nothing on the way to a host that is near
    /// does.
    #[inline]
    fn is_slow(&self, side: usize, taken: Option<i64>) -> bool {
        let near = self.transport.near_rtt[side];
        let slow = taken.map_or(self.transport.held[1 - side].is_some(), |taken| taken - near >= TARGET);
        slow && near > half::NEAR
    }

    /// `side` has acknowledged bytes of its peer, and their first copy arrived. Its packet before left without acknowledging them,
    /// by its clock: up to then the path held them, if that is longer than a round trip. The bytes in front of them were held for
    /// as long if their ACK, itself late, came together with this one: a host that puts ACKs off sends one for all that arrived.
    #[cold]
    fn note_held<U: Events>(&mut self, side: usize, mut ack: TimedAck, echo: Option<u32>, above: &mut U) {
        let (half, peer) = (&self.halves[side], &self.halves[1 - side]);
        let ack_before = |back: usize| peer.acks.newest_first().nth(back).unwrap_or_default().time;
        let (before, earlier) = (ack_before(1), ack_before(2));
        let Some(left) = half.delay.captured_before() else { return };
        let near = self.transport.near_rtt[side];
        let held = |ack: TimedAck| ack.sent.map_or(0, |sent| left.saturating_sub(sent).saturating_sub(near));
        if let (None, Some(echo), false) = (ack.sent, echo, peer.path_queues[0].is_seen()) {
            ack.sent = peer.delay.captured_at(echo);
        }
        let behind = held(ack);
        let fills = |sent: i64| peer.fills_the_path(ack.to, sent);
        if behind < TARGET || self.is_measured(side, ack) || ack.sent.is_none_or(fills) {
            return;
        }
        let late = self.transport.late_acks[1 - side].as_ref().and_then(|acks| acks.up_to(ack.from));
        let came_together = |late: &TimedAck| ack.time.saturating_sub(late.time) <= TARGET;
        let is_long_enough =
            |late: &TimedAck| held(*late) / queue::TOGETHER <= behind && !self.is_measured(side, *late);
        if let Some(late) = late.filter(came_together).filter(is_long_enough) {
            self.note_held_bytes(side, late, (held(late), left), earlier, above);
        }
        self.note_held_bytes(side, ack, (behind, left), before, above);
    }

    /// Whether an ACK of `side` is not put off, so that it measures by itself how long its bytes were queued.
    fn is_measured(&self, side: usize, ack: TimedAck) -> bool {
        ack.to.saturating_sub(ack.from) >= 2 * self.segment_size(1 - side).max(1)
    }

    /// The path held bytes for so long, until then. The ACK before theirs came at `passed`.
    fn note_held_bytes<U: Events>(
        &mut self,
        side: usize,
        ack: TimedAck,
        (held, until): (i64, i64),
        passed: i64,
        above: &mut U,
    ) {
        let path = self.transport.held[1 - side].get_or_insert_default();
        let known = path.push(ack.from..ack.to, until, ack.time);
        let place = (self.row, u8::from(side == above.client()), 1);
        let [front, behind] = &mut self.halves[1 - side].path_queues;
        if held < TARGET || front.is_seen() {
            return;
        }
        let at = At::new(ack.packet, ack.time);
        if let Some(known) = known {
            behind.lengthen(held, until.saturating_sub(known).max(0), at);
        } else {
            let bytes = u32::try_from(ack.to.saturating_sub(ack.from)).unwrap_or(u32::MAX);
            behind.note_passed(passed);
            behind.packet(held, bytes, at, place, above.context());
        }
    }

    /// `side` acknowledges two full segments or more, from one offset to another, while its window is as large as before, or bytes
    /// behind them had arrived: such an ACK is sent at once (`__tcp_ack_snd_check`, net/ipv4/tcp_input.c). Nothing on the way to a
    /// host that is near is late.
    #[inline]
    fn note_arrival(&mut self, side: usize, from: i64, to: i64, time: i64) {
        if self.transport.near_rtt[side] > half::NEAR {
            self.transport.arrivals[1 - side].get_or_insert_default().push(from, to, time);
        }
    }

    /// An ACK of `side` took so long; `None` where that is not known.
    #[inline]
    fn note_delay(&mut self, side: usize, taken: Option<i64>, ack: TimedAck, is_bare: bool) {
        let late = taken.zip(self.transport.may_take(1 - side)).map(|(taken, most)| taken > most);
        let is_short = || ack.to - ack.from < 2 * self.segment_size(1 - side).max(1);
        let change = match late {
            Some(true) => -1,
            Some(false) if is_bare && is_short() => 1,
            _ => 0,
        };
        self.transport.acks_soon[side] = self.transport.acks_soon[side].saturating_add(change);
        let late_acks = &mut self.transport.late_acks[1 - side];
        if late == Some(true) || late_acks.is_some() {
            late_acks.get_or_insert_default().push(ack, late);
        }
    }

    /// `side` announces a window of 0, or a larger one behind it, and has all bytes before `offset`. A RST has no window.
    #[cold]
    fn note_shut_window(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At) {
        let (sender, shut) = (&self.halves[1 - side], &mut self.transport.shut[1 - side]);
        if segment.window > 0 {
            shut.open(at.time);
        } else if offset == sender.highest && !segment.flags.contains(TcpFlags::RST) {
            shut.announce(sender.last_data_time, at.time);
        }
    }

    /// `side` acknowledges a peer of which the capture has no packet: its SYN was answered, or it has sent packets
    /// for long. The peer's bytes then count from this ACK on, and what is acknowledged later is missing.
    #[cold]
    fn hears_of(&mut self, side: usize, segment: &Segment<'_>) -> bool {
        // a tap counts the bytes as well, from the SYN on
        let for_long = !self.is_shown && self.counters.packets[side] > limits::MISSING_AFTER_PACKETS;
        let answered = self.halves[side].isn.is_some() || for_long;
        let unheard = answered && !segment.flags.contains(TcpFlags::SYN);
        if unheard {
            self.halves[1 - side].start(segment.ack);
        }
        unheard
    }

    /// An ACK with SACK blocks (RFC 2018) releases its receiver too. A first block below the ACK says that those bytes
    /// came twice (RFC 2883).
    #[cold]
    fn selective(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At) {
        let peer = &mut self.halves[1 - side];
        if let Some(&(left, right)) = segment.sack.as_slice().first()
            && peer.offset(right) <= offset
        {
            let twice = peer.offset(left)..peer.offset(right);
            let needless = peer.sent_again.take_duplicate(&twice);
            self.transport.queues[1 - side].was_not_missing(twice);
            if let Some(again) = needless {
                self.note_needless(1 - side, &again);
            }
        }
        let peer = &mut self.halves[1 - side];
        let behind = |&(left, right): &(u32, u32)| (peer.offset(left) > offset).then(|| peer.offset(right));
        if offset >= peer.acked
            && let Some(end) = segment.sack.as_slice().iter().filter_map(behind).max()
        {
            peer.reported = peer.reported.max(end.min(peer.highest));
            peer.undelivered.report(offset, at);
        }
        if offset <= peer.acked {
            peer.acks.push(Ack { time: at.time, offset: peer.acked, packet: at.packet });
        }
    }

    /// The halves of the handshake give the first round-trip times: SYN to SYN-ACK is the server's side of the path,
    /// SYN-ACK to ACK the client's.
    #[inline]
    fn note_handshake(&mut self, side: usize, segment: &Segment<'_>, at: At, client: usize) {
        if self.handshake.is_some() || segment.flags.contains(TcpFlags::SYN) {
            return;
        }
        let (Some(syn), Some(syn_ack)) = (self.syn_time, self.syn_ack_time) else { return };
        if side != client {
            return;
        }
        let (server_half, client_half) = (syn_ack - syn, at.time - syn_ack);
        self.handshake = Some((server_half, client_half));
        self.halves[client].rtt.sample(server_half);
        self.halves[1 - client].rtt.sample(client_half);
        self.refresh_near(0);
        self.refresh_near(1);
    }

    /// `halves[sender].rtt` times the way from the capture point to the sender's peer and back.
    #[inline]
    fn refresh_near(&mut self, sender: usize) {
        if let Some(min) = self.halves[sender].rtt.min {
            self.transport.near_rtt[1 - sender] = min;
            self.transport.near_is_bound[1 - sender] = self.halves[sender].rtt.is_bound;
        }
    }

    /// FIN or RST.
    fn closing<U: Events>(&mut self, side: usize, segment: &Segment<'_>, end: i64, at: At, above: &mut U) {
        let is_reset = segment.flags.contains(TcpFlags::RST);
        if !self.closings.iter().any(|closing| closing.side == side && closing.is_reset == is_reset) {
            self.closings.push(Closing::new(side, segment, is_reset, &self.halves, at));
            above.closes(side);
        }
        if self.closed_by.is_none() {
            self.closing_acks[side] = self.halves[1 - side].acked;
        }
        self.closed_by.get_or_insert(side);
        if segment.flags.contains(TcpFlags::FIN) {
            if self.closing_acks[1 - side] > end {
                self.closed_by = Some(side); // the peer closed when it had this FIN, which is recorded too late
            }
            if let Some(first) = self.transport.fins[side].filter(|_| segment.payload_len == 0) {
                let timeout = self.is_timeout(side, first.time, at);
                let longest_acked = self.halves[side].undelivered.longest_acked;
                self.transport.unanswered[side].retransmit(timeout, longest_acked, at);
                self.halves[side].last_retransmission = at.time;
            }
            self.halves[side].fin.get_or_insert(end);
            self.transport.fins[side].get_or_insert(at);
        }
        if is_reset {
            self.reset.get_or_insert(at);
            if end == self.halves[side].highest {
                self.transport.resets[side].get_or_insert(at.time); // RFC 5961 section 3.2: no other RST is taken
            }
        }
    }

    fn row_of<U: Events>(&self, side: usize, segment: &Segment<'_>, offset: i64, at: At, note: Note, above: &mut U) {
        let direction = u8::from(side != above.client());
        let cx = above.context();
        if !cx.options.packets || cx.is_shown {
            return;
        }
        let peer = &self.halves[1 - side];
        let ack = if segment.flags.contains(TcpFlags::ACK) && peer.started { peer.offset(segment.ack) } else { 0 };
        cx.push_packet(PacketRow {
            packet: at.packet,
            time_ns: at.time,
            connection: self.row,
            direction,
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
}
