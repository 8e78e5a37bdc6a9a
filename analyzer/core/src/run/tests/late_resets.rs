//! RST_STREAM of the client behind a complete response: its deadline passed first, it refused the response, or it has read it.

use super::*;

const SETTINGS: u32 = 9;
const TIMEOUT: i64 = 300 * MS;
/// C-core's rounding of `grpc-timeout`: a fiftieth.
const EARLIEST: i64 = 294 * MS;
const CANCEL: u32 = 8;

fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    frame(3, 0, stream, &code.to_be_bytes())
}

/// A request with a deadline of 300 ms.
fn timed_request(stream: u32) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":path", "/a/B"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "300m"),
    ];
    [frame(1, 4, stream, &block(&fields)), frame(0, 1, stream, &message(10))].concat()
}

/// A connection with requests, the first of them at `began`; offsets behind the bytes of both sides.
struct Conversation {
    capture: Capture,
    began: i64,
    client: u32,
    server: u32,
    /// The client has acknowledged so much.
    acked: u32,
}

impl Conversation {
    /// `near` is the round trip to the client.
    fn new(near: i64) -> Self {
        let mut capture = Capture::new();
        let options = |segment| Segment { mss: Some(1_460), window_scale: Some(7), ..segment };
        capture.at(10 * MS, options(segment(SYN, CLIENT_ISN, 0, &[])));
        capture.at(13 * MS, options(reply(SYN_ACK, SERVER_ISN, from_client(0), &[])));
        capture.at(13 * MS + near, segment(ACK, from_client(0), from_server(0), &[]));
        let mut conversation = Self { capture, began: 50 * MS, client: 0, server: 0, acked: SETTINGS };
        conversation.server_at(20 * MS, &frame(4, 0, 0, &[]));
        conversation.client_at(45 * MS, &preface());
        conversation
    }

    /// One call of a client 20 ms away, answered `after`.
    fn answered(after: i64) -> Self {
        let mut conversation = Self::new(20 * MS);
        conversation.client_at(50 * MS, &timed_request(1));
        conversation.server_at(50 * MS + after, &response(1, 20));
        conversation
    }

    fn client_at(&mut self, time: i64, payload: &[u8]) {
        self.capture.at(time, segment(ACK, from_client(self.client), from_server(self.acked), payload));
        self.client += u32::try_from(payload.len()).unwrap();
    }

    fn server_at(&mut self, time: i64, payload: &[u8]) {
        self.capture.at(time, reply(ACK, from_server(self.server), from_client(self.client), payload));
        self.server += u32::try_from(payload.len()).unwrap();
    }

    /// The client resets its call so long after it began.
    fn reset(&mut self, after: i64, code: u32) {
        self.client_at(self.began + after, &rst_stream(1, code));
    }

    /// Status and time of the first call.
    fn outcome(self) -> (Option<&'static str>, i64) {
        let seen = self.capture.finish();
        assert_eq!(seen.problems(), [""; 0]);
        (seen.status(0), seen.cx.rpcs.duration_ns[0])
    }
}

#[test]
fn a_reset_before_any_of_the_response_arrived_is_the_end() {
    for (after, expected) in
        [(TIMEOUT, "DEADLINE_EXCEEDED"), (EARLIEST, "DEADLINE_EXCEEDED"), (EARLIEST - 1, "CANCELLED")]
    {
        let mut conversation = Conversation::answered(240 * MS);
        conversation.reset(after, CANCEL);
        let packet = conversation.capture.packet;
        let seen = conversation.capture.finish();
        assert_eq!((seen.status(0), seen.cx.rpcs.duration_ns[0]), (Some(expected), after));
        assert_eq!((seen.cx.rpcs.last_packet[0], seen.cx.failures.last_packet[0]), (packet, packet));
        assert_eq!(seen.cx.rpc_budgets[0].get(Cause::Network), 23 * MS as u64, "also 3 ms to the server");
        let statuses = seen.cx.methods.iter().flatten().map(|stats| stats.statuses[0]).sum::<u64>();
        assert_eq!((statuses, seen.cx.failures.refused_packet[0]), (0, 0));
    }
}

/// An answer of HTTP that a RST_STREAM ends, of either side, while a response would still be awaited.
#[test]
fn a_reset_that_ends_an_rpc_itself_is_its_end() {
    let refused = frame(1, 4, 1, &block(&[(":status", "503"), ("content-type", "text/html")]));
    for by_client in [true, false] {
        let mut conversation = Conversation::new(20 * MS);
        conversation.client_at(50 * MS, &timed_request(1));
        conversation.server_at(290 * MS, &refused);
        if by_client {
            conversation.reset(250 * MS, CANCEL);
        } else {
            conversation.server_at(300 * MS, &rst_stream(1, 0));
        }
        assert_eq!(conversation.outcome(), (Some("UNAVAILABLE"), 250 * MS), "by the client: {by_client}");
    }
}

