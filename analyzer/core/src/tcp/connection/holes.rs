//! Keeps segments that wait for bytes before them, and gives up on bytes that the capture lacks.

use crate::at::At;
use crate::limits;
use crate::packet::Segment;
use crate::store::tables::Layer;

use super::super::events::Events;
use super::super::note::Note;
use super::super::reassembly::New;
use super::Connection;

impl Connection {
    /// Keeps a segment until the bytes in front of it come; `note` is what its place says so far.
    pub(super) fn keep_out_of_order<U: Events>(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        offset: i64,
        note: Note,
        at: At,
        above: &mut U,
    ) -> Note {
        self.counters.out_of_order += 1;
        let first = self.halves[side].next.max(self.halves[side].acked);
        if offset > first {
            self.transport.lost_since[side].get_or_insert((first, at.time));
        }
        let answers = self.halves[1 - side].acked;
        let half = &mut self.halves[side];
        let store = half.out_of_order.get_or_insert_default();
        let before = store.bytes();
        let cx = above.context();
        let room = cx.out_of_order_bytes + segment.payload.len() <= limits::OUT_OF_ORDER_TOTAL;
        let (bytes, length, lost) = (segment.payload, i64::from(segment.payload_len), note == Note::Retransmission);
        let clock = segment.timestamps.map(|(clock, _)| clock);
        let may_be_held = half.may_be_held;
        let kept = room && store.insert(&New { bytes, offset, length, at, answers, lost, clock, may_be_held });
        let grown = store.bytes() - before.min(store.bytes());
        cx.out_of_order_bytes += grown;
        // bytes that are not kept again were seen before, or cannot be kept
        self.counters.retransmitted_bytes +=
            if kept { (segment.payload.len() - grown.min(segment.payload.len())) as u64 } else { 0 };
        if !kept {
            self.give_up(side, at, above);
            if self.halves[side].out_of_order.as_ref().is_none_or(|store| store.first().is_none()) {
                self.halves[side].out_of_order = None;
                self.skip(side, offset, at, at, above); // no other hole is in front
            }
            if offset <= self.halves[side].next {
                let end = offset + i64::from(segment.payload_len);
                self.deliver_late(side, segment.payload, offset, end.max(self.halves[side].next), at, above);
            } else {
                above.drops(segment.payload.len());
            }
        }
        let again = kept && grown == 0 && !segment.payload.is_empty(); // kept before, all of it
        match note {
            Note::Retransmission => note,
            _ if again => {
                self.note_retransmission(side, segment, offset, false, at);
                Note::Retransmission
            }
            _ => Note::OutOfOrder,
        }
    }

    /// Delivers the kept segments of `side` that have become due; `hole` filled the gap before them.
    pub(super) fn drain<U: Events>(&mut self, side: usize, hole: Option<At>, above: &mut U) {
        while self.deliver_kept(side, hole, above) {}
    }

    /// Delivers the first kept segment of `side` if it is due. Without a `hole` that was filled the capture lacks the
    /// packets before it, and its receiver waited only for those in front of it that came later.
    pub(super) fn deliver_kept<U: Events>(&mut self, side: usize, hole: Option<At>, above: &mut U) -> bool {
        let half = &mut self.halves[side];
        let next = half.next;
        let Some(store) = &mut half.out_of_order else { return false };
        let Some((offset, kept)) = store.take_ready(next) else { return false };
        if store.first().is_none() {
            half.out_of_order = None;
        }
        let waiting = &mut above.context().out_of_order_bytes;
        *waiting = waiting.saturating_sub(kept.bytes.len());
        let end = offset + kept.length;
        self.transport.queues[side].late = true;
        if end <= next {
            self.counters.retransmitted_bytes += kept.bytes.len() as u64;
        } else if let Some(hole) = hole {
            self.deliver_late(side, &kept.bytes, offset, end, kept.at.waited(hole), above);
        } else if let Some((filled, lost)) = half.filled.filter(|(filled, _)| filled.time > kept.at.time) {
            self.transport.queues[side].lost = lost;
            self.deliver_late(side, &kept.bytes, offset, end, kept.at.waited(filled), above);
            self.transport.queues[side].lost = false;
        } else {
            let before = half.filled.replace((kept.at, kept.lost)).map_or(0, |(before, _)| before.time);
            above.pauses_unjudged(self, side, before, kept.at);
            self.transport.queues[side].may_be_held = kept.may_be_held;
            self.deliver_late(side, &kept.bytes, offset, end, kept.at, above);
            self.transport.queues[side].may_be_held = false;
        }
        self.transport.queues[side].late = false;
        true
    }

