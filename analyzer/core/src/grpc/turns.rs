//! Measures who has to act on a connection: idle intervals of the client, bursts, and the stream limit.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;

use crate::at::At;
use crate::http2::connection::streams::NONE;
use crate::limits;
use crate::state_fields;
use crate::store::tables::{IdleRow, Idles, StallRow, Stalls, TurnRow};

use super::call::Call;
use super::stall::Stall;

/// From this length on an idle interval of the client is its application's own pause; the table's
/// `PAUSE_NS`. A library responds within microseconds; timers and people take longer.
pub(super) const PAUSE: i64 = 10_000_000;
/// A stream that opens within this time of another one's end takes its place: 2 ms, the longest reaction a host is
/// given, and the way to the client.
const REFILL: i64 = 2_000_000;

/// Idle intervals of the client after which its requests are remembered: fewer are no pattern.
const JUDGED_IDLES: u32 = 64;

/// A client that ends its side of a stream, or resets it, does so within a round trip and a timer or two: 1 s.
const HALF_CLOSED: i64 = 1_000_000_000;

/// Answers by which the next one's time is judged (heuristic: a first one that takes long is soon forgotten).
const ANSWERS: usize = 4;

/// The intervals of one class of lengths below [`PAUSE`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Class {
    /// The binary logarithm of microseconds.
    length: u8,
    count: u32,
    total: i64,
    start: i64,
    duration: i64,
    before: (i64, u32),
    after: u32,
}

/// The stream limit, and whether it binds.
#[derive(Debug, Serialize, Deserialize)]
struct Limit {
    /// Since when as many streams are open as are allowed; negative while fewer are.
    since: i64,
    /// Streams that ended at the limit and have not been replaced.
    freed: u32,
    freed_time: i64,
    freed_packet: u32,
}

/// The state of one connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct Turns {
    /// RPCs that wait for an answer, or whose messages are on the way.
    waiting: u32,
    /// Since when at least one waits.
    waiting_since: i64,
    /// When the last answer was there, and its packet.
    idle_since: Option<(i64, u32)>,
    /// Begin and length of the client's last idle interval or pause, until it is taken.
    idle: Option<(i64, i64)>,
    /// How long the server took for the last answers that nothing held back, nanoseconds, and their methods, the newest one last;
    /// 0 for none.
    taken: [(i64, u32); ANSWERS],
    /// The client sent the last message that began.
    client_began: bool,
    /// By class of length, as far as any interval was that long.
    classes: Vec<Class>,
    /// When the last request messages began.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::RECENT_REQUESTS }, _, _>")]
    requests: VecDeque<i64>,
    /// The last silence for which the peer waited, whose row is not written yet.
    stall: Option<Box<Stall>>,
    /// Idle intervals in `row` from which on they are remembered.
    judged: u32,
    limit: Limit,
    row: TurnRow,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            waiting: 0,
            waiting_since: 0,
            idle_since: None,
            idle: None,
            taken: [(0, NONE); ANSWERS],
            client_began: false,
            classes: Vec::new(),
            requests: VecDeque::new(),
            stall: None,
            judged: JUDGED_IDLES,
            limit: Limit { since: -1, freed: 0, freed_time: 0, freed_packet: 0 },
            row: TurnRow {
                refill_ended_time_ns: -1,
                refill_time_ns: -1,
                half_closed_time_ns: -1,
                ..TurnRow::default()
            },
        }
    }
}

impl Turns {
    /// Bytes of a stream at `at`, or its end, may have changed whether its client waits. `near` is the round trip
    /// from the capture point to the client and back, which is not the client's time.
    #[inline(always)]
    pub fn update(&mut self, call: &mut Call, client: usize, by_client: bool, at: At, near: i64) {
        let waits = call.waits(client);
        if waits != call.waiting {
            call.waiting = waits;
            self.change(waits, by_client, &at, near);
        }
    }

    /// `side` was silent although its peer waited: answers to the RPCs that waited follow. The row of the silence before is
    /// written.
    pub fn stalled(&mut self, side: usize, row: StallRow, client: usize, stalls: &mut Stalls) {
        self.write_stall(client, stalls);
        self.stall = Some(Box::new(Stall::new(side, row)));
    }

