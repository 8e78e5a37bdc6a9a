//! Header blocks over several frames (RFC 9113 section 4.3), and HPACK tables kept in step by all of them.

use super::*;

/// A block in HEADERS and CONTINUATION frames, cut at the offsets given.
fn pieces(stream: u32, flags: u8, block: &[u8], cuts: &[usize]) -> Vec<u8> {
    let ends = cuts.iter().copied().chain([block.len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let mut bytes = Vec::new();
    for (start, end) in starts.zip(ends) {
        let kind = if bytes.is_empty() { FrameType::HEADERS } else { FrameType::CONTINUATION };
        let first = if bytes.is_empty() { flags } else { 0 };
        let last = if end == block.len() { flag::END_HEADERS } else { 0 };
        bytes.extend(frame(kind, first | last, stream, &block[start..end]));
    }
    bytes
}

#[test]
fn a_block_cut_at_every_byte_reads_the_same() {
    let block = request_block("/demo.Echo/Say");
    for cut in 0..block.len() {
        let mut exchange = Exchange::begun();
        exchange.client(&pieces(1, flag::END_STREAM, &block, &[cut, (cut + 3).min(block.len() - 1)]));
        exchange.server(&response(1, 4, "0"));
        let expected = Rpc { request: (0, 0), ..unary(1, "/demo.Echo/Say", 0, 4, "OK") };
        assert_eq!(exchange.rpc(), expected, "cut at {cut}");
        assert!(exchange.h2.streams.is_empty(), "END_STREAM of the HEADERS frame holds for the block");
        assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
    }
}

#[test]
fn an_rpc_begins_with_the_first_byte_of_headers_not_of_continuation() {
    let mut exchange = Exchange::begun();
    let block = request_block("/a/B");
    let bytes = pieces(1, 0, &block, &[10]);
    exchange.client(&bytes[..19]);
    let first = exchange.packet;
    exchange.client(&bytes[19..]);
    assert_eq!(exchange.cx.rpcs.first_packet, [first]);
    assert_eq!(exchange.cx.rpcs.start_time_ns, [i64::from(first) * 1_000_000]);
}

#[test]
fn trailers_may_come_in_pieces() {
    let mut exchange = Exchange::begun();
    exchange.client(&request(1, "/a/B", 1));
    exchange.server(&headers(1, 0, &response_block()));
    exchange.server(&pieces(1, flag::END_STREAM, &status_block("9"), &[4, 9]));
    assert_eq!(exchange.outcome(), (Some("FAILED_PRECONDITION"), true));
}

/// The interrupted block cannot be decoded, so that the table is unknown from then on: no name is guessed.
#[test]
fn a_block_interrupted_by_another_frame_is_left_out() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, flag::END_STREAM, &[inserted(":path", "/a/Old"), request_fields()].concat()));
    let cut = pieces(3, 0, &[inserted(":path", "/a/New"), request_fields()].concat(), &[5]);
    exchange.client(&[&cut[..14], &ping(), &cut[14..]].concat());
    exchange.client(&headers(5, flag::END_STREAM, &[&NEWEST[..], &request_fields()].concat()));
    assert_eq!(exchange.problems(), [INTERRUPTED, "CONTINUATION without a header block to continue"]);
    let rpcs = exchange.rpcs();
    let methods: Vec<_> = rpcs.iter().map(|rpc| (rpc.stream, rpc.method.as_deref())).collect();
    assert_eq!(methods, [(1, Some("/a/Old")), (5, None)]);
    assert_eq!(exchange.counted(FrameType::PING), 1, "the frame between is read");
}

#[test]
fn a_continuation_on_another_stream_is_left_out() {
    let mut exchange = Exchange::begun();
    let mut bytes = pieces(1, 0, &request_block("/a/B"), &[5]);
    bytes[14 + 8] = 3;
    exchange.client(&bytes);
    assert_eq!(exchange.problems(), ["CONTINUATION on another stream than its header block"]);
    assert!(exchange.rpcs().is_empty());
    exchange.client(&request(5, "/a/C", 2));
    assert_eq!(exchange.rpc().method.as_deref(), Some("/a/C"), "literals need no table");
}

/// CVE-2024-27316: CONTINUATION frames without end must not fill the memory.
#[test]
fn a_continuation_flood_is_cut_off() {
    let mut exchange = Exchange::begun();
    exchange.client(&frame(FrameType::HEADERS, 0, 1, &[0; 16_384]));
    let piece = frame(FrameType::CONTINUATION, 0, 1, &[0; 16_384]);
    let mut most = 0;
    for _ in 0..200 {
        exchange.client(&piece);
        let kept = exchange.h2.sides[CLIENT].block.as_ref().map_or(0, |block| block.octets.len());
        most = most.max(kept);
    }
    assert!((bounds::HEADER_BLOCK - 16_384..=bounds::HEADER_BLOCK).contains(&most), "{most}");
    assert!(exchange.h2.sides[CLIENT].block.is_none());
    assert!(exchange.problems().contains(&"header block is too long to keep: left out"), "{:?}", exchange.problems());
    exchange.client(&request(3, "/a/B", 1));
    assert_eq!(exchange.rpc().method.as_deref(), Some("/a/B"));
}

