//! How a connection begins: preface, SETTINGS, h2c upgrade, another protocol.

use crate::http2::connection::http2::Protocol;
use crate::http2::frame::settings::Settings;

use super::*;

#[test]
fn the_preface_makes_http2_and_tells_the_client() {
    let mut exchange = Exchange::new(SERVER, false, false);
    exchange.client(&PREFACE[..10]);
    assert_eq!(exchange.h2.protocol, Protocol::Undecided);
    exchange.client(&PREFACE[10..]);
    assert_eq!((exchange.h2.protocol, exchange.h2.client), (Protocol::Http2, CLIENT));
    assert!(exchange.h2.roles_certain, "ports had suggested the other side");
    assert_eq!(exchange.h2.bytes.decoded, 24);
}

#[test]
fn a_server_that_speaks_first_is_http2_by_its_settings() {
    let mut exchange = Exchange::opened();
    exchange.server(&settings_frame(&[(MAX_CONCURRENT_STREAMS, 100)]));
    assert_eq!(exchange.h2.protocol, Protocol::Http2);
    exchange.client(&[PREFACE, &settings_frame(&[]), &request(1, "/a/B", 1)].concat());
    exchange.server(&response(1, 2, "0"));
    assert_eq!(exchange.rpc(), unary(1, "/a/B", 1, 2, "OK"));
}

#[test]
fn other_protocols_are_counted_and_not_read() {
    for (bytes, protocol) in [
        (&b"SSH-2.0-OpenSSH_9.6\r\n"[..], Protocol::Other),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Protocol::Other),
        (b"PRI * HTTP/1.1\r\n\r\n", Protocol::Other),
        (b"\x16\x03\x01\x00\x05hello", Protocol::Tls),
    ] {
        let mut exchange = Exchange::opened();
        exchange.client(bytes);
        exchange.client(&request(1, "/a/B", 1));
        exchange.finish(End::ClientCloses);
        assert_eq!(exchange.h2.protocol, protocol, "{bytes:?}");
        assert!(exchange.rpcs().is_empty() && exchange.frames().is_empty());
        let counts = exchange.h2.bytes;
        let foreign = if protocol == Protocol::Tls { counts.encrypted } else { counts.not_http2 };
        assert_eq!(foreign, (bytes.len() + request(1, "/a/B", 1).len()) as u64, "{counts:?}");
    }
}

#[test]
fn too_few_bytes_to_tell_are_undecoded() {
    let mut exchange = Exchange::opened();
    exchange.client(&PREFACE[..23]);
    exchange.finish(End::CaptureEnds);
    assert_eq!((exchange.h2.protocol, exchange.h2.bytes.undecoded), (Protocol::Undecided, 23));
}

/// RFC 7540 section 3.2: the request is stream 1, half-closed by the client, and its settings are in force.
fn upgrade_request(body: &str) -> Vec<u8> {
    // INITIAL_WINDOW_SIZE 10 in base64url: 00 04 00 00 00 0a
    format!(
        "POST /a.B/C HTTP/1.1\r\nHost: s\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         Content-Type: application/grpc\r\nContent-Length: {}\r\nHTTP2-Settings: AAQAAAAK\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

const SWITCHING: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";

#[test]
fn an_upgrade_makes_the_request_stream_1() {
    let mut exchange = Exchange::opened();
    exchange.client(&upgrade_request("body"));
    exchange.server(&[SWITCHING, &settings_frame(&[])].concat());
    assert_eq!(exchange.h2.stream_window(SERVER, 1), Some(10), "the client's HTTP2-Settings bind the server");
    exchange.client(&[PREFACE, &settings_frame(&[]), &settings_ack(), &request(3, "/a.B/D", 7)].concat());
    exchange.server(&[settings_ack(), response(1, 20, "0"), response(3, 30, "5")].concat());
    let upgraded = Rpc { request: (0, 0), ..unary(1, "/a.B/C", 0, 20, "OK") };
    assert_eq!(exchange.rpcs(), [upgraded, unary(3, "/a.B/D", 7, 30, "NOT_FOUND")]);
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
    assert_eq!(exchange.h2.bytes.decoded, exchange.accounted());
}

#[test]
fn an_upgrade_names_the_method_of_every_protocol() {
    for (content_type, method) in [
        ("application/grpc", Some("/a.B/C")),
        ("application/grpc-web", Some("/a.B/C")),
        ("application/connect+json", Some("/a.B/C")),
        ("text/html", None),
    ] {
        let mut exchange = Exchange::opened();
        let text = String::from_utf8(upgrade_request("")).unwrap().replace("application/grpc", content_type);
        exchange.client(text.replace("/a.B/C", "/a.B/C?secret").as_bytes());
        exchange.server(&[SWITCHING, &settings_frame(&[])].concat());
        exchange.finish(End::CaptureEnds);
        let methods: Vec<_> = exchange.rpcs().into_iter().map(|rpc| rpc.method).collect();
        assert_eq!(methods, method.map(|method| Some(method.to_owned())).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn an_upgrade_cut_at_every_byte_reads_the_same() {
    let client = upgrade_request("x");
    for cut in 1..client.len() {
        let mut exchange = Exchange::opened();
        exchange.client(&client[..cut]);
        exchange.client(&client[cut..]);
        let at = cut % SWITCHING.len();
        exchange.server(&SWITCHING[..at]);
        exchange.server(&[&SWITCHING[at..], &response(1, 9, "0")].concat());
        assert_eq!(exchange.rpc().response, (1, 9), "cut at {cut}");
    }
}

#[test]
fn a_refused_upgrade_is_another_protocol() {
    let mut exchange = Exchange::opened();
    exchange.client(&upgrade_request(""));
    exchange.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    exchange.server(&settings_frame(&[]));
    assert_eq!(exchange.h2.protocol, Protocol::Other);
    assert!(exchange.rpcs().is_empty() && exchange.frames().is_empty());
}

#[test]
fn settings_before_any_frame_are_the_defaults() {
    let exchange = Exchange::opened();
    let expected = Settings {
        header_table_size: 4_096,
        max_concurrent_streams: None,
        initial_window_size: 65_535,
        max_frame_size: 16_384,
    };
    assert_eq!(exchange.h2.sides[SERVER].in_force, expected, "RFC 9113 section 6.5.2");
    assert_eq!(exchange.h2.connection_window(CLIENT), None, "not HTTP/2 yet");
}
