//! Both directions of one HTTP/2 connection in pieces, with gaps: frames, HPACK, messages, RPCs.

use grpcdiag_core::at::At;
use grpcdiag_core::grpc::connection::Http2;
use grpcdiag_core::http2::connection::http2::End;
use grpcdiag_core::http2::connection::reading::Reading;
use grpcdiag_core::http2::hpack::Decoder;
use grpcdiag_core::limits;
use grpcdiag_core::store::context::Context;
use grpcdiag_core::store::options::Options;
use grpcdiag_core::tcp::transport::Transport;

use super::input::{self, Pieces, Step, step};

const CLIENT_IS_SECOND: u8 = 1;
const UNCERTAIN: u8 = 2;
const LATE: u8 = 4;
const FORCED: u8 = 8;

const ENDS: [End; 4] = [End::ServerCloses, End::ClientCloses, End::Replaced, End::CaptureEnds];

/// An input is a byte of what is known of the connection and how it ends, and steps.
pub fn run(data: &[u8]) {
    let mut pieces = Pieces(data);
    let known = pieces.byte();
    let options = Options { frames: true, messages: true, rpc_rows: true, ..Options::default() };
    let mut cx = Context::new(options);
    let client = usize::from(known & CLIENT_IS_SECOND);
    let mut h2 = Http2::new(0, client, known & UNCERTAIN == 0, known & LATE != 0, &Decoder::new(&mut cx.strings));
    if known & FORCED != 0 {
        h2.assume_http2();
    }
    let (mut fed, mut packet, transport) = (0, 0, &Transport::default());
    while let Some(step) = pieces.step() {
        packet += 1;
        let at = At::new(packet, i64::from(packet) * 1_000_000);
        match step {
            Step::Bytes(side, bytes) => {
                fed += bytes.len() as u64;
                h2.feed(side, bytes, at, &mut Reading { cx: &mut cx, transport }, &mut ());
            }
            Step::Gap(side, length) => {
                h2.gap(side, length, at, &mut Reading { cx: &mut cx, transport }, &mut ());
            }
        }
        assert!(h2.streams.len() <= limits::OPEN_STREAMS);
    }
    let (end, at) = (ENDS[usize::from(known >> 4) % ENDS.len()], At::new(packet, i64::from(packet) * 1_000_000));
    h2.finish(end, at, &mut Reading { cx: &mut cx, transport });
    let bytes = h2.bytes;
    assert_eq!(bytes.decoded + bytes.not_http2 + bytes.encrypted + bytes.undecoded, fed, "{bytes:?}");
    check(&cx);
}

/// What holds for the tables of every connection.
fn check(cx: &Context) {
    assert!(cx.rpcs.duration_ns.iter().all(|&ns| ns >= 0));
    for (budget, &duration) in cx.rpc_budgets.iter().zip(&cx.rpcs.duration_ns) {
        assert_eq!(budget.total(), duration.unsigned_abs());
    }
    let frames: u64 = cx.totals.frames.iter().sum();
    assert_eq!(frames, cx.frames.len() as u64);
    assert_eq!(cx.totals.messages, cx.messages.len() as u64);
    assert!(cx.problems.rows.len() <= limits::PROBLEMS);
    let texts = cx.strings.methods.texts();
    assert!(texts.iter().all(|text| text.len() <= limits::INTERNED_BYTES));
}

/// The bytes of the committed captures' connections: from their opening, and as if it had not been captured.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for slice in input::slices() {
        let payloads = input::payloads(&slice);
        let steps: Vec<u8> = payloads.iter().flat_map(|(side, bytes)| step(*side, bytes)).collect();
        if steps.is_empty() {
            continue;
        }
        let opened = payloads[0].1.starts_with(b"PRI * HTTP/2");
        let known = if opened { 0 } else { UNCERTAIN | LATE };
        seeds.push([&[known][..], &steps].concat());
        seeds.push([&[UNCERTAIN | LATE | FORCED | 0x30][..], &steps].concat());
    }
    seeds
}
