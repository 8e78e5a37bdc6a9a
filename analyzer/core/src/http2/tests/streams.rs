//! How streams and their RPCs end, and streams that are no RPCs.

use crate::http2::connection::side::GoawaySeen;
use crate::store::context::NO_METHOD;

use super::*;

/// A request on stream 1 and nothing else.
fn asked() -> Exchange {
    let mut exchange = Exchange::begun();
    exchange.client(&request(1, "/a/B", 10));
    exchange
}

#[test]
fn trailers_only() {
    let mut exchange = asked();
    let block = [response_block(), status_block("12")].concat();
    exchange.server(&headers(1, flag::END_STREAM, &block));
    let expected = Rpc { response: (0, 0), ..unary(1, "/a/B", 10, 0, "UNIMPLEMENTED") };
    assert_eq!(exchange.rpc(), expected);
    assert!(exchange.h2.streams.is_empty());
}

/// doc/http-grpc-status-mapping.md.
#[test]
fn a_response_without_grpc_status_has_one_made_from_its_http_status() {
    for (http, expected) in [("503", "UNAVAILABLE"), ("401", "UNAUTHENTICATED"), ("200", "UNKNOWN"), ("500", "UNKNOWN")]
    {
        let mut exchange = asked();
        exchange.server(&headers(1, 0, &[plain(":status", http), plain("content-type", "text/html")].concat()));
        exchange.server(&data(1, flag::END_STREAM, b"<html>busy</html>"));
        assert_eq!(exchange.outcome(), (Some(expected), true), "{http}");
    }
}

#[test]
fn interim_responses_do_not_end_anything() {
    let mut exchange = asked();
    exchange.server(&headers(1, 0, &plain(":status", "103")));
    exchange.server(&response(1, 6, "0"));
    assert_eq!(exchange.rpc(), unary(1, "/a/B", 10, 6, "OK"));
}

#[test]
fn an_interim_response_is_no_answer() {
    let mut exchange = asked();
    exchange.server(&headers(1, 0, &plain(":status", "103")));
    exchange.client(&rst_stream(1, 8));
    assert_eq!((exchange.outcome(), exchange.cx.rpcs.http_status[0]), ((Some("CANCELLED"), true), 0));
}

/// PROTOCOL-HTTP2.md, "Errors"; a client's code says nothing about the status.
#[test]
fn a_reset_from_either_side_ends_the_rpc() {
    for (side, code, expected) in [
        (SERVER, 7, "UNAVAILABLE"),
        (SERVER, 2, "INTERNAL"),
        (CLIENT, 8, "CANCELLED"),
        (SERVER, 11, "RESOURCE_EXHAUSTED"),
        (SERVER, 5, "UNKNOWN"),
        (CLIENT, 0, "CANCELLED"),
        (CLIENT, 2, "CANCELLED"),
    ] {
        let mut exchange = asked();
        exchange.send(side, &rst_stream(1, code));
        assert_eq!(exchange.outcome(), (Some(expected), true), "RST_STREAM {code} of side {side}");
        assert!(exchange.h2.streams.is_empty());
        exchange.server(&response(1, 6, "0"));
        assert_eq!(exchange.outcome(), (Some(expected), true), "frames that were under way change nothing");
        assert_eq!(exchange.messages().len(), 1);
    }
}

/// A server may answer before the request is over and then reset the stream with NO_ERROR (RFC 9113 section 8.1).
#[test]
fn a_reset_after_the_end_changes_nothing() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    exchange.server(&response(1, 6, "5"));
    let before = exchange.rpc();
    assert_eq!((before.status, before.complete), (Some("NOT_FOUND"), true));
    exchange.server(&rst_stream(1, 0));
    exchange.client(&rst_stream(1, 8));
    assert_eq!(exchange.rpc(), before);
    assert!(exchange.h2.streams.is_empty());
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

