//! gRPC-Web over HTTP/1.1 (PROTOCOL-WEB.md), written out byte by byte.

use super::*;
use crate::http2::connection::http2::Protocol;

/// A request with a message of `length` octets.
fn web_request(path: &str, length: usize) -> Vec<u8> {
    let body = message(length);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web+proto\r\ngrpc-timeout: 5S\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

fn trailers(status: u8) -> Vec<u8> {
    let text = format!("grpc-status:{status}\r\n");
    [&[0x80, 0, 0, 0, u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat()
}

fn chunk(octets: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", octets.len()).as_bytes(), octets, b"\r\n"].concat()
}

/// A response in chunks: a message of `length` octets, and the status.
fn web_response(length: usize, status: u8) -> Vec<u8> {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web+proto\r\nTransfer-Encoding: chunked\r\n\r\n";
    [&head[..], &chunk(&message(length)), &chunk(&trailers(status)), b"0\r\n\r\n"].concat()
}

const PREFLIGHT: &[u8] = b"OPTIONS /a.B/C HTTP/1.1\r\nHost: a\r\n\r\n";
const PREFLIGHT_ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\nServer: x/1\r\n\r\n";

#[test]
fn requests_of_one_connection_are_rpcs() {
    let mut exchange = Exchange::opened();
    exchange.client(PREFLIGHT);
    exchange.server(PREFLIGHT_ANSWER);
    let before = exchange.accounted();
    exchange.client(&web_request("/a.B/C?secret", 10));
    exchange.server(&web_response(300, 0));
    exchange.client(&web_request("http://a/a.B/D", 0));
    exchange.server(&web_response(0, 5));
    assert_eq!(exchange.rpcs(), [unary(1, "/a.B/C", 10, 300, "OK"), unary(3, "/a.B/D", 0, 0, "NOT_FOUND")]);
    assert_eq!(exchange.cx.rpcs.duration_ns, [1_000_000, 1_000_000]);
    assert_eq!(exchange.cx.rpcs.protocol, [1, 1]);
    assert_eq!(exchange.cx.deadlines, [5_000_000_000, 5_000_000_000]);
    assert_eq!((exchange.h2.protocol, exchange.h2.bytes.not_http2), (Protocol::Http1, before));
    assert!(exchange.h2.streams.is_empty() && exchange.problems().is_empty());
    assert_eq!(exchange.cx.totals.other_streams, 0);
}

/// The octets of a connection by side, in the order of the capture.
fn conversation() -> Vec<(usize, Vec<u8>)> {
    let text = |octets: &[u8]| base64(octets).into_bytes();
    let web_text = |octets: Vec<u8>| {
        let head = format!(
            "POST /a.B/T HTTP/1.1\r\nContent-Type: application/grpc-web-text\r\nContent-Length: {}\r\n\r\n",
            octets.len()
        );
        [head.into_bytes(), octets].concat()
    };
    let text_answer = [
        &b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web-text+proto\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
        &chunk(&text(&message(4))),
        &chunk(&text(&trailers(7))),
        b"0\r\n\r\n",
    ]
    .concat();
    vec![
        (CLIENT, web_request("/a.B/C", 10)),
        (SERVER, [b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), web_response(300, 0)].concat()),
        (CLIENT, web_text(text(&message(7)))),
        (SERVER, text_answer),
        (CLIENT, web_request("/a.B/E", 1)),
        (SERVER, b"HTTP/1.1 503 No\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>".to_vec()),
        (CLIENT, web_request("/a.B/F", 1)),
        (
            SERVER,
            b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web\r\ngrpc-status: 12\r\nContent-Length: 0\r\n\r\n"
                .to_vec(),
        ),
    ]
}

fn base64(octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let word = group.iter().fold(0, |word, &octet| word << 8 | u32::from(octet)) << (8 * (3 - group.len()));
        let digit = |nth: usize| char::from(DIGITS[(word >> (18 - 6 * nth) & 63) as usize]);
        (0..4).map(|nth| if nth <= group.len() { digit(nth) } else { '=' }).collect::<String>()
    };
    octets.chunks(3).map(group).collect()
}

#[test]
fn rpcs_are_the_same_however_the_octets_are_cut() {
    let sent = conversation();
    let total: usize = sent.iter().map(|(_, octets)| octets.len()).sum();
    let played = |cut: usize| {
        let (mut exchange, mut left) = (Exchange::opened(), cut);
        for (side, octets) in &sent {
            let at = left.min(octets.len());
            left -= at;
            let pieces = octets.split_at(at);
            exchange.send(*side, pieces.0);
            exchange.send(*side, pieces.1);
        }
        exchange.finish(End::ClientCloses);
        exchange
    };
    let whole = played(0);
    let expected = [
        unary(1, "/a.B/C", 10, 300, "OK"),
        unary(3, "/a.B/T", 7, 4, "PERMISSION_DENIED"),
        Rpc { response: (0, 0), ..unary(5, "/a.B/E", 1, 0, "UNAVAILABLE") },
        Rpc { response: (0, 0), ..unary(7, "/a.B/F", 1, 0, "UNIMPLEMENTED") },
    ];
    assert_eq!(whole.rpcs(), expected);
    for cut in 1..total {
        let exchange = played(cut);
        assert_eq!(exchange.rpcs(), expected, "cut at {cut}");
        assert_eq!(exchange.messages(), whole.messages(), "cut at {cut}");
        assert_eq!(exchange.h2.bytes, whole.h2.bytes, "cut at {cut}");
        assert!(exchange.problems().is_empty(), "cut at {cut}");
    }
    assert_eq!(whole.h2.bytes.decoded, total as u64);
}

#[test]
fn plain_http1_stays_another_protocol() {
    let mut exchange = Exchange::opened();
    for _ in 0..3 {
        exchange.client(b"POST /v1/x HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
        exchange.server(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    }
    exchange.lose(SERVER, 10);
    exchange.server(b"rest");
    exchange.finish(End::ServerCloses);
    assert_eq!((exchange.h2.protocol, exchange.h2.application.rpcs), (Protocol::Other, 0));
    assert_eq!(exchange.h2.bytes.not_http2, exchange.accounted());
    assert!(exchange.problems().is_empty());
}

/// Connect's protocol (connectrpc.com/docs/protocol) over HTTP/1.1, as browsers and curl speak it.
#[test]
fn connects_requests_are_rpcs() {
    let post = |kind: &str, version: &str| {
        format!("POST /a.B/C HTTP/1.1\r\nContent-Type: application/{kind}\r\n{version}Content-Length: 2\r\n\r\n{{}}")
    };
    let get = |query: &str| format!("GET /a.B/D?{query} HTTP/1.1\r\nHost: a\r\n\r\n");
    let ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let missing =
        "HTTP/1.1 404 No\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"code\":\"not_found\"}";
    let version = "Connect-Protocol-Version: 1\r\n";
    let mut exchange = Exchange::opened();
    for (request, answer) in [
        (post("json", ""), ok),
        (post("json", version), ok),
        (post("proto", version), missing),
        (get("a=b"), missing),
        (get("connect=v1&encoding=json&message=%7B%7D"), ok),
        (get("message=x&connect=v1"), missing),
    ] {
        exchange.client(request.as_bytes());
        exchange.server(answer.as_bytes());
    }
    let seen: Vec<_> = exchange.rpcs().into_iter().map(|rpc| (rpc.stream, rpc.method, rpc.status)).collect();
    let rpc = |stream, path: &str, status| (stream, Some(path.to_owned()), Some(status));
    let expected = [(1, "/a.B/C", "OK"), (3, "/a.B/C", "NOT_FOUND"), (5, "/a.B/D", "OK"), (7, "/a.B/D", "NOT_FOUND")];
    assert_eq!(seen, expected.map(|(stream, path, status)| rpc(stream, path, status)));
    assert!(exchange.problems().is_empty());
}

#[test]
fn who_closes_at_the_deadline_gives_up() {
    for (timeout, status) in [("1m", Some("DEADLINE_EXCEEDED")), ("5S", None)] {
        for (end, status) in [(End::ClientCloses, status), (End::CaptureEnds, None)] {
            let mut exchange = Exchange::opened();
            let request = String::from_utf8(web_request("/a.B/C", 0)).unwrap().replace("5S", timeout);
            exchange.client(request.as_bytes());
            exchange.client(&[]);
            exchange.finish(end);
            assert_eq!(exchange.rpc().status, status, "{timeout} {end:?}");
        }
    }
}

#[test]
fn a_response_without_a_length_ends_with_the_connection() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web\r\n\r\n";
    for (end, status) in [(End::ServerCloses, Some("UNKNOWN")), (End::NotKnown, None)] {
        let mut exchange = Exchange::opened();
        exchange.client(&web_request("/a.B/C", 10));
        exchange.server(&[&head[..], &message(3)].concat());
        exchange.finish(end);
        assert_eq!(exchange.rpc().status, status);
        let mut exchange = Exchange::opened();
        exchange.client(&web_request("/a.B/C", 10));
        exchange.server(&[&head[..], &message(3), &trailers(0)].concat());
        exchange.finish(end);
        assert_eq!(exchange.rpc().status, Some("OK"), "the trailers say so");
    }
}

#[test]
fn behind_missing_bytes_nothing_is_read_and_nobody_is_accused() {
    for side in [CLIENT, SERVER] {
        let mut exchange = Exchange::opened();
        exchange.client(&web_request("/a.B/C", 10));
        exchange.server(&web_response(300, 0));
        exchange.client(&web_request("/a.B/C", 10));
        exchange.lose(side, 100);
        exchange.server(&web_response(300, 13));
        exchange.client(&web_request("/a.B/C", 10));
        exchange.finish(End::ServerCloses);
        let [first, second] = &exchange.rpcs()[..] else { panic!("{:?}", exchange.rpcs()) };
        assert_eq!((first.status, second.status, second.complete), (Some("OK"), None, false));
        assert_eq!(exchange.problems(), ["bytes are missing: HTTP/1.1 cannot be read from here on"]);
    }
}

#[test]
fn a_capture_that_begins_between_two_requests_is_read() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.server(&web_response(300, 13));
    exchange.client(&web_request("/a.B/C", 10));
    exchange.server(&web_response(3, 0));
    assert_eq!(exchange.rpc(), unary(1, "/a.B/C", 10, 3, "OK"));
}

#[test]
fn a_response_before_its_request_belongs_to_none() {
    let mut exchange = Exchange::opened();
    exchange.server(&web_response(300, 13));
    exchange.client(&web_request("/a.B/C", 10));
    exchange.server(&web_response(3, 14));
    exchange.finish(End::CaptureEnds);
    assert!(exchange.rpcs().iter().all(|rpc| rpc.status.is_none()), "{:?}", exchange.rpcs());
}

#[test]
fn responses_come_in_the_order_of_requests() {
    let mut exchange = Exchange::opened();
    exchange.client(&[web_request("/a.B/C", 1), PREFLIGHT.to_vec(), web_request("/a.B/D", 2)].concat());
    exchange.server(&[web_response(3, 0), PREFLIGHT_ANSWER.to_vec(), web_response(4, 5)].concat());
    assert_eq!(exchange.rpcs(), [unary(1, "/a.B/C", 1, 3, "OK"), unary(3, "/a.B/D", 2, 4, "NOT_FOUND")]);
}

#[test]
fn what_cannot_be_followed_ends_the_reading() {
    let pipelined = PREFLIGHT.repeat(bounds::HTTP1_REQUESTS);
    let cases: [&[u8]; 4] = [
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"POST /a.B/C HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        &pipelined,
    ];
    for octets in cases {
        let mut exchange = Exchange::opened();
        exchange.client(&web_request("/a.B/C", 1));
        exchange.client(octets);
        exchange.client(&web_request("/a.B/D", 1));
        exchange.server(&web_response(3, 13));
        exchange.finish(End::ServerCloses);
        assert_eq!((exchange.rpc().status, exchange.rpc().complete), (None, false));
        assert_eq!(exchange.problems(), ["HTTP/1.1 cannot be read from here on"]);
        assert_eq!(exchange.accounted(), exchange.h2.bytes.decoded + exchange.h2.bytes.undecoded);
    }
}

#[test]
fn coded_bodies_are_not_read() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web\r\nContent-Encoding: gzip\r\n\r\n";
    let mut exchange = Exchange::opened();
    exchange.client(&web_request("/a.B/C", 1));
    exchange.server(head);
    exchange.finish(End::ServerCloses);
    assert_eq!((exchange.rpc().status, exchange.rpc().complete), (None, true));
}

