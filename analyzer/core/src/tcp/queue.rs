//! Finds the intervals in which a queue on the path was never empty.
//!
//! A packet that was queued for a time proves that the queue held packets for all of that time. So two packets of one queue
//! are those of which the later one joined it before the earlier one had left.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::QueueRow;

/// Packets are queued when they take so much longer than the path's minimum, nanoseconds: 5 ms, CoDel's TARGET (RFC 8289
/// section 4.4). Hosts and software switches hold up packets for less.
pub const TARGET: i64 = 5_000_000;
/// A queue stands when it is not empty for this time, nanoseconds: 100 ms, CoDel's INTERVAL (RFC 8289 section 4.3).
/// Bursts pass in less.
const INTERVAL: i64 = 100_000_000;
/// Fewest packets that show a standing queue (heuristic: a host that pauses once holds up what comes in one burst). Behind the
/// capture point few packets are measured: there two are enough that prove by themselves that the path held them.
const FEWEST: u32 = 4;
/// Payload bytes in the queue at once from which they fill it: 10 segments of 1,460 bytes, which any new connection may
/// send at once (RFC 6928).
pub const FILLS: i64 = 14_600;
/// The longest interval in one row, nanoseconds: 1 s.
const LONGEST_ROW: i64 = 1_000_000_000;

/// Packets came together when one that was sent so many times as long after the first of them came behind it (heuristic: those
/// of a link that is full come as they were sent).
pub const TOGETHER: i64 = 4;

/// Whose queue it is: the connection, the sender's direction, and 1 if it lies behind the capture point.
pub type Place = (u32, u8, u8);

/// The queue of one sender's packets; most are empty, and take no memory then.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    /// When the last packet came.
    last_came: i64,
    interval: Option<Box<Interval>>,
}

impl Queue {
    /// A packet with `bytes` of payload left the queue, in which it had been for `queued` nanoseconds.
    #[inline]
    pub fn packet(&mut self, queued: i64, bytes: u32, at: At, place: Place, cx: &mut Context) {
        if queued > 0 {
            self.interval.get_or_insert_default().extend(queued, bytes, self.last_came, at, place, cx);
        } else if self.interval.is_some() {
            self.finish(place, cx);
        }
        self.last_came = at.time;
    }

    /// The packet that came last is now known to have been in the queue for `queued` nanoseconds, `more` than was known when it came.
    #[cold]
    pub fn lengthen(&mut self, queued: i64, more: i64, at: At) {
        if let Some(interval) = &mut self.interval {
            interval.lengthen(queued, more, at);
        }
    }

    /// Packets are known to have come up to `time`.
    pub fn note_passed(&mut self, time: i64) {
        self.last_came = self.last_came.max(time);
    }

    /// Whether the last packet was queued.
    #[inline]
    pub fn is_seen(&self) -> bool {
        self.interval.is_some()
    }

    /// Since when the packets of this interval have filled the queue, if it stands and they do.
    #[inline]
    pub fn filled_since(&self) -> Option<i64> {
        self.interval.as_ref()?.filled_since
    }

    /// Whether packets were in the queue for long enough.
    #[inline]
    pub fn stands(&self) -> bool {
        self.interval.as_ref().is_some_and(|interval| interval.stands(false))
    }

    /// Forgets the packets that seemed to wait, because they did not.
    pub fn forget(&mut self) {
        self.interval = None;
    }

    /// Ends the queue, because it is empty or nothing more is known: writes its row if packets waited in it.
    #[cold]
    pub fn finish(&mut self, place: Place, cx: &mut Context) {
        if let Some(interval) = self.interval.take() {
            interval.write(place, cx);
        }
    }
}

/// An interval in which the packets of one sender were queued.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Interval {
    /// An earlier row describes the same queue.
    continues: bool,
    /// When the queue was first seen, and since when these packets alone have filled it.
    since: i64,
    filled_since: Option<i64>,
    start: i64,
    end: i64,
    packets: u32,
    bytes: u64,
    total: i64,
    first_at: (u32, i64),
    longest: i64,
    longest_at: (u32, i64),
    burst: Burst,
}

/// The packets behind the longest time of an interval in which some were in the queue and none came.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Burst {
    /// How long none came.
    silent: i64,
    /// When the first one joined, and when it came.
    joined: i64,
    came: i64,
    /// When the packet before it came.
    last: i64,
    /// The time within which the packets behind it had joined, which came together.
    spread: i64,
}

impl Burst {
    /// Whether these packets alone prove that the path held all packets.
    fn is_held(&self) -> bool {
        self.silent >= INTERVAL && self.spread.saturating_mul(TOGETHER) >= self.silent
    }

    /// The first one is now known to have joined sooner.
    fn lengthen(&mut self, joined: i64, came: i64) {
        if came == self.came && joined < self.joined {
            (self.joined, self.silent) = (joined, came.saturating_sub(joined.max(self.last)));
        }
    }