/// The rest of a frame is under way when its stream is reset, and the next stream takes its place.
#[test]
fn the_rest_of_a_frame_of_a_stream_that_was_reset_is_not_the_next_streams() {
    let mut exchange = asked();
    let answer = [headers(1, 0, &response_block()), data(1, 0, &message(100))].concat();
    let (begun, rest) = answer.split_at(answer.len() - 40);
    exchange.server(begun);
    exchange.client(&rst_stream(1, 8));
    exchange.client(&request(3, "/a/C", 10));
    exchange.server(rest);
    exchange.server(&response(3, 6, "0"));
    let rpcs = exchange.rpcs();
    assert_eq!(rpcs[1], unary(3, "/a/C", 10, 6, "OK"));
    assert_eq!((rpcs[0].stream, rpcs[0].response), (1, (0, 60)));
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

#[test]
fn a_reset_within_a_message_owes_nothing_more() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    exchange.client(&data(1, 0, &message(100)[..50]));
    assert!(exchange.h2.owes(CLIENT));
    exchange.server(&rst_stream(1, 8));
    assert!(!exchange.h2.owes(CLIENT));
    assert_eq!(exchange.rpc().request, (0, 45), "bytes of an unfinished message, without the prefix");
}

#[test]
fn goaway_is_remembered_and_running_streams_go_on() {
    let mut exchange = asked();
    let payload = [&1_u32.to_be_bytes()[..], &11_u32.to_be_bytes(), b"too_many_pings"].concat();
    exchange.server(&frame(FrameType::GOAWAY, 0, 0, &payload));
    assert_eq!(
        exchange.h2.sides[SERVER].goaway,
        Some(GoawaySeen { last_stream: 1, code: 11, time: i64::from(exchange.packet) * 1_000_000 })
    );
    assert_eq!(exchange.h2.sides[CLIENT].goaway, None);
    exchange.server(&response(1, 6, "0"));
    assert_eq!(exchange.outcome(), (Some("OK"), true));
}

#[test]
fn open_rpcs_end_with_their_connection() {
    for (end, status, complete) in [
        (End::ServerCloses, Some("UNAVAILABLE"), true),
        (End::ClientCloses, None, true),
        (End::Replaced, None, true),
        (End::CaptureEnds, None, false),
    ] {
        let mut exchange = asked();
        exchange.finish(end);
        assert_eq!(exchange.outcome(), (status, complete), "{end:?}");
        assert_eq!((exchange.h2.application.open_rpcs, exchange.h2.application.max_open_rpcs), (0, 1));
        let rpcs = &exchange.cx.rpcs;
        assert_eq!(rpcs.duration_ns, [1_000_000], "to the end, a millisecond later");
        assert_eq!(exchange.cx.rpc_budgets[0].total(), 1_000_000);
    }
}

#[test]
fn a_response_may_have_waited_for_the_end_of_the_request() {
    for (round_trip_ms, expected_ms) in [(0, 1), (2, 1), (3, 4)] {
        let mut exchange = Exchange::begun();
        let transport = Transport { near_rtt: [round_trip_ms * 1_000_000; 2], ..Transport::default() };
        let request = [headers(1, 0, &request_block("/a/B")), data(1, 0, &message(10))].concat();
        let end = data(1, flag::END_STREAM, &[]);
        for (side, bytes, at_ms) in [(CLIENT, request, 10), (CLIENT, end, 13), (SERVER, response(1, 6, "0"), 14)] {
            let reading = &mut Reading { cx: &mut exchange.cx, transport: &transport };
            exchange.h2.feed(side, &bytes, At::new(at_ms, i64::from(at_ms) * 1_000_000), reading, &mut ());
        }
        let method = exchange.cx.rpcs.method[0];
        assert_eq!(exchange.cx.method(method).turnaround_min, expected_ms * 1_000_000, "{round_trip_ms} ms");
    }
}

