//! Round trips as the capture point sees them.

use super::*;

/// SYN to SYN-ACK is the server's half of the path, SYN-ACK to ACK the client's.
#[test]
fn the_handshake_gives_both_halves() {
    let seen = Capture::opened().finish();
    let table = &seen.connections;
    assert_eq!((table.near_server_rtt_ns[0], table.near_client_rtt_ns[0]), (3 * MS, MS));
    assert_eq!((table.handshake_rtt_ns[0], table.min_rtt_ns[0]), (4 * MS, 4 * MS));
}

#[test]
fn without_a_handshake_nothing_is_known() {
    let mut capture = Capture::new();
    capture.add(segment(ACK, 1_000, 2_000, &[]));
    let seen = capture.finish();
    assert_eq!((seen.connections.handshake_rtt_ns[0], seen.connections.min_rtt_ns[0]), (-1, -1));
}

#[test]
fn a_repeated_syn_is_timed_from_the_last() {
    let mut capture = Capture::new();
    capture.at(0, segment(SYN, CLIENT_ISN, 0, &[]));
    capture.at(1_000 * MS, segment(SYN, CLIENT_ISN, 0, &[]));
    capture.at(1_020 * MS, reply(SYN_ACK, SERVER_ISN, from_client(0), &[]));
    capture.at(1_021 * MS, segment(ACK, from_client(0), from_server(0), &[]));
    assert_eq!(capture.finish().connections.handshake_rtt_ns, [21 * MS]);
}

#[test]
fn data_and_its_ack_give_the_smallest_round_trip() {
    let mut capture = Capture::opened();
    let bytes = call("/a/B", 100);
    let end = u32::try_from(bytes.len()).unwrap();
    capture.at(100 * MS, segment(ACK, from_client(0), from_server(0), &bytes));
    capture.at(102 * MS, reply(ACK, from_server(0), from_client(end), &[]));
    capture.at(200 * MS, segment(ACK, from_client(end), from_server(0), &frame(6, 0, 0, &[1; 8])));
    capture.at(250 * MS, reply(ACK, from_server(0), from_client(end + 17), &[]));
    let seen = capture.finish();
    assert_eq!((seen.connections.near_server_rtt_ns[0], seen.connections.near_client_rtt_ns[0]), (2 * MS, MS));
    assert_eq!((seen.connections.min_rtt_ns[0], seen.connections.handshake_rtt_ns[0]), (3 * MS, 4 * MS));
}

/// Karn's algorithm (RFC 6298 section 3): the ACK may be for either transmission.
#[test]
fn a_retransmission_gives_no_sample() {
    let mut capture = Capture::opened();
    let bytes = call("/a/B", 100);
    let end = u32::try_from(bytes.len()).unwrap();
    capture.at(100 * MS, segment(ACK, from_client(0), from_server(0), &bytes));
    capture.at(300 * MS, segment(ACK, from_client(0), from_server(0), &bytes));
    capture.at(300 * MS + 10, reply(ACK, from_server(0), from_client(end), &[]));
    assert_eq!(capture.finish().connections.near_server_rtt_ns, [3 * MS]);
}

/// A clock that steps back between data and its ACK shows no time travel.
#[test]
fn a_negative_round_trip_is_left_out() {
    let mut capture = Capture::opened();
    let bytes = call("/a/B", 100);
    capture.at(100 * MS, segment(ACK, from_client(0), from_server(0), &bytes));
    capture.at(90 * MS, reply(ACK, from_server(0), from_client(u32::try_from(bytes.len()).unwrap()), &[]));
    assert_eq!(capture.finish().connections.near_server_rtt_ns, [3 * MS]);
}

/// The same within the handshake: a half of which nothing is known must not become a round trip of nothing.
#[test]
fn a_handshake_over_a_step_of_the_clock_gives_no_sample() {
    let mut capture = Capture::new();
    capture.at(100 * MS, segment(SYN, CLIENT_ISN, 0, &[]));
    capture.at(50 * MS, reply(SYN_ACK, SERVER_ISN, from_client(0), &[]));
    capture.at(51 * MS, segment(ACK, from_client(0), from_server(0), &[]));
    let table = capture.finish().connections;
    assert_eq!((table.near_server_rtt_ns[0], table.near_client_rtt_ns[0], table.vantage[0]), (-1, MS, 0));
}

#[test]
fn the_vantage_is_the_near_end() {
    for (syn_ack, ack, vantage) in [(20, 21, 1), (1, 21, 2), (20, 40, 3)] {
        let mut capture = Capture::new();
        capture.at(0, segment(SYN, CLIENT_ISN, 0, &[]));
        capture.at(syn_ack * MS, reply(SYN_ACK, SERVER_ISN, from_client(0), &[]));
        capture.at(ack * MS, segment(ACK, from_client(0), from_server(0), &[]));
        assert_eq!(capture.finish().connections.vantage, [vantage], "SYN-ACK at {syn_ack} ms, ACK at {ack} ms");
    }
}

/// A cooked capture says which packets its host sent.
#[test]
fn packet_directions_tell_the_vantage() {
    let mut capture = Capture::new();
    let outgoing = |packet: Segment<'static>| Segment { packet_direction: PacketDirection::Outgoing, ..packet };
    let incoming = |packet: Segment<'static>| Segment { packet_direction: PacketDirection::Incoming, ..packet };
    capture.add(incoming(segment(SYN, CLIENT_ISN, 0, &[])));
    capture.add(outgoing(reply(SYN_ACK, SERVER_ISN, from_client(0), &[])));
    assert_eq!(capture.finish().connections.vantage, [2]);
}
