//! Bytes that the capture lacks.

use super::*;
use crate::store::budget::Cause;

const PATIENCE: u32 = limits::MISSING_AFTER_PACKETS;

/// The client's bytes with `hole` left out, all of them acknowledged, then `packets` more ACKs.
fn with_hole(bytes: &[u8], hole: std::ops::Range<usize>, packets: u32) -> Capture {
    let mut capture = Capture::opened();
    capture.client(0, &bytes[..hole.start]);
    capture.client(u32::try_from(hole.end).unwrap(), &bytes[hole.end..]);
    for _ in 0..packets {
        capture.server_acks(u32::try_from(bytes.len()).unwrap());
    }
    capture
}

#[test]
fn an_acknowledged_hole_is_given_up_after_some_patience() {
    let bytes = call("/a/B", 3_000);
    for (packets, given_up) in [(PATIENCE, false), (PATIENCE + 1, true)] {
        let mut capture = with_hole(&bytes, 500..1_500, packets);
        let messages = capture.cx().messages.len();
        assert_eq!(messages == 1, given_up, "after {packets} packets");
        let seen = capture.finish();
        assert_eq!(seen.connections.missing_bytes[0], 1_000, "at the capture's end it is missing in any case");
        assert_eq!(
            (seen.cx.rpc_sizes.request_messages[0], seen.cx.rpc_sizes.request_bytes[0]),
            (1, 3_000),
            "the prefix tells"
        );
        assert_eq!(seen.problems(), ["bytes are missing from the capture"]);
    }
}

/// Capture points with several queues record an ACK before its data.
#[test]
fn data_that_comes_after_its_ack_is_not_missing() {
    let bytes = call("/a/B", 3_000);
    let mut capture = with_hole(&bytes, 500..1_500, PATIENCE);
    capture.client(500, &bytes[500..1_500]);
    let seen = capture.finish();
    assert_eq!((seen.connections.missing_bytes[0], seen.connections.undecoded_bytes[0]), (0, 0));
    assert_eq!(seen.cx.rpc_sizes.request_bytes, [3_000]);
    assert_eq!(seen.problems(), [""; 0]);
}

#[test]
fn a_hole_that_nobody_acknowledged_is_waited_for() {
    let bytes = call("/a/B", 3_000);
    let mut capture = Capture::opened();
    capture.client(0, &bytes[..500]);
    capture.client(1_500, &bytes[1_500..]);
    for _ in 0..PATIENCE * 10 {
        capture.server_acks(500);
    }
    assert_eq!(capture.cx().messages.len(), 0);
    capture.client(500, &bytes[500..1_500]);
    let seen = capture.finish();
    assert_eq!((seen.connections.missing_bytes[0], seen.cx.rpc_sizes.request_bytes[0]), (0, 3_000));
}

#[test]
fn two_holes_are_two_problems() {
    let bytes = call("/a/B", 5_000);
    let mut capture = Capture::opened();
    for (start, end) in [(0, 500), (1_000, 2_000), (2_500, bytes.len())] {
        capture.client(u32::try_from(start).unwrap(), &bytes[start..end]);
    }
    for _ in 0..=2 * (PATIENCE + 1) {
        capture.server_acks(u32::try_from(bytes.len()).unwrap());
    }
    assert_eq!(capture.cx().messages.len(), 1, "given up one after the other");
    let seen = capture.finish();
    assert_eq!(seen.connections.missing_bytes, [1_000]);
    assert_eq!(seen.cx.problems.counts, [2]);
}

/// The hole hides the frame boundaries behind it; the next call is found again.
#[test]
fn frames_behind_a_hole_are_found_again() {
    let first = call("/a/B", 3_000);
    let second = [frame(6, 0, 0, &[7; 8]), frame(6, 0, 0, &[8; 8]), request(3, "/a/C", 40)].concat();
    let bytes = [first.clone(), second].concat();
    // the request's headers and the message's beginning are gone
    let capture = with_hole(&bytes, 40..first.len() - 100, PATIENCE + 1);
    let seen = capture.finish();
    assert_eq!(seen.methods(), [Some("/a/C".to_owned())]);
    assert_eq!(seen.connections.missing_bytes, [(first.len() - 140) as u64]);
    assert_eq!(seen.connections.undecoded_bytes, [100]);
}

