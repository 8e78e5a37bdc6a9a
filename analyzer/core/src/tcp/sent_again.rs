//! Tells retransmissions of lost bytes from those of bytes that had arrived, whose ACK was late or lost.
//!
//! A loss is proven by a hole: the receiver reports later bytes (RFC 2018), or they come first. Without one, the ACK of a
//! retransmission proves it, if it comes in time, does not echo an older timestamp (RFC 3522 section 3.2), and does not cover later
//! bytes as well that were sent once: of these the receiver would have reported a hole (RFC 5682 section 2.1).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::limits;
use crate::state_fields;

/// The longest time from a loss to the retransmission.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Recovery {
    /// The side that retransmitted.
    #[serde(deserialize_with = "state_fields::side")]
    pub side: usize,
    /// Its length, nanoseconds.
    pub ns: i64,
    /// The packet that shows the loss.
    pub from_packet: u32,
    /// The retransmission.
    pub to: At,
    /// The bytes are known to have been lost.
    pub is_lost: bool,
}

impl Recovery {
    /// Keeps the longer one, as those of several pieces of a capture are joined.
    pub fn keep_longest(&mut self, other: Self) {
        if other.ns > self.ns {
            *self = other;
        }
    }
}

/// One retransmission.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SentAgain {
    /// Its bytes.
    pub start: i64,
    /// See `start`.
    pub end: i64,
    /// Offset up to which its sender had sent before.
    pub sent: i64,
    /// The sender's clock in the retransmission: TSval, if it has timestamps (RFC 7323 section 3).
    pub clock: Option<u32>,
    /// It came after a timeout.
    pub timeout: bool,
    /// A hole showed that its bytes, or others in front of them, were missing.
    pub is_lost: bool,
    /// What it would have recovered.
    pub recovery: Recovery,
}

/// An ACK of all bytes before an offset.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The offset.
    pub offset: i64,
    /// When it was captured.
    pub time: i64,
    /// The timestamp that it echoes.
    pub echo: Option<u32>,
    /// Offset behind the last byte that the peer has reported behind a hole, if it reports such (RFC 2018).
    pub reported: Option<i64>,
    /// The times in which an ACK of a packet may come.
    pub in_time: Range<i64>,
}

/// The retransmissions of one sender, as far as they are kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SentAgains {
    /// Those of bytes that are not acknowledged yet, oldest first.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::RETRANSMISSIONS_KEPT }, _, _>")]
    pending: Vec<SentAgain>,
    /// Those of bytes that were lost, until the peer says that it had them already.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::RETRANSMISSIONS_KEPT }, _, _>")]
    lost: Vec<SentAgain>,
    /// How many the last ACK proved to be of lost bytes, without a hole, and when it came.
    proved: (usize, i64),
}

impl SentAgains {
    /// Whether as many retransmissions are kept as the limit allows.
    pub fn is_full(&self) -> bool {
        self.pending.len() + self.lost.len() >= limits::RETRANSMISSIONS_KEPT
    }

    /// Whether one came at `time` or later.
    pub fn any_since(&self, time: i64) -> bool {
        self.pending.iter().chain(&self.lost).any(|again| again.recovery.to.time >= time)
    }

    /// How many came at `time` or later of which nothing shows yet whether their bytes were lost.
    pub fn unproven_since(&self, time: i64) -> u32 {
        let unproven = |again: &&SentAgain| !again.is_lost && again.recovery.to.time >= time;
        u32::try_from(self.pending.iter().filter(unproven).count()).unwrap_or(u32::MAX)
    }

    /// Keeps one.
    pub fn push(&mut self, again: SentAgain) {
        if !self.is_full() {
            self.pending.push(again);
        }
    }

    /// The peer says that it had these bytes already (RFC 2883). Takes the retransmission, if this is all of it.
    pub fn take_duplicate(&mut self, twice: &Range<i64>) -> Option<SentAgain> {
        for kept in [&mut self.pending, &mut self.lost] {
            if let Some(place) = kept.iter().position(|again| again.start == twice.start) {
                if kept[place].end <= twice.end {
                    self.proved.0 = 0; // the order changes
                    return Some(kept.swap_remove(place));
                }
                kept[place].start = twice.end; // a packet of several segments
                return None;
            }
        }
        None
    }

