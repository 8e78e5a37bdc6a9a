//! Cuts of a run that goes on: in silences, around odd times, and with connections that say nothing.

use std::sync::Arc;

use grpcdiag_core::limits;
use grpcdiag_core::run::interval::{Interval, join_intervals};
use grpcdiag_core::run::pipeline::{Finished, Pipeline};
use grpcdiag_core::store::context::Context;
use grpcdiag_core::store::options::Options;

use crate::flood::*;
use crate::memory::*;

const SECOND: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

fn live() -> Flood {
    let pipeline = Pipeline::live(Options::default(), Arc::default());
    Flood { pipeline, time: 1_700_000_000 * SECOND, pace: 10_000, ..Flood::new() }
}

fn tables(interval: &Interval) -> (Finished, Context) {
    let (finished, mut cx, _) = join_intervals([interval].into_iter()).unwrap();
    let known = finished.connections.len() as u32;
    assert!(
        cx.connection_columns().flatten().all(|connection| *connection < known),
        "rows of connections that are told"
    );
    (finished, cx)
}

fn complete(interval: &Interval) -> u64 {
    interval.done.methods.iter().flatten().map(|method| method.complete).sum()
}

/// Another connection sends from now on; gives what has to be set for the one before to go on.
fn switch(flood: &mut Flood, host: u32) -> (u32, [u32; 2]) {
    let before = (flood.host, flood.next);
    (flood.host, flood.next) = (host, [1_000, 5_000]);
    before
}

fn go_on(flood: &mut Flood, with: (u32, [u32; 2])) {
    (flood.host, flood.next) = with;
}

fn answer(stream: u32, status: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | 1, stream, &[field(":status", "200"), field("grpc-status", status)].concat())
}

/// A call with an answer.
fn call(flood: &mut Flood, stream: u32, status: &str) {
    flood.send(CLIENT, &[request(stream, "/a.B/c"), frame(DATA, 1, stream, &[0, 0, 0, 0, 1, 7])].concat());
    flood.time += MS;
    flood.send(SERVER, &answer(stream, status));
}

#[test]
fn rows_of_failed_calls_follow_their_connection() {
    let _alone = Measured::begin();
    let mut flood = live();
    flood.handshake(); // a connection that says nothing
    flood.pipeline.cut(flood.time + SECOND);
    switch(&mut flood, 2);
    flood.begin();
    for stream in [1, 3, 5] {
        call(&mut flood, stream, "14");
        flood.time += 2 * SECOND;
    }
    let interval = flood.pipeline.cut(flood.time);
    let (finished, cx) = tables(&interval);
    assert_eq!((finished.connections.len(), cx.repeats.connection), (1, vec![0; 3]), "without waiting for its end");
    assert_eq!(cx.strings.methods.get(cx.repeats.method[0]), Some(&b"/a.B/c"[..]));
}

#[test]
fn failed_calls_of_a_connection_that_falls_silent_are_reported() {
    let _alone = Measured::begin();
    let mut flood = live();
    flood.begin();
    call(&mut flood, 1, "14");
    let first = flood.pipeline.cut(flood.time + MS);
    assert_eq!(tables(&first).1.repeats.len(), 0, "it may be repeated yet");
    let second = flood.pipeline.cut(flood.time + 2 * SECOND);
    assert_eq!(tables(&second).1.repeats.connection, [0]);
    assert!(flood.pipeline.cut(flood.time + 4 * SECOND).connections.is_empty());
}

#[test]
fn the_last_pings_have_the_number_of_their_connection() {
    let _alone = Measured::begin();
    let mut flood = live();
    flood.handshake();
    flood.segment(CLIENT, RST | ACK, flood.next[CLIENT], &[]);
    switch(&mut flood, 2);
    flood.begin();
    for nth in 0..20_u64 {
        flood.send(CLIENT, &frame(PING, 0, 0, &nth.to_be_bytes()));
    }
    for _ in 0..3 {
        flood.time += 2 * SECOND;
        flood.send(CLIENT, &request(1, "/a.B/c"));
        flood.pipeline.cut(flood.time + MS);
    }
    flood.send(SERVER, &frame(GOAWAY, 0, 0, &[0; 8]));
    let (_, cx) = tables(&flood.pipeline.cut(flood.time + MS));
    assert_eq!((cx.pings.connection, cx.goaways.connection), (vec![0; 4], vec![0]));
}