#[test]
fn what_follows_a_coded_body_is_read() {
    let coded = |head: &str| {
        let fields = "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n";
        [head.as_bytes(), fields.as_bytes(), b"\x1f\x8b\x08\0"].concat()
    };
    let answers = [
        coded("HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\n"),
        coded("HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web\r\n"),
        web_response(3, 0),
    ];
    let mut exchange = Exchange::opened();
    for answer in &answers {
        exchange.client(&web_request("/a.B/C", 1));
        exchange.server(answer);
    }
    exchange.finish(End::ServerCloses);
    let statuses: Vec<_> = exchange.rpcs().iter().map(|rpc| rpc.status).collect();
    assert_eq!(statuses, [Some("UNAVAILABLE"), None, Some("OK")]);
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

#[test]
fn missing_octets_of_a_body_hide_what_they_held_alone() {
    let page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 900\r\n\r\n";
    let body = [message(900), trailers(0)].concat();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut exchange = Exchange::opened();
    exchange.client(b"GET /x HTTP/1.1\r\n\r\n");
    exchange.server(page);
    exchange.lose(SERVER, 900);
    for (from, to) in [(105, 705), (105, body.len()), (905, 915), (910, 920)] {
        exchange.client(&web_request("/a.B/C", 1));
        exchange.server(&[head.as_bytes(), &body[..from]].concat());
        exchange.lose(SERVER, (to - from) as u64);
        if to < body.len() {
            exchange.server(&body[to..]);
        }
    }
    exchange.client(&web_request("/a.B/C", 1));
    exchange.server(&web_response(3, 0));
    exchange.finish(End::ServerCloses);
    let seen: Vec<_> = exchange.rpcs().iter().map(|rpc| (rpc.status, rpc.response.0)).collect();
    assert_eq!(seen, [(Some("OK"), 1), (None, 0), (None, 1), (None, 1), (Some("OK"), 1)]);
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

#[test]
fn an_upgrade_that_is_declined_leaves_http1() {
    let fields = "HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let asking = String::from_utf8_lossy(&web_request("/a.B/C", 10)).replacen("HTTP/1.1\r\n", fields, 1);
    let mut exchange = Exchange::opened();
    exchange.client(&web_request_with(asking.as_bytes(), 10));
    exchange.server(&web_response(300, 0));
    for stream in [1, 3] {
        exchange.client(&web_request("/a.B/D", 2));
        exchange.server(&web_response(4, 5));
        assert_eq!(exchange.rpcs().last(), Some(&unary(stream, "/a.B/D", 2, 4, "NOT_FOUND")));
    }
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

/// The head in `octets`, and a message of `length` octets.
fn web_request_with(octets: &[u8], length: usize) -> Vec<u8> {
    let head = octets.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    [&octets[..head], &message(length)].concat()
}

#[test]
fn an_upgrade_may_have_a_body_in_chunks() {
    let head = b"POST /a.B/C HTTP/1.1\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut exchange = Exchange::opened();
    exchange.client(&[&head[..], &chunk(&message(10)), b"0\r\n\r\n"].concat());
    exchange.server(&[b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", &settings_frame(&[])[..]].concat());
    exchange.client(&[PREFACE, &settings_frame(&[]), &request(3, "/a.B/D", 1)].concat());
    exchange.server(&response(3, 2, "0"));
    assert_eq!(exchange.rpc(), unary(3, "/a.B/D", 1, 2, "OK"));
    assert_eq!((exchange.h2.protocol, exchange.h2.bytes.undecoded), (Protocol::Http2, 0));
}

#[test]
fn a_server_may_say_that_it_waits_no_longer() {
    let timeout = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let mut exchange = Exchange::opened();
    exchange.client(&web_request("/a.B/C", 10));
    exchange.server(&web_response(300, 0));
    exchange.server(timeout);
    exchange.finish(End::ServerCloses);
    assert_eq!(exchange.rpc(), unary(1, "/a.B/C", 10, 300, "OK"));
    assert!(exchange.problems().is_empty() && exchange.h2.bytes.undecoded == 0);
}

#[test]
fn a_capture_that_begins_inside_a_body_is_read_from_the_next_head_on() {
    for side in [CLIENT, SERVER] {
        let mut exchange = Exchange::late(CLIENT);
        exchange.send(side, &[1; 600]);
        if side == CLIENT {
            exchange.server(&web_response(300, 13));
        } else {
            exchange.client(&web_request("/a.B/C", 10));
        }
        exchange.send(side, &[1; 600]);
        if side == CLIENT {
            exchange.client(&web_request("/a.B/C", 10));
        }
        exchange.server(&web_response(3, 0));
        assert_eq!(exchange.rpc(), unary(1, "/a.B/C", 10, 3, "OK"), "{side}");
        assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
    }
}

#[test]
fn text_that_is_no_base64_ends_the_reading() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 9\r\n\r\n";
    let mut exchange = Exchange::opened();
    exchange.client(&web_request("/a.B/C", 1));
    exchange.server(&[&head[..], b"AAAA!AAAA"].concat());
    exchange.finish(End::ServerCloses);
    assert_eq!((exchange.rpc().status, exchange.rpc().complete), (None, false));
}

#[test]
fn a_server_that_closes_inside_a_response_did_not_answer() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web\r\nContent-Length: 900\r\n\r\n";
    for (end, status) in [(End::ServerCloses, Some("UNAVAILABLE")), (End::ClientCloses, None), (End::NotKnown, None)] {
        let mut exchange = Exchange::opened();
        exchange.client(&web_request("/a.B/C", 1));
        exchange.server(&[&head[..], &message(3)].concat());
        exchange.finish(end);
        assert_eq!(exchange.rpc().status, status);
    }
}

#[test]
fn a_websocket_is_no_rpc() {
    let mut exchange = Exchange::opened();
    exchange.client(b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    exchange.server(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n");
    exchange.client(&web_request("/a.B/C", 1));
    assert_eq!((exchange.h2.protocol, exchange.h2.application.rpcs), (Protocol::Other, 0));
}
