//! SETTINGS: announced by one side, in force from the other's acknowledgement on (RFC 9113 section 6.5.3).

use super::*;

#[test]
fn settings_are_in_force_once_acknowledged() {
    let mut exchange = Exchange::begun();
    exchange.server(&settings_frame(&[(MAX_CONCURRENT_STREAMS, 7), (MAX_FRAME_SIZE, 20_000)]));
    let server = &exchange.h2.sides[SERVER];
    assert_eq!(server.announced.max_concurrent_streams, Some(7));
    assert_eq!((server.in_force.max_concurrent_streams, server.in_force.max_frame_size), (None, 16_384));
    exchange.server(&settings_ack());
    assert_eq!(exchange.h2.sides[SERVER].in_force.max_concurrent_streams, None, "its own ACK is for the client's");
    exchange.client(&settings_ack());
    let in_force = exchange.h2.sides[SERVER].in_force;
    assert_eq!((in_force.max_concurrent_streams, in_force.max_frame_size), (Some(7), 20_000));
    assert_eq!(exchange.h2.sides[CLIENT].in_force.max_concurrent_streams, None, "directions are apart");
}

#[test]
fn acknowledgements_are_for_the_oldest_settings() {
    let mut exchange = Exchange::begun();
    exchange.server(&settings_frame(&[(INITIAL_WINDOW_SIZE, 1_000)]));
    exchange.server(&settings_frame(&[(MAX_CONCURRENT_STREAMS, 5)]));
    exchange.client(&settings_ack());
    let in_force = exchange.h2.sides[SERVER].in_force;
    assert_eq!((in_force.initial_window_size, in_force.max_concurrent_streams), (1_000, None));
    exchange.client(&settings_ack());
    let in_force = exchange.h2.sides[SERVER].in_force;
    assert_eq!((in_force.initial_window_size, in_force.max_concurrent_streams), (1_000, Some(5)), "values add up");
    assert!(exchange.problems().is_empty());
    exchange.client(&settings_ack());
    assert_eq!(exchange.problems(), ["SETTINGS acknowledgement without SETTINGS"]);
}

#[test]
fn the_last_of_equal_identifiers_holds_and_unknown_ones_are_ignored() {
    let mut exchange = Exchange::begun();
    exchange.server(&settings_frame(&[(INITIAL_WINDOW_SIZE, 1), (0xfe03, 1), (INITIAL_WINDOW_SIZE, 2)]));
    assert_eq!(exchange.h2.sides[SERVER].announced.initial_window_size, 2);
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
}

#[test]
fn forbidden_values_are_told_and_left_out() {
    let mut exchange = Exchange::begun();
    let wrong = [(INITIAL_WINDOW_SIZE, 1 << 31), (MAX_FRAME_SIZE, 16_383), (MAX_FRAME_SIZE, 1 << 24)];
    for pair in wrong {
        exchange.server(&settings_frame(&[pair, (MAX_CONCURRENT_STREAMS, 9)]));
        exchange.client(&settings_ack());
    }
    let in_force = exchange.h2.sides[SERVER].in_force;
    assert_eq!((in_force.initial_window_size, in_force.max_frame_size), (65_535, 16_384));
    assert_eq!(in_force.max_concurrent_streams, Some(9), "the other values of the frame hold");
    assert_eq!(exchange.cx.problems.counts, [1, 2]);
}

/// A block that begins with a dynamic table size update to 8,192 (RFC 7541 section 6.3): 31 + 8,161.
fn block_with_update(path: &str) -> Vec<u8> {
    [&[0x3f, 0xe1, 0x3f][..], &inserted(":path", path), &request_fields()].concat()
}

#[test]
fn the_server_lets_the_client_use_a_larger_header_table() {
    let mut exchange = Exchange::begun();
    exchange.server(&settings_frame(&[(HEADER_TABLE_SIZE, 8_192)]));
    exchange.client(&settings_ack());
    exchange.client(&headers(1, flag::END_STREAM, &block_with_update("/a/B")));
    exchange.client(&headers(3, flag::END_STREAM, &[&NEWEST[..], &request_fields()].concat()));
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
    assert!(exchange.rpcs().iter().all(|rpc| rpc.method.as_deref() == Some("/a/B")), "{:?}", exchange.rpcs());
}

#[test]
fn the_clients_own_header_table_setting_does_not_bind_it() {
    let mut exchange = Exchange::begun();
    exchange.client(&settings_frame(&[(HEADER_TABLE_SIZE, 8_192)]));
    exchange.server(&settings_ack());
    exchange.client(&headers(1, flag::END_STREAM, &block_with_update("/a/B")));
    assert_eq!(exchange.problems(), ["HPACK: header block cannot be decoded to its end"]);
}

#[test]
fn a_header_table_of_zero_forgets_what_was_inserted() {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, flag::END_STREAM, &[inserted(":path", "/a/B"), request_fields()].concat()));
    exchange.server(&settings_frame(&[(HEADER_TABLE_SIZE, 0)]));
    exchange.client(&settings_ack());
    exchange.client(&headers(3, flag::END_STREAM, &[&[0x20][..], &NEWEST, &request_fields()].concat()));
    assert_eq!(exchange.problems(), ["HPACK: header block cannot be decoded to its end"], "the entry is evicted");
    assert_eq!(exchange.rpcs()[1].method, None);
}

#[test]
fn unacknowledged_settings_are_bounded() {
    let mut exchange = Exchange::begun();
    for _ in 0..bounds::PENDING_SETTINGS + 10 {
        exchange.server(&settings_frame(&[(MAX_CONCURRENT_STREAMS, 3)]));
    }
    assert_eq!(exchange.h2.sides[SERVER].pending.len(), bounds::PENDING_SETTINGS);
    assert_eq!(exchange.problems(), ["too many SETTINGS frames without an acknowledgement"]);
    assert_eq!(exchange.cx.problems.counts, [10]);
}

#[test]
fn a_frame_longer_than_the_setting_is_told_and_read() {
    for (announced, told) in [(16_384, true), (16_385, false)] {
        let mut exchange = Exchange::begun();
        exchange.server(&settings_frame(&[(MAX_FRAME_SIZE, announced)]));
        exchange.client(&headers(1, 0, &request_block("/a/B")));
        exchange.client(&data(1, flag::END_STREAM, &message(16_380)));
        assert_eq!(exchange.messages(), [(1, 0, 0, 16_380)]);
        assert_eq!(!exchange.problems().is_empty(), told, "{:?}", exchange.problems());
    }
}