    /// A packet joined the queue and came; `last` is when the one before it did.
    fn extend(&mut self, joined: i64, came: i64, last: i64) {
        let silent = came.saturating_sub(joined.max(last));
        let later = joined.saturating_sub(self.joined);
        if silent > self.silent {
            *self = Self { silent, joined, came, last, spread: 0 };
        } else if came.saturating_sub(self.came).saturating_mul(TOGETHER) <= later {
            self.spread = self.spread.max(later);
        }
    }
}

impl Interval {
    #[cold]
    fn extend(&mut self, queued: i64, bytes: u32, last_came: i64, at: At, place: Place, cx: &mut Context) {
        let joined = at.time.saturating_sub(queued);
        let same = self.packets > 0 && joined <= self.end;
        if !same || at.time.saturating_sub(self.first_at.1) >= LONGEST_ROW {
            let before = *self;
            before.write(place, cx);
            *self = Self { since: joined, start: joined, ..Self::default() };
            if same && before.stands(place.2 > 0) {
                (self.continues, self.since, self.filled_since) = (true, before.since, before.filled_since);
                self.start = before.end;
            }
        }
        if self.packets == 0 {
            self.first_at = (at.packet, at.time);
        }
        self.burst.extend(joined, at.time, last_came);
        self.end = self.end.max(at.time);
        self.packets = self.packets.saturating_add(1);
        self.bytes += u64::from(bytes);
        self.total = self.total.saturating_add(queued);
        if queued > self.longest {
            (self.longest, self.longest_at) = (queued, (at.packet, at.time));
        }
        let lasts = self.end.saturating_sub(self.start);
        if lasts >= INTERVAL {
            let standing = (self.bytes as i64).saturating_mul(queued / 1_000) / (lasts / 1_000);
            self.filled_since = (standing >= FILLS).then_some(self.since);
        }
    }

    #[cold]
    fn lengthen(&mut self, queued: i64, more: i64, at: At) {
        let joined = at.time.saturating_sub(queued);
        if !self.continues {
            self.start = self.start.min(joined);
            self.since = self.since.min(joined);
        }
        self.burst.lengthen(joined, at.time);
        self.total = self.total.saturating_add(more);
        if queued > self.longest {
            (self.longest, self.longest_at) = (queued, (at.packet, at.time));
        }
    }

    fn stands(&self, is_behind: bool) -> bool {
        let long = self.end.saturating_sub(self.start) >= INTERVAL;
        let enough = self.packets >= FEWEST || is_behind && self.burst.is_held();
        self.packets > 0 && (self.continues || long && enough)
    }

