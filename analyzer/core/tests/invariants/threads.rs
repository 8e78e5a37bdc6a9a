//! Two threads find what one finds, also where every connection is packed after each of its segments.

use grpcdiag_core::store::context::Context;

use grpcdiag_core::store::options::{Options, Packing};
use grpcdiag_core::store::row_selection::{Range, RowSelection};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::support::conversation::{Call, Sent, Wire, record, turns};
use crate::support::{Recorded, analyse, captures, difference_of_lines, everything, name, packets_of};

/// Everything that one thread finds.
fn found_by_one(packets: &[Recorded]) -> Vec<String> {
    everything(analyse(packets, Options { threads: 1, ..Options::default() }))
}

/// What two threads find otherwise than `one`.
fn differs_from(packets: &[Recorded], one: &[String]) -> Option<String> {
    let run = |packing| everything(analyse(packets, Options { threads: 2, packing, ..Options::default() }));
    let packed = difference_of_lines(&run(Packing { awake: 0, silence: 0 }), one);
    difference_of_lines(&run(Packing::default()), one).or(packed.map(|difference| format!("packed: {difference}")))
}

/// What two threads find otherwise than one.
fn differs(packets: &[Recorded]) -> Option<String> {
    differs_from(packets, &found_by_one(packets))
}

#[test]
fn captures_read_the_same() {
    for path in captures() {
        assert_eq!(differs(&packets_of(&path)), None, "{}", name(&path));
    }
}

fn call(requests: Vec<usize>) -> Call {
    Call { method: 0, status: 0, requests, responses: vec![10], frame: 1_000, padding: None }
}

/// A connection with some calls, all of its packets.
fn connection(port: u16, isn: u32, calls: &[Call]) -> Wire {
    let mut wire = Wire::opened_on(port, [isn, isn + 7]);
    for (side, bytes) in turns(calls, 1) {
        wire.data(side, &bytes, &mut std::iter::repeat(1_448));
    }
    wire
}

/// A connection that takes the place of another ends that one alone, on whatever thread the two are.
#[test]
fn a_port_used_again_ends_no_other_connection() {
    let long = connection(1, 1_000, &vec![call(vec![10]); 30]).sent;
    let mut sent: Vec<Sent> = long[..10].to_vec();
    for (number, rest) in (1..).zip(long[10..].chunks(3)) {
        let reused = connection(2, number * 100_000, &[call(vec![10])]);
        sent.extend(reused.sent);
        sent.extend_from_slice(rest);
    }
    let packets = record(&sent);
    let one = analyse(&packets, Options::default());
    assert_eq!(one.rpcs().iter().filter(|rpc| rpc.connection == 0 && rpc.is_complete() && rpc.status == 0).count(), 30);
    assert_eq!(differs(&packets), None);
}