    /// Writes the row of the last silence.
    pub fn write_stall(&mut self, client: usize, stalls: &mut Stalls) {
        if let Some(stall) = self.stall.take() {
            stalls.push(stall.into_row(client));
        }
    }

    /// The first message of an answer begins at `now`; the request had been whole at `since`.
    #[inline(always)]
    pub fn answered(&mut self, since: i64, now: i64) {
        if let Some(stall) = &mut self.stall {
            stall.answer(since, now);
        }
    }

    #[inline(never)]
    fn change(&mut self, waits: bool, by_client: bool, at: &At, near: i64) {
        if waits {
            if self.waiting == 0 {
                self.waiting_since = at.ready_time;
                self.resumed(by_client, at, near);
            }
            self.waiting += 1;
        } else {
            self.waiting = self.waiting.saturating_sub(1);
            if self.waiting == 0 {
                self.idle_since = Some((at.ready_time, at.ready_packet));
            }
        }
    }

    #[inline(never)]
    fn resumed(&mut self, by_client: bool, at: &At, near: i64) {
        let Some(before) = self.idle_since.take() else { return };
        let start = before.0 + near.max(0);
        let duration = at.time - start;
        if !by_client || duration <= 0 {
            return;
        }
        self.idle = Some((start, duration));
        if duration >= PAUSE {
            self.row.pauses += 1;
            self.row.pause_ns = self.row.pause_ns.saturating_add(duration);
            return;
        }
        self.row.idles += 1;
        self.row.idle_ns = self.row.idle_ns.saturating_add(duration);
        let length = (duration / 1_000).checked_ilog2().unwrap_or(0) as u8;
        let new = Class { length, count: 1, total: duration, start, duration, before, after: at.packet };
        match self.classes.iter_mut().find(|kept| kept.length == length) {
            Some(kept) => {
                *kept = Class { count: kept.count + 1, total: kept.total.saturating_add(duration), ..new };
            }
            None => {
                self.classes.reserve_exact(1);
                self.classes.push(new);
            }
        }
    }

    /// Takes begin and length of the client's last idle interval or pause, if it was not taken.
    #[inline]
    pub fn take_idle(&mut self) -> Option<(i64, i64)> {
        self.idle.take()
    }

    /// The number of RPCs that wait for an answer.
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// The time since which at least one RPC waits, if one does.
    pub fn waiting_since(&self) -> i64 {
        self.waiting_since
    }

    /// The server took `duration` to answer a call of `method`, and nothing held the answer back.
    #[inline]
    pub fn took(&mut self, duration: i64, method: u32) {
        self.taken.rotate_left(1);
        self.taken[ANSWERS - 1] = (duration.max(1), method);
    }

    /// The longest time that the server took for those of the last answers that were of `method`, if there was any.
    pub fn longest_taken(&self, method: u32) -> Option<i64> {
        let of_method = self.taken.iter().filter(|(duration, of)| *duration > 0 && *of == method);
        of_method.map(|(duration, _)| *duration).max()
    }

    /// Bytes are missing: until the next message it is not known whose turn it is, nor what is open.
    pub fn doubt(&mut self) {
        self.waiting = 0;
        self.idle_since = None;
        self.limit.since = -1;
        self.limit.freed = 0;
    }

    /// A message begins at `time`.
    #[inline]
    pub fn message_begins(&mut self, by_client: bool, time: i64) {
        if by_client {
            if self.row.idles >= self.judged {
                self.remember_request(time);
            }
            self.row.bursts += u32::from(!self.client_began);
            self.row.burst_messages += 1;
        }
        self.client_began = by_client;
    }

    #[inline(never)]
    fn remember_request(&mut self, time: i64) {
        if self.requests.len() >= limits::RECENT_REQUESTS {
            self.requests.pop_front();
        }
        self.requests.push_back(time);
    }

    /// The median and the spread of the middle half of the intervals between a request and the one `callers` later: of
    /// callers that take turns, each sends every such one. -1 where there are too few.
    fn intervals(&mut self, callers: usize) -> (i64, i64) {
        let requests: &mut [i64] = self.requests.make_contiguous();
        requests.sort_unstable();
        let later = requests.iter().skip(callers);
        let mut intervals: Vec<i64> = later.zip(requests.iter()).map(|(later, one)| later - one).collect();
        intervals.sort_unstable();
        let quarter = |nth: usize| intervals.get(intervals.len() * nth / 4).copied().unwrap_or(-1);
        if intervals.is_empty() || intervals.len() < requests.len() / 2 {
            return (-1, -1);
        }
        (quarter(2), quarter(3) - quarter(1))
    }