/// The capture goes on for long enough behind the deadline: 300 ms, 20 ms to the client and back, 200 ms to send it again.
#[test]
fn without_a_reset_until_after_the_deadline_the_response_counts() {
    for (end, expected) in [(520 * MS, None), (520 * MS + 1, Some("OK"))] {
        let mut conversation = Conversation::answered(240 * MS);
        conversation.server_at(conversation.began + end, &[]);
        assert_eq!(conversation.outcome().0, expected);
    }
}

#[test]
fn a_reset_behind_the_response_means_nothing() {
    let mut conversation = Conversation::answered(240 * MS);
    conversation.acked = SETTINGS + 1;
    conversation.reset(TIMEOUT, CANCEL);
    assert_eq!(conversation.outcome(), (Some("OK"), 240 * MS));
}

/// 200 ms for a retransmission, and 20 ms to the client and back.
#[test]
fn a_response_long_before_the_deadline_is_read() {
    let earliest = EARLIEST - 220 * MS;
    for (after, expected) in [(earliest, "DEADLINE_EXCEEDED"), (earliest - 1, "OK")] {
        let mut conversation = Conversation::answered(after);
        conversation.reset(TIMEOUT, CANCEL);
        assert_eq!(conversation.outcome().0, Some(expected));
    }
}

#[test]
fn a_client_that_is_near_sees_what_the_capture_shows() {
    for (near, expected) in [(200_000, "OK"), (200_001, "DEADLINE_EXCEEDED")] {
        let mut conversation = Conversation::new(near);
        conversation.client_at(50 * MS, &timed_request(1));
        conversation.server_at(290 * MS, &response(1, 20));
        conversation.reset(TIMEOUT, CANCEL);
        assert_eq!(conversation.outcome().0, Some(expected));
    }
}

#[test]
fn without_a_reset_the_response_counts() {
    let answered = || Conversation::answered(240 * MS);
    assert_eq!(answered().outcome(), (None, 240 * MS), "the capture ends before it can have arrived");
    let mut acknowledged = answered();
    acknowledged.acked = acknowledged.server;
    acknowledged.client_at(320 * MS, &[]);
    assert_eq!(acknowledged.outcome(), (Some("OK"), 240 * MS));
    let mut closed = answered();
    let (seq, ack) = (from_client(closed.client), from_server(closed.acked));
    closed.capture.at(320 * MS, segment(FIN_ACK, seq, ack, &[]));
    closed.capture.at(321 * MS, reply(FIN_ACK, from_server(closed.server), seq.wrapping_add(1), &[]));
    assert_eq!(closed.outcome(), (Some("OK"), 240 * MS), "the client ends its connection without a RST_STREAM");
    let mut by_server = answered();
    by_server.server_at(350 * MS, &rst_stream(1, 0));
    assert_eq!(by_server.outcome(), (Some("OK"), 240 * MS));
    let mut next = answered();
    next.acked = next.server;
    next.client_at(350 * MS, &[timed_request(3), rst_stream(1, CANCEL)].concat());
    assert_eq!(next.outcome(), (Some("OK"), 240 * MS), "the client has it when it sends its next request");
    let mut before = answered();
    before.client_at(350 * MS, &[timed_request(3), rst_stream(1, CANCEL)].concat());
    assert_eq!(before.outcome(), (Some("DEADLINE_EXCEEDED"), 300 * MS), "the client has not");
}

#[test]
fn so_many_responses_are_awaited_at_a_time() {
    for (more, expected) in [(0, "DEADLINE_EXCEEDED"), (1, "OK")] {
        let calls = u32::try_from(limits::UNREAD_RESPONSES).unwrap() + more;
        let streams = (0..calls).map(|call| 2 * call + 1);
        let mut conversation = Conversation::new(20 * MS);
        streams.clone().for_each(|stream| conversation.client_at(50 * MS, &timed_request(stream)));
        streams.for_each(|stream| conversation.server_at(290 * MS, &response(stream, 20)));
        conversation.reset(TIMEOUT, CANCEL);
        assert_eq!(conversation.outcome().0, Some(expected));
    }
}

