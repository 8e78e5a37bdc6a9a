//! A Linux sender's congestion window, estimated from outside.
//!
//! Slow start, the restart after idle time and the reduction on loss follow net/ipv4/tcp_input.c and tcp_output.c.
//! What a sender shows to have in flight is always allowed, so the estimate is never below it; where it is proved to
//! have stopped at its window, the estimate is what was in flight. In congestion avoidance the estimate is a lower
//! bound, and for BBR, which paces and does not halve on loss, it says nothing beyond that.

use serde::{Deserialize, Serialize};

/// TCP_INIT_CWND, include/net/tcp.h (RFC 6928).
const INITIAL_SEGMENTS: i64 = 10;

/// The estimate for one sender, in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CongestionWindow {
    window: i64,
    threshold: Option<i64>,
    largest_in_flight: i64,
    in_recovery_until: i64,
    /// A loss set the threshold.
    lost: bool,
    /// Retransmissions since the last reduction, but those of bytes that had arrived.
    retransmissions: u32,
    /// The first of their bytes.
    reduced_at: i64,
    /// The window, the threshold and `lost` before that reduction.
    before: (i64, Option<i64>, bool),
    /// Idle time reduced it since the last loss.
    restarted: bool,
    /// The connection began before the capture, and idle time has not reduced the window since: it may be larger.
    pub assumed: bool,
}

impl CongestionWindow {
    /// The window now, for a segment size; the initial window before anything was sent.
    pub fn bytes(&self, segment: i64) -> i64 {
        if self.window == 0 { INITIAL_SEGMENTS * segment } else { self.window }
    }

    /// The initial window for a segment size.
    pub fn initial(segment: i64) -> i64 {
        INITIAL_SEGMENTS * segment
    }

    /// New data was sent; `in_flight` bytes are now unacknowledged.
    #[inline]
    pub fn sent(&mut self, in_flight: i64, segment: i64) {
        self.window = self.bytes(segment).max(in_flight);
        self.largest_in_flight = self.largest_in_flight.max(in_flight);
    }

    /// `bytes` were newly acknowledged: slow start grows by them while the window is in use
    /// (`tcp_is_cwnd_limited`: less than twice what was in flight).
    #[inline]
    pub fn acknowledged(&mut self, bytes: i64, segment: i64) {
        let window = self.bytes(segment);
        if window >= 2 * self.largest_in_flight {
            return;
        }
        self.window = match self.threshold {
            Some(threshold) if window >= threshold => {
                self.restarted = false;
                // congestion avoidance: only a window in full use grows (`tcp_is_cwnd_limited`)
                let full = self.largest_in_flight + segment > window;
                window + if full { (segment * bytes) / window.max(1) } else { 0 }
            }
            _ => window + bytes,
        };
    }

    /// A loss set the window, or the threshold up to which it grows again, and idle time did not reduce it further.
    pub fn is_after_loss(&self) -> bool {
        self.lost && self.threshold.is_some() && !self.restarted
    }

    /// Without a loss the sender stopped at a window of `in_flight` bytes, which the estimate had outgrown. By much:
    /// cubic had left slow start by itself (`hystart_update`, net/ipv4/tcp_cubic.c); by little: estimates add up.
    pub fn outgrown(&mut self, in_flight: i64, segment: i64) {
        let before = self.bytes(segment);
        self.window = before.min(in_flight.max(segment));
        if before > self.window.saturating_mul(5) / 4 {
            self.threshold = Some(self.window);
        }
    }

    /// The sender stopped at its window with `in_flight` bytes unacknowledged: that is the window.
    pub fn proved(&mut self, in_flight: i64, segment: i64) {
        let before = self.bytes(segment);
        self.window = before.min(in_flight.max(segment));
        // above the threshold it does not grow by what is acknowledged: so the threshold was less too
        self.threshold = self.threshold.map(|set| if before >= set { set.min(self.window) } else { set });
    }

