//! Decides whether payload is new or retransmitted, puts it in order and hands it up.

use crate::at::At;
use crate::limits;
use crate::packet::Segment;
use crate::store::budget::Cause;

use super::super::events::Events;
use super::super::note::Note;
use super::super::send_queue::BlockedInterval;
use super::super::sent_again::{Answer, Recovery, SentAgain};
use super::super::{half, late_acks, rtt};
use super::Connection;

impl Connection {
    /// Payload of `side` from `offset` on.
    #[inline]
    pub(super) fn data<U: Events>(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        offset: i64,
        at: At,
        above: &mut U,
    ) -> Note {
        let end = offset + i64::from(segment.payload_len);
        if end <= self.halves[side].next {
            return self.old_data(side, segment, offset, at);
        }
        let note = self.note_late(side, segment, offset, at);
        if note == Note::Retransmission {
            self.note_retransmission(side, segment, offset, true, at);
        }
        self.new_data(side, offset, end, segment.payload, at, above);
        if offset > self.halves[side].next || self.answers_the_unseen(side) {
            return self.keep_out_of_order(side, segment, offset, note, at, above);
        }
        if self.halves[side].out_of_order.is_some() {
            self.fill(side, segment, offset, note, at, above);
        } else {
            self.deliver(side, segment.payload, offset, end, at, above);
        }
        above.sent(self, side);
        note
    }

    /// `side` has acknowledged bytes of its peer that the capture has not shown yet: what it sends may answer them, and
    /// is kept until they come. Capture points with several queues mix the order of directions.
    #[inline]
    pub(super) fn answers_the_unseen(&self, side: usize) -> bool {
        let peer = &self.halves[1 - side];
        peer.started && self.is_unseen(1 - side, peer.acked)
    }

    /// Whether bytes of `side` before `offset` are not in the capture, or not yet.
    #[inline]
    pub(super) fn is_unseen(&self, side: usize, offset: i64) -> bool {
        let half = &self.halves[side];
        (1..limits::MIXED_BYTES).contains(&(half.payload_before(offset) - half.next))
    }

    /// A segment whose bytes were all delivered before: a retransmission, or a keep-alive that repeats the last byte
    /// (RFC 9293 section 3.8.4).
    pub(super) fn old_data(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At) -> Note {
        let end = offset + i64::from(segment.payload_len);
        self.counters.retransmitted_bytes += segment.payload.len() as u64;
        let half = &self.halves[side];
        if segment.payload_len == 1 && end == half.next && half.acked >= end {
            self.counters.keep_alives += 1;
            return Note::KeepAlive;
        }
        self.note_retransmission(side, segment, offset, false, at);
        Note::Retransmission
    }

    /// Bytes that are new although later ones came before: reordered on the way if they are late by less than a round
    /// trip, for a sender cannot know sooner that they are lost; else retransmitted (Wireshark's rule, 3 ms when the
    /// round trip is not known). The sender's clock decides where it can: it does not run backwards along the bytes
    /// (RFC 7323 section 3.2), so that bytes whose clock is past that of later ones were sent after those.
    #[inline]
    pub(super) fn note_late(&self, side: usize, segment: &Segment<'_>, offset: i64, at: At) -> Note {
        const UNKNOWN_ROUND_TRIP: i64 = 3_000_000;
        /// Linux retransmits two clock ticks after its last packet at the earliest (TCP_TIMEOUT_MIN, include/net/tcp.h), unless
        /// an ACK asks for it: 2 ms with the shortest tick.
        const SHORTEST_TIMEOUT: i64 = 2_000_000;
        let half = &self.halves[side];
        if offset >= half.highest {
            return Note::None;
        }
        let round_trip = self.transport.round_trip().unwrap_or(UNKNOWN_ROUND_TRIP);
        let store = half.out_of_order.as_ref();
        let behind = store.and_then(|store| store.clock_behind(offset));
        let clocks = segment.timestamps.map(|(clock, _)| clock).zip(behind);
        if clocks.is_some_and(|(now, then)| now.wrapping_sub(then) as i32 > 0) {
            return Note::Retransmission;
        }
        match store.and_then(|store| store.behind(offset)) {
            Some(before) if at.time - before.time < round_trip => Note::OutOfOrder,
            Some(before)
                if at.time - before.time < SHORTEST_TIMEOUT
                    && self.transport.unanswered[side].heard.0 < before.packet =>
            {
                Note::OutOfOrder
            }
            _ => Note::Retransmission,
        }
    }

