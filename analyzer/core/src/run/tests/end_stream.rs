//! The frame with END_STREAM has no room behind the message: its sender owes no bytes, and its peer waits all the same.

use crate::store::budget::Cause;

use super::*;

const SEGMENT: usize = 1_460;

/// A capture point beside the client, 3 ms from the server and back.
fn beside_the_client() -> Capture {
    let options =
        |flags, seq, ack| Segment { mss: Some(1_460), window_scale: Some(7), ..segment(flags, seq, ack, &[]) };
    let mut capture = Capture::new();
    capture.at(10 * MS, options(SYN, CLIENT_ISN, 0));
    let answer = options(SYN_ACK, SERVER_ISN, from_client(0));
    let swapped = Segment { source_port: SERVER.1, destination_port: CLIENT.1, ..answer };
    capture.at(13 * MS, Segment { source: SERVER.0, destination: CLIENT.0, ..swapped });
    capture.at(13 * MS, segment(ACK, from_client(0), from_server(0), &[]));
    capture.at(14 * MS, reply(ACK, from_server(0), from_client(0), &[])); // the first window that is scaled
    capture
}

/// A request that fills segments, and its end.
#[derive(Clone)]
struct Request {
    segments: usize,
    /// Bytes that its last segment lacks.
    short: usize,
    /// Segments that the ACK speaks of, which comes right before its end.
    acked: usize,
    /// When that comes.
    acked_at: i64,
    /// From there to the end.
    late: i64,
    /// Another ACK comes a millisecond before.
    acked_before: bool,
    /// The first segment was lost, and retransmitted before the others.
    lost: bool,
    /// The server says something meanwhile.
    answered: bool,
    /// The message was sent once more meanwhile.
    resent: bool,
    end: Vec<u8>,
}

impl Request {
    fn seen(&self) -> Seen {
        let fields = block(&[(":method", "POST"), (":path", "/a/B"), ("content-type", "application/grpc")]);
        let head = [preface(), frame(1, 4, 1, &fields)].concat();
        let length = self.segments * SEGMENT - self.short;
        let bytes = [head.clone(), frame(0, 0, 1, &message(length - head.len() - 9 - 5))].concat();
        assert_eq!(bytes.len(), length);
        let offset = |at: usize| u32::try_from(at).unwrap();
        let mut capture = beside_the_client();
        for (number, piece) in bytes.chunks(SEGMENT).enumerate() {
            capture.at(20 * MS, segment(ACK, from_client(offset(number * SEGMENT)), from_server(0), piece));
            if self.lost && number == 0 {
                capture.at(20 * MS, segment(ACK, from_client(0), from_server(0), piece));
            }
        }
        let said = if self.answered { frame(4, 0, 0, &[]) } else { Vec::new() };
        if self.resent {
            capture.at(20 * MS, segment(ACK, from_client(0), from_server(0), &bytes[..SEGMENT]));
        }
        if self.acked_before {
            capture.at(22 * MS, reply(ACK, from_server(0), from_client(offset(SEGMENT)), &[]));
        }
        let acked = offset((self.acked * SEGMENT).min(length));
        capture.at(self.acked_at, reply(ACK, from_server(0), from_client(acked), &said));
        capture.at(self.acked_at + self.late, segment(ACK, from_client(offset(length)), from_server(0), &self.end));
        capture.finish()
    }
}

fn full() -> Request {
    Request {
        segments: 10,
        short: 0,
        acked: 1,
        acked_at: 23 * MS,
        late: 0,
        acked_before: false,
        lost: false,
        answered: false,
        resent: false,
        end: frame(0, 1, 1, &[]),
    }
}

#[test]
fn the_end_of_a_request_waits_for_the_congestion_window() {
    let short = Request { short: 300, ..full() };
    let whole = Request { acked: 10, ..full() };
    for request in [full(), short, whole] {
        let seen = request.seen();
        let waits = &seen.cx.waits;
        assert_eq!(waits.cause, [Cause::CongestionWindow as u8]);
        assert_eq!((waits.stream[0], waits.owed_bytes[0], waits.duration_ns[0]), (1, 0, 3 * MS));
        let stopped_and_on = [waits.stopped_at_packet[0], waits.released_by_packet[0], waits.resumed_at_packet[0]];
        assert_eq!(stopped_and_on, [14, 15, 16]);
        let budget = seen.cx.rpc_budgets[0].0;
        assert_eq!(budget[Cause::CongestionWindow as usize], 3 * MS as u64, "{budget:?}");
        assert_eq!(budget[Cause::Client as usize], 0, "{budget:?}");
    }
}

