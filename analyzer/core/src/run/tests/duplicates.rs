//! One packet recorded twice, and packets that only look like it.

use super::*;

/// A client's data as the second packet of a test records it again.
fn twice(change: impl Fn(&mut Segment<'_>)) -> Seen {
    let bytes = call("/a/B", 100);
    let mut capture = Capture::opened();
    let original =
        Segment { ip_id: Some(777), timestamps: Some((1, 1)), ..segment(ACK, from_client(0), from_server(0), &bytes) };
    capture.add(original);
    let mut again = original;
    change(&mut again);
    capture.at(capture.time + 20_000, again);
    let seen = capture.finish();
    assert_eq!(seen.methods(), [Some("/a/B".to_owned())]);
    assert_eq!(seen.connections.retransmitted_bytes[0], bytes.len() as u64, "either way the bytes came twice");
    seen
}

#[test]
fn the_same_identification_is_the_same_packet() {
    let seen = twice(|_| ());
    let table = &seen.connections;
    assert_eq!((table.duplicate_packets[0], table.retransmitted_packets[0], table.packets_client[0]), (1, 0, 3));
    assert_eq!(seen.notes(), [Note::None, Note::Duplicate]);
    assert_eq!(table.bytes_client[0], call("/a/B", 100).len() as u64, "bytes on the wire count once");
}

#[test]
fn a_new_identification_is_a_retransmission() {
    let seen = twice(|again| again.ip_id = Some(778));
    let table = &seen.connections;
    assert_eq!((table.duplicate_packets[0], table.retransmitted_packets[0], table.packets_client[0]), (0, 1, 4));
    assert_eq!(seen.notes(), [Note::None, Note::Retransmission]);
}

#[test]
fn another_hop_limit_or_interface_is_the_same_packet() {
    let seen = twice(|again| {
        again.ttl = 63;
        again.cooked_interface = 5;
        again.packet_direction = PacketDirection::Outgoing;
    });
    assert_eq!((seen.connections.duplicate_packets[0], seen.connections.retransmitted_packets[0]), (1, 0));
}

#[test]
fn another_timestamp_or_ack_is_another_packet() {
    for change in [
        (|again: &mut Segment<'_>| again.timestamps = Some((2, 1))) as fn(&mut Segment<'_>),
        |again| again.ack = again.ack.wrapping_add(1),
        |again| again.window = 7,
    ] {
        let seen = twice(change);
        assert_eq!((seen.connections.duplicate_packets[0], seen.connections.retransmitted_packets[0]), (0, 1));
    }
}

/// IPv6 has no identification: only closeness in time tells.
#[test]
fn without_identification_closeness_tells() {
    for (gap, duplicates) in [(20_000, 1), (200 * MS, 0)] {
        let bytes = call("/a/B", 100);
        let mut capture = Capture::opened();
        let original = Segment {
            ip_id: Some(0),
            timestamps: Some((1, 1)),
            ..segment(ACK, from_client(0), from_server(0), &bytes)
        };
        capture.add(original);
        capture.at(capture.time + gap, original);
        let seen = capture.finish();
        assert_eq!(seen.connections.duplicate_packets[0], duplicates, "{gap} ns apart");
        assert_eq!(seen.connections.retransmitted_packets[0], 1 - duplicates, "{gap} ns apart");
    }
}

/// Repeated ACKs are how a receiver reports a hole: each is a packet of its own.
#[test]
fn repeated_acks_are_not_duplicates() {
    let mut capture = Capture::opened();
    for _ in 0..3 {
        capture.server_acks(0);
    }
    let no_identification = Segment { ip_id: Some(0), ..reply(ACK, from_server(0), from_client(0), &[]) };
    for _ in 0..3 {
        capture.at(capture.time + 1_000, no_identification);
    }
    let seen = capture.finish();
    assert_eq!((seen.connections.duplicate_packets[0], seen.connections.packets_server[0]), (0, 7));
}

/// `tcpdump -i any` records each packet on its way in and out: the second sighting changes nothing.
#[test]
fn a_capture_of_everything_twice_reads_as_once() {
    let mut capture = Capture::new();
    let (sent, answered) = (call("/a/B", 3_000), [frame(4, 0, 0, &[]), response(1, 20)].concat());
    let packets = [
        segment(SYN, CLIENT_ISN, 0, &[]),
        reply(SYN_ACK, SERVER_ISN, from_client(0), &[]),
        segment(ACK, from_client(0), from_server(0), &[]),
        segment(ACK, from_client(0), from_server(0), &sent[..1_400]),
        segment(ACK, from_client(1_400), from_server(0), &sent[1_400..]),
        reply(ACK, from_server(0), from_client(u32::try_from(sent.len()).unwrap()), &answered),
    ];
    for (number, packet) in (100..).zip(packets) {
        for interface in [2, 3] {
            let seen = Segment { ip_id: Some(number), cooked_interface: interface, ..packet };
            capture.at(i64::from(number) * MS + i64::from(interface), seen);
        }
    }
    let seen = capture.finish();
    let table = &seen.connections;
    assert_eq!((table.duplicate_packets[0], table.retransmitted_packets[0]), (6, 0));
    assert_eq!((table.packets_client[0], table.packets_server[0]), (4, 2));
    assert_eq!(table.retransmitted_bytes[0], (sent.len() + answered.len()) as u64);
    assert_eq!((seen.methods(), seen.status(0)), (vec![Some("/a/B".to_owned())], Some("OK")));
}

/// RFC 9293 section 3.8.4: a keep-alive repeats the last acknowledged byte, or none.
#[test]
fn keep_alives_are_no_retransmissions() {
    let bytes = call("/a/B", 100);
    let end = u32::try_from(bytes.len()).unwrap();
    let mut capture = Capture::opened();
    capture.client(0, &bytes);
    capture.server_acks(end);
    capture.client(end - 1, &bytes[bytes.len() - 1..]);
    capture.client(end - 1, &[]);
    capture.server_acks(end);
    let seen = capture.finish();
    let table = &seen.connections;
    assert_eq!((table.keep_alives[0], table.retransmitted_packets[0], table.retransmitted_bytes[0]), (1, 0, 1));
    assert_eq!(seen.notes(), [Note::None, Note::KeepAlive]);
}

/// A byte that is retransmitted although it was not acknowledged is a probe of a zero window or a retransmission.
#[test]
fn an_unacknowledged_byte_again_is_a_retransmission() {
    let bytes = call("/a/B", 100);
    let mut capture = Capture::opened();
    capture.client(0, &bytes);
    capture.client(u32::try_from(bytes.len()).unwrap() - 1, &bytes[bytes.len() - 1..]);
    let seen = capture.finish();
    assert_eq!((seen.connections.keep_alives[0], seen.connections.retransmitted_packets[0]), (0, 1));
}
