//! Receive windows and segment sizes.

use crate::store::budget::Cause;

use super::*;

/// A handshake in which client and server announce these window scales.
fn scaled(client: Option<u8>, server: Option<u8>) -> Capture {
    let mut capture = Capture::new();
    capture.add(Segment { window_scale: client, ..segment(SYN, CLIENT_ISN, 0, &[]) });
    capture.add(Segment { window_scale: server, ..reply(SYN_ACK, SERVER_ISN, from_client(0), &[]) });
    capture.add(segment(ACK, from_client(0), from_server(0), &[]));
    capture.server_acks(0);
    capture
}

/// RFC 7323 section 2.2: scales hold when both sides have announced one, and never within a SYN.
#[test]
fn windows_are_scaled_when_both_sides_agree() {
    for (client, server, expected) in [
        (Some(7), Some(2), [500, 500, 500 << 7, 500 << 2]),
        (Some(0), Some(14), [500, 500, 500, 500 << 14]),
        (Some(7), None, [500; 4]),
        (None, None, [500; 4]),
        // section 2.3: above 14 counts as 14
        (Some(255), Some(15), [500, 500, 500 << 14, 500 << 14]),
    ] {
        let seen = scaled(client, server).finish();
        assert_eq!(seen.cx.packets.window, expected, "{client:?} {server:?}");
    }
}

/// A wait's windows are known only when the scale is.
#[test]
fn a_late_begin_leaves_the_scale_unknown() {
    let mut capture = Capture::new();
    capture.add(segment(ACK, 1_000, 2_000, &[]));
    let seen = capture.finish();
    assert_eq!((seen.cx.packets.window[0], seen.connections.complete[0]), (500, 0), "the field as sent");
}

/// MSS options of both sides bound a segment; timestamps take twelve octets of each (RFC 7323 section 3.2).
#[test]
fn segment_sizes_follow_the_options() {
    for (client, server, timestamps, expected) in [
        (Some(1_460), Some(1_460), false, [1_460, 1_460]),
        (Some(1_460), Some(1_460), true, [1_448, 1_448]),
        (Some(1_460), Some(1_300), true, [1_288, 1_288]),
        (Some(65_495), Some(65_495), true, [65_483, 65_483]),
    ] {
        let stamp = timestamps.then_some((1, 1));
        let mut capture = Capture::new();
        capture.add(Segment { mss: client, timestamps: stamp, ..segment(SYN, CLIENT_ISN, 0, &[]) });
        capture.add(Segment { mss: server, timestamps: stamp, ..reply(SYN_ACK, SERVER_ISN, from_client(0), &[]) });
        capture.add(Segment { timestamps: stamp, ..segment(ACK, from_client(0), from_server(0), &[]) });
        let table = capture.finish().connections;
        assert_eq!([table.mss_client[0], table.mss_server[0]], expected, "{client:?} {server:?} {timestamps}");
    }
}

/// Without a handshake the longest payload tells, but offload's are longer than any segment.
#[test]
fn segment_sizes_without_options_are_observed() {
    for (length, expected) in [(600, 600), (1_448, 1_448), (64_000, 1_448)] {
        let mut capture = Capture::new();
        capture.add(Segment { source_port: 60_000, ..segment(ACK, 1_000, 2_000, &vec![0xee; length]) });
        let table = capture.finish().connections;
        assert_eq!((table.mss_client[0], table.mss_server[0]), (expected, 0));
    }
}

/// The client sends as much of a message as the server's window of 64,000 bytes takes and waits a round trip. With
/// `acked`, its first bytes were sent and acknowledged before.
fn stopped_by_the_receive_window(acked: bool) -> Seen {
    let bytes = call("/a/B", 80_000);
    let mut capture = Capture::opened();
    let begin = if acked { preface().len() } else { 0 };
    if acked {
        capture.at(15 * MS, segment(ACK, from_client(0), from_server(0), &bytes[..begin]));
    }
    capture.at(16 * MS, reply(ACK, from_server(0), from_client(u32::try_from(begin).unwrap()), &[]));
    let stop = begin + 43 * 1_460;
    for (offset, chunk) in (begin..).step_by(1_460).zip(bytes[begin..stop].chunks(1_460)) {
        capture.at(20 * MS, segment(ACK, from_client(u32::try_from(offset).unwrap()), from_server(0), chunk));
    }
    let sent = u32::try_from(stop).unwrap();
    capture.at(123 * MS, reply(ACK, from_server(0), from_client(sent), &[]));
    capture.at(124 * MS, segment(ACK, from_client(sent), from_server(0), &bytes[stop..]));
    let seen = capture.finish();
    let waits = &seen.cx.waits;
    assert_eq!((waits.len(), waits.direction[0]), (1, 0));
    assert_eq!((waits.start_time_ns[0], waits.duration_ns[0]), (20 * MS, 104 * MS));
    assert_eq!(waits.owed_bytes[0], (bytes.len() - stop) as u64);
    assert_eq!(waits.receive_window_bytes[0], 500 << 7);
    seen
}

