//! Why senders wait, as far as packets prove it. The capture is taken 1 ms from the client, there and back, and 3 ms
//! from the server.

use crate::store::budget::Cause;

use super::*;

const SEGMENT: usize = 1_460;
const SEGMENT_32: u32 = 1_460;

fn client(bytes: &[u8], from: usize, to: usize) -> Segment<'_> {
    segment(ACK, from_client(u32::try_from(from).unwrap()), from_server(0), &bytes[from..to])
}

fn acks(offset: usize) -> Segment<'static> {
    reply(ACK, from_server(0), from_client(u32::try_from(offset).unwrap()), &[])
}

fn budget(seen: &Seen, rpc: usize, cause: Cause) -> u64 {
    seen.cx.rpc_budgets[rpc].0[cause as usize]
}

/// The first 1,000 bytes of a message leave, the rest (`rest` bytes) after `delay` of the acknowledgement.
fn held_back(rest: usize, delay: i64) -> u8 {
    let bytes = call("/a/B", 900 + rest);
    let stop = bytes.len() - rest;
    let mut capture = Capture::opened();
    capture.at(15 * MS, acks(0));
    capture.at(20 * MS, client(&bytes, 0, stop));
    capture.at(23 * MS + delay, acks(stop));
    capture.at(24 * MS + delay, client(&bytes, stop, bytes.len()));
    let waits = capture.finish().cx.waits;
    assert_eq!(waits.len(), 1);
    waits.cause[0]
}

#[test]
fn nagle_waits_for_a_delayed_ack() {
    for delay in [40, 44, 200] {
        assert_eq!(held_back(300, delay * MS), Cause::DelayedAck as u8, "{delay} ms");
    }
    for (rest, delay) in [(300, 20), (300, 0), (300, 300), (SEGMENT, 40)] {
        assert_eq!(held_back(rest, delay * MS), Cause::Unexplained as u8, "{rest} bytes after {delay} ms");
    }
}

/// A capture point at the client: handshake halves of 3 ms and 0.
fn beside_the_client() -> Capture {
    let mut capture = Capture::new();
    let options = Segment { mss: Some(1_460), window_scale: Some(7), ..segment(SYN, CLIENT_ISN, 0, &[]) };
    capture.at(10 * MS, options);
    let options =
        Segment { mss: Some(1_460), window_scale: Some(7), ..reply(SYN_ACK, SERVER_ISN, from_client(0), &[]) };
    capture.at(13 * MS, options);
    capture.at(13 * MS, segment(ACK, from_client(0), from_server(0), &[]));
    capture.at(14 * MS, acks(0)); // the first window that is scaled
    capture
}

/// A message of the client with a pause of `pause` in the middle, which no packet ends.
fn paused(mut capture: Capture, pause: i64) -> Seen {
    let bytes = call("/a/B", 2_000);
    capture.at(20 * MS, client(&bytes, 0, 500));
    capture.at(20 * MS + pause, client(&bytes, 500, bytes.len()));
    capture.finish()
}

#[test]
fn a_pause_that_no_packet_ends_is_the_senders_own_where_it_was_captured() {
    let seen = paused(beside_the_client(), 10 * MS);
    assert_eq!(seen.cx.waits.cause[0], Cause::Client as u8);
    assert_eq!(budget(&seen, 0, Cause::Client), 10 * MS as u64);
    assert_eq!(paused(beside_the_client(), 2 * MS).cx.waits.cause[0], Cause::Unexplained as u8, "an ACK may be due");
    assert_eq!(paused(Capture::opened(), 10 * MS).cx.waits.cause[0], Cause::Unexplained as u8, "not captured there");
}