    /// The packet of the first kept segment of `side` if that continues what was read, and answers nothing unseen.
    pub(super) fn due(&self, side: usize) -> Option<u32> {
        let half = &self.halves[side];
        let (offset, kept) = half.out_of_order.as_ref()?.head()?;
        (offset <= half.next && !self.is_unseen(1 - side, kept.answers)).then_some(kept.at.packet)
    }

    /// Delivers the kept segments of both sides that are due, in the order of the capture: requests before their
    /// answers.
    #[cold]
    pub(super) fn catch_up<U: Events>(&mut self, above: &mut U) {
        loop {
            let side = match [self.due(0), self.due(1)] {
                [None, None] => return,
                [Some(first), Some(second)] => usize::from(second < first),
                [first, _] => usize::from(first.is_none()),
            };
            self.deliver_kept(side, None, above);
        }
    }

    /// A hole that the receiver has acknowledged will not be filled: the capture lacks the packet. Some patience
    /// allows for capture points that record an ACK before its data.
    #[inline]
    pub(super) fn check_holes<U: Events>(&mut self, at: At, above: &mut U) {
        for side in 0..2 {
            let half = &self.halves[side];
            let Some((first, kept)) = half.out_of_order.as_ref().and_then(|store| store.head()) else {
                self.halves[side].hole_patience = 0;
                continue;
            };
            let (is_hole, behind) = (first > half.next, kept.at.time);
            if !is_hole && self.due(side).is_some() {
                self.catch_up(above);
            } else if !is_hole || half.acked >= first {
                self.lose_patience(side, behind, at, above);
            }
        }
    }

    /// `behind` is when the first packet was recorded that waits for the missing one.
    pub(super) fn lose_patience<U: Events>(&mut self, side: usize, behind: i64, at: At, above: &mut U) {
        let half = &mut self.halves[side];
        half.hole_patience += 1;
        let is_late = at.time.saturating_sub(behind) >= limits::MISSING_AFTER_NS;
        let most = if is_late { limits::MISSING_AFTER_LATE_PACKETS } else { limits::MISSING_AFTER_PACKETS };
        if half.hole_patience > most {
            half.hole_patience = 0;
            self.give_up(side, at, above);
        }
    }

    /// Gives up on what holds the first kept segment of `side` back: a hole in front of it, or bytes of the other side
    /// that it answers. What holds earlier packets of the other side back comes first, if that is missing too.
    pub(super) fn give_up<U: Events>(&mut self, side: usize, at: At, above: &mut U) {
        let Some((until, _, _)) = self.head(side) else { return };
        while let Some((_, behind, _)) = self.head(side).filter(|head| head.0 <= until) {
            let other = self.head(1 - side).filter(|head| head.1.packet < behind.packet);
            let half = &self.halves[1 - side];
            let first = other.is_some_and(|(offset, _, _)| offset <= half.next.max(half.acked));
            self.pass(if first { 1 - side } else { side }, at, above);
            self.catch_up(above);
        }
    }

    /// Gives up the missing bytes for which the first buffered segment of `side` waits, or a part of them.
    pub(super) fn pass<U: Events>(&mut self, side: usize, at: At, above: &mut U) {
        // the receiver went on when it had what comes behind the hole, not when the hole is given up here
        let Some((first, behind, answers)) = self.head(side) else { return };
        let passed = if first > self.halves[side].next {
            self.skip(side, first, behind, at, above)
        } else {
            self.skip_unseen(1 - side, answers, behind, at, above)
        };
        if !passed {
            self.deliver_kept(side, None, above); // two segments that answer each other: no host sends that
        }
    }

    /// Where the first kept segment of `side` begins, its packet, and what it answers.
    pub(super) fn head(&self, side: usize) -> Option<(i64, At, i64)> {
        let (first, kept) = self.halves[side].out_of_order.as_ref()?.head()?;
        Some((first, kept.at, kept.answers))
    }