#[test]
fn a_full_receive_window_is_the_cause_of_a_wait() {
    let seen = stopped_by_the_receive_window(true);
    let waits = &seen.cx.waits;
    assert_eq!(waits.cause[0], Cause::ReceiveWindow as u8);
    assert_eq!(waits.in_flight_bytes[0], 43 * 1_460);
    assert_eq!((waits.stopped_at_packet[0], waits.released_by_packet[0], waits.resumed_at_packet[0]), (48, 49, 50));
}

/// The client fills the server's window of 64,000 bytes. All is acknowledged with a window of zero, with `probed` after
/// a tail probe, and one that says at `opened` that the window is open again: what the client waited for.
fn shut(probed: bool, opened: i64) -> u8 {
    let bytes = call("/a/B", 80_000);
    let (begin, stop) = (preface().len(), preface().len() + 43 * 1_460);
    let mut capture = Capture::opened();
    capture.at(15 * MS, segment(ACK, from_client(0), from_server(0), &bytes[..begin]));
    capture.at(16 * MS, reply(ACK, from_server(0), from_client(u32::try_from(begin).unwrap()), &[]));
    for (offset, chunk) in (begin..).step_by(1_460).zip(bytes[begin..stop].chunks(1_460)) {
        capture.at(20 * MS, segment(ACK, from_client(u32::try_from(offset).unwrap()), from_server(0), chunk));
    }
    let (last, sent) = (u32::try_from(stop - 1_460).unwrap(), u32::try_from(stop).unwrap());
    let acks = |window, offset| Segment { window, ..reply(ACK, from_server(0), from_client(offset), &[]) };
    if probed {
        capture.at(23 * MS, acks(11, last));
        capture.at(60 * MS, segment(ACK, from_client(last), from_server(0), &bytes[stop - 1_460..stop]));
    }
    capture.at(63 * MS, acks(0, sent));
    capture.at(opened, acks(500, sent));
    capture.at(1_501 * MS, segment(ACK, from_client(sent), from_server(0), &bytes[stop..]));
    capture.finish().cx.waits.cause[0]
}

#[test]
fn a_window_at_zero_is_no_loss() {
    assert_eq!(shut(false, 1_500 * MS), Cause::ReceiveWindow as u8);
    assert_eq!(shut(true, 1_500 * MS), Cause::ReceiveWindow as u8);
    assert_eq!(shut(true, 1_000 * MS), Cause::LossRecovery as u8, "open for half a second before the client resumes");
    assert_ne!(shut(false, 1_000 * MS), Cause::ReceiveWindow as u8, "the client was free to send");
}

/// Before the first ACK everything sent is in flight: on a connection seen from its opening that is known, too.
#[test]
fn the_first_flight_is_known() {
    let seen = stopped_by_the_receive_window(false);
    assert_eq!(seen.cx.waits.in_flight_bytes[0], 43 * 1_460);
    assert_eq!(seen.cx.waits.cause[0], Cause::ReceiveWindow as u8);
}

/// RFC 7323 section 2.2: a server that answers with a scale was offered one, so that its own windows are scaled even
/// if the SYN is not in the capture.
#[test]
fn a_capture_from_the_syn_ack_on_knows_the_servers_scale() {
    let mut capture = Capture::new();
    capture.add(Segment { window_scale: Some(7), ..reply(SYN_ACK, SERVER_ISN, from_client(0), &[]) });
    capture.add(segment(ACK, from_client(0), from_server(0), &[]));
    capture.server_acks(0);
    assert_eq!(capture.finish().cx.packets.window[2], 500 << 7);
}