/// A message of the client that stops behind a full congestion window, and goes on after `pause`. The server acknowledges what it
/// got after `acked`, if it does, and sends credit then.
fn stopped_for_long(mut capture: Capture, acked: Option<i64>, pause: i64) -> u8 {
    let (bytes, sent) = (call("/a/B", 30_000), 10 * SEGMENT);
    capture.at(20 * MS, client(&bytes, 0, sent));
    if let Some(acked) = acked {
        let credit = [frame(4, 0, 0, &[]), frame(8, 0, 0, &1_000_u32.to_be_bytes())].concat();
        capture.at(20 * MS + acked, reply(ACK, from_server(0), from_client(u32::try_from(sent).unwrap()), &credit));
    }
    capture.at(20 * MS + pause, client(&bytes, sent, bytes.len()));
    capture.finish().cx.waits.cause[0]
}

#[test]
fn a_sender_that_nothing_holds_for_long_stopped_by_itself() {
    let [own, unexplained] = [Cause::Client, Cause::Unexplained].map(|cause| cause as u8);
    assert_eq!(stopped_for_long(beside_the_client(), Some(3 * MS), 2_000 * MS), own);
    assert_eq!(stopped_for_long(beside_the_client(), Some(3 * MS), 900 * MS), unexplained, "not for long");
    assert_eq!(stopped_for_long(beside_the_client(), Some(900 * MS), 2_000 * MS), unexplained, "free for half of it");
    assert_eq!(stopped_for_long(beside_the_client(), None, 2_000 * MS), unexplained, "an ACK is due");
    assert_eq!(stopped_for_long(Capture::opened(), Some(3 * MS), 2_000 * MS), unexplained, "not captured there");
}

/// Two segments of a message over a round trip of 100 ms, and the rest after `pause`, which no packet ends.
fn spaced(segments: usize, pause: i64) -> u8 {
    let mut capture = Capture::new();
    let options = Segment { mss: Some(1_460), window_scale: Some(7), ..segment(SYN, CLIENT_ISN, 0, &[]) };
    capture.at(10 * MS, options);
    let options =
        Segment { mss: Some(1_460), window_scale: Some(7), ..reply(SYN_ACK, SERVER_ISN, from_client(0), &[]) };
    capture.at(110 * MS, options);
    capture.at(110 * MS, segment(ACK, from_client(0), from_server(0), &[]));
    let bytes = call("/a/B", 20_000);
    capture.at(200 * MS, client(&bytes, 0, segments * SEGMENT));
    capture.at(200 * MS + pause, client(&bytes, segments * SEGMENT, bytes.len()));
    capture.finish().cx.waits.cause[0]
}

#[test]
fn pauses_well_below_a_round_trip_with_bytes_in_flight_are_transmission() {
    assert_eq!(spaced(2, 25 * MS), Cause::Transmission as u8);
    assert_eq!(spaced(2, 26 * MS), Cause::Unexplained as u8, "longer than a quarter of the round trip");
    assert_eq!(spaced(1, 25 * MS), Cause::Unexplained as u8, "one segment is no flow");
}

/// Ten short segments of a message and a pause until their ACK.
#[test]
fn ten_short_segments_fill_the_initial_window() {
    for (segments, cause) in [(10, Cause::CongestionWindow), (8, Cause::Unexplained)] {
        let bytes = call("/a/B", 20_000);
        let mut capture = beside_the_client();
        for number in 0..segments {
            capture.at(20 * MS, client(&bytes, number * 1_000, (number + 1) * 1_000));
        }
        capture.at(23 * MS, acks(segments * 1_000));
        capture.at(23 * MS, client(&bytes, segments * 1_000, bytes.len()));
        assert_eq!(capture.finish().cx.waits.cause[0], cause as u8, "{segments} segments");
    }
}

/// After a loss a sender stops with three segments in flight and resumes right after an ACK, `late` after it.
fn stopped_after_a_loss(lost: bool, late: i64) -> Seen {
    let bytes = call("/a/B", 20_000);
    let mut capture = beside_the_client();
    capture.at(20 * MS, client(&bytes, 0, SEGMENT));
    if lost {
        capture.at(40 * MS, client(&bytes, 0, SEGMENT));
    }
    capture.at(43 * MS, acks(SEGMENT));
    for number in 1..4 {
        capture.at(43 * MS, client(&bytes, number * SEGMENT, (number + 1) * SEGMENT));
    }
    capture.at(46 * MS, acks(4 * SEGMENT));
    capture.at(46 * MS + late, client(&bytes, 4 * SEGMENT, bytes.len()));
    capture.finish()
}