    /// A stream has opened, `open` of `allowed` are open now.
    #[inline]
    pub fn opened(&mut self, open: u32, allowed: Option<u32>, at: At, near: i64) {
        let Some(allowed) = allowed else { return };
        let limit = &mut self.limit;
        if limit.freed > 0 {
            if at.time - limit.freed_time - near.max(0) <= REFILL {
                limit.freed -= 1;
                self.row.refills += 1;
                self.row.refill_ended_packet = limit.freed_packet;
                self.row.refill_ended_time_ns = limit.freed_time;
                self.row.refill_opened_packet = at.packet;
                self.row.refill_time_ns = at.time;
            } else {
                limit.freed = 0;
            }
        }
        if open >= allowed && limit.since < 0 {
            limit.since = at.time;
            self.row.at_limit_times += 1;
        }
    }

    /// A stream ends, `open` of `allowed` were open until now.
    #[inline]
    pub fn ended(&mut self, open: u32, allowed: Option<u32>, at: At) {
        let Some(allowed) = allowed else { return };
        let together = self.limit.freed > 0 && at.time - self.limit.freed_time < REFILL / 2;
        if open < allowed && !together {
            return;
        }
        self.leave_limit(at.time);
        self.row.ended_at_limit += 1;
        self.limit.freed += 1;
        self.limit.freed_time = at.ready_time;
        self.limit.freed_packet = at.packet;
    }

    fn leave_limit(&mut self, now: i64) {
        if self.limit.since >= 0 {
            let bound = (now - self.limit.since).max(0);
            self.row.at_limit_ns = self.row.at_limit_ns.saturating_add(bound);
            self.limit.since = -1;
        }
    }

    /// A stream that the server ended in `packet` at `since` is not ended by the client up to `now`.
    pub fn stays_half_closed(&mut self, packet: u32, since: i64, now: i64) {
        if now - since < HALF_CLOSED {
            return;
        }
        let row = &mut self.row;
        if row.half_closed == 0 || packet < row.half_closed_packet {
            (row.half_closed_packet, row.half_closed_time_ns) = (packet, since);
        }
        row.half_closed += 1;
    }

    /// Begins to count anew at `now`, behind [`finish`](Self::finish); `is_at_limit` says whether the stream limit bound
    /// until then.
    pub fn begin_interval(&mut self, now: i64, is_at_limit: bool) {
        let Self { row, .. } = Self::default();
        self.judged = self.judged.saturating_sub(self.row.idles);
        self.row = TurnRow { at_limit_times: u32::from(is_at_limit), ..row };
        self.limit.since = if is_at_limit { now } else { -1 };
        self.classes = Vec::new();
    }

    /// Whether as many streams are open as are allowed.
    pub fn is_at_limit(&self) -> bool {
        self.limit.since >= 0
    }