#[test]
fn the_budget_until_the_end_of_the_request_is_kept() {
    let mut exchange = Exchange::begun();
    exchange.cx.options.packets = true;
    let request = request(1, "/a/B", 10);
    let (first, rest) = request.split_at(20);
    exchange.client(first);
    exchange.client(rest);
    let asked = exchange.packet;
    exchange.server(&response(1, 6, "0"));
    assert_eq!(exchange.cx.request_ends, [asked]);
    assert_eq!(exchange.cx.request_budgets[0].total(), 1_000_000);
    assert_eq!(exchange.cx.rpc_budgets[0].total(), 2_000_000);
}

#[test]
fn a_request_that_does_not_end_has_no_such_budget() {
    let mut exchange = Exchange::begun();
    exchange.cx.options.packets = true;
    exchange.client(request(1, "/a/B", 10).split_at(20).0);
    exchange.finish(End::CaptureEnds);
    assert_eq!(exchange.cx.request_ends, vec![0; exchange.cx.rpcs.len()]);
}

#[test]
fn an_answer_recorded_before_its_request_leaves_others_without_a_status() {
    let mut exchange = asked();
    exchange.server(&response(3, 6, "0"));
    exchange.finish(End::ServerCloses);
    assert_eq!(exchange.outcome(), (None, true), "this one's answer may have come early too");
}

#[test]
fn streams_that_are_not_grpc_are_counted_apart() {
    let mut exchange = Exchange::begun();
    let block = [plain(":method", "GET"), plain(":path", "/index.html")].concat();
    exchange.client(&headers(1, flag::END_STREAM, &block));
    let web =
        [plain(":method", "POST"), plain(":path", "/a/B"), plain("content-type", "application/grpc-web-text")].concat();
    exchange.client(&headers(3, flag::END_STREAM, &web));
    exchange.server(&headers(1, 0, &plain(":status", "200")));
    exchange.server(&data(1, flag::END_STREAM, b"<html/>"));
    assert!(exchange.rpcs().is_empty() && exchange.messages().is_empty());
    assert_eq!(
        (exchange.h2.application.other_streams, exchange.cx.totals.other_streams, exchange.h2.application.rpcs),
        (2, 2, 0)
    );
    assert_eq!(exchange.h2.streams.ids(), [3], "stream 1 is over");
}

/// Stream, path, `:status`, whether its end was seen, first and last packet.
fn other_requests(exchange: &Exchange) -> Vec<(u32, String, u16, bool, [u32; 2])> {
    let (table, paths) = (&exchange.cx.other_requests, exchange.cx.strings.methods.texts());
    let rows = (0..table.len()).filter_map(|row| table.get(row));
    let path = |number: u32| paths.get(number as usize).cloned().unwrap_or_default();
    rows.map(|row| {
        (row.stream, path(row.path), row.http_status, row.duration_ns >= 0, [row.first_packet, row.last_packet])
    })
    .collect()
}

#[test]
fn other_requests_have_rows_that_are_filled_as_they_go_on() {
    let mut exchange = Exchange::begun();
    let get = |path: &str| [plain(":method", "GET"), plain(":path", path)].concat();
    for (stream, path) in [(1, "/a?secret"), (3, "/b"), (5, "/c")] {
        exchange.client(&headers(stream, flag::END_STREAM, &get(path)));
    }
    let last = exchange.packet;
    exchange.server(&headers(1, 0, &plain(":status", "103")));
    exchange.server(&headers(1, 0, &plain(":status", "503")));
    exchange.server(&data(1, flag::END_STREAM, b"<html/>"));
    exchange.client(&rst_stream(3, 8));
    exchange.client(&rst_stream(1, 8));
    exchange.server(&headers(5, 0, &plain(":status", "200")));
    exchange.finish(End::CaptureEnds);
    let ended = [last + 3, last + 4];
    assert_eq!(
        other_requests(&exchange),
        [
            (1, "/a".to_owned(), 503, true, [last - 2, ended[0]]),
            (3, "/b".to_owned(), 0, true, [last - 1, ended[1]]),
            (5, "/c".to_owned(), 200, false, [last, 0]),
        ]
    );
}