#[test]
fn an_open_request_that_is_no_call_stays_with_its_connection() {
    let _alone = Measured::begin();
    let mut flood = live();
    flood.begin(); // says nothing further
    switch(&mut flood, 2);
    flood.begin();
    let fields = [(":path", "/watch"), (":method", "GET"), ("accept", "text/event-stream")];
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    flood.send(CLIENT, &frame(HEADERS, END_HEADERS | 1, 1, &block));
    let stream = switch(&mut flood, 3);
    flood.begin();
    flood.pipeline.cut(flood.time + MS);
    for round in 0..3 {
        flood.time += SECOND;
        call(&mut flood, 1 + 2 * round, "0");
        let (finished, cx) = tables(&flood.pipeline.cut(flood.time + MS));
        assert_eq!(finished.connections.len(), 2);
        assert_eq!((cx.other_requests.connection, cx.other_requests.duration_ns), (vec![0], vec![-1]));
    }
    go_on(&mut flood, stream);
    flood.send(SERVER, &frame(HEADERS, END_HEADERS | 1, 1, &field(":status", "200")));
    let (_, cx) = tables(&flood.pipeline.cut(flood.time + MS));
    assert!(cx.other_requests.duration_ns[0] > 3 * SECOND);
}

#[test]
fn packets_behind_a_pause_are_in_the_piece_that_covers_them() {
    let _alone = Measured::begin();
    let mut flood = live();
    flood.begin();
    call(&mut flood, 1, "0");
    flood.time += 150 * MS;
    call(&mut flood, 3, "0");
    let last = flood.time;
    assert_eq!(complete(&flood.pipeline.cut(last - MS / 2)), 1, "up to the first packet that is kept");
    let interval = flood.pipeline.cut(last + SECOND);
    assert_eq!((complete(&interval), interval.end_time), (1, last + SECOND));
}

#[test]
fn one_packet_of_a_wrong_time_forgets_no_connection() {
    let _alone = Measured::begin();
    let pipeline = Pipeline::live(Options { file_times: true, ..Options::default() }, Arc::default());
    let mut flood = Flood { pipeline, ..live() };
    flood.begin();
    let mut found = 0;
    for round in 0..10 {
        call(&mut flood, 1 + 4 * round, "0");
        if round == 3 {
            let good = switch(&mut flood, 2);
            flood.time += DAY;
            flood.handshake();
            flood.time -= DAY;
            go_on(&mut flood, good);
        }
        flood.time += SECOND;
        call(&mut flood, 3 + 4 * round, "0");
        let interval = flood.pipeline.cut(i64::MIN);
        found += complete(&interval);
        assert_eq!(interval.connections.iter().filter(|one| one.ended.row.rpcs == 2).count(), 1, "round {round}");
        assert!(interval.end_time < flood.time + SECOND || round == 3, "only its own piece ends then");
    }
    found += complete(&flood.pipeline.cut_last(0));
    assert_eq!(found, 20);
}

#[test]
fn calls_of_a_connection_that_is_silent_too_long_are_reported() {
    let _alone = Measured::begin();
    let mut flood = live();
    flood.begin();
    flood.send(CLIENT, &request(1, "/a.B/Waits"));
    let silent = switch(&mut flood, 2);
    flood.begin();
    call(&mut flood, 1, "0");
    let quiet = switch(&mut flood, 3);
    flood.pipeline.cut(flood.time + SECOND);
    flood.time += limits::LIVE_IDLE - SECOND;
    let interval = flood.pipeline.cut(flood.time);
    assert_eq!(interval.connections.len(), 1, "an open call is told as long as it is open");
    flood.time += 2 * SECOND;
    let (finished, cx) = tables(&flood.pipeline.cut(flood.time));
    assert_eq!((finished.connections.len(), cx.open_rpcs.connection), (1, vec![0]));
    assert!(cx.problems.kinds[0].starts_with("no packet for more than two hours"), "{:?}", cx.problems.kinds);
    assert_eq!(cx.problems.rows.connection, [0]);
    assert_eq!(flood.pipeline.kept()[..2], [0, 0]);
    for one in [silent, quiet] {
        go_on(&mut flood, one);
        call(&mut flood, 3, "0");
        let interval = flood.pipeline.cut(flood.time + MS);
        assert_eq!(
            (interval.connections.len(), complete(&interval)),
            (1, 1),
            "what comes then is of another connection"
        );
    }
}

/// A router's error about a segment that the client of host 2 sent.
fn icmp_error(code: u8, mtu: u16) -> Vec<u8> {
    let (client, server, router) = ([0, 0, 0, 2], [10, 99, 0, 1], [10, 0, 0, 9]);
    let ip = |protocol: u8, length: u8, from: [u8; 4], to: [u8; 4]| {
        [&[0x45, 0, 0, length, 0, 0, 0, 0, 64, protocol, 0, 0][..], &from, &to].concat()
    };
    let about = [&ip(6, 40, client, server)[..], &[0x9c, 0x40, 0xc3, 0x83], &1_001_u32.to_be_bytes()].concat();
    let [high, low] = mtu.to_be_bytes();
    [&ip(1, 56, router, client)[..], &[3, code, 0, 0, 0, 0, high, low], &about].concat()
}

