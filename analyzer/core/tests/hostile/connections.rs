//! Connections without end.

use grpcdiag_core::limits;
use grpcdiag_core::store::options::{Options, Packing};

use crate::flood::*;
use crate::memory::*;

/// What one of many connections without payload costs, over all of them.
const BARE: usize = 200;

#[test]
fn a_million_connections_without_payload() {
    const COUNT: u32 = 1_000_000;
    for (number, answer) in [None, Some(SYN | ACK), Some(RST | ACK)].into_iter().enumerate() {
        let measured = Measured::begin();
        let mut flood = Flood::new();
        for host in 0..COUNT {
            flood.host = 0x0a00_0000 + host;
            flood.segment(CLIENT, SYN, 7, &[]);
            answer.into_iter().for_each(|flags| flood.segment(SERVER, flags, 9, &[]));
        }
        let outcome = flood.finish();
        measured.assert_below(COUNT as usize * BARE / 2);
        assert_eq!(outcome.finished.connections.len(), limits::BARE_CONNECTIONS);
        assert_eq!(outcome.counts.connections_not_listed, u64::from(COUNT) - limits::BARE_CONNECTIONS as u64);
        let closed = outcome.finished.connections.closed_time_ns.iter().filter(|&&time| time >= 0).count();
        assert_eq!(closed, if number == 2 { limits::BARE_CONNECTIONS } else { 0 });
    }
}

/// Those that have rows cost more than those that are only counted.
#[test]
fn some_connections_without_payload() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    const COUNT: u32 = 120_000;
    for host in 0..COUNT {
        flood.host = 0x0a00_0000 + host;
        flood.segment(CLIENT, SYN, 7, &[]);
    }
    drop(flood.finish());
    measured.assert_below(COUNT as usize * 2 * BARE);
}

/// Each SYN takes the place of the connection before.
#[test]
fn a_million_connections_of_the_same_ends() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    for sequence in 0..1_000_000 {
        flood.segment(CLIENT, SYN, sequence, &[]);
    }
    let outcome = flood.finish();
    measured.assert_below(1_000_000 * BARE / 2);
    let listed = outcome.finished.connections.len() as u64;
    assert_eq!(listed + outcome.counts.connections_not_listed, 1_000_000);
}

/// Payload makes a connection one that is followed, also when it is not listed yet.
#[test]
fn connections_are_listed_with_their_first_payload() {
    let _alone = Measured::begin();
    let mut flood = Flood::new();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, "/a.B/C")].concat();
    let bare = limits::BARE_CONNECTIONS as u32 + 100;
    for host in 0..bare {
        flood.host = 0x0a00_0000 + host;
        flood.segment(CLIENT, SYN, 7, &[]);
    }
    let late = [0, bare - 1];
    for host in late {
        (flood.host, flood.next) = (0x0a00_0000 + host, [8, 5_000]);
        flood.segment(SERVER, SYN | ACK, 4_999, &[]);
        flood.segment(CLIENT, ACK, 8, &[]);
        flood.send(CLIENT, &opening);
    }
    let outcome = flood.finish();
    let rows = &outcome.finished.connections;
    assert_eq!(outcome.counts.connections_not_listed, 99);
    assert_eq!(rows.len(), limits::BARE_CONNECTIONS + 1);
    assert_eq!(outcome.cx.rpcs.connection, [0, limits::BARE_CONNECTIONS as u32]);
    for row in [0, limits::BARE_CONNECTIONS] {
        assert_eq!((rows.complete[row], rows.rpcs[row], rows.packets_client[row]), (1, 1, 3));
        assert!(rows.handshake_rtt_ns[row] > 0);
    }
    assert_eq!(rows.first_packet[limits::BARE_CONNECTIONS], bare);
}

/// A scan, or a flood of handshakes, costs no connection that is in use.
#[test]
fn a_flood_of_handshakes_puts_no_other_connection_away() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    flood.send(CLIENT, &request(1, "/lab.v1.Lab/Echo"));
    let (next, host) = (flood.next, flood.host);
    for other in 0..limits::OPEN_CONNECTIONS as u32 + 5_000 {
        flood.host = 0x0a00_0000 + other;
        flood.handshake();
    }
    (flood.next, flood.host) = (next, host);
    let status = field("grpc-status", "0");
    flood.send(SERVER, &frame(HEADERS, END_HEADERS | 1, 1, &status));
    let outcome = flood.finish();
    measured.assert_below(limits::OPEN_CONNECTIONS * 2 * KB);
    assert_eq!((outcome.cx.rpcs.len(), outcome.cx.rpcs.status[0]), (1, 0));
    assert!(outcome.cx.problems.kinds.is_empty(), "{:?}", outcome.cx.problems.kinds);
}