/// An RPC whose end may be among missing bytes does not wait for what holds up a later one.
#[test]
fn what_may_be_over_is_charged_no_waits() {
    let requests = [call("/a/B", 100), request(3, "/a/C", 100)].concat();
    let asked = u32::try_from(requests.len()).unwrap();
    let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
    let whole = message(3_000);
    let begun = [frame(4, 0, 0, &[]), frame(1, 4, 1, &head), frame(0, 0, 1, &whole[..1_000])].concat();
    let end = [frame(0, 0, 1, &whole[1_000..]), frame(1, 5, 1, &block(&[("grpc-status", "0")]))].concat();
    let pings = [frame(6, 0, 0, &[7; 8]), frame(6, 0, 0, &[8; 8])].concat();
    let hole = begun.len()..begun.len() + end.len() - 5;
    let bytes = [begun, end, pings, response(3, 2_000)].concat();
    let stop = bytes.len() - 700;
    let [after, stopped] = [hole.end, stop].map(|offset| u32::try_from(offset).unwrap());
    let mut capture = Capture::opened();
    capture.client(0, &requests);
    let answer = |offset, payload| reply(ACK, from_server(offset), from_client(asked), payload);
    capture.add(answer(0, &bytes[..hole.start]));
    capture.add(answer(after, &bytes[hole.end..stop]));
    for _ in 0..=PATIENCE {
        capture.add(segment(ACK, from_client(asked), from_server(stopped), &[]));
    }
    let resumed = capture.time + 500 * MS;
    capture.at(resumed, answer(stopped, &bytes[stop..]));
    let seen = capture.finish();
    let [over, waits] = [0, 1].map(|rpc: usize| seen.cx.rpc_budgets[rpc].total() / MS as u64);
    assert!(over < 10 && waits >= 500, "{over} and {waits} ms");
}

#[test]
fn payload_cut_by_the_snapshot_length_is_missing() {
    let bytes = call("/a/B", 3_000);
    let mut capture = Capture::opened();
    for (offset, chunk) in (0..).step_by(1_000).zip(bytes.chunks(1_000)) {
        let length = u32::try_from(chunk.len()).unwrap();
        let cut = Segment { payload: &chunk[..chunk.len().min(300)], payload_len: length, ..segment(ACK, 0, 0, &[]) };
        capture.add(Segment { seq: from_client(offset), ack: from_server(0), ..cut });
    }
    let seen = capture.finish();
    assert_eq!(seen.connections.missing_bytes, [bytes.len() as u64 - 3 * 300 - bytes[3_000..].len().min(300) as u64]);
    assert_eq!((seen.cx.rpc_sizes.request_messages[0], seen.cx.rpc_sizes.request_bytes[0]), (1, 3_000));
    assert_eq!(
        (seen.cx.messages.first_packet[0], seen.cx.messages.last_packet[0]),
        (4, 7),
        "the packets were all there"
    );
}

#[test]
fn segments_out_of_order_are_bounded_in_number() {
    let mut capture = Capture::opened();
    let count = u32::try_from(limits::OUT_OF_ORDER_SEGMENTS).unwrap();
    capture.client(0, &preface());
    let start = u32::try_from(preface().len()).unwrap() + 10;
    for offset in 0..=count {
        capture.client(start + offset, &[0xee]);
    }
    assert!(capture.cx().out_of_order_bytes <= 1, "{} bytes kept", capture.cx().out_of_order_bytes);
    let seen = capture.finish();
    assert_eq!(seen.connections.missing_bytes, [10]);
    assert_eq!(seen.connections.out_of_order_packets, [count + 1]);
    assert_eq!(seen.cx.out_of_order_bytes, 0);
}

#[test]
fn bytes_out_of_order_are_bounded() {
    let mut capture = Capture::opened();
    let piece = vec![0xee; 60_000];
    let count = limits::OUT_OF_ORDER_BYTES / piece.len() + 5;
    for number in 0..u32::try_from(count).unwrap() {
        capture.client(100 + number * 60_000, &piece);
        assert!(capture.cx().out_of_order_bytes <= limits::OUT_OF_ORDER_BYTES);
    }
    let seen = capture.finish();
    assert_eq!(seen.connections.missing_bytes, [100]);
    assert_eq!(seen.connections.payload_bytes, [(count * piece.len()) as u64]);
}