    /// Everything is acknowledged: a new flight begins.
    #[inline]
    pub fn flight_over(&mut self) {
        self.largest_in_flight = 0;
    }

    /// The sender was idle for longer than its retransmission timeout: the window is halved once per timeout, not
    /// below the initial window (`tcp_cwnd_restart`, net/ipv4/tcp_output.c).
    pub fn restart_after_idle(&mut self, idle: i64, timeout: i64, segment: i64) {
        let window = self.bytes(segment);
        let restart = Self::initial(segment).min(window);
        // `tcp_current_ssthresh`: a threshold that no loss has ever set stays infinite
        self.threshold = self.threshold.map(|threshold| threshold.max(window * 3 / 4));
        let mut left = idle - timeout;
        let mut now = window;
        while left > 0 && now > restart {
            now /= 2;
            left -= timeout.max(1);
        }
        self.restarted |= now.max(restart) < window;
        self.assumed = false;
        self.window = now.max(restart);
    }

    /// A retransmission at `offset` with bytes up to `highest` in flight: one reduction per window of data, to 7/10
    /// (cubic's beta, net/ipv4/tcp_cubic.c). After a retransmission timeout one segment may be in flight, and slow
    /// start begins anew (`tcp_enter_loss`).
    pub fn lost(&mut self, offset: i64, highest: i64, segment: i64, timeout: bool) {
        if offset >= self.in_recovery_until {
            self.before = (self.bytes(segment), self.threshold, self.is_after_loss());
            (self.retransmissions, self.reduced_at) = (0, offset);
            self.window = (self.bytes(segment) * 7 / 10).max(2 * segment);
            self.threshold = Some(self.window);
            self.in_recovery_until = highest;
        }
        self.restarted = false;
        self.lost = true;
        self.retransmissions = self.retransmissions.saturating_add(1);
        if timeout {
            self.window = segment;
        }
    }

