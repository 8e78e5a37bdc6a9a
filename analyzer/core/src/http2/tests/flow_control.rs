//! Flow-control windows (RFC 9113 sections 5.2 and 6.9).

use super::*;

const DEFAULT: i64 = 65_535;

/// Stream 1 is open and its windows are those before any DATA.
fn open_stream() -> Exchange {
    let mut exchange = Exchange::begun();
    exchange.client(&headers(1, 0, &request_block("/a/B")));
    assert_eq!(exchange.h2.connection_window(CLIENT), Some(DEFAULT), "header blocks do not count");
    assert_eq!(exchange.h2.stream_window(CLIENT, 1), Some(DEFAULT));
    exchange
}

/// The windows for DATA of the client: the connection's and stream 1's.
fn windows(exchange: &mut Exchange) -> (i64, i64) {
    (exchange.h2.connection_window(CLIENT).unwrap(), exchange.h2.stream_window(CLIENT, 1).unwrap())
}

#[test]
fn data_takes_from_both_windows_and_updates_give_to_one() {
    let mut exchange = open_stream();
    exchange.client(&data(1, 0, &message(1_000)));
    assert_eq!(windows(&mut exchange), (DEFAULT - 1_005, DEFAULT - 1_005));
    exchange.server(&window_update(0, 400));
    assert_eq!(windows(&mut exchange), (DEFAULT - 605, DEFAULT - 1_005));
    exchange.server(&window_update(1, 1_005));
    assert_eq!(windows(&mut exchange), (DEFAULT - 605, DEFAULT));
    assert_eq!(exchange.h2.connection_window(SERVER), Some(DEFAULT), "the server's own are apart");
    assert_eq!(exchange.h2.stream_window(SERVER, 1), Some(DEFAULT));
}

/// "The entire DATA frame payload is included in flow control, including the Pad Length and Padding fields" (6.1).
#[test]
fn padding_takes_from_the_windows() {
    let mut exchange = open_stream();
    exchange.client(&padded_data(1, &message(95), 99));
    assert_eq!(windows(&mut exchange), (DEFAULT - 200, DEFAULT - 200));
    assert_eq!(exchange.messages(), [(1, 0, 0, 95)], "and is no part of the message");
    exchange.client(&padded_data(1, &[], 0));
    assert_eq!(windows(&mut exchange), (DEFAULT - 201, DEFAULT - 201));
}

/// The frame counts as soon as its header is sent: the sender has committed to it.
#[test]
fn a_frame_counts_from_its_header_on() {
    let mut exchange = open_stream();
    let whole = data(1, 0, &message(995));
    exchange.client(&whole[..9]);
    assert_eq!(windows(&mut exchange), (DEFAULT - 1_000, DEFAULT - 1_000));
    exchange.client(&whole[9..]);
    assert_eq!(windows(&mut exchange), (DEFAULT - 1_000, DEFAULT - 1_000));
}

/// The example of section 6.9.2: 60 KB were sent when the initial window becomes 16 KB: the window is -44 KB.
#[test]
fn a_smaller_initial_window_makes_windows_negative() {
    let mut exchange = open_stream();
    for _ in 0..6 {
        exchange.client(&data(1, 0, &[0; 10_000]));
    }
    exchange.server(&settings_frame(&[(INITIAL_WINDOW_SIZE, 16_000)]));
    assert_eq!(windows(&mut exchange), (DEFAULT - 60_000, DEFAULT - 60_000), "not acknowledged yet");
    exchange.client(&settings_ack());
    assert_eq!(windows(&mut exchange), (DEFAULT - 60_000, -44_000), "the connection's window is untouched");
    exchange.server(&window_update(1, 44_001));
    assert_eq!(exchange.h2.stream_window(CLIENT, 1), Some(1));
    exchange.client(&headers(3, 0, &request_block("/a/B")));
    assert_eq!(exchange.h2.stream_window(CLIENT, 3), Some(16_000), "a new stream begins with the new size");
    assert_eq!(exchange.h2.stream_window(SERVER, 3), Some(DEFAULT), "for the other direction nothing changed");
}

