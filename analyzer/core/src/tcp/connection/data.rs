//! Payload of one sender: new or sent before, in order or not, and to whom it is handed.

use crate::at::At;
use crate::packet::Segment;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::tcp::send_queue::Interval;
use crate::{limits, waits};

use super::super::encrypted::Encrypted;
use super::super::note::Note;
use super::super::rtt;
use super::{Connection, Recovery};

impl Connection {
    /// Payload of `side` from `offset` on.
    #[inline]
    pub(super) fn data(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At, cx: &mut Context) -> Note {
        let end = offset + i64::from(segment.payload_len);
        if end <= self.halves[side].next {
            return self.old_data(side, segment, offset, at);
        }
        let note = self.note_late(side, segment, offset, at);
        if note == Note::Retransmission {
            self.note_retransmission(side, offset, at);
        }
        self.new_data(side, offset, end, segment.payload, at, cx);
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

    /// All of it was delivered before: a retransmission, or a keep-alive that repeats the last byte
    /// (RFC 9293 section 3.8.4).
    pub(super) fn old_data(&mut self, side: usize, segment: &Segment<'_>, offset: i64, at: At) -> Note {
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
    pub(super) fn note_late(&self, side: usize, segment: &Segment<'_>, offset: i64, at: At) -> Note {
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

    pub(super) fn note_retransmission(&mut self, side: usize, offset: i64, at: At) {
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
    pub(super) fn new_data(&mut self, side: usize, offset: i64, end: i64, payload: &[u8], at: At, cx: &mut Context) {
        if end <= self.halves[side].highest {
            return;
        }
        // behind a hole it is not known what the side owes, nor when it last sent
        if self.halves[side].out_of_order.is_none() && offset <= self.halves[side].highest {
            if self.owes(side) {
                waits::resumed(self, side, end - offset, at, cx);
            } else if self.http2.held[side].is_held()
                || self.halves[side].congestion.is_after_loss()
                || waits::may_be_held(&self.halves[side], payload, at)
            {
                waits::began(self, side, end - offset, payload, at, cx);
            }
        }
        waits::sent(self, side, offset, end, at);
    }

    /// A segment in front of kept ones: if it was sent again, its bytes would have come before theirs.
    #[cold]
    pub(super) fn fill(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        offset: i64,
        note: Note,
        at: At,
        cx: &mut Context,
    ) {
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
    pub(super) fn deliver(&mut self, side: usize, payload: &[u8], offset: i64, end: i64, at: At, cx: &mut Context) {
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
    pub(super) fn show(&mut self, side: usize, bytes: &[u8], offset: i64, at: At, cx: &mut Context) {
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
    pub(super) fn begin(&mut self, bytes: &[u8], cx: &mut Context) {
        if !self.begun {
            self.begun = true;
            self.tls = Encrypted::if_begins(bytes, cx);
        }
    }

    /// Reads the next bytes.
    #[inline]
    pub(super) fn read(&mut self, side: usize, bytes: &[u8], at: At, cx: &mut Context) {
        self.begin(bytes, cx);
        match &mut self.tls {
            Some(tls) => tls.feed(&mut self.http2, side, bytes, at, cx),
            None => self.http2.feed(side, bytes, at, cx),
        }
    }

    /// Bytes of `side` are missing from the capture.
    pub(super) fn lack(&mut self, side: usize, length: u64, at: At, cx: &mut Context) {
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
}