#[test]
fn it_is_the_clients_own_where_something_else_can_have_held_it() {
    let fields = block(&[(":path", "/a/C"), ("content-type", "application/grpc")]);
    let others = [
        ("room in the window", Request { segments: 8, ..full() }),
        ("long after the ACK", Request { late: MS, ..full() }),
        ("an ACK before made room", Request { acked_before: true, acked: 2, ..full() }),
        ("the server said something", Request { answered: true, ..full() }),
        ("room in a window that a loss reduced", Request { segments: 3, lost: true, ..full() }),
        ("retransmitted", Request { resent: true, ..full() }),
        ("another call", Request { end: frame(1, 5, 3, &fields), ..full() }),
        ("not the end", Request { end: frame(0, 0, 1, &[]), ..full() }),
        ("an acknowledgement of settings", Request { end: frame(4, 1, 0, &[]), ..full() }),
        ("more than the end", Request { end: [frame(0, 1, 1, &[]), frame(6, 0, 0, &[0; 8])].concat(), ..full() }),
    ];
    for (why, request) in others {
        let seen = request.seen();
        assert!(!seen.cx.waits.cause.contains(&(Cause::CongestionWindow as u8)), "{why}: {:?}", seen.cx.waits);
    }
}

#[test]
fn it_is_not_known_what_held_it_where_nagles_algorithm_may_have() {
    let seen = Request { short: 300, acked: 10, ..full() }.seen();
    assert_eq!(seen.cx.waits.cause, [Cause::Unexplained as u8]);
    let budget = seen.cx.rpc_budgets[0].0;
    assert_eq!((budget[Cause::Unexplained as usize], budget[Cause::Client as usize]), (3 * MS as u64, 0));
}

/// The response fills `segments`, the client acknowledges at once, and the trailers come a round trip later.
fn trailers_behind(segments: usize) -> Seen {
    let request = call("/a/B", 100);
    let head =
        [frame(4, 0, 0, &[]), frame(1, 4, 1, &block(&[(":status", "200"), ("content-type", "application/grpc")]))]
            .concat();
    let bytes = [head.clone(), frame(0, 0, 1, &message(segments * SEGMENT - head.len() - 9 - 5))].concat();
    let offset = |at: usize| u32::try_from(at).unwrap();
    let end = offset(request.len());
    let mut capture = beside_the_client();
    capture.at(20 * MS, segment(ACK, from_client(0), from_server(0), &request));
    for (number, piece) in bytes.chunks(SEGMENT).enumerate() {
        capture.at(30 * MS, reply(ACK, from_server(offset(number * SEGMENT)), from_client(end), piece));
    }
    capture.at(30 * MS, segment(ACK, from_client(end), from_server(offset(2 * SEGMENT)), &[]));
    let trailers = frame(1, 5, 1, &block(&[("grpc-status", "0")]));
    capture.at(33 * MS, reply(ACK, from_server(offset(bytes.len())), from_client(end), &trailers));
    capture.finish()
}

/// The server took 7 ms before its answer began; the trailers' 3 ms are its own where the window had room.
#[test]
fn trailers_wait_too() {
    for (segments, waits, server, window) in [(10, 1, 7, 3), (8, 0, 10, 0)] {
        let seen = trailers_behind(segments);
        let budget = seen.cx.rpc_budgets[0].0.map(|ns| i64::try_from(ns).unwrap());
        assert_eq!((seen.status(0), seen.cx.waits.len()), (Some("OK"), waits));
        assert_eq!(budget[Cause::Server as usize], server * MS, "{budget:?}");
        assert_eq!(budget[Cause::CongestionWindow as usize], window * MS, "{budget:?}");
    }
}

/// The server's delayed ACK, after 40 ms, lets the end go.
#[test]
fn nagles_algorithm_holds_it_behind_a_short_segment() {
    for (short, acked_at, held) in [(300, 63 * MS, true), (300, 43 * MS, false), (0, 63 * MS, false)] {
        let seen = Request { segments: 1, short, acked_at, ..full() }.seen();
        let waits = &seen.cx.waits;
        assert_eq!(waits.cause.contains(&(Cause::DelayedAck as u8)), held, "{short} {acked_at} {waits:?}");
        assert_eq!(waits.len(), usize::from(held));
        let budget = seen.cx.rpc_budgets[0].0;
        assert_eq!(budget[Cause::DelayedAck as usize], if held { 43 * MS as u64 } else { 0 });
    }
}