#[test]
fn enhance_your_calm_behind_a_response_refuses_it() {
    for (code, refuses) in [(0, false), (2, false), (5, false), (8, false), (10, false), (11, true), (12, false)] {
        let mut conversation = Conversation::new(20 * MS);
        conversation.client_at(50 * MS, &request(1, "/a/B", 10));
        conversation.server_at(60 * MS, &response(1, 20));
        conversation.acked = conversation.server;
        conversation.reset(40 * MS, code);
        conversation.reset(41 * MS, code);
        let packet = conversation.capture.packet - 1;
        let seen = conversation.capture.finish();
        let expected = if refuses { "CANCELLED" } else { "OK" };
        assert_eq!((seen.status(0), seen.cx.rpcs.duration_ns[0]), (Some(expected), 10 * MS), "{code}");
        let refusals = (&seen.cx.failures.refused_packet[..], &seen.cx.failures.refused_time_ns[..]);
        let wanted = if refuses { (&[packet][..], &[90 * MS][..]) } else { (&[][..], &[][..]) };
        assert_eq!(refusals, wanted, "{code}: once");
        let counted = seen
            .cx
            .methods
            .iter()
            .flatten()
            .fold([0; 2], |sum, stats| [sum[0] + stats.statuses[0], sum[1] + stats.statuses[1]]);
        assert_eq!(counted, if refuses { [0, 1] } else { [1, 0] }, "{code}");
    }
}

#[test]
fn what_cannot_be_refused_stays() {
    let begin = || {
        let mut conversation = Conversation::new(20 * MS);
        conversation.client_at(50 * MS, &request(1, "/a/B", 10));
        conversation
    };
    let mut failed = begin();
    failed.server_at(
        60 * MS,
        &frame(1, 5, 1, &block(&[(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5")])),
    );
    failed.reset(40 * MS, 11);
    assert_eq!(failed.outcome().0, Some("NOT_FOUND"), "the client has this status, or sees that it cannot have it");
    let mut replaced = begin();
    replaced.server_at(60 * MS, &response(1, 20));
    replaced.client_at(80 * MS, &request(3, "/a/B", 10));
    replaced.reset(40 * MS, 11);
    assert_eq!(replaced.outcome().0, Some("OK"), "its place was taken");
    let mut by_server = begin();
    by_server.server_at(60 * MS, &[response(1, 20), rst_stream(1, 11)].concat());
    assert_eq!(by_server.outcome().0, Some("OK"));
}

#[test]
fn a_refused_response_gets_a_row_where_only_some_have() {
    let mut conversation = Conversation::new(20 * MS);
    conversation.capture.cx().options.rpc_rows = false;
    let calls = limits::FIRST_RPCS + 50; // the last one is not among the longest
    for call in 0..calls {
        let (stream, time) = (2 * call + 1, 50 * MS + i64::from(call) * 10 * MS);
        conversation.client_at(time, &request(stream, "/a/B", 10));
        conversation.server_at(time + 2 * MS - i64::from(call), &response(stream, 20));
    }
    let stream = 2 * calls - 1;
    let (rows, time) = (conversation.capture.cx().rpcs.len(), conversation.capture.time);
    conversation.client_at(time + 20 * MS, &rst_stream(stream, 11));
    let cx = conversation.capture.cx();
    assert_eq!(cx.rpcs.len(), rows + 1);
    let row = (cx.rpcs.stream[rows], cx.rpcs.status[rows], cx.rpcs.duration_ns[rows], cx.failures.rpc[0]);
    assert_eq!(row, (stream, status::CANCELLED, 2 * MS - i64::from(calls - 1), u32::try_from(rows).unwrap()));
}

/// C-core resets what a GOAWAY says that the server did not act on, as soon as that arrives: 20 ms to the client and back.
#[test]
fn a_reset_that_a_goaway_brings_about_says_unavailable() {
    let (soonest, latest) = (20 * MS / 8 * 7, 20 * MS + status::LATE);
    for (last, since, expected) in [
        (0_u32, soonest, "UNAVAILABLE"),
        (0, soonest - 1, "CANCELLED"),
        (0, latest, "UNAVAILABLE"),
        (0, latest + 1, "CANCELLED"),
        (1, soonest, "CANCELLED"),
    ] {
        let mut conversation = Conversation::new(20 * MS);
        conversation.client_at(50 * MS, &timed_request(1));
        conversation.server_at(60 * MS, &frame(7, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()));
        conversation.reset(10 * MS + since, CANCEL);
        assert_eq!(conversation.outcome(), (Some(expected), 10 * MS + since));
    }
    let mut late = Conversation::new(20 * MS);
    late.client_at(50 * MS, &timed_request(1));
    late.server_at(50 * MS + EARLIEST - 20 * MS, &frame(7, 0, 0, &[0; 8]));
    late.reset(EARLIEST, CANCEL);
    assert_eq!(late.outcome().0, Some("DEADLINE_EXCEEDED"));
}