#[test]
fn after_a_loss_what_was_in_flight_is_the_window() {
    let seen = stopped_after_a_loss(true, 0);
    let waits = &seen.cx.waits;
    assert_eq!((waits.cause[0], waits.after_loss[0]), (Cause::LossRecovery as u8, 0));
    assert_eq!((waits.cause[1], waits.after_loss[1]), (Cause::CongestionWindow as u8, 1));
    assert_eq!(waits.in_flight_bytes[1], 3 * i64::from(SEGMENT_32));
    assert_eq!(seen.connections.congestion_after_loss_ns[0], 3 * MS as u64);
    assert_eq!(budget(&seen, 0, Cause::CongestionWindow), 3 * MS as u64);

    let seen = stopped_after_a_loss(true, 10 * MS);
    assert_ne!(seen.cx.waits.cause[1], Cause::CongestionWindow as u8, "long after the ACK");
    let seen = stopped_after_a_loss(false, 0);
    assert!(!seen.cx.waits.cause.contains(&(Cause::CongestionWindow as u8)), "ten segments are allowed");
    assert_eq!(seen.connections.congestion_after_loss_ns[0], 0);
}

/// A request retransmitted at 220 ms, answered at `answer`.
fn answered(answer: i64, twice: bool) -> Seen {
    let bytes = call("/a/B", 100);
    let mut capture = beside_the_client();
    capture.at(20 * MS, client(&bytes, 0, bytes.len()));
    capture.at(220 * MS, client(&bytes, 0, bytes.len()));
    let end = u32::try_from(bytes.len()).unwrap();
    if twice {
        let mut duplicate = acks(bytes.len());
        duplicate.sack.push(from_client(0), from_client(end));
        capture.at(223 * MS, duplicate);
    }
    let answer_bytes = [frame(4, 0, 0, &[]), response(1, 20)].concat();
    capture.at(answer, reply(ACK, from_server(0), from_client(end), &answer_bytes));
    capture.finish()
}

#[test]
fn a_request_sent_again_was_waited_for() {
    let seen = answered(230 * MS, false);
    assert_eq!(budget(&seen, 0, Cause::LossRecovery), 200 * MS as u64);
    assert_eq!((budget(&seen, 0, Cause::Network), budget(&seen, 0, Cause::Server)), (3 * MS as u64, 7 * MS as u64));
    assert_eq!(seen.connections.recovery_ns[0], 200 * MS);
    assert_eq!((seen.connections.recovery_from_packet[0], seen.connections.recovery_to_packet[0]), (5, 6));
}

#[test]
fn a_request_sent_again_in_vain_was_not() {
    assert_eq!(budget(&answered(221 * MS, false), 0, Cause::LossRecovery), 0, "answered before it could arrive");
    let twice = answered(230 * MS, true);
    assert_eq!(budget(&twice, 0, Cause::LossRecovery), 0, "the server had it twice (RFC 2883)");
    assert_eq!((twice.connections.retransmitted_packets[0], twice.connections.needless_retransmissions[0]), (1, 1));
    assert_eq!(answered(221 * MS, false).connections.needless_retransmissions[0], 1, "answered before it could arrive");
    assert_eq!(answered(230 * MS, false).connections.needless_retransmissions[0], 0);
    let late = answered(290 * MS, false);
    assert_eq!(budget(&late, 0, Cause::LossRecovery), 0, "later than an ACK may be put off");
    assert_eq!((late.connections.needless_retransmissions[0], late.connections.congestion_after_loss_ns[0]), (1, 0));
}

