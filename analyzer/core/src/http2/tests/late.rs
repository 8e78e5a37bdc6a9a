//! A capture that begins in the middle of a connection, or has a hole.

use crate::http2::connection::http2::Protocol;

use super::*;

/// Bytes inside a message: no frame header among them.
const MIDDLE: [u8; 500] = [0xcc; 500];

#[test]
fn the_next_boundary_is_found_inside_a_segment() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[&MIDDLE[..], &window_update(0, 9), &request(9, "/a/B", 3)].concat());
    assert_eq!(exchange.h2.protocol, Protocol::Http2);
    assert_eq!((exchange.h2.bytes.undecoded, exchange.accounted()), (500, exchange.h2.bytes.decoded + 500));
    let rpc = exchange.rpc();
    assert_eq!((rpc.stream, rpc.method.as_deref()), (9, Some("/a/B")));
    assert_eq!(exchange.messages(), [(9, 0, 0, 3)]);
    assert_eq!(exchange.frames().first(), Some(&(0, 0, 8, 0, 4)), "the frame before the request is read too");
}

#[test]
fn a_boundary_over_segments_is_found_wherever_they_are_cut() {
    let bytes = [&MIDDLE[..40], &window_update(0, 9), &request(9, "/a/B", 3), &ping()].concat();
    for cut in 1..bytes.len() {
        let mut exchange = Exchange::late(CLIENT);
        exchange.client(&bytes[..cut]);
        exchange.client(&bytes[cut..]);
        exchange.client(&request(11, "/a/C", 4));
        exchange.finish(End::CaptureEnds);
        let rpcs = exchange.rpcs();
        assert_eq!(rpcs.last().map(|rpc| (rpc.stream, rpc.request)), Some((11, (1, 4))), "cut at {cut}: {rpcs:?}");
        assert_eq!(exchange.accounted(), (bytes.len() + request(11, "/a/C", 4).len()) as u64);
    }
}

#[test]
fn roles_are_corrected_by_a_requests_fields() {
    let mut exchange = Exchange::late(SERVER);
    exchange.client(&[ping(), ping(), request(9, "/a/B", 3)].concat());
    assert_eq!((exchange.h2.client, exchange.h2.roles_certain), (CLIENT, true));
    exchange.server(&[ping(), response(9, 5, "0")].concat());
    assert_eq!(exchange.rpc(), unary(9, "/a/B", 3, 5, "OK"));
    assert_eq!(exchange.messages(), [(9, 0, 0, 3), (9, 1, 0, 5)]);
}

#[test]
fn roles_are_corrected_by_a_responses_status() {
    let mut exchange = Exchange::late(SERVER);
    exchange.server(&[ping(), ping(), headers(3, 0, &response_block())].concat());
    assert_eq!((exchange.h2.client, exchange.h2.roles_certain), (CLIENT, true));
    assert!(exchange.rpcs().is_empty(), "the request was before the capture");
}

/// References to entries from before the capture are unknown; a method is never guessed, a new one is known.
#[test]
fn methods_from_before_the_capture_are_unknown() {
    let mut exchange = Exchange::late(CLIENT);
    let old = [&NEWEST[..], &request_fields()].concat();
    exchange.client(&[ping(), ping(), headers(9, flag::END_STREAM, &old)].concat());
    exchange.client(&headers(11, flag::END_STREAM, &[inserted(":path", "/a/New"), request_fields()].concat()));
    exchange.client(&headers(13, flag::END_STREAM, &[&NEWEST[..], &request_fields()].concat()));
    let methods: Vec<_> = exchange.rpcs().into_iter().map(|rpc| rpc.method).collect();
    assert_eq!(methods, [None, Some("/a/New".to_owned()), Some("/a/New".to_owned())]);
    assert_eq!(
        exchange.cx.rpcs.flags.iter().map(|flags| flags & rpc_flag::METHOD_UNKNOWN).collect::<Vec<_>>(),
        [2, 0, 0]
    );
}

