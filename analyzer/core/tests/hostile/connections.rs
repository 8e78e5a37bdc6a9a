//! Connections without end.

use grpcdiag_core::limits;

use crate::flood::*;
use crate::memory::*;

#[test]
fn a_million_connections_of_one_syn_each() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    const COUNT: u32 = limits::CONNECTIONS as u32 + 10;
    for host in 0..COUNT {
        flood.host = 0x0a00_0000 + host;
        flood.segment(CLIENT, SYN, 7, &[]);
    }
    let outcome = flood.finish();
    // followed ones, and rows; a capture of as many packets has 75 MB
    measured.assert_below(limits::OPEN_CONNECTIONS * 17 * KB + limits::CONNECTIONS * 2_600);
    assert_eq!(outcome.finished.connections.len(), limits::CONNECTIONS);
    assert!(outcome.told("too many connections: further ones are not followed") > 0);
    let closed = outcome.told("too many open connections: those idle longest are not followed further");
    assert_eq!(closed, (limits::CONNECTIONS - limits::OPEN_CONNECTIONS) as u64);
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
    measured.assert_below(limits::OPEN_CONNECTIONS * 20 * KB);
    assert_eq!((outcome.cx.rpcs.len(), outcome.cx.rpcs.status[0]), (1, 0));
    assert!(outcome.told("too many open connections: those idle longest are not followed further") > 0);
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