#[test]
fn padding_and_priority_are_no_part_of_the_block() {
    let mut exchange = Exchange::begun();
    let fields = [&[3][..], &[0x80, 0, 0, 0, 15], &request_block("/a/B"), &[0; 3]].concat();
    exchange.client(&headers(1, flag::PADDED | flag::PRIORITY | flag::END_STREAM, &fields));
    exchange.server(&response(1, 1, "0"));
    assert_eq!(exchange.rpc().method.as_deref(), Some("/a/B"));
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

/// A PUSH_PROMISE's block inserts into the table that the trailers then refer to.
#[test]
fn push_promise_keeps_the_table_in_step() {
    let promise = [&4_u32.to_be_bytes()[..], &plain(":path", "/pushed"), &inserted("grpc-status", "7")].concat();
    for (flags, rest) in [(flag::END_HEADERS, 0), (0, 9)] {
        let mut exchange = Exchange::begun();
        exchange.client(&request(1, "/a/B", 1));
        let (head, tail) = promise.split_at(promise.len() - rest);
        exchange.server(&frame(FrameType::PUSH_PROMISE, flags, 1, head));
        if flags == 0 {
            exchange.server(&frame(FrameType::CONTINUATION, flag::END_HEADERS, 1, tail));
        }
        exchange.server(&headers(1, 0, &response_block()));
        exchange.server(&headers(1, flag::END_STREAM, &NEWEST));
        assert_eq!(exchange.outcome(), (Some("PERMISSION_DENIED"), true));
        assert_eq!(exchange.rpcs().len(), 1, "the promised stream is no RPC");
        assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
    }
}

#[test]
fn directions_have_tables_of_their_own() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, flag::END_STREAM, &[inserted(":path", "/a/B"), request_fields()].concat()));
    exchange.server(&headers(1, 0, &[response_block(), inserted("grpc-status", "3")].concat()));
    exchange.server(&headers(1, flag::END_STREAM, &NEWEST));
    exchange.client(&headers(3, flag::END_STREAM, &[&NEWEST[..], &request_fields()].concat()));
    let rpcs = exchange.rpcs();
    assert_eq!(rpcs[0].status, Some("INVALID_ARGUMENT"));
    assert_eq!(rpcs[1].method.as_deref(), Some("/a/B"));
}

/// Behind missing bytes a block may be whole, and the table lacks what they inserted.
#[test]
fn nobody_broke_what_the_capture_lacks() {
    let mut exchange = Exchange::begun();
    exchange.lose(SERVER, 40);
    exchange.client(&headers(3, 0, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]));
    assert_eq!(exchange.problems().last(), Some(&"HPACK: header block cannot be decoded to its end"));
    assert!(exchange.broken_by().iter().all(|&side| side == 2));
}

#[test]
fn an_undecodable_block_makes_the_table_unknown() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &[inserted(":path", "/a/B"), request_fields()].concat()));
    exchange.client(&headers(3, 0, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]));
    exchange.client(&headers(5, 0, &[&NEWEST[..], &request_fields()].concat()));
    assert_eq!(exchange.problems(), ["HPACK: header block cannot be decoded to its end"]);
    assert_eq!(exchange.broken_by(), [0]);
    let methods: Vec<_> = exchange.rpcs().iter().map(|rpc| rpc.method.clone()).collect();
    assert_eq!(methods, [Some("/a/B".to_owned()), None, None]);
}

/// The same octets again mean what they meant, until the table changes by an insertion, a new size or a lost block.
#[test]
fn equal_blocks_follow_the_table() {
    let mut exchange = Exchange::begun();
    let block = [&NEWEST[..], &plain("te", "trailers")].concat();
    let insertion = |path: &str| [inserted(":path", path), request_fields()].concat();
    let mut stream = 1;
    let mut call = |exchange: &mut Exchange, block: &[u8]| {
        exchange.client(&headers(stream, flag::END_STREAM, block));
        stream += 2;
        exchange.rpcs().pop().unwrap().method
    };
    for path in ["/a/B", "/a/C"] {
        assert_eq!(call(&mut exchange, &insertion(path)).as_deref(), Some(path));
        for _ in 0..3 {
            assert_eq!(call(&mut exchange, &block).as_deref(), Some(path));
        }
    }
    exchange.client(&[frame(FrameType::HEADERS, 0, 101, &block), ping()].concat());
    assert_eq!(call(&mut exchange, &block), None, "after a block that was left out the table is unknown");
    assert_eq!(call(&mut exchange, &insertion("/a/D")).as_deref(), Some("/a/D"));
    assert_eq!(call(&mut exchange, &block).as_deref(), Some("/a/D"));
}

/// Every RPC has the trace context of its own request, also where the request refers to an earlier one's fields.
#[test]
fn trace_contexts_reach_the_rows_of_their_rpcs() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let sent = [inserted("x-request-id", "one"), inserted("traceparent", parent)].concat();
    let again = vec![0x80 | 62, 0x80 | 63];
    let mut exchange = Exchange::begun();
    for (stream, fields) in [(1, sent), (3, again), (5, vec![])] {
        exchange.client(&headers(stream, flag::END_STREAM, &[request_block("/a.B/C"), fields].concat()));
    }
    let rpcs = &exchange.cx.rpcs;
    assert_eq!(rpcs.trace_high, [0x0af7_6519_16cd_43dd, 0x0af7_6519_16cd_43dd, 0]);
    assert_eq!(rpcs.trace_low, [0x8448_eb21_1c80_319c, 0x8448_eb21_1c80_319c, 0]);
    assert_eq!(rpcs.span_id, [0xb7ad_6b71_6920_3331, 0xb7ad_6b71_6920_3331, 0]);
    assert!(rpcs.request_id[0] != 0 && rpcs.request_id[0] == rpcs.request_id[1] && rpcs.request_id[2] == 0);
}