    /// Whether a retransmission at `at` comes after a timeout; `last` is when the side had last sent something new.
    pub(super) fn is_timeout(&self, side: usize, last: i64, at: At) -> bool {
        let round_trip = self.transport.near_rtt.iter().fold(0_i64, |sum, half| sum.saturating_add((*half).max(0)));
        let silent = at.time - last.max(self.halves[side].last_retransmission);
        silent >= rtt::RTO_MIN.saturating_add(round_trip) // Linux's timeout is the round trip and at least this
    }

    /// `side` retransmits bytes. They were lost if they `fill` a hole, in the capture or by a report of the peer, else if an ACK
    /// shows it.
    pub(super) fn note_retransmission(&mut self, side: usize, segment: &Segment<'_>, offset: i64, fills: bool, at: At) {
        let timeout = self.is_timeout(side, self.halves[side].last_data_time, at);
        let end = offset + i64::from(segment.payload_len);
        let is_held = self.is_held_with_the_first(side, at);
        self.counters.retransmitted += 1;
        let half = &mut self.halves[side];
        half.retransmissions_since += 1;
        half.rtt.retransmitted();
        let repeats_first = offset <= half.acked && half.acked < end;
        if repeats_first
            && let Some(since) = half.undelivered.retransmit(half.acked, segment.payload_len, at)
            && self.transport.unanswered[side].heard.0 != 0
        {
            self.transport.lost_since[side].get_or_insert((half.acked, since));
            self.transport.too_long[side] = half.undelivered.is_too_long();
        }
        half.last_retransmission = at.time;
        self.counters.timeouts += u32::from(timeout);
        let longest_acked = half.undelivered.longest_acked;
        self.transport.unanswered[side].retransmit(timeout, longest_acked, at);
        // a hole shows by the first packet behind it, a repeated segment by the sender's last before
        let behind = half.out_of_order.as_ref().and_then(|store| store.first_at());
        let (from, from_packet) =
            behind.map_or((half.last_data_time, half.last_data_packet), |behind| (behind.time, behind.packet));
        let recovery = Recovery { side, ns: at.time - from, from_packet, to: at, is_lost: false };
        let clock = segment.timestamps.map(|(clock, _)| clock);
        let is_lost = fills || end <= half.reported || half.sent_again.is_full();
        let again = SentAgain { start: offset, end, sent: half.highest, clock, timeout, is_lost, recovery };
        let had_arrived = end <= half.acked || is_held && !is_lost;
        self.transport.queues[side].resent(offset..end, at.time, clock);
        self.counters.recovery.keep_longest(recovery);
        if had_arrived {
            return self.note_needless(side, &again);
        }
        self.halves[side].sent_again.push(again);
        if is_lost {
            self.note_lost(side, &again);
        }
    }

    /// Whether bytes and their retransmission came closer together than their sender can have sent them, to a capture point
    /// nearer to the receiver: something in front held both of them up.
    fn is_held_with_the_first(&self, side: usize, at: At) -> bool {
        let near = self.transport.near_rtt[1 - side];
        let Some(round_trip) = self.transport.round_trip().filter(|whole| near < whole / 2) else { return false };
        self.halves[side].rtt.waiting_since().is_some_and(|first| at.time.saturating_sub(first) < round_trip)
    }

    /// The bytes of a retransmission were lost.
    fn note_lost(&mut self, side: usize, again: &SentAgain) {
        let segment_size = self.segment_size(side);
        self.counters.recovery.keep_longest(Recovery { is_lost: true, ..again.recovery });
        let half = &mut self.halves[side];
        half.congestion.lost(again.start, half.highest, segment_size, again.timeout);
    }

    /// The bytes of a retransmission had arrived, or nothing shows that they were lost.
    pub(super) fn note_needless(&mut self, side: usize, again: &SentAgain) {
        self.counters.needless += 1;
        self.transport.queues[side].was_not_missing(again.start..again.end);
        let half = &mut self.halves[side];
        let waited = u32::from(again.recovery.to.time >= half.last_data_time);
        half.retransmissions_since = half.retransmissions_since.saturating_sub(waited);
        if again.is_lost {
            half.congestion.undo(again.start);
        }
    }

    /// The peer of `side` repeats the ACK that proved losses, within a round trip: it had those bytes already.
    #[cold]
    pub(super) fn note_repeated_ack(&mut self, side: usize, at: At) {
        let soon = self.transport.round_trip().unwrap_or(0);
        let needless = self.halves[side].sent_again.take_repeated(at.time, soon);
        needless.iter().for_each(|again| self.note_needless(side, again));
    }

