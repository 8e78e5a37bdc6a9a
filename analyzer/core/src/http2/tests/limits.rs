//! What one connection may make the program keep.

use crate::grpc::call::Call;
use crate::grpc::protocol::Kind;
use crate::http2::connection::streams::Streams;

use super::*;

#[test]
fn open_streams_are_bounded() {
    let mut streams = Streams::<Call>::default();
    let identifiers = || (1_u32..).step_by(2).take(bounds::OPEN_STREAMS);
    assert!(identifiers().all(|id| streams.open(id).is_some()));
    assert!(streams.open(0x7fff_ffff).is_none(), "one too many");
    assert_eq!(streams.len(), bounds::OPEN_STREAMS);
    streams.remove(1);
    assert!(streams.open(0x7fff_ffff).is_some(), "a stream that ended made room");
}

#[test]
fn slots_are_used_again_and_forget_their_stream() {
    let mut streams = Streams::<Call>::default();
    for round in 0..1_000_u32 {
        let id = round * 2 + 1;
        streams.open(id).unwrap().state.begin(id, Kind::Grpc, At::default(), [0, 0]);
        assert_eq!(streams.slot(id), Some(0), "one stream at a time needs one slot");
        assert_eq!(streams.find_mut(id).unwrap().credit[0], 0);
        streams.find_mut(id).unwrap().credit[0] = -5;
        streams.remove(id);
        assert!(streams.find_mut(id).is_none() && streams.is_empty());
    }
}

/// Identifiers that share a place of the look-aside cache do not disturb each other.
#[test]
fn streams_far_apart_are_told_apart() {
    let mut streams = Streams::<Call>::default();
    let ids = [1, 257, 513, 0x7fff_ff01];
    for id in ids {
        streams.open(id).unwrap().state.begin(id, Kind::Grpc, At::default(), [0, 0]);
    }
    for id in ids {
        assert_eq!(streams.find_mut(id).unwrap().id, id);
    }
    streams.remove(513);
    assert_eq!(streams.ids(), [1, 257, 0x7fff_ff01]);
    assert!(streams.slot(0).is_none() && streams.slot(513).is_none());
}

#[test]
fn a_long_control_frame_is_skipped_not_kept() {
    let mut exchange = Exchange::begun();
    let goaway = frame(FrameType::GOAWAY, 0, 0, &vec![0; bounds::CONTROL_FRAME + 1]);
    for piece in goaway.chunks(10_000) {
        exchange.server(piece);
        assert!(exchange.h2.sides[SERVER].kept.len() <= bounds::CONTROL_FRAME);
    }
    assert!(exchange.problems().contains(&"frame is too long to keep: skipped"), "{:?}", exchange.problems());
    exchange.client(&request(1, "/a/B", 1));
    exchange.server(&response(1, 1, "0"));
    assert_eq!(exchange.outcome(), (Some("OK"), true), "the next frame is found");
}

#[test]
fn problems_of_an_endless_stream_of_wrong_frames_are_bounded() {
    let mut exchange = Exchange::begun();
    let wrong = frame(FrameType::PING, 0, 1, &[0; 8]).repeat(100);
    for _ in 0..1_500 {
        exchange.client(&wrong);
    }
    assert_eq!(exchange.cx.problems.rows.len(), bounds::PROBLEMS + bounds::ROWS_AHEAD);
    assert_eq!(exchange.cx.problems.counts, [150_000]);
    assert_eq!(exchange.accounted(), exchange.h2.bytes.decoded, "wrong frames have boundaries all the same");
}