    /// The bytes of a retransmission at `offset` had arrived. If this holds for all since the reduction, the sender takes that back
    /// (`tcp_try_undo_recovery`, net/ipv4/tcp_input.c; RFC 4015).
    pub fn undo(&mut self, offset: i64) {
        if offset < self.reduced_at {
            return; // of an earlier reduction
        }
        self.retransmissions = self.retransmissions.saturating_sub(1);
        if self.retransmissions == 0 && self.lost {
            let (window, threshold, lost) = self.before;
            (self.window, self.threshold, self.lost) = (self.window.max(window), threshold, lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: i64 = 1_000;

    /// The window after the events of tools/testing/selftests/net/packetdrill/tcp_slow_start_slow-start-after-idle.pkt:
    /// 10, 20 after ten segments are acknowledged, 10 again after two seconds idle.
    #[test]
    fn grows_and_restarts_as_the_kernel_selftest() {
        let mut window = CongestionWindow::default();
        assert_eq!(window.bytes(SEGMENT), 10_000);
        window.sent(10_000, SEGMENT);
        window.acknowledged(10_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 20_000);
        window.flight_over();
        window.restart_after_idle(2_000, 300, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 10_000);
    }

    #[test]
    fn a_window_not_in_use_does_not_grow() {
        let mut window = CongestionWindow::default();
        window.sent(1_000, SEGMENT);
        window.acknowledged(1_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 10_000);
    }

    #[test]
    fn after_a_restart_the_window_grows_as_before() {
        let mut window = CongestionWindow::default();
        window.sent(10_000, SEGMENT);
        window.acknowledged(10_000, SEGMENT);
        window.flight_over();
        window.restart_after_idle(1_000, 300, SEGMENT);
        window.sent(10_000, SEGMENT);
        window.acknowledged(10_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 20_000);
    }

    #[test]
    fn idle_halves_once_per_timeout() {
        let mut window = CongestionWindow::default();
        window.sent(80_000, SEGMENT);
        window.restart_after_idle(350, 300, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 40_000);
    }

    #[test]
    fn loss_reduces_once_per_window() {
        let mut window = CongestionWindow::default();
        window.sent(100_000, SEGMENT);
        window.lost(10_000, 100_000, SEGMENT, false);
        window.lost(20_000, 100_000, SEGMENT, false);
        assert_eq!(window.bytes(SEGMENT), 70_000);
        assert!(window.is_after_loss());
    }

    #[test]
    fn a_reduction_is_taken_back_when_all_bytes_had_arrived() {
        let mut window = CongestionWindow::default();
        window.sent(100_000, SEGMENT);
        window.lost(10_000, 100_000, SEGMENT, false);
        window.lost(20_000, 100_000, SEGMENT, false);
        window.undo(20_000);
        window.undo(9_000);
        assert!(window.is_after_loss(), "one was lost");
        window.undo(10_000);
        assert_eq!((window.bytes(SEGMENT), window.is_after_loss()), (100_000, false));
    }

    #[test]
    fn a_timeout_starts_at_one_segment_up_to_the_threshold() {
        let mut window = CongestionWindow::default();
        window.sent(20_000, SEGMENT);
        window.lost(0, 20_000, SEGMENT, true);
        assert_eq!(window.bytes(SEGMENT), SEGMENT);
        for _ in 0..4 {
            let bytes = window.bytes(SEGMENT);
            window.flight_over();
            window.sent(bytes, SEGMENT);
            window.acknowledged(bytes, SEGMENT);
        }
        assert_eq!(window.bytes(SEGMENT), 16_000, "doubled while below 14 segments");
        window.flight_over();
        window.sent(16_000, SEGMENT);
        window.acknowledged(16_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 17_000, "one segment per round trip after that");
    }

    #[test]
    fn after_a_loss_sparse_traffic_does_not_grow_it() {
        let mut window = CongestionWindow::default();
        window.lost(0, 10_000, SEGMENT, false);
        for _ in 0..100 {
            window.flight_over();
            window.sent(4_000, SEGMENT);
            window.acknowledged(4_000, SEGMENT);
        }
        assert_eq!(window.bytes(SEGMENT), 7_000);
        window.sent(9_000, SEGMENT);
        window.proved(8_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 8_000, "what it stopped at");
    }

    /// cubic leaves slow start by itself: what stopped at less than the estimate tells where.
    #[test]
    fn an_estimate_that_outgrew_the_window_is_corrected() {
        let mut window = CongestionWindow::default();
        window.sent(10_000, SEGMENT);
        window.acknowledged(10_000, SEGMENT);
        window.sent(20_000, SEGMENT);
        window.acknowledged(20_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 40_000);
        window.outgrown(30_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 30_000);
        assert!(!window.is_after_loss());
        window.sent(30_000, SEGMENT);
        window.acknowledged(30_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 31_000, "congestion avoidance: a segment per window");
    }

    /// Little more than what was in flight is an estimate's error: slow start goes on.
    #[test]
    fn a_little_too_much_does_not_end_slow_start() {
        let mut window = CongestionWindow::default();
        window.sent(10_000, SEGMENT);
        window.acknowledged(10_000, SEGMENT);
        window.sent(18_000, SEGMENT);
        window.outgrown(18_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 18_000);
        window.acknowledged(18_000, SEGMENT);
        assert_eq!(window.bytes(SEGMENT), 36_000);
    }

    #[test]
    fn idle_time_that_reduces_the_window_takes_the_blame_from_the_loss() {
        let mut window = CongestionWindow::default();
        window.sent(40_000, SEGMENT);
        window.lost(0, 40_000, SEGMENT, false);
        window.restart_after_idle(1_000, 300, SEGMENT);
        assert!(!window.is_after_loss());
        window.lost(50_000, 60_000, SEGMENT, false);
        assert!(window.is_after_loss());
        window.restart_after_idle(1_000, 300, SEGMENT);
        assert!(window.is_after_loss(), "ten segments or less stay as they are");
    }
}
