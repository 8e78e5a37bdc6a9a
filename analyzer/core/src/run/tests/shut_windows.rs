//! Receive windows that close inside a message and stay closed until the capture ends.

use crate::store::budget::Cause;

use super::*;

/// When the client's last bytes leave.
const STOP: i64 = 20 * MS;

/// The client sends `bytes` up to `stop`, and the server acknowledges them with a window of 0.
fn shut(bytes: &[u8], stop: usize) -> Capture {
    let mut capture = Capture::opened();
    capture.at(15 * MS, acks(500, 0));
    for (offset, chunk) in (0..).step_by(1_460).zip(bytes[..stop].chunks(1_460)) {
        capture.at(STOP, segment(ACK, from_client(u32::try_from(offset).unwrap()), from_server(0), chunk));
    }
    capture.at(23 * MS, acks(0, stop));
    capture
}

fn acks(window: u16, offset: usize) -> Segment<'static> {
    Segment { window, ..reply(ACK, from_server(0), from_client(u32::try_from(offset).unwrap()), &[]) }
}

/// A packet of the client with the sequence number before its next one, and none of its bytes: a probe, or a keep-alive.
fn probe(stop: usize) -> Segment<'static> {
    segment(ACK, from_client(u32::try_from(stop - 1).unwrap()), from_server(0), &[])
}

fn charged(seen: &Seen, rpc: usize, cause: Cause) -> i64 {
    i64::try_from(seen.cx.rpc_budgets[rpc].get(cause)).unwrap() / MS
}

/// A message of which 43 segments leave; probes at times, the answers 3 ms later, and a last packet at 2 s.
fn stopped(probes: &[i64], answers: &[i64]) -> Seen {
    let (bytes, stop) = (call("/a/B", 80_000), 43 * 1_460);
    let mut capture = shut(&bytes, stop);
    let mut packets: Vec<_> = probes.iter().map(|&at| (at, probe(stop))).collect();
    packets.extend(answers.iter().map(|&at| (at + 3, acks(0, stop))));
    packets.sort_by_key(|&(at, _)| at);
    for (at, segment) in packets {
        capture.at(at * MS, segment);
    }
    capture.at(2_000 * MS, Segment { source_port: 1, ..segment(SYN, 1, 0, &[]) });
    capture.finish()
}

#[test]
fn a_sender_that_probes_a_closed_window_waits_for_it() {
    let seen = stopped(&[230, 640, 1_460], &[230, 640, 1_460]);
    assert_eq!(charged(&seen, 0, Cause::ReceiveWindow), 1_980);
    let open = &seen.cx.open_rpcs;
    assert_eq!((open.cause[0], open.waits_for[0], open.since_time_ns[0]), (Cause::ReceiveWindow as u8, 1, STOP));
}

#[test]
fn a_sender_that_does_not_probe_may_have_nothing_to_send() {
    for (probes, answers) in [(&[][..], &[230, 640, 1_460][..]), (&[1_030], &[1_030])] {
        let seen = stopped(probes, answers);
        assert_eq!(charged(&seen, 0, Cause::ReceiveWindow), 0, "{probes:?}");
        assert_eq!(charged(&seen, 0, Cause::Unexplained), 1_980);
    }
}

#[test]
fn the_time_is_unexplained_from_when_packets_of_a_side_are_missing() {
    let seen = stopped(&[230, 640, 1_460], &[230]);
    assert_eq!([Cause::ReceiveWindow, Cause::Unexplained].map(|cause| charged(&seen, 0, cause)), [213, 1_767]);
    let seen = stopped(&[230, 640], &[230, 640]);
    assert_eq!([Cause::ReceiveWindow, Cause::Unexplained].map(|cause| charged(&seen, 0, cause)), [623, 1_357]);
}

#[test]
fn a_used_up_window_of_http2_comes_first() {
    let message = message(80_000);
    let head = [preface(), request(1, "/a/B", 0)[..request(1, "/a/B", 0).len() - 14].to_vec()].concat();
    let bytes = [head, frame(0, 0, 1, &message[..65_535])].concat();
    let mut capture = shut(&bytes, bytes.len());
    for at in [230, 640, 1_460] {
        capture.at(at * MS, probe(bytes.len()));
        capture.at((at + 3) * MS, acks(0, bytes.len()));
    }
    let seen = capture.finish();
    assert_eq!(charged(&seen, 0, Cause::ReceiveWindow), 0);
    assert!(charged(&seen, 0, Cause::ConnectionWindow) > 1_400);
}

/// The server is blocked inside its answer to one call. Whether it has written that to another is not known.
#[test]
fn who_is_blocked_is_not_waited_for() {
    let (first, second) = (call("/a/B", 10), request(3, "/a/B", 10));
    let both = u32::try_from(first.len() + second.len()).unwrap();
    let answer = [frame(1, 4, 1, &block(&[(":status", "200")])), frame(0, 0, 1, &message(9_000))].concat();
    let mut capture = Capture::opened();
    capture.at(15 * MS, segment(ACK, from_client(0), from_server(0), &first));
    capture.at(30 * MS, reply(ACK, from_server(0), from_client(u32::try_from(first.len()).unwrap()), &answer[..1_460]));
    let second = Segment {
        window: 0,
        ..segment(ACK, from_client(u32::try_from(first.len()).unwrap()), from_server(1_460), &second)
    };
    capture.at(131 * MS, second);
    for at in [240, 640] {
        capture.at(at * MS, reply(ACK, from_server(1_459), from_client(both), &[]));
        capture.at((at + 1) * MS, Segment { window: 0, ..segment(ACK, from_client(both), from_server(1_460), &[]) });
    }
    let seen = capture.finish();
    assert_eq!(charged(&seen, 0, Cause::ReceiveWindow), 611);
    assert_eq!([Cause::Server, Cause::Unexplained].map(|cause| charged(&seen, 1, cause)), [0, 510]);
    assert!(!seen.cx.open_rpcs.cause.contains(&(Cause::Server as u8)));
}