#[test]
fn icmp_errors_without_a_row_are_counted() {
    let _alone = Measured::begin();
    let mut flood = live();
    switch(&mut flood, 2);
    flood.handshake();
    let mut cut = |from: usize, to: usize| {
        (from..to).for_each(|mtu| flood.packet(&icmp_error(4, 1 + mtu as u16)));
        flood.pipeline.cut(flood.time + MS)
    };
    let intervals = [cut(0, 3_000), cut(3_000, limits::ICMP_ERRORS + 7)];
    let (finished, _, counts) = join_intervals(intervals.iter()).unwrap();
    assert_eq!((finished.icmp_errors.len(), counts.icmp_errors_not_listed), (limits::ICMP_ERRORS, 7));
}

#[test]
fn an_icmp_error_is_reported_though_its_connection_is_silent() {
    let _alone = Measured::begin();
    for has_payload in [false, true] {
        let mut flood = live();
        flood.handshake(); // another one
        switch(&mut flood, 2);
        flood.handshake();
        if has_payload {
            flood.send(CLIENT, &[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
        }
        flood.pipeline.cut(flood.time + SECOND);
        flood.time += 2 * SECOND;
        flood.packet(&icmp_error(1, 0));
        let interval = flood.pipeline.cut(flood.time + SECOND);
        let (finished, _) = tables(&interval);
        assert_eq!((finished.connections.packets_client[0], &finished.icmp_errors.connection), (0, &vec![0]));
    }
}

#[test]
fn refused_connections_are_forgotten_soon() {
    let _alone = Measured::begin();
    let mut flood = live();
    for host in 0..limits::BARE_CONNECTIONS as u32 + 9 {
        switch(&mut flood, host);
        flood.segment(CLIENT, SYN, 1_000, &[]);
        flood.segment(SERVER, RST | ACK, 0, &[]);
    }
    assert_eq!(flood.pipeline.cut(flood.time).connections.len(), limits::BARE_CONNECTIONS);
    flood.time += 2 * SECOND;
    assert_eq!(flood.pipeline.cut(flood.time).connections.len(), 0);
    assert_eq!(flood.pipeline.kept()[0], 0);
    switch(&mut flood, 7);
    flood.segment(CLIENT, SYN, 9_000, &[]);
    flood.segment(SERVER, RST | ACK, 0, &[]);
    let interval = flood.pipeline.cut(flood.time + SECOND);
    assert_eq!((interval.connections.len(), interval.counts.connections_not_listed), (1, 0));
}

/// Millions of calls, one of a hundred failed, with one that stays open, and a cut each minute.
#[test]
fn a_day_of_one_connection_takes_no_more_than_its_first_hour() {
    const CALLS: u32 = 1_500;
    let mut measured = Measured::begin();
    let mut flood = live();
    flood.begin();
    // with indexing (RFC 7541 section 6.2.1); later on each is one octet
    let indexed = |name: &str, value: &str| [&[0x40][..], &field(name, value)[1..]].concat();
    let first = [indexed(":path", "/a.B/c"), indexed("content-type", "application/grpc"), vec![0x83]].concat();
    flood.send(CLIENT, &frame(HEADERS, END_HEADERS, 1, &first)); // stays open
    let (mut stream, mut found, mut hours) = (1, 0, Vec::new());
    for minute in 0..1_440 {
        for _ in 0..CALLS / 50 {
            let streams: Vec<u32> = (1..=50).map(|nth| stream + 2 * nth).collect();
            stream += 100;
            let ask = |&stream: &u32| frame(HEADERS, END_HEADERS | 1, stream, &[0xbf, 0xbe, 0x83]);
            flood.send(CLIENT, &streams.iter().flat_map(ask).collect::<Vec<u8>>());
            let status = |&stream: &u32| if stream % 200 == 1 { "14" } else { "0" };
            let answer = |stream: &u32| {
                let block = [&[0x88][..], &field("grpc-status", status(stream))].concat();
                frame(HEADERS, END_HEADERS | 1, *stream, &block)
            };
            flood.send(SERVER, &streams.iter().flat_map(answer).collect::<Vec<u8>>());
            flood.time += SECOND;
        }
        flood.time += 30 * SECOND;
        let interval = flood.pipeline.cut(flood.time);
        found += complete(&interval);
        assert_eq!(interval.connections.len(), 1, "minute {minute}");
        drop(interval);
        if minute % 60 == 59 {
            hours.push(flood.pipeline.kept());
        }
        if minute == 59 {
            measured.again();
        }
    }
    measured.assert_below(2 * MB);
    assert_eq!(found, u64::from(CALLS) * 1_440, "each call is complete in one piece");
    assert!(hours.iter().all(|kept| *kept == hours[0]), "{hours:?}");
}
