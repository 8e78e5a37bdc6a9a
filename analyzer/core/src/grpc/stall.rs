//! Measures how the RPCs that waited while their server was silent are answered then: after a pause all at once.

use serde::{Deserialize, Serialize};

use crate::state_fields;
use crate::store::tables::StallRow;

/// A silence for which the peer waited, until its row is written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stall {
    row: StallRow,
    /// The side that was silent: which one is the client may show later.
    #[serde(deserialize_with = "state_fields::side")]
    side: usize,
    /// When the first answer came, negative before.
    first: i64,
    /// How long the quickest of the RPCs took from its whole request to its answer, and the slowest.
    took: (i64, i64),
}

impl Stall {
    /// `side` was silent, as the row says.
    pub fn new(side: usize, row: StallRow) -> Self {
        Self { row: StallRow { unanswered: row.waiting, ..row }, side, first: -1, took: (i64::MAX, i64::MIN) }
    }

    /// A request that was whole at `since` is answered at `now`.
    pub fn answer(&mut self, since: i64, now: i64) {
        let row = &mut self.row;
        if row.unanswered == 0 || since >= row.start_time_ns.saturating_add(row.duration_ns) {
            return;
        }
        row.unanswered -= 1;
        let took = now.saturating_sub(since);
        self.took = (self.took.0.min(took), self.took.1.max(took));
        if self.first < 0 {
            self.first = now;
        }
        row.answers_ns = now.saturating_sub(self.first);
        row.durations_ns = self.took.1.saturating_sub(self.took.0);
    }

    /// The row as far as it is known.
    pub fn into_row(self, client: usize) -> StallRow {
        StallRow { direction: u8::from(self.side != client), ..self.row }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_what_waited_are_measured() {
        let row = StallRow { start_time_ns: 10, duration_ns: 20, waiting: 3, answers_ns: -1, ..StallRow::default() };
        let mut stall = Stall::new(1, row);
        stall.answer(31, 30); // its request came later
        for (nth, since) in (0..).zip([20, 5, 0]) {
            stall.answer(since, 30 + nth);
        }
        stall.answer(1, 90); // more than waited
        let row = stall.into_row(0);
        assert_eq!((row.direction, row.unanswered, row.answers_ns, row.durations_ns), (1, 0, 2, 22)); // they took 10, 26 and 32
        let open = Stall::new(0, StallRow { waiting: 2, answers_ns: -1, ..StallRow::default() }).into_row(0);
        assert_eq!((open.direction, open.unanswered, open.answers_ns), (0, 2, -1));
    }
}
