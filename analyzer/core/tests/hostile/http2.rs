//! HTTP/2 and gRPC: header blocks, streams, control frames, lengths that lie.

use grpcdiag_core::limits;

use crate::flood::*;
use crate::memory::*;

#[test]
fn header_blocks_that_never_end() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    flood.send(CLIENT, &frame(HEADERS, 0, 1, &field("a", "b")));
    let continuation = frame(CONTINUATION, 0, 1, &field("c", &"d".repeat(100)).repeat(150));
    for _ in 0..4_000 {
        flood.send(CLIENT, &continuation);
    }
    let outcome = flood.finish();
    measured.assert_below(3 * limits::HEADER_BLOCK + SMALL);
    let kinds = &outcome.cx.problems.kinds;
    assert!(kinds.contains(&"header block is too long to keep: left out"), "{kinds:?}");
}

/// CVE-2016-6581: one octet stands for a field of 4 kB.
#[test]
fn header_blocks_that_expand() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let value = "v".repeat(4_000);
    let insertion = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], value.as_bytes()].concat();
    flood.send(CLIENT, &frame(HEADERS, END_HEADERS, 1, &insertion));
    let references = vec![0xbe; 16_000];
    for stream in (3..2_000).step_by(2) {
        flood.send(CLIENT, &frame(HEADERS, END_HEADERS | 1, stream, &references));
    }
    let outcome = flood.finish();
    // 64 GB of fields
    measured.assert_below(SMALL + 2 * MB);
    assert_eq!(outcome.cx.totals.frames[usize::from(HEADERS)], 1_000);
}

#[test]
fn header_tables_of_any_size() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    flood.send(SERVER, &frame(SETTINGS, 0, 0, &[0, 1, 0xff, 0xff, 0xff, 0xff]));
    flood.send(CLIENT, &frame(SETTINGS, 1, 0, &[]));
    // the table is set to 4 GB (RFC 7541 section 6.3) and filled
    flood.send(CLIENT, &frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe0, 0xff, 0xff, 0xff, 0x0f]));
    for n in 0..4_000_u32 {
        let insertion = [&[0x40, 4][..], &n.to_be_bytes(), &[0x7f, 0xa1, 0x1e], &vec![b'v'; 4_000]].concat();
        flood.send(CLIENT, &frame(HEADERS, END_HEADERS, 2 * n + 3, &insertion));
    }
    let _ = flood.finish();
    // streams and rows besides
    measured.assert_below(4 * limits::HPACK_MAX_TABLE_BYTES as usize + 6 * MB);
}

#[test]
fn a_million_streams_that_never_end() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let mut bytes = Vec::new();
    for n in 0..1_000_000_u32 {
        bytes.extend(request(2 * n + 1, "/a.B/C"));
        if bytes.len() > 50_000 {
            flood.send(CLIENT, &bytes);
            bytes.clear();
        }
    }
    let outcome = flood.finish();
    measured.assert_below(limits::OPEN_STREAMS * KB + 20 * MB);
    assert!(outcome.told("too many open streams: further ones are not followed") > 900_000);
    assert_eq!(outcome.cx.rpcs.len(), limits::OPEN_STREAMS);
}

/// A wait is charged to streams with an unfinished message: its cost does not grow with the streams that are open.
#[test]
fn waits_beside_very_many_streams() {
    let _alone = Measured::begin(); // its memory would be counted as another's
    let mut flood = Flood::begun();
    for n in 0..limits::OPEN_STREAMS as u32 {
        flood.send(CLIENT, &request(2 * n + 1, "/a.B/C"));
    }
    let last = 2 * limits::OPEN_STREAMS as u32 - 1;
    flood.send(CLIENT, &frame(DATA, 0, last, &[0, 0xff, 0xff, 0xff, 0xff]));
    flood.pace = 2_000_000;
    // 2 ms apart inside a message: each packet ends a wait
    for _ in 0..100_000 {
        flood.send(CLIENT, &frame(DATA, 0, last, &[0; 4]));
    }
    let outcome = flood.finish();
    assert_eq!(outcome.cx.waits.len(), 100_000);
    assert!(outcome.cx.waits.streams.iter().all(|&streams| streams == 0), "beyond the places that are searched");
}