/// Connections that did carry something: those idle longest go, and their RPCs end as if the capture ended there.
#[test]
fn connections_in_use_are_bounded_too() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, "/a.B/C")].concat();
    let count = limits::OPEN_CONNECTIONS as u32 + 4_000;
    for host in 0..count {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        flood.send(CLIENT, &opening);
    }
    let outcome = flood.finish();
    measured.assert_below(limits::OPEN_CONNECTIONS * 24 * KB);
    assert_eq!(outcome.cx.rpcs.len(), count as usize);
    assert!(outcome.cx.rpcs.duration_ns.iter().all(|&ns| ns >= 0));
    assert_eq!(outcome.told("too many open connections: those idle longest are not followed further"), 4_000);
}

/// Connections that take turns are read one after the other. Those of them that are over make room for others.
#[test]
fn connections_that_take_turns_and_end_put_no_other_connection_away() {
    const TOGETHER: u32 = 400;
    let measured = Measured::begin();
    let mut flood = Flood::with(Options::default());
    flood.begin();
    flood.send(CLIENT, &request(1, "/lab.v1.Lab/Echo"));
    let (next, host) = (flood.next, flood.host);
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, "/a.B/C")].concat();
    for generation in 0..limits::OPEN_CONNECTIONS as u32 / TOGETHER + 3 {
        // the first four come together, with the first payload; only the others take turns
        let steps: [fn(&mut Flood, &[u8]); 8] = [
            |flood, _| flood.segment(CLIENT, SYN, 1_000, &[]),
            |flood, _| flood.segment(SERVER, SYN | ACK, 5_000, &[]),
            |flood, _| flood.segment(CLIENT, ACK, 1_001, &[]),
            |flood, opening| flood.segment(CLIENT, ACK, 1_001, opening),
            |flood, _| flood.segment(SERVER, ACK, 5_001, &[]),
            |flood, _| flood.segment(SERVER, ACK, 5_001, &frame(SETTINGS, 0, 0, &[])),
            |flood, _| flood.segment(CLIENT, ACK, 1_001, &[]),
            |flood, _| flood.segment(SERVER, RST, 5_001, &[]),
        ];
        for step in steps {
            for other in 0..TOGETHER {
                flood.host = 0x0a00_0000 + generation * TOGETHER + other;
                flood.next = [1_001, 5_001];
                step(&mut flood, &opening);
            }
        }
    }
    (flood.next, flood.host) = (next, host);
    let status = field("grpc-status", "0");
    flood.send(SERVER, &frame(HEADERS, END_HEADERS | 1, 1, &status));
    measured.assert_below(limits::OPEN_CONNECTIONS * 2 * KB);
    let outcome = flood.finish();
    assert_eq!(outcome.finished.connections.rpcs[0], 1);
    assert_eq!((outcome.cx.rpcs.connection[0], outcome.cx.rpcs.status[0]), (0, 0));
    assert!(outcome.cx.problems.kinds.is_empty(), "{:?}", outcome.cx.problems.kinds);
}

/// Open connections that are silent are packed, whatever they have begun.
#[test]
fn silent_connections_are_small() {
    const COUNT: u32 = 20_000;
    let measured = Measured::begin();
    let packing = Packing { awake: 0, silence: 0 };
    let mut flood = Flood::with(Options { packing, ..Options::default() });
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, "/a.B/C")].concat();
    for host in 0..COUNT {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        flood.send(CLIENT, &opening);
    }
    measured.assert_below(COUNT as usize * 2 * KB);
    assert_eq!(flood.finish().finished.connections.len(), COUNT as usize);
}

/// One connection that goes on is enough for that.
#[test]
fn silent_connections_are_packed_though_no_other_one_begins() {
    const COUNT: u32 = 1_000;
    let mut measured = Measured::begin();
    let packing = Packing { awake: 0, silence: 8 * COUNT };
    let mut flood = Flood::with(Options { packing, ..Options::default() });
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, "/a.B/C")].concat();
    for host in 0..COUNT {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        flood.send(CLIENT, &opening);
    }
    measured.again();
    for _ in 0..200 * COUNT {
        flood.segment(CLIENT, ACK, flood.next[CLIENT], &[]);
    }
    measured.assert_freed(COUNT as usize * 4 * KB);
}

/// Each a ClientHello that never ends, of the longest that is kept.
#[test]
fn tls_handshakes_that_never_end() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    let hello = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &vec![0; 8_000]].concat();
    for host in 0..20_000 {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        flood.send(CLIENT, &hello);
    }
    let outcome = flood.finish();
    // what was sent, and the connections
    measured.assert_below(20_000 * (17 + 2 * 8) * KB);
    assert_eq!(outcome.finished.connections.len(), 20_000);
}