    /// Bytes of `side` up to `offset` were acknowledged and are not in the capture; what is behind them may be.
    pub(super) fn skip_unseen<U: Events>(
        &mut self,
        side: usize,
        offset: i64,
        behind: At,
        at: At,
        above: &mut U,
    ) -> bool {
        if !self.is_unseen(side, offset) {
            return false;
        }
        let kept = self.head(side).filter(|head| head.0 < offset).map(|(first, at, _)| (first, at));
        let (end, behind) = kept.unwrap_or((self.halves[side].payload_before(offset), behind));
        self.skip(side, end, behind, at, above)
    }

    /// Gives up on the bytes of `side` up to `offset`; `behind` is the packet that shows that they were there.
    pub(super) fn skip<U: Events>(&mut self, side: usize, offset: i64, behind: At, at: At, above: &mut U) -> bool {
        let missing = offset.saturating_sub(self.halves[side].next);
        if missing <= 0 {
            return false;
        }
        let lost = self.lost_bytes(side, offset, behind);
        self.halves[side].advance(offset);
        if lost > 0 {
            self.counters.missing_bytes += lost.unsigned_abs();
            let text = "bytes are missing from the capture";
            above.context().problem(Layer::Tcp, text, self.row, at.packet, at.time);
        }
        above.lacks(&self.transport, side, missing.unsigned_abs(), behind);
        true
    }

    /// How many of the bytes of `side` up to `offset` the capture lacks, and not the peer.
    pub(super) fn lost_bytes(&self, side: usize, offset: i64, behind: At) -> i64 {
        let half = &self.halves[side];
        let end = if self.ending && self.is_undelivered(side, behind) { offset.min(half.acked) } else { offset };
        end.saturating_sub(half.next).max(0)
    }

    /// Whether the peer of `side` does not have what it has not acknowledged, and so cannot read what is `behind` that.
    /// Where the capture ends before the connection, the bytes are on their way, or come again. A peer that reports what
    /// is behind them (RFC 2018), or that was heard a round trip later, never received them.
    fn is_undelivered(&self, side: usize, behind: At) -> bool {
        let half = &self.halves[side];
        let near = self.transport.near_rtt[1 - side];
        let heard = self.transport.unanswered[side].heard;
        let heard_later = heard.0 > behind.packet && near >= 0 && heard.1.saturating_sub(behind.time) >= near;
        let reported = half.undelivered.from(half.acked).selective.packet > 0;
        half.acked > 0 && (heard_later || reported || self.closed_at().is_none())
    }

    /// Drops the kept segments of `side` if its peer never received the bytes in front of them: it cannot have read these.
    /// The capture may lack the first of those bytes, as far as they were acknowledged.
    fn drop_undelivered<U: Events>(&mut self, side: usize, at: At, above: &mut U) -> bool {
        let Some((_, behind, _)) = self.head(side).filter(|head| head.0 > self.halves[side].acked.max(1)) else {
            return false;
        };
        if !self.is_undelivered(side, behind) {
            return false;
        }
        let acked = self.halves[side].payload_before(self.halves[side].acked);
        self.skip(side, acked, behind, at, above);
        let dropped = self.halves[side].out_of_order.take().map_or(0, |store| store.bytes());
        let waiting = &mut above.context().out_of_order_bytes;
        *waiting = waiting.saturating_sub(dropped);
        above.drops(dropped);
        self.undelivered[side] = true;
        true
    }

    /// The connection is over: holes are given up in the order of what lies behind them, unless the peer has them too. Last
    /// come bytes that were acknowledged and after which the capture has nothing; a single one may be a FIN that is not in
    /// the capture.
    pub fn give_up_all<U: Events>(&mut self, above: &mut U) {
        let at = self.last;
        self.ending = true;
        self.transport.sends_since = [None; 2]; // no packet is being read
        loop {
            let heads = [0, 1].map(|side| self.halves[side].out_of_order.as_ref().and_then(|store| store.first_at()));
            let side = match heads.map(|head| head.map(|at| at.packet)) {
                [None, None] => break,
                [Some(first), Some(second)] => usize::from(second < first),
                [first, _] => usize::from(first.is_none()),
            };
            if !self.drop_undelivered(side, at, above) {
                self.give_up(side, at, above);
            }
        }
        for side in 0..2 {
            let direction = u8::from(side != above.client());
            for (behind, queue) in (0..).zip(&mut self.halves[side].path_queues) {
                queue.finish((self.row, direction, behind), above.context());
            }
            let half = &self.halves[side];
            if half.started && half.acked - half.next > 1 {
                self.skip_unseen(side, half.acked, at, at, above);
            }
        }
    }
}
