//! Frames over segments: where the bytes are cut changes nothing but packets and times.

use super::*;

/// Two RPCs with padding, priority, CONTINUATION and control frames between: the client's bytes and the server's.
fn conversation() -> (Vec<u8>, Vec<u8>) {
    let block = request_block("/demo.Echo/Say");
    let client = [
        PREFACE.to_vec(),
        settings_frame(&[(INITIAL_WINDOW_SIZE, 70_000), (MAX_CONCURRENT_STREAMS, 0)]),
        frame(FrameType::HEADERS, 0, 1, &block[..7]),
        frame(FrameType::CONTINUATION, flag::END_HEADERS, 1, &block[7..]),
        padded_data(1, &message(40)[..20], 3),
        frame(FrameType::PRIORITY, 0, 1, &[0, 0, 0, 0, 9]),
        data(1, flag::END_STREAM, &[message(40)[20..].to_vec(), message(0)].concat()),
        frame(FrameType(0x0c), 0xff, 0, b"unknown"),
        request(3, "/demo.Echo/Other", 5),
        window_update(0, 1_000),
    ];
    let server = [
        settings_frame(&[]),
        settings_ack(),
        ping(),
        response(1, 17, "0"),
        data(3, 0, &[]),
        response(3, 2, "13"),
        frame(FrameType::GOAWAY, 0, 0, &[&3_u32.to_be_bytes()[..], &0_u32.to_be_bytes(), b"bye"].concat()),
    ];
    (client.concat(), server.concat())
}

/// Feeds each direction in pieces that end at the offsets given.
fn fed(client_cuts: &[usize], server_cuts: &[usize]) -> Exchange {
    let (client, server) = conversation();
    let mut exchange = Exchange::opened();
    for (side, bytes, cuts) in [(CLIENT, client, client_cuts), (SERVER, server, server_cuts)] {
        let mut start = 0;
        for end in cuts.iter().copied().filter(|&cut| cut < bytes.len()).chain([bytes.len()]) {
            exchange.send(side, &bytes[start..end]);
            start = end;
        }
    }
    exchange.finish(End::ServerCloses);
    exchange
}

#[track_caller]
fn assert_same(exchange: &Exchange, whole: &Exchange, about: &str) {
    assert_eq!(exchange.rpcs(), whole.rpcs(), "{about}");
    assert_eq!(exchange.messages(), whole.messages(), "{about}");
    assert_eq!(exchange.frames(), whole.frames(), "{about}");
    assert_eq!(exchange.problems(), whole.problems(), "{about}");
    assert_eq!(exchange.h2.bytes, whole.h2.bytes, "{about}");
    assert_eq!(exchange.h2.connection_window(CLIENT), whole.h2.connection_window(CLIENT), "{about}");
}

#[test]
fn the_whole_is_read_as_it_was_written() {
    let whole = fed(&[], &[]);
    let first = Rpc { request: (2, 40), ..unary(1, "/demo.Echo/Say", 0, 17, "OK") };
    assert_eq!(whole.rpcs(), [first, unary(3, "/demo.Echo/Other", 5, 2, "INTERNAL")]);
    assert_eq!(whole.messages(), [(1, 0, 0, 40), (1, 0, 1, 0), (3, 0, 0, 5), (1, 1, 0, 17), (3, 1, 0, 2)]);
    let (client, server) = conversation();
    assert_eq!(whole.h2.bytes.decoded, (client.len() + server.len()) as u64);
    assert!(whole.problems().is_empty(), "{:?}", whole.problems());
    assert_eq!(whole.frames().len(), 21);
}

#[test]
fn a_cut_at_every_byte_changes_nothing() {
    let (client, server) = conversation();
    let whole = fed(&[], &[]);
    for cut in 1..client.len().max(server.len()) {
        assert_same(&fed(&[cut], &[cut]), &whole, &format!("cut at {cut}"));
    }
}

#[test]
fn pieces_of_every_size_change_nothing() {
    let (client, server) = conversation();
    let whole = fed(&[], &[]);
    for size in 1..40 {
        let cuts: Vec<usize> = (size..client.len().max(server.len())).step_by(size).collect();
        assert_same(&fed(&cuts, &cuts), &whole, &format!("pieces of {size}"));
    }
}

/// Invariant: every frame and message has the packet and time of its first and of its last byte.
#[test]
fn frames_and_messages_have_both_ends() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    let whole = data(1, 0, &message(30));
    for piece in [&whole[..4], &whole[4..12], &whole[12..20], &whole[20..]] {
        exchange.client(piece);
    }
    let packet = exchange.packet;
    let frames = &exchange.cx.frames;
    let row = frames.len() - 1;
    assert_eq!(
        (frames.first_packet[row], frames.last_packet[row]),
        (packet - 3, packet),
        "from the header's first byte"
    );
    let ms = |packet: u32| i64::from(packet) * 1_000_000;
    assert_eq!((frames.first_time_ns[row], frames.last_time_ns[row]), (ms(packet - 3), ms(packet)));
    let messages = &exchange.cx.messages;
    assert_eq!(
        (messages.first_packet[0], messages.last_packet[0]),
        (packet - 2, packet),
        "from the prefix's first byte"
    );
    assert_eq!((messages.first_time_ns[0], messages.last_time_ns[0]), (ms(packet - 2), ms(packet)));
}

/// A byte that waited for a hole was readable when the hole was filled.
#[test]
fn bytes_that_waited_end_where_the_hole_was_filled() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    let whole = data(1, 0, &message(30));
    let (early, late) = (At::new(10, 10_000_000), At::new(12, 12_000_000));
    exchange.feed_at(CLIENT, &whole[..20], late);
    exchange.feed_at(CLIENT, &whole[20..], early.waited(late));
    let (frames, messages) = (&exchange.cx.frames, &exchange.cx.messages);
    let row = frames.len() - 1;
    assert_eq!((frames.first_packet[row], frames.last_packet[row]), (12, 12));
    assert_eq!((messages.first_time_ns[0], messages.last_time_ns[0]), (12_000_000, 12_000_000));
}