#[test]
fn rows_of_other_requests_are_bounded() {
    let mut exchange = Exchange::begun();
    let most = crate::limits::OTHER_REQUESTS + crate::limits::ROWS_AHEAD;
    exchange.cx.other_requests.connection = vec![9; most];
    let columns = &mut exchange.cx.other_requests;
    columns.stream = vec![9; most];
    columns.path = vec![0; most];
    columns.http_status = vec![0; most];
    columns.start_time_ns = vec![0; most];
    columns.duration_ns = vec![-1; most];
    columns.first_packet = vec![1; most];
    columns.last_packet = vec![0; most];
    exchange.client(&headers(1, flag::END_STREAM, &[plain(":method", "GET"), plain(":path", "/a")].concat()));
    exchange.server(&headers(1, flag::END_STREAM, &plain(":status", "200")));
    assert_eq!((exchange.cx.other_requests.len(), exchange.cx.totals.other_streams), (most, 1));
    assert!(exchange.cx.other_requests.http_status.iter().all(|&status| status == 0));
}

/// The compressed flag is 0 or 1; anything else is no gRPC message, and what follows has no known boundaries.
#[test]
fn a_message_flag_of_two_is_no_message() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    exchange.client(&data(1, 0, &[message(3), vec![2, 0, 0, 0, 1, 9], message(4)].concat()));
    exchange.client(&data(1, flag::END_STREAM, &message(5)));
    assert_eq!(exchange.messages(), [(1, 0, 0, 3)]);
    assert_eq!(exchange.problems(), ["DATA is not length-prefixed messages"]);
    assert!(!exchange.h2.owes(CLIENT));
    exchange.server(&response(1, 7, "0"));
    assert_eq!(exchange.rpc().response, (1, 7), "the other direction is read on");
}

#[test]
fn compressed_messages_are_counted() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    let mut compressed = message(8);
    compressed[0] = 1;
    exchange.client(&data(1, flag::END_STREAM, &compressed));
    assert_eq!((exchange.cx.totals.messages, exchange.cx.totals.compressed_messages), (1, 1));
    assert_eq!(exchange.cx.messages.compressed, [1]);
}

#[test]
fn concurrent_rpcs_are_counted() {
    let mut exchange = Exchange::begun();
    for stream in [1, 3, 5] {
        exchange.client(&headers(stream, flag::END_STREAM, &request_block("/a/B")));
    }
    exchange.server(&response(3, 1, "0"));
    exchange.client(&headers(7, flag::END_STREAM, &request_block("/a/B")));
    assert_eq!(
        (exchange.h2.application.rpcs, exchange.h2.application.open_rpcs, exchange.h2.application.max_open_rpcs),
        (4, 3, 3)
    );
}

#[test]
fn the_clients_trailers_open_no_second_rpc() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    exchange.client(&data(1, 0, &message(2)));
    exchange.client(&headers(1, flag::END_STREAM, &plain("x-checksum", "1")));
    exchange.server(&response(1, 3, "0"));
    assert_eq!(exchange.rpc(), unary(1, "/a/B", 2, 3, "OK"));
    assert!(exchange.h2.streams.is_empty());
}

#[test]
fn a_deadline_is_kept_for_its_rpc_alone() {
    let mut exchange = asked();
    exchange.client(&headers(3, 0, &[request_block("/a/B"), plain("grpc-timeout", "50m")].concat()));
    exchange.client(&headers(5, 0, &[request_block("/a/B"), plain("grpc-timeout", "oops")].concat()));
    assert_eq!(exchange.cx.deadlines, [-1, 50_000_000, -1]);
}

#[test]
fn a_request_without_a_path_has_no_method() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_fields()));
    assert_eq!((exchange.rpc().method, exchange.cx.rpcs.method[0]), (None, NO_METHOD));
}
