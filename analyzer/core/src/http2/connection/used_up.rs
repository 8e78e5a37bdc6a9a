//! Finds where a connection's window is used up if its beginning is not in the capture: the stops of the sender prove it.

use serde::{Deserialize, Serialize};

/// Stops at one level, and of them those at which the stream's window was another one, that prove the connection's to be
/// used up there (heuristic: by chance a level is not met again to the byte, let alone so often).
const PROVING_STOPS: [u32; 2] = [4, 3];

/// A sender may not exceed a window (RFC 9113 section 6.9.1), and one that stops for it always stops at the same level of
/// credit granted less DATA sent, whatever was granted before the capture. The stream's window cannot be what stops it
/// where that of the same stream is at another level each time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in crate::http2) struct UsedUp {
    /// The connection's credit at the latest stops, and how many there were.
    level: i64,
    stops: u32,
    /// The latest stop's stream and its credit, and how many times that differed by a segment or more.
    stream: u32,
    stream_level: i64,
    others: u32,
    /// Gaps of both sides: credit or DATA may have been in them.
    gaps: [u32; 2],
    /// DATA went below the level: whatever stopped the sender there, it was not that.
    refuted: bool,
}

impl UsedUp {
    pub(in crate::http2) fn stopped(
        &mut self,
        stream: u32,
        [level, stream_level]: [i64; 2],
        segment: i64,
        gaps: [u32; 2],
    ) {
        if self.stops == 0 || self.level != level || self.gaps != gaps {
            let refuted = self.refuted || (self.is_proved() && self.gaps == gaps);
            *self = Self { level, stops: 1, stream, stream_level, others: 0, gaps, refuted };
            return;
        }
        self.stops = self.stops.saturating_add(1);
        if self.stream == stream && self.stream_level.abs_diff(stream_level) >= segment.max(1).unsigned_abs() {
            self.others = self.others.saturating_add(1);
        }
        (self.stream, self.stream_level) = (stream, stream_level);
    }

    /// DATA was sent: the credit after it.
    pub(in crate::http2) fn sent(&mut self, credit: i64) {
        self.refuted |= self.stops > 0 && credit < self.level && self.is_proved();
    }

    fn is_proved(&self) -> bool {
        !self.refuted && self.stops >= PROVING_STOPS[0] && self.others >= PROVING_STOPS[1]
    }

    /// The credit at which the window is used up.
    pub(in crate::http2) fn zero(&self, gaps: [u32; 2]) -> Option<i64> {
        (self.is_proved() && self.gaps == gaps).then_some(self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_one_level_prove_that_the_window_is_used_up_there() {
        let mut window = UsedUp::default();
        for stop in 0..4 {
            assert_eq!(window.zero([0, 0]), None);
            window.stopped(5, [-70_000, 1_000_000 - stop * 65_535], 1_408, [0, 0]);
            window.sent(-70_000);
        }
        assert_eq!(window.zero([0, 0]), Some(-70_000));
        assert_eq!(window.zero([0, 1]), None, "credit may have been in a gap");
        window.sent(-70_001);
        assert_eq!(window.zero([0, 0]), None, "a sender may not exceed a window");
    }

    #[test]
    fn stops_that_the_streams_window_may_explain_prove_nothing() {
        let (mut same, mut elsewhere, mut other_streams) = (UsedUp::default(), UsedUp::default(), UsedUp::default());
        for stop in 0..20_i64 {
            same.stopped(5, [-70_000, -65_535], 1_408, [0, 0]);
            elsewhere.stopped(5, [-70_000 - stop, -9_999 * stop], 1_408, [0, 0]);
            other_streams.stopped(5 + 2 * stop as u32, [-70_000, -9_999 * stop], 1_408, [0, 0]);
        }
        assert_eq!([same, elsewhere, other_streams].map(|window| window.zero([0, 0])), [None; 3]);
    }
}
