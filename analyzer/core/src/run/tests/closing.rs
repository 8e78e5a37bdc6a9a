//! How connections end, and how their addresses are used again.

use super::*;

/// A connection with one RPC that has no answer.
fn asked() -> (Capture, u32) {
    let bytes = call("/a/B", 10);
    let mut capture = Capture::opened();
    capture.client(0, &bytes);
    (capture, u32::try_from(bytes.len()).unwrap())
}

#[test]
fn fin_of_both_sides_closes() {
    let (mut capture, end) = asked();
    let answer = [frame(4, 0, 0, &[]), response(1, 20)].concat();
    let answered = u32::try_from(answer.len()).unwrap();
    capture.server(0, &answer);
    capture.add(segment(FIN_ACK, from_client(end), from_server(answered), &[]));
    let closed = capture.time;
    capture.add(reply(FIN_ACK, from_server(answered), from_client(end + 1), &[]));
    capture.add(segment(ACK, from_client(end + 1), from_server(answered + 1), &[]));
    let seen = capture.finish();
    let table = &seen.connections;
    assert_eq!((table.closed_time_ns[0], table.closed_by[0], table.late_packets[0]), (closed, 0, 0));
    assert_eq!((seen.status(0), seen.connections.missing_bytes[0]), (Some("OK"), 0));
}

#[test]
fn a_server_that_closes_makes_open_rpcs_unavailable() {
    for flags in [FIN_ACK, RST] {
        let (mut capture, end) = asked();
        capture.add(reply(flags, from_server(0), from_client(end), &[]));
        let closed = capture.time;
        let seen = capture.finish();
        assert_eq!((seen.connections.closed_by[0], seen.connections.closed_time_ns[0]), (1, closed), "{flags:?}");
        assert_eq!((seen.status(0), seen.cx.rpcs.flags[0] & 1), (Some("UNAVAILABLE"), 1), "{flags:?}");
        assert_eq!(seen.cx.rpcs.duration_ns[0], MS, "{flags:?}: from the request to the end");
    }
}

#[test]
fn a_client_that_resets_leaves_no_status() {
    let (mut capture, end) = asked();
    capture.add(segment(RST, from_client(end), 0, &[]));
    let seen = capture.finish();
    assert_eq!((seen.connections.closed_by[0], seen.status(0), seen.cx.rpcs.flags[0] & 1), (0, None, 1));
}

#[test]
fn a_capture_that_ends_first_leaves_rpcs_incomplete() {
    let (mut capture, _) = asked();
    capture.at(capture.time + 50 * MS, reply(ACK, from_server(0), from_client(0), &[]));
    let seen = capture.finish();
    assert_eq!((seen.connections.closed_time_ns[0], seen.connections.closed_by[0]), (-1, 2));
    assert_eq!((seen.status(0), seen.cx.rpcs.flags[0] & 1, seen.cx.rpcs.duration_ns[0]), (None, 0, 50 * MS));
}

/// A capture point may record the server's FIN behind the client's, which acknowledges it.
#[test]
fn the_fin_that_was_acknowledged_came_first() {
    let (mut capture, end) = asked();
    capture.add(segment(FIN_ACK, from_client(end), from_server(1), &[]));
    capture.add(reply(FIN_ACK, from_server(0), from_client(end), &[]));
    assert_eq!(capture.finish().connections.closed_by[0], 1);
}

/// The client has sent all it will (FIN) and still reads: the answer counts.
#[test]
fn a_half_closed_connection_is_read_on() {
    let (mut capture, end) = asked();
    capture.add(segment(FIN_ACK, from_client(end), from_server(0), &[]));
    capture.server(0, &[frame(4, 0, 0, &[]), response(1, 20)].concat());
    let seen = capture.finish();
    assert_eq!((seen.status(0), seen.cx.rpc_sizes.response_bytes[0]), (Some("OK"), 20));
}

/// A prefix of the capture above: the answer may still come, so that the RPC is not complete.
#[test]
fn a_capture_that_ends_half_closed_leaves_rpcs_incomplete() {
    let (mut capture, end) = asked();
    capture.add(segment(FIN_ACK, from_client(end), from_server(0), &[]));
    let seen = capture.finish();
    assert_eq!((seen.status(0), seen.cx.rpcs.flags[0] & 1), (None, 0));
}

/// A FIN that waits behind a hole does not make the hole's bytes missing at once.
#[test]
fn data_behind_a_fin_out_of_order_is_read() {
    let bytes = call("/a/B", 3_000);
    let mut capture = Capture::opened();
    capture.client(0, &bytes[..1_000]);
    capture.add(segment(FIN_ACK, from_client(2_000), from_server(0), &bytes[2_000..]));
    capture.client(1_000, &bytes[1_000..2_000]);
    let seen = capture.finish();
    assert_eq!((seen.connections.missing_bytes[0], seen.cx.rpc_sizes.request_bytes[0]), (0, 3_000));
}

#[test]
fn a_new_syn_opens_another_connection() {
    let (mut capture, end) = asked();
    capture.add(reply(RST, from_server(0), from_client(end), &[]));
    capture.add(segment(SYN, CLIENT_ISN + 100_000, 0, &[]));
    capture.add(reply(SYN_ACK, 77, CLIENT_ISN + 100_001, &[]));
    capture.add(segment(ACK, CLIENT_ISN + 100_001, 78, &call("/a/C", 5)));
    capture.add(reply(ACK, 78, 0, &[frame(4, 0, 0, &[]), response(1, 6)].concat()));
    let seen = capture.finish();
    assert_eq!(seen.connections.len(), 2);
    assert_eq!(seen.cx.rpcs.connection, [0, 1]);
    assert_eq!(seen.methods(), [Some("/a/B".to_owned()), Some("/a/C".to_owned())]);
    assert_eq!((seen.status(0), seen.status(1)), (Some("UNAVAILABLE"), Some("OK")));
    assert_eq!(seen.connections.client_port, [40_000, 40_000]);
}

