//! RPCs of gRPC-Web and Connect, whose ends are in the bodies of responses.

use super::*;

const WEB: &str = "application/grpc-web+proto";
const CONNECT: &str = "application/connect+proto";

/// A whole request of a media type on stream 1, and the response's header fields.
fn answered(content_type: &str) -> Exchange {
    answered_with(content_type, &[])
}

fn answered_with(content_type: &str, fields: &[u8]) -> Exchange {
    let mut exchange = Exchange::begun();
    let block = [plain(":method", "POST"), plain(":path", "/a/B"), plain("content-type", content_type)].concat();
    exchange.client(&[headers(1, 0, &block), data(1, flag::END_STREAM, &message(3))].concat());
    let block = [&plain(":status", "200")[..], &plain("content-type", content_type), fields].concat();
    exchange.server(&headers(1, 0, &block));
    exchange
}

/// A frame of a body that ends an RPC.
fn end(flags: u8, payload: &[u8]) -> Vec<u8> {
    [&[flags][..], &u32::try_from(payload.len()).unwrap().to_be_bytes(), payload].concat()
}

/// gRPC-Web with its trailers, and Connect with its last envelope, each without END_STREAM.
fn ended() -> [(Exchange, &'static str); 2] {
    let mut web = answered(WEB);
    web.server(&data(1, 0, &[message(5), end(0x80, b"grpc-status: 5\r\n")].concat()));
    let mut connect = answered(CONNECT);
    connect.server(&data(1, 0, &[message(5), end(0x02, b"{}")].concat()));
    [(web, "NOT_FOUND"), (connect, "OK")]
}

#[test]
fn what_the_body_says_stands_whoever_resets_the_stream_behind_it() {
    for (side, code) in [(CLIENT, 8), (SERVER, 0), (SERVER, 2)] {
        for (mut exchange, status) in ended() {
            exchange.send(side, &rst_stream(1, code));
            assert_eq!(exchange.outcome(), (Some(status), true), "RST_STREAM {code} of side {side}");
        }
    }
}

#[test]
fn what_the_body_says_stands_however_the_connection_ends() {
    for (end, complete) in [(End::ServerCloses, true), (End::ClientCloses, true), (End::CaptureEnds, false)] {
        for (mut exchange, status) in ended() {
            exchange.packet += 1_000; // a second
            exchange.finish(end);
            assert_eq!(exchange.outcome(), (Some(status), complete), "{end:?}");
            assert_eq!(exchange.cx.open_rpcs.len(), 0, "it does not hang");
        }
    }
}

#[test]
fn an_rpc_whose_body_does_not_end_it_is_open() {
    let mut exchange = answered(WEB);
    exchange.server(&data(1, 0, &message(5)));
    exchange.packet += 1_000;
    exchange.finish(End::CaptureEnds);
    assert_eq!((exchange.outcome(), exchange.cx.open_rpcs.len()), ((None, false), 1));
}

#[test]
fn a_status_in_the_headers_of_grpc_web_ends_an_rpc_without_a_body() {
    let mut exchange = answered_with(WEB, &status_block("7"));
    exchange.server(&data(1, flag::END_STREAM, b""));
    assert_eq!(exchange.outcome(), (Some("PERMISSION_DENIED"), true));
    let mut exchange = answered_with(WEB, &status_block("7"));
    exchange.server(&data(1, flag::END_STREAM, &end(0x80, b"grpc-status: 5\r\n")));
    assert_eq!(exchange.outcome(), (Some("NOT_FOUND"), true), "a body tells better");
}
