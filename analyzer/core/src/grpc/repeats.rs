//! Finds requests that a client sends again after they failed: of the same method, with equally many message bytes.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;

use crate::at::At;
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::RepeatRow;

/// How soon after the end of an RPC the next one begins that may repeat it, nanoseconds (gRFC A6: `maxBackoff` of its
/// example is 1 s).
pub const WITHIN: i64 = 1_000_000_000;

/// RPCs of one connection that failed, or had an answer after such ones, and that no request has followed yet.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Repeats {
    recent: VecDeque<Ended>,
}

/// Method, messages and bytes of a request.
pub type Request = (u32, u32, u64);

/// An RPC that ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ended {
    /// What its client had asked.
    pub request: Request,
    /// It failed, so that its client may ask again.
    pub failed: bool,
    /// What is known of it.
    pub row: RepeatRow,
}

impl Repeats {
    /// Takes an RPC at its end, which began at `start`.
    pub fn take(&mut self, mut ended: Ended, start: At, cx: &mut Context) {
        let before = self.recent.iter().rposition(|old| {
            let after = start.time.saturating_sub(old.row.time_ns);
            old.request == ended.request && (0..=WITHIN).contains(&after)
        });
        let before = before.and_then(|place| self.recent.remove(place));
        let follows_failure = before.as_ref().is_some_and(|old| old.failed);
        if let Some(mut old) = before {
            ended.row.attempt = if old.failed { old.row.attempt } else { 0 };
            (old.row.next_stream, old.row.next_packet, old.row.next_time_ns) =
                (ended.row.stream, start.packet, start.time);
            push(old.row, cx);
        }
        if !ended.failed && !follows_failure {
            return;
        }
        ended.row.attempt = ended.row.attempt.saturating_add(1);
        self.recent.push_back(ended);
        if self.recent.len() > limits::REPEATS_OPEN
            && let Some(old) = self.recent.pop_front()
        {
            push(old.row, cx);
        }
    }

    /// Nothing follows any more.
    pub fn finish(&mut self, cx: &mut Context) {
        self.recent.drain(..).for_each(|old| push(old.row, cx));
    }
}

fn push(row: RepeatRow, cx: &mut Context) {
    if cx.repeats.len() < limits::REPEATS + limits::ROWS_AHEAD {
        cx.repeats.push(row);
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
            repeats.take(Ended { request: (0, 1, bytes), failed, row }, start, &mut cx);
        }
        repeats.finish(&mut cx);
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
    fn other_requests_and_later_ones_are_none() {
        assert_eq!(rows(&[(0, 1, 9, true), (2, 3, 8, false), (1002, 1003, 9, false)]), [(1, -1)]);
        assert_eq!(rows(&[(0, 10, 9, true), (9, 11, 9, false)]), [(1, -1)], "it began before the failure");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let rpcs: Vec<_> = (0..limits::REPEATS_OPEN as i64 + 5).map(|at| (at, at, at as u64, true)).collect();
        assert_eq!(rows(&rpcs).len(), rpcs.len());
        let mut repeats = Repeats::default();
        for bytes in 0..limits::REPEATS_OPEN as u64 + 5 {
            let ended = Ended { request: (0, 1, bytes), failed: true, row: RepeatRow::default() };
            repeats.take(ended, At::new(1, 0), &mut Context::default());
        }
        assert_eq!(repeats.recent.len(), limits::REPEATS_OPEN);
    }
}
