//! States that were damaged, or made to do harm: they are refused, or read on as anything, within bounded memory.

use std::sync::Arc;

use grpcdiag_core::run::pipeline::Pipeline;
use grpcdiag_core::run::saved::Saved;
use grpcdiag_core::store::options::Options;

use crate::flood::*;
use crate::memory::*;

fn options() -> Options {
    Options { rpc_rows: true, ..Options::default() }
}

/// A run with a connection without payload, one with an open call and a hole, one of HTTP/1 and one that is closed.
fn run() -> Flood {
    let mut flood = Flood { pipeline: Pipeline::resumable(options(), Arc::default()), ..Flood::new() };
    flood.handshake();
    for host in [2, 3, 4] {
        (flood.host, flood.next) = (host, [1_000, 5_000]);
        if host == 3 {
            flood.handshake();
            flood.send(
                CLIENT,
                b"POST /a.B/c HTTP/1.1\r\ncontent-type: application/grpc-web\r\ncontent-length: 9\r\n\r\nabc",
            );
            continue;
        }
        flood.begin();
        flood.send(CLIENT, &[request(1, "/a.B/c"), request(3, "/a.B/d"), frame(DATA, 1, 1, &[0; 7])].concat());
        flood.send(SERVER, &frame(HEADERS, END_HEADERS, 1, &field(":status", "200")));
        flood.segment(SERVER, ACK, flood.next[SERVER].wrapping_add(500), &[0; 30]);
    }
    flood.segment(CLIENT, RST | ACK, flood.next[CLIENT], &[]);
    flood
}

/// The state at the end of a file.
fn saved() -> Vec<u8> {
    let mut flood = run();
    flood.pipeline.cut_file(0);
    flood.pipeline.save().unwrap()
}

/// Reads the next file behind a state, with packets of the same connections.
fn go_on(saved: Saved) {
    let mut flood = Flood { pipeline: Pipeline::resume(options(), Arc::default(), saved), number: 100, ..Flood::new() };
    for host in 1..5 {
        (flood.host, flood.next) = (host, [1_400, 5_400]);
        flood.segment(CLIENT, ACK, 1_001, &[]);
        flood.send(SERVER, &frame(DATA, 1, 1, &[0; 7]));
        flood.send(CLIENT, &request(5, "/a.B/c"));
    }
    flood.pipeline.cut_file(0);
    let _ = flood.pipeline.save();
}

/// Sums may overflow, which builds for tests alone take for an error.
fn check(ended: std::thread::Result<()>) {
    let error = ended.err();
    let text = error.as_ref().map(|error| error.downcast_ref::<&str>().copied().unwrap_or("not a text"));
    assert!(text.is_none_or(|text| text.ends_with("with overflow")), "{text:?}");
}

#[test]
fn changed_bytes_do_no_harm() {
    let measured = Measured::begin();
    let saved = saved();
    go_on(Saved::parse(&saved).unwrap());
    let most = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let mut panics = Vec::new();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ())); // a backtrace takes more memory than all states
    for (nth, at) in (0..saved.len()).step_by(5).enumerate() {
        let other = [saved[at] ^ 0x10];
        let bytes = [&[0][..], &[1], &[2], &[0x7f], &other, &most][nth % 6];
        let damaged = [&saved[..at], bytes, &saved[at + 1..]].concat();
        let ended = std::panic::catch_unwind(|| Saved::parse(&damaged).map_or((), go_on));
        if ended.is_err() {
            panics.push(ended);
        }
    }
    std::panic::set_hook(hook);
    panics.into_iter().for_each(check);
    measured.assert_below(SMALL + MB);
}

#[test]
fn what_is_cut_or_goes_on_is_refused() {
    let _alone = Measured::begin();
    let saved = saved();
    assert!((0..saved.len()).all(|end| Saved::parse(&saved[..end]).is_err()));
    assert!(Saved::parse(&[&saved[..], &[0]].concat()).is_err());
}

/// Wherever a number of items stands, a large one takes no more memory than the bytes that are there allow.
#[test]
fn numbers_of_items_decide_nothing() {
    let mut measured = Measured::begin();
    let (saved, zeros) = (saved(), vec![0; MB / 4]);
    let number = [&[0xff; 9][..], &[1]].concat(); // as large as 64 bits allow, seven of them in each byte
    for at in 0..saved.len() {
        let state = [&saved[..at], &number, &zeros].concat();
        measured.again();
        assert!(Saved::parse(&state).is_err());
        measured.assert_below(10 * MB);
    }
}