/// Trailers that are references from before the capture: the status is not known, not OK and not UNKNOWN.
#[test]
fn a_status_from_before_the_capture_is_not_made_up() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping(), request(9, "/a/B", 3)].concat());
    exchange.server(&[ping(), ping(), headers(9, 0, &response_block())].concat());
    exchange.server(&headers(9, flag::END_STREAM, &NEWEST));
    assert_eq!(exchange.outcome(), (None, true));
}

#[test]
fn a_hole_inside_data_is_skipped_and_the_message_goes_on() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    let bytes = data(1, flag::END_STREAM, &message(1_000));
    exchange.client(&bytes[..100]);
    exchange.lose(CLIENT, 300);
    exchange.client(&bytes[400..]);
    exchange.server(&response(1, 5, "0"));
    assert_eq!(exchange.rpc(), unary(1, "/a/B", 1_000, 5, "OK"), "the prefix tells the length");
    assert_ne!(exchange.cx.rpcs.flags[0] & rpc_flag::TOUCHES_GAP, 0);
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

/// The length of a message whose prefix is cut is unknown: it is not made up. The next one that fills its frame is read.
#[test]
fn a_hole_inside_a_prefix_costs_that_message() {
    for hole in 1..=5 {
        let mut exchange = Exchange::begun();
        exchange.client(&headers(1, 0, &request_block("/a/B")));
        let bytes = data(1, 0, &message(7));
        exchange.client(&bytes[..9 + 5 - hole]);
        exchange.lose(CLIENT, hole as u64);
        exchange.client(&bytes[9 + 5..]);
        exchange.client(&data(1, 0, &message(3)[..6]));
        assert!(exchange.messages().is_empty(), "hole of {hole}: {:?}", exchange.messages());
        exchange.client(&data(1, 0, &[message(4), message(0), message(5)].concat()));
        assert_eq!(exchange.messages(), [(1, 0, 0, 4), (1, 0, 1, 0), (1, 0, 2, 5)], "hole of {hole}");
        assert_eq!(exchange.counted(FrameType::DATA), 3, "frame boundaries are known");
    }
}

/// Streams that open while the other direction's boundary is searched may have had messages in what is not read.
#[test]
fn messages_behind_bytes_that_were_not_read_are_read_where_one_begins() {
    let mut exchange = Exchange::begun();
    exchange.lose(SERVER, 1_000);
    exchange.client(&request(1, "/a/B", 1));
    exchange.server(&[&MIDDLE[..20], &ping(), &ping(), &data(1, 0, &message(50)[9..])].concat());
    assert_eq!(exchange.messages(), [(1, 0, 0, 1)], "this may be the middle of one");
    exchange.client(&request(3, "/a/B", 1));
    exchange.server(&response(3, 6, "0"));
    assert_eq!(exchange.messages()[1..], [(3, 0, 0, 1), (3, 1, 0, 6)], "these are known from their headers on");
}

#[test]
fn a_hole_over_frame_boundaries_loses_them_until_the_next() {
    let mut exchange = Exchange::begun();
    exchange.client(&request(1, "/a/B", 10)[..20]);
    exchange.lose(CLIENT, 1_000);
    exchange.client(&[&MIDDLE[..100], &ping(), &ping(), &request(5, "/a/C", 3)].concat());
    assert_eq!(exchange.problems(), ["bytes are missing: frames are unknown up to the next boundary"]);
    let rpcs: Vec<_> = exchange.rpcs().into_iter().map(|rpc| (rpc.stream, rpc.method)).collect();
    assert_eq!(rpcs, [(1, None), (5, Some("/a/C".to_owned()))], "the first one's HEADERS began before the hole");
    assert_eq!(exchange.messages(), [(5, 0, 0, 3)]);
    assert_eq!(exchange.h2.bytes.undecoded, 100);
}