    /// The peer sends the same ACK once more at `time`, within `soon` of the one that proved losses: so it has something twice
    /// (RFC 9293 section 3.10.7.4). Gives the retransmissions that may be.
    pub fn take_repeated(&mut self, time: i64, soon: i64) -> Vec<SentAgain> {
        let (count, since) = std::mem::take(&mut self.proved);
        let kept =
            if time.saturating_sub(since) <= soon { self.lost.len().saturating_sub(count) } else { self.lost.len() };
        self.lost.split_off(kept)
    }

    /// Whether the last ACK proved losses without a hole.
    #[inline]
    pub fn has_proved(&self) -> bool {
        self.proved.0 > 0
    }

    /// Whether an ACK of all bytes before `offset` answers any.
    #[inline]
    pub fn awaits(&self, offset: i64) -> bool {
        !self.pending.is_empty() && self.pending.iter().any(|again| again.start < offset)
    }

    /// Whether an ACK of all bytes before `offset` answers the first copy of all of them: it echoes a timestamp older than those of
    /// the retransmissions (RFC 3522 section 3.2).
    pub fn first_copies_arrived(&self, offset: i64, echo: Option<u32>) -> bool {
        let older = |again: &SentAgain| {
            echo.zip(again.clock).is_some_and(|(echo, clock)| (echo.wrapping_sub(clock) as i32) < 0)
        };
        self.pending.iter().filter(|again| again.start < offset).all(older)
    }

