//! Frames that no honest peer sends: told as problems, and the rest is read on.

use super::*;

#[test]
fn unknown_frame_types_are_counted_and_ignored() {
    let mut exchange = Exchange::begun();
    for kind in [0x0a, 0x0c, 0x10, 0xff] {
        exchange.client(&frame(FrameType(kind), 0xff, 0x7fff_ffff, &[0xee; 77]));
        exchange.client(&frame(FrameType(kind), 0, 0, &[]));
    }
    exchange.client(&request(1, "/a/B", 1));
    assert_eq!(exchange.counted(FrameType(u8::MAX)), 8);
    assert_eq!(exchange.messages(), [(1, 0, 0, 1)]);
    assert!(exchange.problems().is_empty(), "RFC 9113 section 5.5: {:?}", exchange.problems());
}

#[test]
fn the_reserved_bit_is_no_part_of_the_stream_identifier() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(0x8000_0001, flag::END_STREAM, &request_block("/a/B")));
    assert_eq!(exchange.rpc().stream, 1);
}

#[test]
fn wrong_frames_are_told_and_skipped() {
    let size = "frame length is not what its type demands";
    let stream = "frame belongs to a stream but has stream identifier 0";
    let connection = "frame belongs to the connection but has a stream identifier";
    for (bytes, problem) in [
        (frame(FrameType::PING, 0, 0, &[0; 7]), size),
        (frame(FrameType::SETTINGS, 0, 0, &[0; 5]), size),
        (frame(FrameType::SETTINGS, flag::ACK, 0, &[0; 6]), size),
        (frame(FrameType::WINDOW_UPDATE, 0, 1, &[0; 5]), size),
        (frame(FrameType::GOAWAY, 0, 0, &[0; 7]), size),
        (frame(FrameType::RST_STREAM, 0, 1, &[]), size),
        (frame(FrameType::PRIORITY, 0, 1, &[0; 6]), size),
        (data(0, 0, &message(3)), stream),
        (frame(FrameType::SETTINGS, 0, 1, &[]), connection),
    ] {
        let mut exchange = Exchange::begun();
        exchange.client(&headers(1, 0, &request_block("/a/B")));
        exchange.client(&bytes);
        exchange.client(&data(1, flag::END_STREAM, &message(9)));
        assert_eq!(exchange.problems(), [problem], "{bytes:?}");
        assert_eq!(exchange.messages(), [(1, 0, 0, 9)], "{bytes:?}");
    }
}

#[test]
fn padding_longer_than_its_frame_is_told() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    exchange.client(&frame(FrameType::DATA, flag::PADDED, 1, &[9, 1, 2, 3]));
    exchange.client(&data(1, flag::END_STREAM, &message(4)));
    assert_eq!(exchange.problems(), ["padding is longer than the frame"]);
    assert_eq!(exchange.messages(), [(1, 0, 0, 4)]);
    assert_eq!(exchange.accounted(), exchange.h2.bytes.decoded);
}

#[test]
fn an_empty_padded_frame_does_no_harm() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    exchange.client(&frame(FrameType::DATA, flag::PADDED, 1, &[]));
    exchange.client(&frame(FrameType::HEADERS, flag::PADDED | flag::END_HEADERS, 3, &[]));
    exchange.client(&data(1, flag::END_STREAM, &message(4)));
    assert_eq!(exchange.messages(), [(1, 0, 0, 4)]);
}

#[test]
fn both_sides_acting_as_the_client_is_told() {
    let mut exchange = Exchange::begun();
    exchange.client(&request(1, "/a/B", 1));
    exchange.server(&request(2, "/a/C", 1));
    assert_eq!(exchange.problems(), ["both sides act as the client"]);
    assert_eq!(exchange.rpc().stream, 1);
    assert_eq!(exchange.h2.client, CLIENT);
}

#[test]
fn a_stream_identifier_is_never_used_again() {
    let mut exchange = Exchange::begun();
    exchange.client(&request(5, "/a/B", 1));
    exchange.server(&response(5, 1, "0"));
    exchange.client(&request(3, "/a/B", 1));
    exchange.client(&request(5, "/a/B", 1));
    assert_eq!(exchange.rpcs().len(), 1, "RFC 9113 section 5.1.1");
}

