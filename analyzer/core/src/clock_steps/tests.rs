//! What timestamps say of a pause, at the edges of what they can tell.

use super::*;

const MS: i64 = 1_000_000;
const S: i64 = 1000 * MS;

/// A flow whose host counts `ticks` in `ns`, up to time 0.
fn flow(ticks: u32, ns: i64) -> Flow {
    Flow { ends: None, first: (u32::MAX - 5, -ns), last: ((u32::MAX - 5).wrapping_add(ticks), 0) }
}

fn said(flow: Flow, ticks: u32, paused: i64) -> Option<Said> {
    flow.said(flow.last.0.wrapping_add(ticks), paused)
}

#[test]
fn a_clock_that_stood_still_gives_the_length_of_the_step() {
    let Some(Said::StoodStill(ns)) = said(flow(1000, S), 3, 10 * S) else { panic!() };
    assert!((ns - (10 * S - 3 * MS)).abs() < MS, "{ns}");
}

#[test]
fn a_clock_that_went_on_says_so() {
    assert_eq!(said(flow(1000, S), 10_000, 10 * S), Some(Said::WentOn));
    assert_eq!(said(flow(100, S), 20, 200 * MS), Some(Said::WentOn), "10 ms a tick");
    assert_eq!(said(flow(1000, S), 140, 180 * MS), Some(Said::WentOn), "late by less than a step");
}

#[test]
fn a_rate_seen_for_a_moment_has_wide_bounds() {
    let macos = flow(3, 1_786_000); // milliseconds, counted late: three in less than two
    assert_eq!(said(macos, 1001, 1_001_402_000), None, "a second of silence");
    let Some(Said::StoodStill(ns)) = said(macos, 1, 10 * S) else { panic!() };
    assert!((ns - 10 * S).abs() < MS, "{ns}");
}

#[test]
fn slow_clocks_need_long_pauses() {
    assert_eq!(said(flow(0, S), 0, S), None, "a tick may last a second");
    assert_eq!(said(flow(0, S), 0, 2 * S), Some(Said::StoodStill(2 * S)));
    assert_eq!(said(flow(10, S), 0, 150 * MS), None, "100 ms a tick");
    assert_eq!(said(flow(LEAST_TICKS, 30 * MS), 0, 70 * MS + LEAST), Some(Said::StoodStill(70 * MS + LEAST)));
}

#[test]
fn a_clock_that_wraps_within_the_pause_tells_nothing() {
    assert_eq!(said(flow(1_000_000, S), 25_000_000, 4320 * S), None, "microseconds wrap after 71 minutes");
    assert_eq!(said(flow(1000, S), u32::MAX, S), None, "backwards");
}