/// Messages that were under way in the hole are not continued as if nothing had happened.
#[test]
fn a_message_cut_by_a_lost_boundary_is_given_up() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    exchange.client(&data(1, 0, &message(100)[..50]));
    exchange.lose(CLIENT, 64);
    exchange.client(&[ping(), ping(), data(1, flag::END_STREAM, &[0xaa; 55])].concat());
    assert!(exchange.messages().is_empty(), "{:?}", exchange.messages());
    assert!(!exchange.h2.owes(CLIENT));
    exchange.server(&response(1, 5, "0"));
    assert_eq!((exchange.rpc().request.0, exchange.rpc().response), (0, (1, 5)));
    assert_ne!(exchange.cx.rpcs.flags[0] & rpc_flag::TOUCHES_GAP, 0);
}

/// A PING counts as unanswered only while its acknowledgement cannot have been missed.
#[test]
fn a_ping_is_not_unanswered_where_its_acknowledgement_may_be_missing() {
    let pinged = |exchange: &Exchange| exchange.h2.sides[SERVER].pinged.is_some();
    let mut exchange = Exchange::begun();
    exchange.client(&ping());
    assert!(pinged(&exchange));
    exchange.lose(CLIENT, 1_000);
    assert!(pinged(&exchange), "the client does not acknowledge its own");
    exchange.lose(SERVER, 1_000);
    assert!(!pinged(&exchange), "the hole may hold it");

    let mut exchange = Exchange::begun();
    exchange.client(&ping());
    exchange.server(&frame(FrameType::PING, flag::ACK, 0, b"deadbeef")[..12]);
    exchange.lose(SERVER, 3);
    assert!(!pinged(&exchange), "the header is there");
    let mut exchange = Exchange::begun();
    exchange.client(&ping());
    exchange.server(&ping()[..12]);
    exchange.lose(SERVER, 3);
    assert!(pinged(&exchange), "a PING of the server's own");
}

#[test]
fn another_protocol_is_given_up_after_a_bounded_search() {
    let mut exchange = Exchange::late(CLIENT);
    let piece = vec![0xee; 64 * 1024];
    let pieces = bounds::RESYNC_GIVE_UP as usize / piece.len() + 10;
    for _ in 0..pieces {
        exchange.client(&piece);
        let kept = exchange.h2.sides[CLIENT].search.as_ref().map_or(0, |search| search.len());
        assert!(kept <= bounds::RESYNC_BUFFER, "{kept} bytes kept");
    }
    exchange.finish(End::CaptureEnds);
    assert_eq!(exchange.h2.protocol, Protocol::Other);
    assert_eq!(exchange.accounted(), (pieces * piece.len()) as u64);
}

#[test]
fn a_forced_port_is_searched_from_its_first_byte() {
    let mut exchange = Exchange::opened();
    exchange.h2.assume_http2();
    exchange.client(&[&MIDDLE[..30], &ping(), &ping(), &request(1, "/a/B", 3)].concat());
    assert_eq!(exchange.rpc().method.as_deref(), Some("/a/B"));
}

/// A stream whose HEADERS were before the capture: nothing says what it is until its DATA does.
#[test]
fn a_stream_from_before_is_followed_from_a_proved_message_on() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping(), data(7, 0, &message(30)[..20])].concat());
    assert!(exchange.rpcs().is_empty(), "the beginning of a message may be anything");
    exchange.client(&data(7, 0, &message(30)[20..]));
    exchange.server(&[ping(), ping(), data(7, 0, &message(4))].concat());
    assert!(exchange.rpcs().is_empty(), "its end proves where the next one begins");
    exchange.client(&data(7, 0, &message(9)));
    exchange.server(&data(7, 0, &message(5)));
    assert_eq!(exchange.messages(), [(7, 0, 0, 9), (7, 1, 0, 5)]);
    exchange.server(&headers(7, flag::END_STREAM, &plain("grpc-status", "0")));
    let rpc = exchange.rpc();
    assert_eq!((rpc.stream, rpc.method, rpc.status), (7, None, Some("OK")));
    assert_eq!((rpc.request, rpc.response), ((1, 9), (1, 5)));
    let flags = rpc_flag::BEGUN_BEFORE | rpc_flag::METHOD_UNKNOWN;
    assert_eq!(exchange.cx.rpcs.flags[0] & flags, flags);
    assert_eq!(exchange.cx.totals.begun_before, 1);
    exchange.client(&data(7, 0, &message(9)));
    assert_eq!(exchange.rpcs().len(), 1, "what drains behind its end begins no second one");
}