#[test]
fn a_larger_initial_window_credits_open_streams() {
    let mut exchange = open_stream();
    exchange.client(&data(1, 0, &[0; 16_000]));
    exchange.server(&settings_frame(&[(INITIAL_WINDOW_SIZE, 1 << 20)]));
    exchange.client(&settings_ack());
    assert_eq!(windows(&mut exchange), (DEFAULT - 16_000, (1 << 20) - 16_000));
    assert_eq!(exchange.h2.sides[CLIENT].credited_at.map(|at| at.packet), Some(exchange.packet));
}

#[test]
fn an_update_of_zero_is_told_and_gives_nothing() {
    let mut exchange = open_stream();
    exchange.server(&window_update(1, 0));
    exchange.server(&window_update(1, 1 << 31));
    assert_eq!(windows(&mut exchange), (DEFAULT, DEFAULT), "the reserved bit is no part of the increment");
    assert_eq!(exchange.problems(), ["WINDOW_UPDATE with an increment of 0"]);
}

#[test]
fn updates_of_unknown_streams_and_endless_updates_do_no_harm() {
    let mut exchange = open_stream();
    exchange.server(&window_update(99, 5));
    for _ in 0..5 {
        exchange.server(&[window_update(0, 0x7fff_ffff), window_update(1, 0x7fff_ffff)].concat());
    }
    let expected = DEFAULT + 5 * 0x7fff_ffff;
    assert_eq!(windows(&mut exchange), (expected, expected));
}

#[test]
fn data_of_a_stream_that_is_over_still_takes_from_the_connection() {
    let mut exchange = open_stream();
    exchange.server(&rst_stream(1, 8));
    exchange.client(&data(1, 0, &[0; 100]));
    assert_eq!(exchange.h2.connection_window(CLIENT), Some(DEFAULT - 100));
    assert_eq!(exchange.h2.stream_window(CLIENT, 1), None);
}

/// Invariant: where the start is unknown the windows are unknown.
#[test]
fn windows_are_unknown_after_a_late_begin() {
    let mut exchange = Exchange::late(CLIENT);
    exchange.client(&[ping(), ping(), headers(7, 0, &request_block("/a/B")), data(7, 0, &message(3))].concat());
    assert_eq!(exchange.messages().len(), 1);
    assert_eq!(exchange.h2.connection_window(CLIENT), None);
    assert_eq!(exchange.h2.stream_window(CLIENT, 7), None);
}

/// Nobody knows how much DATA was in the hole, nor how many WINDOW_UPDATE frames in the other direction's.
#[test]
fn windows_are_unknown_after_a_lost_boundary() {
    for side in [CLIENT, SERVER] {
        let mut exchange = open_stream();
        exchange.lose(side, 1_000);
        exchange.send(side, &[ping(), ping()].concat());
        exchange.client(&data(1, 0, &[0; 5]));
        assert_eq!(exchange.h2.connection_window(CLIENT), None, "hole of side {side}");
        assert_eq!(exchange.h2.stream_window(CLIENT, 1), None, "hole of side {side}");
    }
}

/// A hole inside DATA hides nothing: the frame's length was in its header.
#[test]
fn windows_are_known_after_a_hole_inside_data() {
    let mut exchange = open_stream();
    let bytes = data(1, 0, &message(995));
    exchange.client(&bytes[..100]);
    exchange.lose(CLIENT, 300);
    exchange.client(&bytes[400..]);
    assert_eq!(windows(&mut exchange), (DEFAULT - 1_000, DEFAULT - 1_000));
}

#[test]
fn owed_bytes_follow_the_message_prefix() {
    let mut exchange = open_stream();
    assert!(!exchange.h2.owes(CLIENT));
    exchange.client(&data(1, 0, &message(1_000)[..105]));
    assert!(exchange.h2.owes(CLIENT));
    assert_eq!(exchange.h2.owed(CLIENT, 1), 900);
    exchange.client(&data(1, 0, &[0xaa; 900])[..400]);
    assert_eq!(exchange.h2.owed(CLIENT, 1), 509, "900 less 391 payload octets");
    exchange.client(&[0xaa; 509]);
    assert!(!exchange.h2.owes(CLIENT));
    assert_eq!(exchange.messages(), [(1, 0, 0, 1_000)]);
}