    /// `side` acknowledges all bytes of its peer before `offset`: judges what retransmissions of them were for.
    #[cold]
    pub(super) fn judge_retransmissions(&mut self, side: usize, offset: i64, echo: Option<u32>, at: At) {
        let sender = 1 - side;
        let near = self.transport.near_rtt[side];
        let peer = &mut self.halves[sender];
        let soonest = if near > half::NEAR && !self.transport.near_is_bound[side] { near / 8 * 7 } else { 0 };
        let whole = self.transport.round_trip().unwrap_or(near);
        let latest = if near < 0 { i64::MAX } else { late_acks::may_take(near.max(peer.rtt.smoothed()), whole) };
        let reported = peer.permits_reports.then_some(peer.reported);
        let answer = Answer { offset, time: at.time, echo, reported, in_time: soonest..latest };
        let (lost, needless) = peer.sent_again.judge(&answer);
        needless.iter().for_each(|again| self.note_needless(sender, again));
        lost.iter().rev().for_each(|again| self.note_lost(sender, again));
    }

    /// Bytes of `side` that it has not sent before: waits end here, and flights begin.
    #[inline]
    pub(super) fn new_data<U: Events>(
        &mut self,
        side: usize,
        offset: i64,
        end: i64,
        payload: &[u8],
        at: At,
        above: &mut U,
    ) {
        let half = &mut self.halves[side];
        half.may_be_held = false;
        if end <= half.highest {
            return;
        }
        // behind a hole it is not known what the side owes, nor when it last sent
        if half.out_of_order.is_none() && offset <= half.highest {
            above.sends(self, side, end - offset, payload, at);
        } else {
            half.may_be_held = half.paused_behind_a_short_segment(at.time);
        }
        self.count_new_data(side, offset, end, at);
    }

    /// A segment in front of kept ones: if it is a retransmission, its bytes would have come before theirs.
    #[cold]
    pub(super) fn fill<U: Events>(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        offset: i64,
        note: Note,
        at: At,
        above: &mut U,
    ) {
        let end = offset + i64::from(segment.payload_len);
        let lost = note == Note::Retransmission;
        let behind = self.halves[side].out_of_order.as_ref().and_then(|store| store.first_at());
        if let (true, Some(behind)) = (lost, behind) {
            let interval = BlockedInterval::new(behind.time, at.time, Cause::LossRecovery);
            let interval = BlockedInterval { after_loss: true, ..interval };
            self.transport.queues[side].add(interval);
            self.deliver_late(side, segment.payload, offset, end, at, above);
            self.transport.queues[side].take_back();
        } else {
            self.deliver_late(side, segment.payload, offset, end, at, above);
        }
        self.halves[side].filled = Some((at, lost));
        self.halves[side].hole_patience = 0; // the next hole may be filled as well
        self.transport.queues[side].lost = lost;
        self.drain(side, Some(at), above);
        self.transport.queues[side].lost = false;
    }

    /// [`deliver`](Self::deliver), for segments that do not come in order.
    #[inline(never)]
    pub(super) fn deliver_late<U: Events>(
        &mut self,
        side: usize,
        payload: &[u8],
        offset: i64,
        end: i64,
        at: At,
        above: &mut U,
    ) {
        self.deliver(side, payload, offset, end, at, above);
    }

    /// Delivers what is new of a segment that begins at or before the expected byte.
    #[inline(always)]
    fn deliver<U: Events>(&mut self, side: usize, payload: &[u8], offset: i64, end: i64, at: At, above: &mut U) {
        let half = &mut self.halves[side];
        let known = (half.next - offset).max(0);
        half.advance(end);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let fresh = payload.get(known..).unwrap_or_default();
        self.counters.retransmitted_bytes += (payload.len() - fresh.len()) as u64;
        let cut = (end - offset) as u64 - (payload.len().max(known)) as u64;
        self.transport.is_cut[side] = cut > 0;
        self.transport.is_acknowledged[1 - side] = self.is_acknowledged(1 - side);
        self.transport.acked = [self.halves[0].acked, self.halves[1].acked];
        if !fresh.is_empty() {
            self.transport.queues[side].position = end;
            self.transport.delivered_from[side] = offset + known as i64;
            above.deliver(&self.transport, side, offset + known as i64, fresh, at);
        }
        if cut > 0 {
            self.counters.missing_bytes += cut;
            above.lacks(&self.transport, side, cut, at);
        }
    }
}