/// Packets long after a connection's end are late, whoever else has sent packets meanwhile.
#[test]
fn late_packets_are_late_on_every_thread() {
    let mut over = connection(1, 1_000, &vec![call(vec![10]); 10]);
    over.reset();
    let end = over.sent.len();
    over.acknowledge();
    let meanwhile = connection(2, 1_000, &vec![call(vec![10]); 200]).sent;
    assert!(meanwhile.len() > 300);
    let packets = record(&[&over.sent[..end], &meanwhile, &over.sent[end..]].concat());
    let one = analyse(&packets, Options::default());
    assert_eq!(one.finished.connections.late_packets, [1, 0]);
    assert_eq!(differs(&packets), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Connections of few ports, used again and again, in any interleaving.
    #[test]
    fn interleaved_connections_read_the_same(
        connections in prop::collection::vec((0..4_usize, prop::collection::vec(0..9_000_usize, 0..4)), 1..12),
        order in prop::collection::vec(0..4_usize, 1..200),
    ) {
        let mut queues: [VecDeque<Sent>; 4] = Default::default();
        for (number, (port, requests)) in (1..).zip(connections) {
            let wire = connection(port as u16 + 1, number * 1_000_000, &[call(requests), call(vec![1])]);
            queues[port].extend(wire.sent);
        }
        let mut sent: Vec<Sent> = order.iter().filter_map(|&port| queues[port].pop_front()).collect();
        sent.extend(queues.into_iter().flatten());
        prop_assert_eq!(differs(&record(&sent)), None);
    }
}

/// Thousands of segments of many connections that take turns are read connection by connection, which nothing shows:
/// not ports used again, packets after the end, nor where batches end.
#[test]
fn many_connections_that_take_turns_read_as_each_for_itself() {
    const CONNECTIONS: u16 = 400;
    const ROUNDS: u32 = 3;
    let mut queues: Vec<VecDeque<Sent>> = Vec::new();
    for port in 1..=CONNECTIONS {
        let mut sent = VecDeque::new();
        for round in 0..ROUNDS {
            let mut wire = connection(port, 1 + round * 1_000_000, &vec![call(vec![10 + usize::from(port)]); 30]);
            if port % 7 == 0 {
                wire.reset();
                wire.acknowledge();
            }
            sent.extend(wire.sent);
        }
        queues.push(sent);
    }
    let mut sent: Vec<Sent> = Vec::new();
    while queues.iter().any(|queue| !queue.is_empty()) {
        sent.extend(queues.iter_mut().filter_map(VecDeque::pop_front));
    }
    let packets = record(&sent);
    assert!(packets.len() > 70_000, "{} packets are too few", packets.len());
    // with a table of rows every segment is read when it comes
    let mut in_order = analyse(&packets, Options { messages: true, ..Options::default() });
    assert!(in_order.cx.messages.len() > 40_000);
    in_order.cx.messages = grpcdiag_core::store::tables::Messages::default();
    let one = found_by_one(&packets);
    assert_eq!(difference_of_lines(&one, &everything(in_order)), None);
    assert_eq!(differs_from(&packets, &one), None);
}

/// Rows of packets, and of frames by connection.
fn rows_of(cx: &Context, holds: impl Fn(u32, [u32; 2], [i64; 2]) -> bool) -> (Vec<String>, Vec<(u32, String)>) {
    let packets = (0..cx.packets.len()).filter_map(|row| cx.packets.get(row));
    let packets = packets.filter(|row| holds(row.connection, [row.packet; 2], [row.time_ns; 2]));
    let frames = (0..cx.frames.len()).filter_map(|row| cx.frames.get(row)).filter(|row| {
        holds(row.connection, [row.first_packet, row.last_packet], [row.first_time_ns, row.last_time_ns])
    });
    let mut frames: Vec<_> = frames.map(|row| (row.connection, format!("{row:?}"))).collect();
    frames.sort_by_key(|&(connection, _)| connection);
    (packets.map(|row| format!("{row:?}")).collect(), frames)
}

/// Rows of packets and frames that are wanted are the same among all rows, and on every thread.
#[test]
fn wanted_rows_are_those_among_all() {
    for path in captures() {
        let packets = packets_of(&path);
        let options = Options { frames: true, packets: true, ..Options::default() };
        let all = analyse(&packets, options.clone());
        let mut selection = RowSelection::new(false, usize::MAX);
        let last = packets.len() as u32;
        for (connection, range) in
            [(0, [2, last / 3]), (0, [last / 2, last]), (1, [0, last]), (3, [last / 4, last / 2])]
        {
            selection.add(connection, Range { packets: range, times: [i64::MIN, i64::MAX], stream: None });
        }
        let wanted = rows_of(&all.cx, |connection, packets, times| selection.holds(connection, packets, times, None));
        for threads in [1, 2] {
            let selection = Some(Arc::new(selection.clone()));
            let some = analyse(&packets, Options { threads, selection, ..options.clone() });
            assert_eq!(rows_of(&some.cx, |_, _, _| true), wanted, "{} with {threads} threads", name(&path));
        }
    }
}