/// A sender that the receive window stopped repeats its last segment (a tail loss probe); what opens the window acknowledges
/// it, and may say that it came twice.
#[test]
fn a_probe_behind_a_closed_window_is_no_loss_where_the_receiver_had_its_bytes() {
    for (twice, cause) in [(true, Cause::ReceiveWindow), (false, Cause::LossRecovery)] {
        let bytes = call("/a/B", 6_000);
        let mut capture = beside_the_client();
        capture.at(15 * MS, Segment { window: 12, ..acks(0) }); // 1,536 bytes
        capture.at(20 * MS, client(&bytes, 0, SEGMENT));
        capture.at(40 * MS, client(&bytes, 0, SEGMENT));
        let mut opens = acks(SEGMENT);
        if twice {
            opens.sack.push(from_client(0), from_client(SEGMENT_32));
        }
        capture.at(80 * MS, opens);
        capture.at(80 * MS, client(&bytes, SEGMENT, bytes.len()));
        let seen = capture.finish();
        assert_eq!((seen.cx.waits.cause[0], seen.cx.waits.retransmissions[0]), (cause as u8, u32::from(!twice)));
    }
}

/// Two messages in DATA frames of 1,000 bytes that take turns, `pace` apart.
fn taking_turns(pace: i64) -> Seen {
    let fields = block(&[(":method", "POST"), (":path", "/a/B"), ("content-type", "application/grpc")]);
    let whole = message(2_995);
    let mut capture = Capture::opened();
    let head = [preface(), frame(1, 4, 1, &fields), frame(1, 4, 3, &fields)].concat();
    capture.at(20 * MS, segment(ACK, from_client(0), from_server(0), &head));
    let (mut offset, mut time) = (u32::try_from(head.len()).unwrap(), 20 * MS);
    for piece in whole.chunks(1_000) {
        for stream in [1, 3] {
            let bytes = frame(0, 0, stream, piece);
            capture.at(time, segment(ACK, from_client(offset), from_server(0), &bytes));
            offset += u32::try_from(bytes.len()).unwrap();
            time += pace;
        }
    }
    capture.finish()
}

#[test]
fn a_message_waits_while_bytes_of_others_go_first() {
    let seen = taking_turns(700_000);
    let waits = &seen.cx.waits;
    assert_eq!(waits.cause, [Cause::HeadOfLine as u8; 4]);
    assert_eq!((waits.stream[0], waits.duration_ns[0], waits.owed_bytes[0]), (1, 1_400_000, 2_000));
    assert_eq!((waits.stopped_at_packet[0], waits.resumed_at_packet[0]), (5, 7));
    assert_eq!(budget(&seen, 0, Cause::HeadOfLine), 2_800_000);
    let seen = taking_turns(400_000);
    assert!(seen.cx.waits.is_empty(), "less than a millisecond is a turn");
    assert_eq!(budget(&seen, 0, Cause::HeadOfLine), 0);
}

/// The answer to the first of two calls is cut by the server's window after a loss; that to the second leaves behind
/// its rest, `gap` later.
#[test]
fn an_answer_behind_blocked_bytes_waited_too() {
    for (gap, queued) in [(0, true), (5 * MS, false)] {
        let requests = [preface(), request(1, "/a/B", 10), request(3, "/a/B", 10)].concat();
        let end = u32::try_from(requests.len()).unwrap();
        let first = [frame(4, 0, 0, &[]), response(1, 6_000)].concat();
        let second = response(3, 100);
        let at = |offset: usize| from_server(u32::try_from(offset).unwrap());
        let mut capture = beside_the_client();
        capture.at(20 * MS, segment(ACK, from_client(0), from_server(0), &requests));
        // the first segment comes only behind the second: it was lost
        capture.at(24 * MS, reply(ACK, at(SEGMENT), from_client(end), &first[SEGMENT..2 * SEGMENT]));
        capture.at(30 * MS, reply(ACK, at(0), from_client(end), &first[..SEGMENT]));
        capture.at(30 * MS, segment(ACK, from_client(end), at(2 * SEGMENT), &[]));
        capture.at(33 * MS, reply(ACK, at(2 * SEGMENT), from_client(end), &first[2 * SEGMENT..3 * SEGMENT]));
        capture.at(33 * MS, segment(ACK, from_client(end), at(3 * SEGMENT), &[]));
        capture.at(36 * MS, reply(ACK, at(3 * SEGMENT), from_client(end), &first[3 * SEGMENT..]));
        capture.at(36 * MS + gap, reply(ACK, at(first.len()), from_client(end), &second));
        let seen = capture.finish();
        let waited = budget(&seen, 1, Cause::CongestionWindow) + budget(&seen, 1, Cause::LossRecovery);
        assert_eq!(waited > 0, queued, "{:?} {:?}", seen.cx.rpc_budgets[1], seen.cx.waits);
        assert!(budget(&seen, 0, Cause::LossRecovery) >= 6 * MS as u64, "{:?}", seen.cx.rpc_budgets[0]);
    }
}