    /// Judges those that an ACK answers: gives those whose bytes are now known to have been lost, and those whose bytes had
    /// arrived, or of which nothing shows that they were lost.
    pub fn judge(&mut self, answer: &Answer) -> (Vec<SentAgain>, Vec<SentAgain>) {
        let (mut lost, mut needless) = (Vec::new(), Vec::new());
        let mut recovered: Option<(i64, i64)> = None;
        let (answered, pending) =
            self.pending.iter().partition::<Vec<SentAgain>, _>(|again| again.start < answer.offset);
        self.pending = pending;
        let last = answered.iter().map(|again| again.end).max().unwrap_or(0);
        for again in answered.into_iter().rev() {
            let taken = answer.time.saturating_sub(again.recovery.to.time);
            let older = answer.echo.zip(again.clock).is_some_and(|(echo, clock)| (echo.wrapping_sub(clock) as i32) < 0);
            // what had to be repeated once more was lost, too
            let repeated = recovered.is_some_and(|(start, end)| again.start < end && start < again.end);
            let is_hole = again.is_lost || answer.reported.is_some_and(|reported| again.end <= reported);
            let alone = answer.reported.is_none() || last >= answer.offset.min(again.sent);
            let answers = alone && answer.in_time.contains(&taken);
            if repeated || !older && taken >= answer.in_time.start && (is_hole || answers) {
                let (start, end) = recovered.unwrap_or((again.start, again.end));
                recovered = Some((start.min(again.start), end.max(again.end)));
                if again.is_lost {
                    self.lost.push(again);
                } else {
                    lost.push(SentAgain { is_lost: true, ..again });
                }
            } else {
                needless.push(again);
            }
        }
        self.lost.extend(&lost);
        self.proved = (lost.len(), answer.time);
        (lost, needless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(start: i64, end: i64, time: i64, clock: Option<u32>, is_lost: bool) -> SentAgain {
        let recovery = Recovery { to: At::new(9, time), ..Recovery::default() };
        SentAgain { start, end, sent: end, clock, is_lost, recovery, timeout: false }
    }

    /// How many were lost, and how many needless, by an ACK at `time` that may take 20 to 80.
    fn judged(sent: &[SentAgain], time: i64, echo: Option<u32>) -> (usize, usize) {
        let mut kept = SentAgains::default();
        sent.iter().for_each(|again| kept.push(*again));
        let (lost, needless) = kept.judge(&Answer { offset: 100, time, echo, reported: None, in_time: 20..80 });
        assert!(!kept.awaits(100));
        (lost.len(), needless.len())
    }

    #[test]
    fn an_ack_in_time_answers_a_retransmission() {
        for (time, lost) in [(119, 0), (120, 1), (179, 1), (180, 0)] {
            assert_eq!(judged(&[again(0, 50, 100, None, false)], time, None), (lost, 1 - lost), "{time}");
        }
        assert_eq!(judged(&[again(100, 150, 100, None, false)], 130, None).0, 0, "of later bytes");
    }

    #[test]
    fn an_ack_that_echoes_an_older_timestamp_answers_the_first_transmission() {
        assert_eq!(judged(&[again(0, 50, 100, Some(7), false)], 130, Some(7)), (1, 0));
        assert_eq!(judged(&[again(0, 50, 100, Some(7), false)], 130, Some(6)), (0, 1));
        assert_eq!(judged(&[again(0, 50, 100, Some(7), true)], 130, Some(6)), (0, 1), "reordered");
    }

    #[test]
    fn first_copies_arrived_if_the_echo_is_older_than_all_retransmissions() {
        let mut kept = SentAgains::default();
        for sent in [again(0, 50, 100, Some(7), false), again(50, 90, 110, Some(8), false)] {
            kept.push(sent);
        }
        let arrived = |offset, echo| kept.first_copies_arrived(offset, echo);
        assert_eq!([Some(6), Some(7), Some(8), None].map(|echo| arrived(50, echo)), [true, false, false, false]);
        assert_eq!(
            [(90, Some(6)), (90, Some(7)), (0, None)].map(|(offset, echo)| arrived(offset, echo)),
            [true, false, true]
        );
        kept.push(again(90, 99, 120, None, false));
        assert!(!kept.first_copies_arrived(99, Some(6)), "nothing tells which copy it was");
    }

    #[test]
    fn a_hole_proves_a_loss_however_late_the_ack_comes() {
        assert_eq!(judged(&[again(0, 50, 100, None, true)], 900, None), (0, 0), "it was known");
    }

    #[test]
    fn later_bytes_that_were_sent_once_arrived_with_the_first_transmission() {
        for (sent, reported, lost) in
            [(50, Some(0), 1), (51, None, 1), (51, Some(0), 0), (51, Some(49), 0), (51, Some(50), 1)]
        {
            let mut kept = SentAgains::default();
            kept.push(SentAgain { sent, ..again(0, 50, 100, None, false) });
            let found = kept.judge(&Answer { offset: 100, time: 130, echo: None, reported, in_time: 20..80 });
            assert_eq!((found.0.len(), found.1.len()), (lost, 1 - lost), "{sent} {reported:?}");
        }
    }

    #[test]
    fn what_was_repeated_once_more_was_lost_too() {
        let sent =
            [again(0, 50, 100, Some(1), false), again(60, 90, 110, Some(1), false), again(0, 50, 300, Some(3), false)];
        assert_eq!(judged(&sent, 330, Some(3)), (2, 1));
        assert_eq!(judged(&sent, 330, Some(0)), (0, 3), "all of them arrived late");
    }

    #[test]
    fn the_same_ack_once_more_says_that_bytes_came_twice() {
        for (time, twice) in [(140, 1), (141, 0)] {
            let mut kept = SentAgains::default();
            kept.push(again(0, 20, 90, None, true));
            kept.push(again(20, 50, 100, None, false));
            kept.judge(&Answer { offset: 100, time: 130, echo: None, reported: None, in_time: 20..80 });
            assert!(kept.has_proved());
            assert_eq!(kept.take_repeated(time, 10).len(), twice);
            assert!(kept.take_repeated(time, 10).is_empty());
        }
    }

    #[test]
    fn the_peer_may_report_a_packet_in_pieces() {
        let mut kept = SentAgains::default();
        kept.push(again(0, 50, 100, None, false));
        assert!(kept.take_duplicate(&(0..20)).is_none());
        assert!(kept.take_duplicate(&(0..20)).is_none());
        assert!(kept.take_duplicate(&(20..50)).is_some());
        assert!(!kept.awaits(100));
    }
}