/// Of a unary RPC the rest of the answer alone is no RPC of the capture; nor are bytes that are not gRPC's.
#[test]
fn the_rest_of_an_answer_is_no_rpc() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping()].concat());
    exchange.server(&[ping(), ping(), response(7, 50, "0")].concat());
    exchange.server(&[response_block_of("text/html", 9), data(9, 0, &message(3)), data(9, 0, &message(3))].concat());
    for _ in 0..5 {
        exchange.client(&data(11, 0, &[0; 40]));
        exchange.client(&data(13, 0, b"<html>"));
    }
    exchange.client(&request(15, "/a/B", 3));
    exchange.client(&data(17, 0, &message(3)));
    assert_eq!(exchange.rpc().stream, 15, "higher streams began in the capture, or are lost");
}

fn response_block_of(content_type: &str, stream: u32) -> Vec<u8> {
    headers(stream, 0, &[&[0x88][..], &plain("content-type", content_type)].concat())
}

/// One entry is one method, whatever its name; another entry may be another.
#[test]
fn unknown_methods_are_told_apart_by_their_entries() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping()].concat());
    let indexed = |index: u8| [&[0x83, 0x86, 0x80 | index, 0x80 | 90][..], &plain("te", "trailers")].concat();
    for (stream, index) in [(9, 62), (11, 63), (13, 62)] {
        exchange.client(&headers(stream, flag::END_STREAM, &indexed(index)));
    }
    exchange.client(&headers(15, flag::END_STREAM, &[indexed(62), inserted("x", "y")].concat()));
    exchange.client(&headers(17, flag::END_STREAM, &indexed(63)));
    let methods = &exchange.cx.rpcs.method;
    assert_eq!(methods[0], methods[2]);
    assert_ne!(methods[0], methods[1]);
    assert_eq!(methods[0], methods[3]);
    assert_ne!(methods[4], methods[0], "the other field is another entry now, for all that is known");
    assert!(exchange.rpcs().iter().all(|rpc| rpc.method.is_none()));
    assert_eq!(exchange.cx.strings.unnamed_methods().len(), 3);
}

/// The preface and the server's SETTINGS are the beginning, whether or not TCP's is in the capture.
#[test]
fn from_the_preface_on_nothing_is_unknown() {
    let mut exchange = Exchange::late(SERVER);
    exchange.client(&[PREFACE, &settings_frame(&[])].concat());
    assert!(exchange.h2.begun_late);
    exchange.server(&settings_frame(&[]));
    assert!(!exchange.h2.begun_late);
    assert_eq!((exchange.h2.client, exchange.h2.connection_window(CLIENT)), (CLIENT, Some(65_535)));
    exchange.client(&request(1, "/a/B", 3));
    assert_eq!(exchange.rpc().method.as_deref(), Some("/a/B"));
}

/// A request whose `content-type` was sent before the capture.
fn untyped_request(stream: u32, fields: &[u8]) -> Vec<u8> {
    let block = [&plain(":path", "/a/B")[..], &plain(":method", "POST"), &NEWEST, fields].concat();
    headers(stream, 0, &block)
}

/// Protocol, status, and messages of both sides of an RPC whose request is of a type that is not known.
fn answered(fields: &[u8], content_type: &str, body: &[u8]) -> (&'static str, Option<&'static str>, [u32; 2]) {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[&ping()[..], &ping(), &untyped_request(9, fields)].concat());
    exchange.client(&data(9, flag::END_STREAM, &message(3)));
    exchange.server(&[&ping()[..], &ping(), &response_block_of(content_type, 9)].concat());
    exchange.server(&data(9, flag::END_STREAM, &[&message(5), body].concat()));
    assert!(exchange.problems().is_empty(), "{content_type}: {:?}", exchange.problems());
    let rpc = exchange.rpc();
    let protocol = crate::grpc::protocol::NAMES[usize::from(exchange.cx.rpcs.protocol[0])];
    (protocol, rpc.status, [rpc.request.0, rpc.response.0])
}

