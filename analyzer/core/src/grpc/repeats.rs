//! Finds requests that a client sends again after they failed: of the same method, with equally many message bytes. A client
//! that keeps the `x-request-id` of a call in its next attempt, as Envoy does, is known to repeat only such requests.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;

use crate::at::At;
use crate::limits;
use crate::state_fields;
use crate::store::context::Context;
use crate::store::tables::RepeatRow;

/// How soon after the end of an RPC the next one begins that may repeat it, nanoseconds (gRFC A6: `maxBackoff` of its
/// example is 1 s).
pub const WITHIN: i64 = 1_000_000_000;

/// RPCs of one connection that failed, or had an answer after such ones, and that no request has followed yet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Repeats {
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::REPEATS_OPEN }, _, _>")]
    recent: VecDeque<Ended>,
    /// A request had the `x-request-id` of a failed one before it.
    keeps_ids: bool,
}

/// Method, messages and bytes of a request.
pub type Request = (u32, u32, u64);

/// An RPC that ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ended {
    /// What its client had asked.
    pub request: Request,
    /// Its `x-request-id`, 0 for none.
    pub id: u32,
    /// It failed, so that its client may ask again.
    pub failed: bool,
    /// What is known of the RPC's end, and of the request that may repeat it.
    pub row: RepeatRow,
}

impl Repeats {
    /// Takes an RPC of `connection` at its end, which began at `start`.
    pub fn take(&mut self, mut ended: Ended, start: At, connection: u32, cx: &mut Context) {
        let after = |old: &Ended| start.time.saturating_sub(old.row.time_ns);
        // they are in the order of their ends: none that ended earlier is followed by this one either
        let soon_enough = self.recent.iter().enumerate().rev().take_while(|(_, old)| after(old) <= WITHIN);
        let mut equal = soon_enough.filter(|(_, old)| old.request == ended.request && after(old) >= 0);
        let same_id = |old: &Ended| ended.id != 0 && old.id == ended.id;
        let place = match equal.clone().find(|(_, old)| same_id(old)) {
            None if self.keeps_ids && ended.id != 0 => None,
            None => equal.next(),
            found => found,
        };
        let before = place.map(|(place, _)| place).and_then(|place| self.recent.remove(place));
        let follows_failure = before.as_ref().is_some_and(|old| old.failed);
        if let Some(mut old) = before {
            ended.row.attempt = if old.failed { old.row.attempt } else { 0 };
            old.row.same_id = same_id(&old).into();
            self.keeps_ids |= old.failed && same_id(&old);
            (old.row.next_stream, old.row.next_packet, old.row.next_time_ns) =
                (ended.row.stream, start.packet, start.time);
            push(old.row, connection, cx);
        }
        if !ended.failed && !follows_failure {
            return;
        }
        ended.row.attempt = ended.row.attempt.saturating_add(1);
        // the outcome of one whose client may not have read the response is known later than its end
        let place = self.recent.partition_point(|old| old.row.time_ns <= ended.row.time_ns);
        self.recent.insert(place, ended);
        if self.recent.len() > limits::REPEATS_OPEN
            && let Some(old) = self.recent.pop_front()
        {
            push(old.row, connection, cx);
        }
    }

    /// Nothing follows what ended longer than [`WITHIN`] before `first`, when the first RPC began that is open, or is to come.
    pub fn finish_before(&mut self, first: i64, connection: u32, cx: &mut Context) {
        while self.recent.front().is_some_and(|old| first.saturating_sub(old.row.time_ns) > WITHIN) {
            self.recent.pop_front().into_iter().for_each(|old| push(old.row, connection, cx));
        }
    }

