//! Bytes that the path holds behind the capture point, which is beside the client: 20 ms from the server, there and back.

use crate::store::budget::Cause;

use super::*;

/// What one packet of the server says: when it comes, when it left by its clock, and how many of the requests it acknowledges.
type Ack = (i64, i64, usize);

/// Two requests, the first at 200 ms, on a path that is held. Times are milliseconds.
struct Held<'a> {
    acks: &'a [Ack],
    /// Bytes of the first request's message.
    length: usize,
    /// When the client sends the second request.
    second: i64,
    /// The client retransmits the second request, and the ACK answers the first copy of it if that arrived.
    resent: Option<i64>,
    is_lost: bool,
    /// Both responses come.
    answered: i64,
    /// Packets have timestamps.
    clocks: bool,
}

const BURST: [Ack; 2] = [(500, 490, 1), (501, 491, 2)];

impl Held<'_> {
    fn new(acks: &[Ack]) -> Held<'_> {
        Held { acks, length: 10, second: 300, resent: None, is_lost: false, answered: 506, clocks: true }
    }

    fn seen(&self) -> Seen {
        let clock = |left: i64, echoes: i64| {
            self.clocks.then(|| [left, echoes].map(|time| u32::try_from(1_000 + time).unwrap()).into())
        };
        let options = |segment| Segment { mss: Some(1_460), window_scale: Some(7), ..segment };
        let (first, settings) = (call("/a/B", 10), [frame(4, 0, 0, &[]), response(1, 20)].concat());
        let requests = [request(3, "/a/B", self.length), request(5, "/a/B", 10)];
        let sizes = [first.len(), requests[0].len(), requests[1].len()].map(|bytes| u32::try_from(bytes).unwrap());
        let ends = [sizes[0], sizes[0] + sizes[1], sizes[0] + sizes[1] + sizes[2]];
        let said = u32::try_from(settings.len()).unwrap();
        let mut packets = vec![
            (0, options(segment(SYN, CLIENT_ISN, 0, &[])), 0),
            (20, options(reply(SYN_ACK, SERVER_ISN, from_client(0), &[])), 10),
            (20, segment(ACK, from_client(0), from_server(0), &[]), 20),
            (120, segment(ACK, from_client(0), from_server(0), &first), 120),
            (140, reply(ACK, from_server(0), from_client(ends[0]), &[]), 130),
            (145, reply(ACK, from_server(0), from_client(ends[0]), &settings), 135),
            (145, segment(ACK, from_client(ends[0]), from_server(said), &[]), 145),
            (200, segment(ACK, from_client(ends[0]), from_server(said), &requests[0]), 200),
            (self.second, segment(ACK, from_client(ends[1]), from_server(said), &requests[1]), self.second),
        ];
        let again = |time| (time, segment(ACK, from_client(ends[1]), from_server(said), &requests[1]), time);
        packets.extend(self.resent.map(again));
        let copy = self.resent.filter(|_| self.is_lost).unwrap_or(self.second);
        let mut covered = 0;
        for &(time, left, number) in self.acks {
            let timestamps = clock(left, if number == 2 && covered == 1 { copy } else { 200 });
            let ack = reply(ACK, from_server(said), from_client(ends[number]), &[]);
            packets.push((time, Segment { timestamps, ..ack }, left));
            covered = number;
        }
        let answers = [response(3, 20), response(5, 20)].concat();
        let answer = reply(ACK, from_server(said), from_client(ends[2]), &answers);
        packets.push((self.answered, answer, self.answered - 10));
        packets.sort_by_key(|(time, ..)| *time);
        let mut capture = Capture::new();
        for (time, packet, left) in packets {
            capture.at(time * MS, Segment { timestamps: packet.timestamps.or(clock(left, left - 10)), ..packet });
        }
        capture.finish()
    }

    /// What the path, the server, nobody, and lost packets are charged in both calls, in milliseconds.
    fn charged(&self) -> [[i64; 4]; 2] {
        let seen = self.seen();
        let causes = [Cause::NetworkQueue, Cause::Server, Cause::Unexplained, Cause::LossRecovery];
        let of = |rpc: usize, cause: Cause| (seen.cx.rpc_budgets[rpc].0[cause as usize] as i64 + MS / 2) / MS;
        [1, 2].map(|rpc| causes.map(|cause| of(rpc, cause)))
    }
}

