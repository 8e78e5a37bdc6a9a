//! Follows a receive window that is closed (RFC 9293 section 3.8.6.1): for how long its sender is proved to wait for it.

use serde::{Deserialize, Serialize};

use super::rtt::RTO_MIN;

/// A probe comes sooner than this behind the packet that announces 0, at the retransmission timeout at first. Keep-alives, which
/// look the same, come later, and from a sender that has nothing to send (RFC 9293 section 3.8.4; Linux's `TCP_KEEPIDLE` counts seconds).
const FIRST_PROBE: i64 = 1_000_000_000;
/// Linux answers one probe within this time (`tcp_invalid_ratelimit`), others answer all.
const ANSWERED: i64 = 500_000_000;
/// Probes come at intervals that double (RFC 9293 section 3.8.6.1): after this many of the last one they have ended (heuristic: one
/// more, for busy hosts).
const GOES_ON: i64 = 3;

/// The window of a sender's peer, from when the peer acknowledges all bytes and announces a window of 0 until the sender's next
/// ones.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ShutWindow {
    /// When the sender sent its last bytes.
    stopped: Option<i64>,
    /// The last packet that announces 0.
    announced: i64,
    /// When the peer announced a larger window, which may not have arrived; negative before.
    opened: i64,
    /// The sender's last probe, negative before any: it has bytes to send.
    probed: i64,
    /// The time between the last probe and the probe or announcement before it.
    interval: i64,
}

impl ShutWindow {
    /// Whether the window is closed, or was closed until the peer opened it.
    #[inline]
    pub fn is_shut(&self) -> bool {
        self.stopped.is_some()
    }

    /// The sender sends new bytes.
    #[inline]
    pub fn end(&mut self) {
        self.stopped = None;
    }

    /// The peer, which has all bytes that were sent up to `stopped`, announces a window of 0.
    pub fn announce(&mut self, stopped: i64, now: i64) {
        if self.stopped != Some(stopped) {
            *self = Self { stopped: Some(stopped), announced: now, opened: -1, probed: -1, interval: 0 };
        }
        self.announced = now;
    }

    /// The peer announces a larger window.
    pub fn open(&mut self, now: i64) {
        if self.opened < 0 {
            self.opened = now;
        }
    }

    /// The sender probes the window.
    pub fn probe(&mut self, now: i64) {
        let since = if self.probed < 0 { self.announced } else { self.probed };
        let interval = now.saturating_sub(since);
        if self.probed >= 0 || interval < FIRST_PROBE {
            (self.probed, self.interval) = (now, interval);
        }
    }

    /// The time up to `now` in which the sender had bytes to send and the window is known to be closed: from its last bytes to the
    /// last packet that shows it, or to `now` while a further probe is not overdue.
    pub fn blocks(&self, now: i64, round_trip: i64) -> Option<(i64, i64)> {
        let stopped = self.stopped.filter(|_| self.probed >= 0)?;
        let shown = self.announced.max(self.probed);
        let is_lost = self.probed.saturating_sub(self.announced) > ANSWERED
            && now.saturating_sub(self.probed) > RTO_MIN.saturating_add(round_trip);
        let until = match self.opened {
            _ if is_lost => self.announced,
            opened if opened >= 0 => opened,
            _ if now.saturating_sub(shown) > self.interval.saturating_mul(GOES_ON) => shown,
            _ => now,
        };
        Some((stopped, until.min(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn probed(at_ms: &[i64]) -> ShutWindow {
        let mut window = ShutWindow::default();
        window.announce(0, 10 * MS);
        for &at in at_ms {
            window.probe(at * MS);
            window.announce(0, (at + 10) * MS);
        }
        window
    }

    #[test]
    fn a_sender_that_probes_is_blocked_until_a_probe_is_overdue() {
        let window = probed(&[210, 610]);
        assert_eq!(window.blocks(1_400 * MS, 10 * MS), Some((0, 1_400 * MS)));
        assert_eq!(window.blocks(1_820 * MS, 10 * MS), Some((0, 1_820 * MS)));
        assert_eq!(window.blocks(1_821 * MS, 10 * MS), Some((0, 620 * MS)), "no probe came");
    }

    #[test]
    fn who_does_not_probe_may_have_nothing_to_send() {
        assert_eq!(probed(&[]).blocks(900 * MS, 10 * MS), None);
        assert_eq!(probed(&[1_010]).blocks(1_100 * MS, 10 * MS), None, "it may be a keep-alive");
        let mut window = probed(&[210]);
        window.end();
        assert!(!window.is_shut() && window.blocks(900 * MS, 10 * MS).is_none());
        window.announce(300 * MS, 310 * MS);
        assert_eq!(window.blocks(900 * MS, 10 * MS), None, "the probe was of the time before");
    }

    #[test]
    fn an_announcement_that_may_be_lost_ends_it() {
        let mut window = probed(&[210, 610]);
        window.open(700 * MS);
        window.open(800 * MS);
        window.probe(1_010 * MS);
        assert_eq!(window.blocks(1_400 * MS, 10 * MS), Some((0, 700 * MS)));
    }

    #[test]
    fn a_peer_that_answers_no_probe_may_be_gone() {
        let mut window = probed(&[210]);
        window.probe(720 * MS);
        assert_eq!(window.blocks(1_800 * MS, 10 * MS), Some((0, 1_800 * MS)), "Linux does not answer each");
        window.probe(1_740 * MS);
        assert_eq!(window.blocks(1_950 * MS, 10 * MS), Some((0, 1_950 * MS)), "the answer may be on its way");
        assert_eq!(window.blocks(1_951 * MS, 10 * MS), Some((0, 220 * MS)));
    }
}