#[test]
fn the_answer_tells_the_protocol_of_a_request_whose_type_is_not_known() {
    let (web_end, connect_end) = (b"\x80\0\0\0\x10grpc-status: 0\r\n", b"\x02\0\0\0\x02{}");
    assert_eq!(answered(b"", "application/grpc-web+proto", web_end), ("grpc-web", Some("OK"), [1, 1]));
    assert_eq!(answered(b"", "application/connect+proto", connect_end), ("connect", Some("OK"), [1, 1]));
    let version = plain("connect-protocol-version", "1");
    assert_eq!(answered(&version, "application/connect+proto", connect_end), ("connect", Some("OK"), [1, 1]));
    assert_eq!(answered(b"", "application/json", b"").1, None, "nothing says that this is an RPC");
    assert_eq!(answered(&plain("te", "trailers"), "application/json", b"").1, Some("UNKNOWN"), "gRPC alone sends te");
}

#[test]
fn the_answer_tells_the_protocol_of_a_stream_from_before_the_capture() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping(), data(7, 0, &message(4)), data(7, 0, &message(4))].concat());
    exchange.server(&[&ping()[..], &ping(), &response_block_of("application/grpc-web", 7)].concat());
    exchange.server(&data(7, flag::END_STREAM, b"\x80\0\0\0\x10grpc-status: 5\r\n"));
    assert_eq!((exchange.rpc().status, exchange.cx.rpcs.protocol[0]), (Some("NOT_FOUND"), 1));
}

/// Trailers of references alone come from no client: `:method` is in the static table.
#[test]
fn trailers_hint_at_the_server_and_a_request_proves_the_client() {
    let mut exchange = Exchange::late(SERVER);
    exchange.server(&[ping(), ping(), headers(3, flag::END_STREAM, &NEWEST)].concat());
    assert_eq!((exchange.h2.client, exchange.h2.roles_certain), (CLIENT, false));
    assert!(exchange.rpcs().is_empty());
    exchange.client(&[ping(), ping(), request(9, "/a/B", 3)].concat());
    assert_eq!((exchange.h2.client, exchange.h2.roles_certain), (CLIENT, true));
    assert_eq!(exchange.rpc().stream, 9);
}

/// By the ports alone the side that resets a stream may be either: its status is not known.
#[test]
fn what_is_seen_of_guessed_roles_has_no_status() {
    for guessed in [true, false] {
        let mut exchange = Exchange::late(CLIENT);
        exchange.h2.roles_guessed = guessed;
        exchange.client(&[ping(), ping(), data(7, 0, &message(4))].concat());
        exchange.server(&[&ping()[..], &ping(), &frame(FrameType::RST_STREAM, 0, 7, &7_u32.to_be_bytes())].concat());
        assert_eq!(exchange.outcome(), (if guessed { None } else { Some("UNAVAILABLE") }, true));
    }
}

/// The status source of each RPC.
fn sources(exchange: &Exchange) -> Vec<&'static str> {
    exchange.cx.rpcs.status_source.iter().map(|&source| status::SOURCES[usize::from(source)]).collect()
}

/// A late exchange in which the client has made a unary request on each stream.
fn late_requests(streams: &[u32]) -> Exchange {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping()].concat());
    exchange.server(&[ping(), ping()].concat());
    for &stream in streams {
        exchange.client(&request(stream, "/a/B", 3));
    }
    exchange
}

/// A header block of a known `:status` and table entries from before the capture.
fn hidden_block(entries: &[u8]) -> Vec<u8> {
    [&[0x88][..], &entries.iter().map(|index| 0x80 | index).collect::<Vec<_>>()].concat()
}