/// Many connections together may not keep more than the bound either.
#[test]
fn bytes_out_of_order_are_bounded_over_all_connections() {
    let mut capture = Capture::opened();
    capture.cx().out_of_order_bytes = limits::OUT_OF_ORDER_TOTAL - 10;
    capture.client(100, &[0xee; 8]);
    capture.client(200, &[0xee; 8]);
    assert_eq!(capture.cx().out_of_order_bytes, limits::OUT_OF_ORDER_TOTAL - 10, "the holes were given up");
    let seen = capture.finish();
    assert_eq!(seen.connections.payload_bytes, [16]);
}

/// Nothing can be kept of a connection: each segment behind a hole gives that hole up, and the end comes.
#[test]
fn no_room_for_bytes_out_of_order() {
    let mut capture = Capture::opened();
    capture.cx().out_of_order_bytes = limits::OUT_OF_ORDER_TOTAL;
    capture.client(100, &[0xee; 8]);
    capture.client(200, &[0xee; 8]);
    assert_eq!(capture.cx().out_of_order_bytes, limits::OUT_OF_ORDER_TOTAL);
    let seen = capture.finish();
    assert_eq!((&seen.connections.payload_bytes, &seen.connections.missing_bytes), (&vec![16], &vec![100 + 92]));
}

#[test]
fn bytes_kept_are_counted_down_when_their_hole_is_filled() {
    let bytes = call("/a/B", 3_000);
    let mut capture = Capture::opened();
    capture.client(2_000, &bytes[2_000..]);
    capture.client(1_000, &bytes[1_000..2_000]);
    assert_eq!(capture.cx().out_of_order_bytes, bytes.len() - 1_000);
    capture.client(0, &bytes[..1_000]);
    assert_eq!(capture.cx().out_of_order_bytes, 0);
    assert_eq!(capture.finish().cx.messages.length, [3_000]);
}

/// Bytes that the capture lacks were acknowledged: their receiver read on at once, and so do the times of what comes
/// behind them, however long the decoder waits before it gives the hole up.
#[test]
fn what_comes_behind_a_hole_keeps_its_own_times() {
    for packets in [0, PATIENCE + 1] {
        let first = call("/a/B", 3_000);
        let bytes = [first.clone(), request(3, "/a/C", 40)].concat();
        let mut capture = with_hole(&bytes, 500..1_500, 0);
        capture.server(0, &[frame(4, 0, 0, &[]), response(1, 1), response(3, 1)].concat());
        let sent = 5;
        for _ in 0..packets {
            capture.server_acks(u32::try_from(bytes.len()).unwrap());
        }
        let seen = capture.finish();
        assert_eq!(seen.methods(), [Some("/a/B".to_owned()), Some("/a/C".to_owned())], "after {packets} packets");
        assert_eq!((seen.cx.rpcs.first_packet[1], seen.cx.rpcs.start_time_ns[1]), (sent, 16 * MS));
        let messages = &seen.cx.messages;
        let of_client = (0..messages.len()).filter(|&row| messages.direction[row] == 0);
        let last: Vec<u32> = of_client.map(|row| messages.last_packet[row]).collect();
        assert_eq!(last, [sent, sent], "after {packets} packets");
    }
}

/// A response of three segments, of which the client lacks the second: `ends` follows. The client acknowledges the first, and
/// says something `late` after the third.
fn without_the_second(late: i64, ends: impl FnOnce(&mut Capture, u32, u32)) -> Seen {
    let (request, answer) = (call("/a/B", 10), [frame(4, 0, 0, &[]), response(1, 3_000)].concat());
    let [sent, answered] = [&request, &answer].map(|bytes| u32::try_from(bytes.len()).unwrap());
    let mut capture = Capture::opened();
    capture.client(0, &request);
    capture.add(reply(ACK, from_server(0), from_client(sent), &answer[..1_000]));
    capture.add(segment(ACK, from_client(sent), from_server(1_000), &[]));
    capture.add(reply(ACK, from_server(2_000), from_client(sent), &answer[2_000..]));
    capture.at(capture.time + late, segment(ACK, from_client(sent), from_server(1_000), &frame(6, 0, 0, &[7; 8])));
    ends(&mut capture, sent + 17, answered);
    capture.finish()
}