/// The server answers two requests `answered` after the client's PING, which it acknowledges then; its TCP acknowledges all
/// bytes at 30 ms, with `resent` the client retransmits at that time.
fn stalled(answered: i64, resent: Option<i64>) -> Seen {
    stalled_saying(answered, resent, false)
}

/// The client's probe at 29 ms is acknowledged, and the server says or not that it had the bytes (RFC 2883).
fn probed(needless: bool) -> Seen {
    stalled_saying(100 * MS, Some(29 * MS), needless)
}

fn stalled_saying(answered: i64, resent: Option<i64>, needless: bool) -> Seen {
    let requests = [preface(), request(1, "/a/B", 10), request(3, "/a/B", 10), frame(6, 0, 0, &[7; 8])].concat();
    let end = u32::try_from(requests.len()).unwrap();
    let mut capture = beside_the_client();
    capture.at(15 * MS, reply(ACK, from_server(0), from_client(0), &frame(4, 0, 0, &[])));
    capture.at(16 * MS, segment(ACK, from_client(0), from_server(9), &[]));
    capture.at(20 * MS, segment(ACK, from_client(0), from_server(9), &requests));
    let mut acknowledges = reply(ACK, from_server(9), from_client(end), &[]);
    if needless {
        acknowledges.sack.push(from_client(0), from_client(end));
    }
    let again = |time: i64| (time, segment(ACK, from_client(0), from_server(9), &requests));
    let mut then = vec![(30 * MS, acknowledges)];
    then.extend(resent.map(again));
    then.sort_by_key(|(time, _)| *time);
    for (time, packet) in then {
        capture.at(time, packet);
    }
    let answers = [frame(6, 1, 0, &[7; 8]), response(1, 20), response(3, 20)].concat();
    capture.at(20 * MS + answered, reply(ACK, from_server(9), from_client(end), &answers));
    capture.finish()
}

#[test]
fn a_silence_for_which_the_peer_waits_is_a_stall() {
    let stalls = stalled(100 * MS, None).cx.stalls;
    assert_eq!((stalls.len(), stalls.direction[0], stalls.waiting[0]), (1, 1, 2));
    assert_eq!((stalls.start_time_ns[0], stalls.duration_ns[0], stalls.acked_time_ns[0]), (20 * MS, 100 * MS, 30 * MS));
    assert_eq!((stalls.stopped_at_packet[0], stalls.ping_packet[0], stalls.resumed_at_packet[0]), (5, 7, 9));
    assert_eq!(stalled(24 * MS, None).cx.stalls.waiting[0], 2, "the PING is late, after 20 ms and the way of 3 ms");
    assert_eq!(stalled(22 * MS, None).cx.stalls.len(), 0);
    assert_eq!(stalled(100 * MS, Some(40 * MS)).cx.stalls.len(), 1, "the server had acknowledged the bytes");
    assert_eq!(stalled(100 * MS, Some(27 * MS)).cx.stalls.len(), 0, "the network may be the cause");
    assert_eq!(probed(false).cx.stalls.len(), 1, "it was acknowledged before the probe could arrive");
    assert_eq!(probed(true).cx.stalls.len(), 1, "the server had the bytes already");
}