    /// Writes all rows, because no request follows.
    pub fn finish(&mut self, connection: u32, cx: &mut Context) {
        self.recent.drain(..).for_each(|old| push(old.row, connection, cx));
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// The methods of what is kept.
    pub fn methods(&self) -> impl Iterator<Item = u32> {
        self.recent.iter().map(|old| old.row.method)
    }
}

/// Writes a row; the connection's number is the one that it has now.
fn push(row: RepeatRow, connection: u32, cx: &mut Context) {
    if cx.repeats.len() < limits::REPEATS + limits::ROWS_AHEAD {
        cx.repeats.push(RepeatRow { connection, ..row });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Takes RPCs with these starts and ends in milliseconds, request bytes and failures; says for each row which
    /// attempt it is and when the next one begins, -1 for none.
    fn rows(rpcs: &[(i64, i64, u64, bool)]) -> Vec<(u8, i64)> {
        let (mut repeats, mut cx) = (Repeats::default(), Context::default());
        for (stream, &(start, end, bytes, failed)) in (1..).zip(rpcs) {
            let row = RepeatRow { stream, time_ns: end * MS, ..RepeatRow::default() };
            let start = At::new(stream, start * MS);
            repeats.take(Ended { request: (0, 1, bytes), id: 0, failed, row }, start, 0, &mut cx);
        }
        repeats.finish(0, &mut cx);
        let next = |(&stream, &time): (&u32, &i64)| if stream > 0 { time / MS } else { -1 };
        let next = cx.repeats.next_stream.iter().zip(&cx.repeats.next_time_ns).map(next);
        cx.repeats.attempt.iter().copied().zip(next).collect()
    }

    #[test]
    fn an_equal_request_after_a_failure_is_the_next_attempt() {
        let rpcs = [(0, 1, 9, true), (11, 12, 9, true), (32, 33, 9, false), (40, 41, 8, false), (50, 51, 9, false)];
        assert_eq!(rows(&rpcs), [(1, 11), (2, 32), (3, 50)], "the answered one counts, and what follows it");
    }

    #[test]
    fn requests_with_other_ids_are_other_calls_where_ids_are_kept() {
        let (mut repeats, mut cx) = (Repeats::default(), Context::default());
        let rpcs = [(0, 7, true), (10, 7, true), (20, 8, true), (30, 7, false), (40, 8, false), (50, 9, false)];
        for (stream, (start, id, failed)) in (1..).zip(rpcs) {
            let row = RepeatRow { stream, time_ns: (start + 1) * MS, ..RepeatRow::default() };
            let ended = Ended { request: (0, 1, 9), id, failed, row };
            repeats.take(ended, At::new(stream, start * MS), 0, &mut cx);
        }
        repeats.finish(0, &mut cx);
        let rows = cx.repeats.stream.iter().zip(&cx.repeats.next_stream);
        let rows: Vec<(u32, u32)> = rows.map(|(&stream, &next)| (stream, next)).collect();
        assert_eq!(rows, [(1, 2), (2, 4), (3, 5), (4, 0), (5, 0)], "6 is a call of its own");
        assert_eq!(cx.repeats.same_id, [1, 1, 1, 0, 0]);
    }

    #[test]
    fn other_requests_and_later_ones_are_none() {
        assert_eq!(rows(&[(0, 1, 9, true), (2, 3, 8, false), (1002, 1003, 9, false)]), [(1, -1)]);
        assert_eq!(rows(&[(0, 10, 9, true), (9, 11, 9, false)]), [(1, -1)], "it began before the failure");
    }

    #[test]
    fn what_no_rpc_can_follow_any_more_is_written() {
        let (mut repeats, mut cx) = (Repeats::default(), Context::default());
        for (stream, end) in [(1, 0), (3, 500), (5, 900)] {
            let row = RepeatRow { stream, time_ns: end * MS, ..RepeatRow::default() };
            repeats.take(
                Ended { request: (0, 1, u64::from(stream)), id: 0, failed: true, row },
                At::new(1, 0),
                7,
                &mut cx,
            );
        }
        repeats.finish_before(1_000 * MS, 7, &mut cx);
        assert!(cx.repeats.is_empty(), "one that began at 1,000 ms may follow");
        repeats.finish_before(1_600 * MS, 8, &mut cx); // cuts gave the connection another number
        assert_eq!((&cx.repeats.stream, &cx.repeats.connection), (&vec![1, 3], &vec![8, 8]));
        assert_eq!(repeats.methods().count(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let rpcs: Vec<_> = (0..limits::REPEATS_OPEN as i64 + 5).map(|at| (at, at, at as u64, true)).collect();
        assert_eq!(rows(&rpcs).len(), rpcs.len());
        let mut repeats = Repeats::default();
        for bytes in 0..limits::REPEATS_OPEN as u64 + 5 {
            let ended = Ended { request: (0, 1, bytes), id: 0, failed: true, row: RepeatRow::default() };
            repeats.take(ended, At::new(1, 0), 0, &mut Context::default());
        }
        assert_eq!(repeats.recent.len(), limits::REPEATS_OPEN);
    }
}