/// The first connection was never seen to end: its RPC ends where its last packet was.
#[test]
fn a_connection_replaced_while_open_ends_there() {
    let (mut capture, _) = asked();
    let last = capture.time;
    capture.at(last + 1_000 * MS, segment(SYN, 1, 0, &[]));
    let seen = capture.finish();
    assert_eq!((seen.connections.len(), seen.connections.last_time_ns[0]), (2, last));
    assert_eq!((seen.cx.rpcs.duration_ns[0], seen.status(0)), (0, None));
}

#[test]
fn a_repeated_syn_is_the_same_connection() {
    let mut capture = Capture::new();
    for _ in 0..3 {
        capture.add(segment(SYN, CLIENT_ISN, 0, &[]));
    }
    for _ in 0..2 {
        capture.add(reply(SYN_ACK, SERVER_ISN, from_client(0), &[]));
    }
    capture.client(0, &call("/a/B", 5));
    let seen = capture.finish();
    assert_eq!((seen.connections.len(), seen.connections.packets_client[0]), (1, 4));
    assert_eq!(seen.methods(), [Some("/a/B".to_owned())]);
}

/// The opening is not in the capture; a SYN on the same ports is another connection.
#[test]
fn a_syn_after_a_late_begin_opens_another_connection() {
    let mut capture = Capture::new();
    capture.add(segment(ACK, 1_000, 2_000, &[]));
    capture.add(segment(SYN, CLIENT_ISN, 0, &[]));
    capture.add(reply(SYN_ACK, SERVER_ISN, from_client(0), &[]));
    capture.client(0, &call("/a/B", 5));
    let seen = capture.finish();
    assert_eq!((seen.connections.len(), seen.connections.complete.clone()), (2, vec![0, 1]));
    assert_eq!(seen.cx.rpcs.connection, [1]);
}

#[test]
fn a_capture_from_the_syn_ack_on_knows_the_roles() {
    let mut capture = Capture::new();
    capture.add(reply(SYN_ACK, SERVER_ISN, from_client(0), &[]));
    capture.client(0, &call("/a/B", 5));
    let seen = capture.finish();
    assert_eq!((seen.connections.client_port[0], seen.connections.roles_from[0]), (40_000, 0));
    assert_eq!(seen.methods(), [Some("/a/B".to_owned())]);
}

/// Other connections show who listens; without any, the lower port does.
#[test]
fn roles_without_an_opening_come_from_other_connections() {
    let listening = (SERVER.0, 60_000);
    for (known, client_port) in [(true, 40_000), (false, 60_000)] {
        let mut capture = Capture::new();
        if known {
            capture.add(Segment { source_port: 1, destination_port: listening.1, ..segment(SYN, 1, 0, &[]) });
        }
        capture.add(Segment { destination_port: listening.1, ..segment(ACK, 1_000, 2_000, &[]) });
        let seen = capture.finish();
        assert_eq!(seen.connections.client_port.last(), Some(&client_port), "known: {known}");
    }
}

#[test]
fn packets_after_the_end_are_counted_late() {
    let (mut capture, end) = asked();
    capture.add(reply(RST, from_server(0), from_client(end), &[]));
    let other = |source_port| Segment { source_port, ..segment(ACK, 1, 1, &[]) };
    for _ in 0..300 {
        capture.add(other(1_234));
    }
    capture.client(end, &[]);
    // the packet above put the connection away; these find it so
    capture.client(end, &[]);
    capture.client(end, &[]);
    let seen = capture.finish();
    assert!(seen.connections.late_packets[0] >= 2, "{:?}", seen.connections.late_packets);
    assert_eq!(seen.cx.rpcs.len(), 1);
}

#[test]
fn what_came_before_a_fin_is_not_the_fins_own() {
    let (mut capture, end) = asked();
    capture.add(Segment { ip_id: Some(7), ttl: 60, ..reply(ACK, from_server(0), from_client(end), &[]) });
    capture.add(Segment { ip_id: Some(9), ttl: 255, ..reply(FIN_ACK, from_server(0), from_client(end), &[]) });
    let closings = capture.finish().cx.closings;
    assert_eq!((closings.reset[0], closings.open_rpcs[0], closings.ttl[0]), (0, 1, 255));
    assert_eq!((closings.least_ttl[0], closings.most_ttl[0]), (60, 64));
    assert_eq!((closings.identification[0], closings.identification_before[0]), (9, 7));
}

#[test]
fn an_end_lacks_the_bytes_that_it_crossed() {
    for (flags, ack, lacks) in
        [(FIN_ACK, 0, 1), (FIN_ACK, 1, 1), (FIN_ACK, u32::MAX, 0), (TcpFlags(RST.0 | ACK.0), 0, 1), (RST, 0, 0)]
    {
        let (mut capture, end) = asked();
        capture.add(reply(flags, from_server(0), from_client(ack.min(end)), &[]));
        assert_eq!(capture.finish().cx.closings.lacks[0], lacks, "{flags:?} {ack}");
    }
}
