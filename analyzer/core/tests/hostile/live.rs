//! A run that goes on: what it keeps follows what is open, not the time that has passed.

use std::sync::Arc;

use grpcdiag_core::run::interval::{Interval, join_intervals};
use grpcdiag_core::run::pipeline::Pipeline;
use grpcdiag_core::store::options::Options;

use crate::flood::*;
use crate::memory::*;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// A connection with one call of a method of its own; most are reset, and the others fall silent.
fn call(flood: &mut Flood, number: u32) {
    (flood.host, flood.next) = (0x0a00_0000 + number, [1_000, 5_000]);
    flood.handshake();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, &format!("/a.B/{number}"))].concat();
    flood.send(CLIENT, &opening);
    let ending = [field(":status", "200"), field("grpc-status", "0")].concat();
    flood.send(SERVER, &[frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS | 1, 1, &ending)].concat());
    if !number.is_multiple_of(10) {
        flood.segment(CLIENT, RST, flood.next[CLIENT], &[]);
    }
}

/// Calls up to an hour, with a cut behind every 20. Gives the last interval and how many calls were complete.
fn run_until(flood: &mut Flood, calls: &mut u32, hour: i64) -> (Interval, u64) {
    let mut complete = 0;
    loop {
        for _ in 0..20 {
            call(flood, *calls);
            *calls += 1;
        }
        let interval = flood.pipeline.cut(flood.time + 1);
        complete += interval.done.methods.iter().flatten().map(|method| method.complete).sum::<u64>();
        if flood.time > hour * HOUR {
            return (interval, complete);
        }
    }
}

#[test]
fn a_day_of_short_connections_takes_no_more_than_its_first_hours() {
    let mut measured = Measured::begin();
    let pipeline = Pipeline::live(Options::default(), Arc::default());
    let mut flood = Flood { pipeline, pace: SECOND, ..Flood::new() };
    flood.handshake();
    flood.send(CLIENT, &[PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, "/long.Call/Stays")].concat());
    let mut calls = 0;
    let (_, early) = run_until(&mut flood, &mut calls, 5);
    let kept = flood.pipeline.kept();
    measured.again();
    let mut complete = early;
    for hour in 6..=24 {
        let (interval, more) = run_until(&mut flood, &mut calls, hour);
        complete += more;
        drop(interval);
    }
    measured.assert_below(2 * MB);
    let (interval, more) = run_until(&mut flood, &mut calls, 24);
    assert_eq!(complete + more, u64::from(calls), "each call is complete in one piece");
    let [connections, streams, rows, names] = flood.pipeline.kept();
    assert!(
        connections < kept[0] + 50 && streams < kept[1] + 5 && rows < kept[2] + 50,
        "{connections} {streams} {rows}"
    );
    assert!(calls > 10_000 && names < 8_000, "{calls} calls, {names} names");
    let (finished, cx, _) = join_intervals([&interval].into_iter()).unwrap();
    assert!(!cx.strings.methods.texts().iter().any(|name| name.starts_with("(more")), "names had room");
    assert_eq!(finished.connections.first_time_ns.len(), finished.setups.len());
}

/// Methods without end on one connection, in its header table too.
#[test]
fn names_without_end_have_room_again() {
    let _alone = Measured::begin();
    let pipeline = Pipeline::live(Options::default(), Arc::default());
    let mut flood = Flood { pipeline, ..Flood::new() };
    flood.begin();
    let mut found = 0;
    for round in 0..30_u32 {
        for nth in 0..1_000 {
            let (number, stream) = (round * 1_000 + nth, 1 + 2 * (round * 1_000 + nth));
            // with indexing (RFC 7541 section 6.2.1): the name is in the table as well
            let path = format!("/a.B/{number}");
            let block =
                [&[0x44, path.len() as u8], path.as_bytes(), &[0x83], &field("content-type", "application/grpc")]
                    .concat();
            flood.send(CLIENT, &frame(HEADERS, END_HEADERS | 1, stream, &block));
            flood.send(SERVER, &frame(HEADERS, END_HEADERS | 1, stream, &field("grpc-status", "0")));
        }
        let interval = flood.pipeline.cut(i64::MIN);
        let (_, cx, _) = join_intervals([&interval].into_iter()).unwrap();
        let names = cx.strings.methods.texts();
        let of_round = |number: &u32| {
            names.get(*number as usize).is_some_and(|name| {
                name.strip_prefix("/a.B/")
                    .and_then(|nth| nth.parse::<u32>().ok())
                    .is_some_and(|nth| nth / 1_000 == round)
            })
        };
        found += cx
            .methods
            .iter()
            .enumerate()
            .filter(|(index, stats)| stats.is_some() && of_round(&(*index as u32 - 1)))
            .count();
        assert!(flood.pipeline.kept()[3] < 6_000);
    }
    assert_eq!(found, 30_000, "each method has its name in its piece");
}