    /// The connection is over at `now`, with so many `callers` at most: its row, and those of its intervals.
    pub fn finish(&mut self, connection: u32, now: i64, callers: u32, idles: &mut Idles) -> TurnRow {
        self.leave_limit(now);
        (self.row.interval_ns, self.row.interval_spread_ns) = self.intervals(callers as usize);
        self.classes.sort_unstable_by_key(|kept| kept.length);
        for kept in &self.classes {
            idles.push(IdleRow {
                connection,
                length_class: kept.length,
                count: kept.count,
                total_ns: kept.total,
                start_time_ns: kept.start,
                duration_ns: kept.duration,
                before_packet: kept.before.1,
                before_time_ns: kept.before.0,
                after_packet: kept.after,
            });
        }
        self.row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::protocol::Kind;

    const US: i64 = 1_000;

    fn stream() -> Call {
        Call { kind: Kind::Grpc, ..Call::default() }
    }

    fn ends(stream: &mut Call, turns: &mut Turns, at: At) {
        stream.finished = true;
        turns.update(stream, 0, false, at, 0);
    }

    #[test]
    fn the_client_holds_the_ball_from_the_last_answer_to_its_next_request() {
        let (mut turns, mut first, mut second) = (Turns::default(), stream(), stream());
        turns.update(&mut first, 0, true, At::new(1, 0), 0);
        turns.update(&mut second, 0, true, At::new(2, 5 * US), 0);
        ends(&mut first, &mut turns, At::new(3, 10 * US));
        ends(&mut second, &mut turns, At::new(4, 20 * US));
        let mut third = stream();
        turns.update(&mut third, 0, true, At::new(5, 120 * US), 30 * US);
        let mut idles = Idles::default();
        let row = turns.finish(7, 0, 2, &mut idles);
        assert_eq!((row.idles, row.idle_ns, row.pauses), (1, 70 * US, 0));
        assert_eq!((idles.length_class[0], idles.before_packet[0], idles.after_packet[0]), (6, 4, 5));
    }

    #[test]
    fn timers_and_what_the_server_begins_are_no_idle_time() {
        let (mut turns, mut first) = (Turns::default(), stream());
        turns.update(&mut first, 0, true, At::new(1, 0), 0);
        ends(&mut first, &mut turns, At::new(2, 10 * US));
        let mut second = stream();
        turns.update(&mut second, 0, true, At::new(3, PAUSE + 10 * US), 0);
        ends(&mut second, &mut turns, At::new(4, PAUSE + 20 * US));
        let mut third = stream();
        turns.update(&mut third, 0, false, At::new(5, PAUSE + 90 * US), 0);
        let row = turns.finish(0, 0, 1, &mut Idles::default());
        assert_eq!((row.idles, row.idle_ns, row.pauses, row.pause_ns), (0, 0, 1, PAUSE));
    }

    #[test]
    fn intervals_are_those_of_each_caller() {
        let begun = |times: &[i64], callers: usize| {
            let mut turns = Turns::default();
            turns.row.idles = JUDGED_IDLES;
            times.iter().for_each(|&time| turns.message_begins(true, time));
            turns.intervals(callers)
        };
        let two: Vec<i64> = (0..40).flat_map(|turn| [turn * 1_000, turn * 1_000 + 10]).collect();
        assert_eq!(begun(&two, 2), (1_000, 0));
        assert_eq!(begun(&two, 1), (10, 980)); // by turns 10 and 990
        assert_eq!(begun(&two, 41), (-1, -1)); // more intervals of the first callers than others
        assert_eq!(begun(&[], 1), (-1, -1));
        let longer: Vec<i64> = (0..2 * limits::RECENT_REQUESTS as i64).map(|nth| nth * nth).collect();
        assert!(begun(&longer, 1).0 > 2 * limits::RECENT_REQUESTS as i64, "the last ones are kept");
    }

    #[test]
    fn requests_are_remembered_when_the_client_was_idle_often() {
        let mut turns = Turns::default();
        turns.row.idles = JUDGED_IDLES - 1;
        turns.message_begins(true, 1);
        assert_eq!(turns.requests.len(), 0);
    }

    #[test]
    fn requests_without_an_answer_in_between_are_one_burst() {
        let mut turns = Turns::default();
        for by_client in [true, true, false, true, false, false, true] {
            turns.message_begins(by_client, 0);
        }
        let row = turns.finish(0, 0, 1, &mut Idles::default());
        assert_eq!((row.bursts, row.burst_messages), (3, 4));
    }

    #[test]
    fn a_place_that_is_taken_at_once_had_somebody_waiting() {
        let mut turns = Turns::default();
        turns.opened(1, Some(2), At::new(1, 0), 0);
        turns.opened(2, Some(2), At::new(2, 0), 0);
        turns.ended(2, Some(2), At::new(3, 1_000 * US));
        turns.opened(2, Some(2), At::new(4, 1_050 * US), 0);
        turns.ended(2, Some(2), At::new(5, 2_050 * US));
        turns.opened(2, Some(2), At::new(6, 2_051 * US + REFILL), 0);
        let row = turns.finish(0, 2_051 * US + REFILL, 2, &mut Idles::default());
        assert_eq!((row.at_limit_times, row.at_limit_ns), (3, 2_000 * US));
        assert_eq!((row.ended_at_limit, row.refills), (2, 1));
        assert_eq!((row.refill_ended_packet, row.refill_opened_packet), (3, 4));
    }
}