#[test]
fn acks_that_come_together_show_that_the_path_held_what_they_acknowledge() {
    assert_eq!(Held::new(&BURST).charged(), [[280, 6, 0, 0], [181, 5, 0, 0]]);
    let queues = Held::new(&BURST).seen().cx.queues;
    assert_eq!((queues.len(), queues.packets[0], queues.behind[0], queues.direction[0]), (1, 2, 1, 0));
    assert_eq!([queues.longest_ns[0] / MS, queues.silent_ns[0] / MS, queues.together_ns[0] / MS], [279, 279, 101]);
}

#[test]
fn a_late_ack_alone_shows_nothing() {
    for acks in [&[(500, 490, 2)][..], &[]] {
        assert_eq!(Held::new(acks).charged()[1][0], 0, "{acks:?}");
        assert_eq!(Held::new(acks).charged()[1][1] + Held::new(acks).charged()[1][2], 186, "{acks:?}");
    }
}

#[test]
fn the_ack_before_must_come_together_with_the_one_that_shows_it() {
    let apart = |ms: i64| Held { answered: 520, ..Held::new(&[(500, 490, 1), (500 + ms, 490 + ms, 2)]) }.charged();
    assert_eq!(apart(4), [[280, 20, 0, 0], [184, 16, 0, 0]]);
    assert_eq!(apart(5), [[280, 20, 0, 0], [180, 15, 5, 0]], "they may have come up to 505 ms");
    assert_eq!(apart(6), [[0, 300, 0, 0], [180, 14, 6, 0]]);
}

#[test]
fn the_bytes_behind_must_have_been_held_for_a_quarter_of_the_time() {
    let sent_at = |second: i64| Held { second, ..Held::new(&BURST) }.charged()[0];
    assert_eq!([408, 412].map(sent_at), [[280, 6, 0, 0], [0, 286, 0, 0]]);
}

#[test]
fn bytes_behind_many_of_the_same_sender_may_have_waited_for_these() {
    let behind = |length: usize| Held { length, ..Held::new(&BURST) }.charged()[1][0];
    assert_eq!([1_000, 14_300, 14_600].map(behind), [181, 181, 0]);
}

#[test]
fn an_ack_that_was_held_on_the_way_back_shows_nothing_of_what_was_sent() {
    let charged = Held::new(&[(500, 230, 1), (501, 350, 2)]).charged();
    assert_eq!([charged[0][0], charged[1][0]], [0, 0], "{charged:?}");
}

#[test]
fn acks_that_are_delayed_as_usual_show_nothing() {
    for delay in [0, 39] {
        let acks = [(220 + delay, 210 + delay, 1), (320 + delay, 310 + delay, 2)];
        let charged = Held::new(&acks).charged();
        assert_eq!([charged[0][0], charged[1][0]], [0, 0], "{charged:?}");
        assert!(Held::new(&acks).seen().cx.queues.is_empty());
    }
}

#[test]
fn what_was_lost_was_not_held() {
    let acks = [(220, 210, 1), (410, 400, 1), (500, 490, 2)];
    let resent = |is_lost: bool| Held { resent: Some(480), is_lost, ..Held::new(&acks) };
    let charged = resent(true).charged();
    assert_eq!((charged[1][0], charged[1][3]), (0, 180), "{charged:?}");
    assert_eq!(resent(false).charged()[1], [90, 6, 90, 0], "held up to 410 ms, and maybe up to 500 ms");
}

#[test]
fn without_timestamps_nothing_tells_when_the_ack_before_left() {
    let held = Held { clocks: false, ..Held::new(&BURST) };
    assert_eq!(held.charged().map(|charged| charged[0]), [0, 0]);
    assert!(held.seen().cx.queues.is_empty());
}