/// What the client never received ends no RPC of it.
#[test]
fn what_lies_behind_bytes_that_never_arrived_is_not_read() {
    let capture_ends = |_: &mut Capture, _, _| {};
    let client_closes = |capture: &mut Capture, sent, _| {
        capture.add(segment(FIN_ACK, from_client(sent), from_server(1_000), &[]));
    };
    let client_resets =
        |capture: &mut Capture, sent, _| capture.add(segment(RST, from_client(sent), from_server(1_000), &[]));
    let server_closes = |capture: &mut Capture, sent, answered| {
        capture.add(reply(FIN_ACK, from_server(answered), from_client(sent), &[]));
    };
    let server_resets =
        |capture: &mut Capture, sent, answered| capture.add(reply(RST, from_server(answered), from_client(sent), &[]));
    let late = 2_000 * MS;
    for (seen, status, complete, is_open) in [
        (without_the_second(late, capture_ends), None, 0, true),
        (without_the_second(late, client_closes), None, 0, true),
        (without_the_second(late, client_resets), None, 1, true),
        (without_the_second(late, server_closes), None, 0, true),
        (without_the_second(late, server_resets), Some("UNAVAILABLE"), 1, false),
    ] {
        assert_eq!((seen.status(0), seen.cx.rpcs.flags[0] & 1), (status, complete));
        assert_eq!(seen.cx.open_rpcs.len(), usize::from(is_open));
        assert!(seen.cx.rpc_budgets[0].0[Cause::LossRecovery as usize] >= late.unsigned_abs());
        assert_eq!((seen.connections.missing_bytes[0], seen.cx.undelivered.hole_bytes[0]), (0, 1_000));
        assert_eq!(seen.problems(), [""; 0]);
    }
}

/// A packet that the client sent before it could know of the third segment says nothing about the second.
#[test]
fn what_the_client_cannot_know_yet_is_missing_from_the_capture() {
    let seen = without_the_second(MS / 2, |capture, sent, answered| {
        capture.add(reply(RST, from_server(answered), from_client(sent), &[]));
    });
    assert_eq!((seen.status(0), seen.connections.missing_bytes[0]), (Some("OK"), 1_000));
}

/// Messages of both sides, of which one of the server's is missing: what follows the next one is known again.
#[test]
fn behind_the_next_frame_of_a_call_time_is_known_again() {
    let begin = [
        preface(),
        frame(1, 4, 1, &block(&[(":method", "POST"), (":path", "/a/B"), ("content-type", "application/grpc")])),
    ];
    let asks = |capture: &mut Capture, time, offset: usize, bytes: &[u8], acked: usize| {
        let [offset, acked] = [offset, acked].map(|bytes| u32::try_from(bytes).unwrap());
        capture.at(time, segment(ACK, from_client(offset), from_server(acked), bytes));
    };
    let (hello, one) = (begin.concat(), frame(0, 0, 1, &message(30)));
    let head = frame(1, 4, 1, &block(&[(":status", "200"), ("content-type", "application/grpc")]));
    let answers = [frame(4, 0, 0, &[]), head, one.clone(), one.clone(), one.clone()].concat();
    let (hole, end) = (answers.len() - 2 * one.len(), answers.len());
    let mut capture = Capture::opened();
    asks(&mut capture, 20 * MS, 0, &[&hello[..], &one[..]].concat(), 0);
    let sent = hello.len() + one.len();
    let answer = |offset: usize, bytes| {
        reply(ACK, from_server(u32::try_from(offset).unwrap()), from_client(u32::try_from(sent).unwrap()), bytes)
    };
    capture.at(30 * MS, answer(0, &answers[..hole]));
    capture.at(40 * MS, answer(hole + one.len(), &answers[hole + one.len()..]));
    for packet in 0..=i64::from(PATIENCE) {
        asks(&mut capture, 41 * MS + packet, sent, &[], end);
    }
    asks(&mut capture, 5_040 * MS, sent, &one, end);
    let seen = capture.finish();
    let charged = [Cause::Client, Cause::CaptureGap].map(|cause| seen.cx.rpc_budgets[0].get(cause) / MS as u64);
    assert!(charged[0] > 4_900 && charged[1] <= 10, "{charged:?} ms");
}
