//! Responses that Nagle's algorithm holds back behind the acknowledgement of a PING. The capture is taken beside the server.

use crate::store::budget::Cause;

use super::*;

const US: i64 = 1_000;
/// When the second request comes, with a PING, which the server acknowledges at once.
const ASKED: i64 = 60 * MS;

/// Two calls: the first one is answered after `took`, the second one `late` after the client's delayed ACK.
struct Calls {
    took: i64,
    delay: i64,
    late: i64,
    /// The server sends another short segment behind the first one, which is not acknowledged then.
    at_once: bool,
    /// The second request comes with the ACK.
    asks_with_the_ack: bool,
    /// The client says something else with the ACK.
    speaks_with_the_ack: bool,
    /// The first call is answered.
    answered: bool,
    /// The method of the first call.
    first: &'static str,
    /// The second call was answered before, with the first message of a stream.
    pushes: bool,
}

fn offset(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}

impl Calls {
    fn held() -> Self {
        Self {
            took: 5 * MS,
            delay: 42 * MS,
            late: 20 * US,
            at_once: false,
            asks_with_the_ack: false,
            speaks_with_the_ack: false,
            answered: true,
            first: "/a/B",
            pushes: false,
        }
    }

    fn seen(&self) -> Seen {
        let mut capture = Capture::new();
        let options = |segment| Segment { mss: Some(1_460), window_scale: Some(7), ..segment };
        capture.at(10 * MS, options(segment(SYN, CLIENT_ISN, 0, &[])));
        capture.at(10 * MS + 10 * US, options(reply(SYN_ACK, SERVER_ISN, from_client(0), &[])));
        capture.at(13 * MS, segment(ACK, from_client(0), from_server(0), &[]));
        let ping = frame(6, 0, 0, &[7; 8]);
        let mut asked = call(self.first, 10);
        let mut said = [frame(4, 0, 0, &[]), frame(4, 1, 0, &[])].concat();
        capture.at(14 * MS, segment(ACK, from_client(0), from_server(0), &asked));
        if self.answered {
            said.extend(response(1, 10));
            capture.at(14 * MS + self.took, reply(ACK, from_server(0), from_client(offset(&asked)), &said));
            capture.at(19 * MS + self.took, segment(ACK, from_client(offset(&asked)), from_server(offset(&said)), &[]));
        } else {
            said.clear();
        }
        let mut second = request(3, "/a/B", 10);
        let mut answer = response(3, 10);
        if self.pushes {
            let sent = segment(ACK, from_client(offset(&asked)), from_server(offset(&said)), &second);
            capture.at(ASKED - 3 * MS, sent);
            asked.extend(&second);
            let begun = &answer[..answer.len() - frame(1, 5, 3, &block(&[("grpc-status", "0")])).len()];
            capture.at(ASKED - 2 * MS, reply(ACK, from_server(offset(&said)), from_client(offset(&asked)), begun));
            said.extend(begun);
            capture.at(ASKED - MS, segment(ACK, from_client(offset(&asked)), from_server(offset(&said)), &[]));
            (second, answer) = (Vec::new(), frame(0, 0, 3, &message(10)));
        }
        let sent = if self.asks_with_the_ack { ping } else { [ping, second.clone()].concat() };
        capture.at(ASKED, segment(ACK, from_client(offset(&asked)), from_server(offset(&said)), &sent));
        asked.extend(&sent);
        let mut speaks = |capture: &mut Capture, time, bytes: &[u8]| {
            capture.at(time, reply(ACK, from_server(offset(&said)), from_client(offset(&asked)), bytes));
            said.extend(bytes);
            offset(&said)
        };
        let mut end = speaks(&mut capture, ASKED + 10 * US, &frame(6, 1, 0, &[7; 8]));
        if self.at_once {
            end = speaks(&mut capture, ASKED + 20 * US, &frame(8, 0, 0, &[0, 0, 1, 0]));
        }
        let acked = ASKED + 10 * US + self.delay;
        let said_more = if self.speaks_with_the_ack { frame(6, 0, 0, &[9; 8]) } else { Vec::new() };
        let with = if self.asks_with_the_ack { second } else { said_more };
        capture.at(acked, segment(ACK, from_client(offset(&asked)), from_server(end), &with));
        let acknowledged = from_client(offset(&asked) + offset(&with));
        capture.at(acked + self.late, reply(ACK, from_server(end), acknowledged, &answer));
        capture.finish()
    }
}

#[test]
fn a_response_waits_behind_the_acknowledgement_of_a_ping() {
    let calls = Calls::held();
    let seen = calls.seen();
    let waits = &seen.cx.waits;
    assert_eq!(waits.cause, [Cause::DelayedAck as u8]);
    assert_eq!([waits.stopped_at_packet[0], waits.released_by_packet[0], waits.resumed_at_packet[0]], [8, 9, 10]);
    let budget = seen.cx.rpc_budgets[1].0;
    let held = (10 * US + calls.delay + calls.late - calls.took) as u64;
    assert_eq!(budget[Cause::DelayedAck as usize], held, "the server is granted what it took before: {budget:?}");
    assert_eq!(waits.duration_ns[0] as u64, held);
}

#[test]
fn it_is_the_servers_own_time_where_something_else_can_have_taken_it() {
    let others = [
        ("it sends behind a short segment", Calls { at_once: true, ..Calls::held() }),
        ("the request came with the ACK", Calls { asks_with_the_ack: true, ..Calls::held() }),
        ("the client said more than an ACK", Calls { speaks_with_the_ack: true, ..Calls::held() }),
        ("long after the ACK", Calls { late: MS, ..Calls::held() }),
        ("the ACK was not put off", Calls { delay: 20 * MS, ..Calls::held() }),
        ("it took as long before", Calls { took: 42 * MS, ..Calls::held() }),
        ("it never answered before", Calls { answered: false, ..Calls::held() }),
        ("another method was answered before", Calls { first: "/a/C", ..Calls::held() }),
        ("a stream goes on", Calls { pushes: true, ..Calls::held() }),
    ];
    for (why, calls) in others {
        let seen = calls.seen();
        assert_eq!(seen.cx.waits.cause, [0; 0], "{why}");
        assert!(seen.cx.rpc_budgets.iter().all(|budget| budget.0[Cause::DelayedAck as usize] == 0), "{why}");
    }
}