/// Entry 63 ends an answered RPC. Without a message, the same entry ends a server stream as well, another one is an error.
#[test]
fn an_end_without_a_message_is_told_by_its_fields() {
    let mut exchange = late_requests(&[9, 11, 13, 15]);
    exchange.server(&headers(9, flag::END_STREAM, &hidden_block(&[66, 62])));
    exchange.server(&[headers(11, 0, &hidden_block(&[66])), data(11, 0, &message(5))].concat());
    exchange.server(&headers(11, flag::END_STREAM, &[0x80 | 63]));
    exchange.server(&headers(13, flag::END_STREAM, &hidden_block(&[66, 62])));
    exchange.server(&headers(15, flag::END_STREAM, &hidden_block(&[66, 63])));
    assert_eq!(sources(&exchange), ["no_message", "", "other_trailers", ""]);
    assert!(exchange.rpcs().iter().all(|rpc| rpc.status.is_none() && rpc.complete));
}

#[test]
fn an_end_without_a_message_tells_nothing_of_what_is_not_whole_or_not_unary() {
    let mut exchange = late_requests(&[9, 11, 13, 15]);
    exchange.server(&headers(9, flag::END_STREAM, &[&hidden_block(&[66])[..], &status_block("5")].concat()));
    exchange.client(&headers(17, 0, &request_block("/a/Stream")));
    exchange.client(&data(17, flag::END_STREAM, &[message(3), message(3)].concat()));
    exchange.server(&headers(17, flag::END_STREAM, &hidden_block(&[66, 62])));
    exchange.server(&headers(11, flag::END_STREAM, &[0x80 | 70, 0x80 | 66, 0x80 | 62]));
    exchange.lose(SERVER, 40);
    exchange.server(&[ping(), ping(), headers(13, flag::END_STREAM, &[0x80 | 66, 0x80 | 62])].concat());
    let unknown = sources(&exchange);
    assert_eq!(unknown, ["trailers", "", "", "", ""], "a status; no :status; a hole; not answered; two requests");
}

/// Behind a hole the same entry has another index, and one method would look like many.
#[test]
fn methods_are_not_told_apart_behind_missing_header_blocks() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping()].concat());
    let indexed = [&[0x83, 0x86, 0x80 | 62][..], &plain("te", "trailers")].concat();
    exchange.client(&headers(9, flag::END_STREAM, &indexed));
    for stream in [11, 13, 15] {
        exchange.lose(CLIENT, 40);
        exchange.client(&[ping(), ping(), headers(stream, flag::END_STREAM, &indexed)].concat());
    }
    assert_eq!(exchange.cx.strings.unnamed_methods().len(), 1);
    assert!(exchange.rpcs().iter().all(|rpc| rpc.method.is_none()));
}

/// Of a capture that lacks all of the client's bytes the server's answers are read.
#[test]
fn an_answer_without_its_request_is_an_rpc_where_the_client_is_not_captured() {
    for unheard in [true, false] {
        let mut exchange = Exchange::new(CLIENT, true, false);
        let transport = Transport { unheard: [unheard, false], ..Transport::default() };
        let bytes = [settings_frame(&[]), settings_ack(), response(1, 5, "0"), response(3, 7, "5")].concat();
        let at = exchange.tick();
        let reading = &mut Reading { cx: &mut exchange.cx, transport: &transport };
        exchange.h2.feed(SERVER, &bytes, at, reading, &mut ());
        let statuses: Vec<_> = exchange.rpcs().iter().map(|rpc| (rpc.stream, rpc.status, rpc.response.0)).collect();
        let known = [(1, Some("OK"), 1), (3, Some("NOT_FOUND"), 1)];
        assert_eq!(statuses, if unheard { &known[..] } else { &[] });
        assert!(exchange.cx.rpcs.flags.iter().all(|flags| flags & rpc_flag::TOUCHES_GAP != 0));
    }
}
