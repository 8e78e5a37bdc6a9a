//! Responses that their client never acknowledges, though it is heard after they were retransmitted.

use super::*;

const ANSWERED: i64 = 60 * MS;
/// 200 ms after the first retransmission, which comes 240 ms after the response, and a round trip of 1 ms to the client.
const PROVED: i64 = ANSWERED + 441 * MS;

/// A call with this deadline, answered 10 ms after it began; what the server retransmits.
struct Lost {
    capture: Capture,
    client: u32,
    from: u32,
    response: Vec<u8>,
}

impl Lost {
    /// Streams from 1 on, requested and answered one after the other.
    fn answered(streams: u32, timeout: Option<&str>) -> Self {
        let mut capture = Capture::opened();
        let opening = frame(4, 0, 0, &[]);
        capture.server(0, &opening);
        let from = u32::try_from(opening.len()).unwrap();
        let (mut client, mut response) = (0, Vec::new());
        for stream in (0..streams).map(|nth| 2 * nth + 1) {
            let mut fields =
                vec![(":method", "POST"), (":path", "/a/B"), ("content-type", "application/grpc"), ("te", "trailers")];
            fields.extend(timeout.map(|timeout| ("grpc-timeout", timeout)));
            let request = [frame(1, 4, stream, &block(&fields)), frame(0, 1, stream, &message(10))].concat();
            let sent = if stream == 1 { [preface(), request].concat() } else { request };
            let time = ANSWERED + i64::from(stream - 1) * 10 * MS - 10 * MS;
            capture.at(time, segment(ACK, from_client(client), from_server(from), &sent));
            client += u32::try_from(sent.len()).unwrap();
            let answer = self::response(stream, 20);
            let place = from + u32::try_from(response.len()).unwrap();
            capture.at(time + 10 * MS, reply(ACK, from_server(place), from_client(client), &answer));
            response.extend(answer);
        }
        Self { capture, client, from, response }
    }

    /// The server retransmits the first bytes that are not acknowledged, so many times.
    fn retransmitted(mut self, times: i64) -> Self {
        let answered = self.capture.time;
        for nth in 0..times {
            let again = reply(ACK, from_server(self.from), from_client(self.client), &self.response);
            self.capture.at(answered + (240 + 10 * nth) * MS, again);
        }
        self
    }

    /// A packet of the client that acknowledges so many bytes of the response.
    fn heard(mut self, time: i64, acked: u32) -> Self {
        let ack = from_server(self.from + acked);
        self.capture.at(time, segment(ACK, from_client(self.client), ack, &[]));
        self
    }

    fn outcome(self) -> (Option<&'static str>, i64) {
        let seen = self.capture.finish();
        let stats = seen.cx.methods.iter().flatten().next().expect("a method");
        assert_eq!((stats.rpcs, stats.statuses.iter().sum::<u64>()), (1, 1));
        assert_eq!(stats.durations.len() as u64, stats.complete);
        assert_eq!(stats.budget.total(), u64::try_from(seen.cx.rpcs.duration_ns[0]).unwrap());
        (seen.status(0), seen.cx.rpcs.duration_ns[0])
    }
}

#[test]
fn a_client_that_is_heard_without_an_acknowledgement_reaches_its_deadline() {
    let lost = || Lost::answered(1, Some("300m")).retransmitted(2);
    assert_eq!(lost().heard(PROVED + 1, 0).outcome(), (Some("DEADLINE_EXCEEDED"), 300 * MS));
    assert_eq!(lost().heard(PROVED, 0).outcome(), (Some("OK"), 10 * MS), "it may have sent that before");
    assert_eq!(lost().heard(PROVED + 1, 1).outcome(), (Some("OK"), 10 * MS), "some of the packet arrived");
    assert_eq!(lost().outcome(), (Some("OK"), 10 * MS), "the client is not heard again");
    let once = Lost::answered(1, Some("300m")).retransmitted(1);
    assert_eq!(once.heard(PROVED + 1, 0).outcome(), (Some("OK"), 10 * MS), "the first may still be on the way");
}

#[test]
fn without_a_deadline_the_status_is_unknown() {
    for timeout in [None, Some("10S")] {
        let seen = Lost::answered(1, timeout).retransmitted(2).heard(PROVED + 1, 0).capture.finish();
        assert_eq!((seen.status(0), seen.cx.rpcs.duration_ns[0]), (None, PROVED + 1 - 50 * MS));
        assert_eq!(seen.cx.rpc_budgets[0].get(Cause::LossRecovery), (PROVED + 1 - ANSWERED).unsigned_abs());
        assert!(seen.cx.failures.is_empty(), "it is not over");
    }
    let mut closed = Lost::answered(1, None).retransmitted(2).heard(PROVED + 1, 0);
    closed.capture.add(reply(RST, from_server(closed.from), 0, &[]));
    assert_eq!(closed.outcome(), (Some("UNAVAILABLE"), PROVED + 1 + MS - 50 * MS));
}

/// A host that does not know the connection any more tells nothing of what had arrived before.
#[test]
fn a_reset_that_acknowledges_nothing_proves_nothing() {
    let mut lost = Lost::answered(1, Some("300m")).retransmitted(2);
    lost.capture.at(PROVED + 1, segment(RST, from_client(lost.client), 0, &[]));
    assert_eq!(lost.outcome(), (Some("OK"), 10 * MS));
}

#[test]
fn calls_whose_places_were_taken_are_known_as_well() {
    let most = u32::try_from(limits::UNACKNOWLEDGED_RESPONSES).unwrap();
    for (calls, expected) in [(4, 0), (most + 1, 0), (most + 2, 1)] {
        let mut lost = Lost::answered(calls, Some("300m"));
        lost = lost.retransmitted(2).heard(PROVED + i64::from(20 * calls) * MS, 0);
        let seen = lost.capture.finish();
        let ok = seen.cx.rpcs.status.iter().filter(|&&status| status == status::OK).count();
        assert_eq!((seen.cx.rpcs.len(), ok), (calls as usize, expected));
    }
}

#[test]
fn a_row_that_was_emitted_stays() {
    let mut lost = Lost::answered(1, Some("300m")).retransmitted(2).heard(PROVED + 1, 0);
    lost.capture.cx().take_rpcs(1);
    let (_, cx, _) = lost.capture.shard.into_finished(CaptureEnd { last: lost.capture.end, damage: 0 });
    let stats = cx.methods.iter().flatten().next().expect("a method");
    assert_eq!((stats.statuses[0], stats.complete), (1, 1));
}