/// What a header block that is left out did to the HPACK table is unknown: its entries are not guessed afterwards.
#[test]
fn a_refused_header_block_makes_the_table_unknown() {
    let lost = inserted(":path", "/a/Lost");
    for wrong in [
        frame(FrameType::HEADERS, flag::END_HEADERS, 0, &lost),
        frame(FrameType::HEADERS, flag::END_HEADERS | flag::PADDED, 3, &[&[200][..], &lost].concat()),
        frame(FrameType::PUSH_PROMISE, flag::END_HEADERS, 3, &[&1_u32.to_be_bytes()[..], &lost].concat()),
    ] {
        let mut exchange = Exchange::begun();
        exchange.client(&headers(1, 0, &[inserted(":path", "/a/B"), request_fields()].concat()));
        exchange.client(&wrong);
        exchange.client(&headers(5, 0, &[&NEWEST[..], &request_fields()].concat()));
        assert_eq!(exchange.rpcs().last().and_then(|rpc| rpc.method.clone()), None, "{wrong:?}");
    }
}

/// In one segment, the boundary is found and lost as often as the search buffer can hold it.
#[test]
fn a_boundary_lost_again_and_again_in_one_segment_does_no_harm() {
    let wrong = frame(FrameType::RST_STREAM, 0, 0, &[]);
    let unit = [settings_frame(&[]), settings_frame(&[]), wrong].concat();
    let bytes = unit.repeat(bounds::RESYNC_BUFFER / unit.len());
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&bytes);
    exchange.finish(End::CaptureEnds);
    assert_eq!(exchange.accounted(), bytes.len() as u64);
    assert_eq!(exchange.counted(FrameType::SETTINGS), 2 * 4_854);
}

/// A connection that began well: octets that are no frames, and a request in a packet of its own behind them.
fn after_damage(damage: &[u8]) -> Exchange {
    let mut exchange = Exchange::begun();
    exchange.client(&request(1, "/a/B", 7));
    exchange.server(&response(1, 8, "0"));
    exchange.client(damage);
    exchange.client(&[0xee; 500]);
    exchange.client(&request(3, "/a/Later", 9));
    exchange.server(&response(3, 10, "5"));
    exchange
}

#[test]
fn a_request_in_one_packet_is_read_after_frames_whose_length_is_none() {
    let header = |length: u32, kind: u8, stream: u32| {
        let [_, length @ ..] = length.to_be_bytes();
        [&length[..], &[kind, 0], &stream.to_be_bytes(), &[0xee; 50]].concat()
    };
    for damage in [
        header(0xee_eeee, 0xee, 0x6eee_eeee),
        header(4_000, 0x55, 7),
        header(0xff_ffff, 0, 1),
        header(900_000, 1, 3),
        header(0xff_ffff, 1, 3),
        header(3_000, 6, 0),
        header(0x10_0000, 9, 1),
    ] {
        let exchange = after_damage(&damage);
        let rpcs = exchange.rpcs();
        let outcomes: Vec<_> = rpcs.iter().map(|rpc| (rpc.stream, rpc.status, rpc.complete)).collect();
        assert_eq!(outcomes, [(1, Some("OK"), true), (3, Some("NOT_FOUND"), true)], "{damage:?}");
        assert_eq!(exchange.messages(), [(1, 0, 0, 7), (1, 1, 0, 8), (3, 0, 0, 9), (3, 1, 0, 10)], "{damage:?}");
    }
}

#[test]
fn octets_that_may_be_a_frame_do_not_hold_a_request_in_one_packet_back() {
    let mut exchange = Exchange::begun();
    exchange.client(&request(1, "/a/B", 7));
    exchange.lose(0, 100);
    // what is left of a message looks like the header of a long frame
    exchange.client(&[&[0xee; 30][..], &[0, 0x3f, 0xff, 0, 0, 0, 0, 0, 1], &[0xee; 200]].concat());
    exchange.client(&request(5, "/a/Later", 9));
    assert_eq!(exchange.rpcs().iter().map(|rpc| rpc.stream).collect::<Vec<_>>(), [1, 5]);
}

#[test]
fn a_message_that_looks_like_frames_stays_a_message() {
    let mut exchange = Exchange::begun();
    let inner = request(3, "/a/Inner", 9);
    exchange.client(&frame(FrameType(0x0b), 0, 0, &[0; 3]));
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    let whole = data(1, flag::END_STREAM, &[&message(inner.len())[..5], &inner].concat());
    exchange.client(&whole[..14]);
    exchange.client(&whole[14..]);
    assert_eq!(exchange.messages(), [(1, 0, 0, u32::try_from(inner.len()).unwrap())]);
    assert_eq!(exchange.rpcs().len(), 1);
}