#[test]
fn responses_that_nobody_acknowledges() {
    let measured = Measured::begin();
    // the client is far; no deadline of the last responses is over at the end
    let mut flood = Flood { pace: 900_000, ..Flood::new() };
    flood.begin();
    let request = |stream| {
        let fields = [(":path", "/a.B/C"), ("content-type", "application/grpc"), ("grpc-timeout", "1S")];
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
        frame(HEADERS, END_HEADERS | 1, stream, &block)
    };
    let fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")];
    let response: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    for group in 0..200_u32 {
        let streams = (0..1_000).map(|n| 2 * (1_000 * group + n) + 1);
        streams.clone().for_each(|stream| flood.send(CLIENT, &request(stream)));
        streams.for_each(|stream| flood.send(SERVER, &frame(HEADERS, END_HEADERS | 1, stream, &response)));
    }
    let outcome = flood.finish();
    measured.assert_below(1_000 * KB + 200_000 * 450 + SMALL);
    let unknown = outcome.cx.rpcs.status.iter().filter(|&&status| status != 0).count();
    assert_eq!(unknown, limits::UNREAD_RESPONSES, "others were given up");
    assert_eq!(outcome.cx.rpcs.len(), 200_000);
}

#[test]
fn settings_that_nobody_acknowledges() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let frames = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).repeat(1_000);
    for _ in 0..1_000 {
        flood.send(SERVER, &frames);
    }
    let outcome = flood.finish();
    measured.assert_below(limits::ROWS_AHEAD * PROBLEM_ROW + SMALL);
    let told = outcome.told("too many SETTINGS frames without an acknowledgement");
    assert_eq!(told as usize, 1_000_000 - limits::PENDING_SETTINGS);
    assert!(outcome.cx.problems.rows.len() <= limits::PROBLEMS);
}

#[test]
fn pings_and_goaways_without_end() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    for n in 0..500_u32 {
        let mut frames = frame(PING, 0, 0, b"deadbeef").repeat(1_000);
        for m in 0..400_u32 {
            let reason = [&[0; 8][..], format!("reason {n} {m} {}", "x".repeat(60)).as_bytes()].concat();
            frames.extend(frame(GOAWAY, 0, 0, &reason));
        }
        flood.send(SERVER, &frames);
    }
    let outcome = flood.finish();
    let rows = |most| most + limits::ROWS_AHEAD;
    measured.assert_below(rows(limits::GOAWAYS) * 40 + rows(limits::PINGS) * 60 + SMALL);
    assert_eq!(outcome.cx.totals.frames[usize::from(PING)], 500_000);
    assert_eq!(outcome.cx.goaways.len(), limits::GOAWAYS);
    assert!(outcome.cx.pings.len() <= limits::PINGS);
    assert!(outcome.cx.goaway_reasons.len() <= limits::GOAWAY_REASONS);
    assert!(outcome.cx.goaway_reasons.iter().all(|reason| reason.len() <= 80));
}

/// Frames of 2^24 - 1 octets and messages of 4 GB, of which only the beginning is there.
#[test]
fn absurd_lengths_in_frames_and_messages() {
    let mut measured = Measured::begin();
    for kind in 0..16_u8 {
        measured.again();
        let mut flood = Flood::begun();
        flood.send(CLIENT, &request(1, "/a.B/C"));
        flood.send(CLIENT, &frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
        flood.send(CLIENT, &[0xff, 0xff, 0xff, kind, 0, 0, 0, 0, 1]);
        for _ in 0..100 {
            flood.send(CLIENT, &[0; 50_000]);
        }
        let outcome = flood.finish();
        measured.assert_below(SMALL);
        assert_eq!(outcome.cx.rpcs.len(), 1);
    }
}

#[test]
fn a_million_methods_and_agents() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let mut bytes = Vec::new();
    for n in 0..300_000_u32 {
        let path = format!("/{n}/{}", "m".repeat(100));
        let fields = [(":path", &*path), ("content-type", "application/grpc"), ("user-agent", &path[1..])];
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
        bytes.extend(frame(HEADERS, END_HEADERS | 1, 2 * n + 1, &block));
        bytes.extend(frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]));
        if bytes.len() > 50_000 {
            flood.send(CLIENT, &bytes);
            bytes.clear();
        }
    }
    flood.send(CLIENT, &bytes);
    let outcome = flood.finish();
    let strings = 2 * 3 * limits::INTERNED_TOTAL;
    let methods = limits::INTERNED_STRINGS * 450 + limits::METHOD_HISTOGRAMS * 20 * KB;
    let failures = limits::ROWS_AHEAD * 350;
    measured.assert_below(strings + methods + 300_000 * 450 + failures + 20 * MB);
    assert_eq!(outcome.cx.rpcs.len(), 300_000);
    let texts = outcome.cx.strings.methods.texts();
    assert_eq!(texts.len(), limits::INTERNED_STRINGS + 1);
    assert_eq!(texts.iter().filter(|text| *text == "(more names than are told apart)").count(), 1);
}