    fn write(&self, (connection, direction, behind): Place, cx: &mut Context) {
        if self.stands(behind > 0) && cx.queues.len() < limits::QUEUES + limits::ROWS_AHEAD {
            cx.queues.push(QueueRow {
                connection,
                direction,
                behind,
                start_time_ns: self.start,
                duration_ns: self.end.saturating_sub(self.start),
                packets: self.packets,
                bytes: self.bytes,
                total_ns: self.total,
                first_packet: self.first_at.0,
                first_time_ns: self.first_at.1,
                longest_ns: self.longest,
                longest_packet: self.longest_at.0,
                longest_time_ns: self.longest_at.1,
                silent_ns: self.burst.silent,
                together_ns: self.burst.spread,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// The rows after packets at these times with these delays, milliseconds.
    fn rows(packets: &[(i64, i64)]) -> Vec<(i64, i64, u32)> {
        rows_at(packets, 0)
    }

    /// The same, in front of the capture point or, with 1, behind it.
    fn rows_at(packets: &[(i64, i64)], behind: u8) -> Vec<(i64, i64, u32)> {
        let (mut queue, mut cx) = (Queue::default(), Context::default());
        for (number, &(time, queued)) in (1..).zip(packets) {
            queue.packet(queued * MS, 100, At::new(number, time * MS), (0, 1, behind), &mut cx);
        }
        queue.finish((0, 1, behind), &mut cx);
        let table = &cx.queues;
        let row = |row: usize| (table.start_time_ns[row] / MS, table.duration_ns[row] / MS, table.packets[row]);
        (0..table.len()).map(row).collect()
    }

    #[test]
    fn a_queue_that_is_never_empty_stands() {
        assert_eq!(rows(&[(130, 30), (150, 40), (180, 40), (200, 40)]), [(100, 100, 4)]);
        assert_eq!(rows(&[(130, 30), (150, 40), (180, 40), (199, 40)]), [], "99 ms");
        assert_eq!(rows(&[(130, 30), (150, 40), (200, 70)]), [], "three packets");
    }

    #[test]
    fn two_packets_that_came_together_behind_the_capture_point_show_that_the_path_held_them() {
        let held = |queued: i64| [(1_100, queued), (1_101, queued - 24)];
        assert_eq!([0, 1].map(|behind| rows_at(&held(100), behind)), [vec![], vec![(1_000, 101, 2)]]);
        assert_eq!(rows_at(&held(99), 1), [], "99 ms");
        assert_eq!(rows_at(&[(1_100, 100), (1_101, 77)], 1), [], "not over a quarter of the time");
        assert_eq!(rows_at(&[(1_100, 100), (1_107, 82)], 1), [], "one after the other");
    }

    /// The longest silence of each row, and in how much time those were sent that came together behind it.
    fn bursts(packets: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let (mut queue, mut cx) = (Queue::default(), Context::default());
        for (number, &(time, queued)) in (1..).zip(packets) {
            queue.packet(queued * MS, 100, At::new(number, time * MS), (0, 1, 0), &mut cx);
        }
        queue.finish((0, 1, 0), &mut cx);
        let table = &cx.queues;
        (0..table.len()).map(|row| (table.silent_ns[row] / MS, table.together_ns[row] / MS)).collect()
    }

    #[test]
    fn a_path_that_held_all_packets_lets_them_go_together() {
        assert_eq!(bursts(&[(300, 200), (301, 150), (302, 110), (304, 60)]), [(200, 144)]);
        assert_eq!(bursts(&[(300, 200), (310, 170), (320, 140), (330, 110)]), [(200, 120)], "four times as long ago");
        assert_eq!(bursts(&[(300, 200), (311, 171), (322, 142), (333, 113)]), [(200, 0)], "not quite");
        assert_eq!(bursts(&[(300, 200), (340, 180), (380, 160), (420, 140)]), [(200, 0)], "one after the other");
        let long = [(1_700, 1_500), (1_701, 900), (1_702, 800), (1_703, 300), (1_704, 100)];
        assert_eq!(bursts(&long), [(1_500, 1_404)], "one row");
    }

    #[test]
    fn a_later_packet_may_show_that_one_was_held_for_longer() {
        let (mut queue, mut cx) = (Queue::default(), Context::default());
        let place = (0, 1, 1);
        queue.packet(0, 100, At::new(1, 300 * MS), place, &mut cx);
        queue.packet(60 * MS, 100, At::new(2, 600 * MS), place, &mut cx);
        queue.lengthen(200 * MS, 140 * MS, At::new(2, 600 * MS));
        queue.packet(150 * MS, 100, At::new(3, 601 * MS), place, &mut cx);
        queue.finish(place, &mut cx);
        let table = &cx.queues;
        assert_eq!([table.silent_ns[0], table.together_ns[0], table.longest_ns[0]].map(|ns| ns / MS), [200, 51, 200]);
        assert_eq!((table.start_time_ns[0] / MS, table.packets[0], table.total_ns[0] / MS), (400, 2, 350));
    }

    #[test]
    fn a_full_link_is_not_silent() {
        let standing = || (0..50).map(|n| (1_000 + 20 * n, 300 - 280 * i64::from(n == 0)));
        let silent = |packets: Vec<(i64, i64)>| bursts(&packets)[0].0;
        assert_eq!(silent(standing().collect()), 20);
        let empties = (0..15).map(|n| (2_000, 300 - 20 * n));
        assert_eq!(
            silent(standing().chain(empties).collect()),
            20,
            "the last ones come together, but not after silence"
        );
    }

    #[test]
    fn a_row_names_the_first_packet_and_the_longest() {
        let (mut queue, mut cx) = (Queue::default(), Context::default());
        for (packet, time, queued) in [(7, 100, 0), (8, 130, 30), (9, 150, 40), (10, 180, 45), (11, 200, 40)] {
            queue.packet(queued * MS, 100, At::new(packet, time * MS), (0, 1, 0), &mut cx);
        }
        queue.finish((0, 1, 0), &mut cx);
        let table = &cx.queues;
        assert_eq!((table.first_packet[0], table.first_time_ns[0], table.longest_packet[0]), (8, 130 * MS, 10));
    }

    #[test]
    fn an_empty_queue_ends_the_interval() {
        assert_eq!(rows(&[(130, 30), (150, 40), (180, 40), (190, 0), (200, 40), (230, 40)]), []);
        assert_eq!(rows(&[(130, 30), (150, 40), (195, 40), (230, 40)]), [], "the third one joined it at 155 ms");
    }

    #[test]
    fn rows_are_bounded() {
        let (mut queue, mut cx) = (Queue::default(), Context::default());
        let most = limits::QUEUES + limits::ROWS_AHEAD;
        for row in 0..most as i64 + 5 {
            for (packet, queued) in [(1, 100), (2, 100), (3, 100), (4, 100), (5, 0)] {
                queue.packet(queued * MS, 0, At::new(packet, (200 * row + i64::from(packet)) * MS), (0, 1, 0), &mut cx);
            }
        }
        assert_eq!(cx.queues.len(), most);
    }

    #[test]
    fn a_long_queue_has_several_rows() {
        let packets: Vec<_> = (0..150).map(|n| (1_000 + 10 * n, 20)).collect();
        assert_eq!(rows(&packets), [(980, 1_010, 100), (1_990, 500, 50)]);
    }
}