/// A call to a server `near` and of a client `far` away, which is acknowledged after some time, or only with its answer.
/// The server acknowledges the client's first bytes `soon`, or only with bytes of its own.
fn asked([near, far]: [i64; 2], soon: bool, acknowledged: Option<i64>, answered: i64) -> Seen {
    let mut capture = Capture::new();
    let options = |segment| Segment { mss: Some(1_460), window_scale: Some(7), ..segment };
    capture.at(0, options(segment(SYN, CLIENT_ISN, 0, &[])));
    capture.at(near, options(reply(SYN_ACK, SERVER_ISN, from_client(0), &[])));
    capture.at(near + far, segment(ACK, from_client(0), from_server(0), &[]));
    let (begin, settings) = (near + far + MS, frame(4, 0, 0, &[]));
    let [hello, asks] = [preface(), request(1, "/a/B", 100)];
    let [opened, sent, first] =
        [hello.len(), hello.len() + asks.len(), settings.len()].map(|bytes| u32::try_from(bytes).unwrap());
    capture.at(begin, segment(ACK, from_client(0), from_server(0), &hello));
    if soon {
        capture.at(begin + near, reply(ACK, from_server(0), from_client(opened), &[]));
    }
    capture.at(begin + near, reply(ACK, from_server(0), from_client(opened), &settings));
    let begin = begin + 100 * MS + far;
    capture.at(begin, segment(ACK, from_client(opened), from_server(first), &asks));
    if let Some(after) = acknowledged {
        capture.at(begin + after, reply(ACK, from_server(first), from_client(sent), &[]));
    }
    capture.at(begin + answered, reply(ACK, from_server(first), from_client(sent), &response(1, 20)));
    capture.finish()
}

/// What the server is charged, and what nobody is, in milliseconds.
fn charged(seen: &Seen) -> [i64; 2] {
    [Cause::Server, Cause::Unexplained].map(|cause| i64::try_from(budget(seen, 0, cause)).unwrap() / MS)
}

const SHORT: [i64; 2] = [20 * MS, 0];

#[test]
fn a_server_is_charged_from_the_packet_that_shows_that_it_was_asked() {
    let latest = 20 * MS + 60 * MS;
    for (acknowledged, answered, expected) in [
        (Some(40 * MS), 300 * MS, [280, 0]),
        (Some(latest), 300 * MS, [280, 0]),
        (Some(latest + MS), 300 * MS, [219, 61]),
        (None, latest, [60, 0]),
        (None, 300 * MS, [0, 280]),
    ] {
        assert_eq!(charged(&asked(SHORT, true, acknowledged, answered)), expected, "{acknowledged:?}, {answered}");
    }
}

#[test]
fn nothing_delays_what_is_asked_of_a_host_that_is_near() {
    assert_eq!(charged(&asked([200_000, 0], true, None, 300 * MS)), [299, 0]);
    assert_eq!(charged(&asked([200_001, 0], true, None, 300 * MS)), [0, 299]);
}

/// Other systems than Linux delay ACKs for up to half a second (RFC 9293 section 3.8.6.3).
#[test]
fn a_host_that_acknowledges_late_itself_is_not_late() {
    assert_eq!(charged(&asked(SHORT, false, None, 300 * MS))[0], 280);
    assert_eq!(charged(&asked(SHORT, false, Some(200 * MS), 300 * MS))[0], 280);
}

/// A round trip over all of the path, and a quarter more, is what Linux delays an ACK for at the most.
#[test]
fn an_ack_takes_longer_over_a_long_path() {
    for (path, most) in [([200 * MS, 0], 450 * MS), ([20 * MS, 180 * MS], 270 * MS)] {
        assert_eq!(charged(&asked(path, true, None, most))[1], 0);
        assert_eq!(charged(&asked(path, true, None, most + MS)), [0, (most + MS - path[0]) / MS]);
    }
}
