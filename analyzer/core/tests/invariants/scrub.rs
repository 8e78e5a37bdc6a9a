//! Scrubbed captures: the same tables for every conversation, however its packets travelled; nothing of what was sent;
//! and an end for every broken capture.

use crate::support::conversation::{Call, Wire, block, frame, record, turns};
use crate::support::{Recorded, all_tables, analyse, difference, memory, packets, packets_of, pcap, repository};
use grpcdiag_core::capture_file::Source;
use grpcdiag_core::scrub::{Scrub, Wishes};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::sync::LazyLock;

/// What payloads consist of (`support::conversation`).
const PAYLOAD: [u8; 8] = [0xaa; 8];

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn scrub(captured: &[Recorded], key: &[u8]) -> Vec<u8> {
    let bytes = pcap(captured);
    let sources = move || vec![memory("capture", bytes.clone())];
    let mut scrub = Scrub::open(Box::new(sources), key, Wishes::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    while let Some(piece) = scrub.step(7).unwrap_or_else(|error| panic!("{error}")) {
        out.extend(piece);
    }
    assert_eq!(scrub.report().map(|report| report.packets), Some(captured.len() as u64));
    out
}

/// The packets in the file, with the addresses that they had: only those differ in the tables.
fn read_back(scrubbed: Vec<u8>, captured: &[Recorded]) -> Vec<Recorded> {
    let mut read = packets(vec![memory("scrubbed", scrubbed)]);
    assert_eq!(read.len(), captured.len());
    for (new, old) in read.iter_mut().zip(captured) {
        assert_eq!((new.time_ns, new.original_len), (old.time_ns, old.original_len));
        assert_eq!(new.captured.len(), old.captured.len());
        if let (Some(room), Some(addresses)) = (new.captured.get_mut(12..20), old.captured.get(12..20)) {
            room.copy_from_slice(addresses);
        }
    }
    read
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let length = prop_oneof![0..20_usize, 0..3_000_usize];
    let lengths = prop::collection::vec(length, 0..4);
    let padding = prop::option::weighted(0.2, any::<u8>());
    let call = (0..4_u8, 0..17_u8, lengths.clone(), lengths, 1..4_000_usize, padding).prop_map(
        |(method, status, requests, responses, frame, padding)| Call {
            method,
            status,
            requests,
            responses,
            frame,
            padding,
        },
    );
    prop::collection::vec(call, 1..6)
}

/// What happens to packets between the capture point and the file: some are lost, come twice, late, or cut.
#[derive(Clone, Debug)]
struct Fate {
    sizes: Vec<usize>,
    first: usize,
    lost: Vec<prop::sample::Index>,
    repeated: Vec<(prop::sample::Index, usize)>,
    snaplen: usize,
}

fn fate() -> impl Strategy<Value = Fate> {
    let size = prop_oneof![1..10_usize, 1..1_448_usize, 1_448..9_000_usize];
    let index = any::<prop::sample::Index>;
    let snaplen = prop_oneof![4 => Just(usize::MAX), 1 => 40..300_usize];
    let first = prop_oneof![2 => Just(0_usize), 1 => 0..12_usize];
    (
        prop::collection::vec(size, 1..20),
        first,
        prop::collection::vec(index(), 0..3),
        prop::collection::vec((index(), 0..16_usize), 0..6),
        snaplen,
    )
        .prop_map(|(sizes, first, lost, repeated, snaplen)| Fate { sizes, first, lost, repeated, snaplen })
}

impl Fate {
    fn captured(&self, calls: &[Call]) -> Vec<Recorded> {
        self.of(turns(calls, 2))
    }

    fn of(&self, turns: Vec<(usize, Vec<u8>)>) -> Vec<Recorded> {
        let mut wire = Wire::opened();
        let mut sizes = self.sizes.iter().copied().cycle();
        for (side, bytes) in turns {
            wire.data(side, &bytes, &mut sizes);
        }
        wire.close();
        let mut sent = wire.sent.clone();
        for (which, later) in &self.repeated {
            let from = which.index(sent.len());
            let copy = sent[from].again(wire.fresh_identification());
            sent.insert((from + 1 + later).min(sent.len()), copy);
        }
        for which in &self.lost {
            sent.remove(which.index(sent.len()));
        }
        let mut captured = record(sent.get(self.first..).unwrap_or_default());
        for packet in &mut captured {
            packet.captured.truncate(self.snaplen);
        }
        captured
    }
}

/// What each side said, in pieces.
type Session = Vec<(usize, Vec<u8>)>;

/// Recorded TLS sessions by name, read once.
static SESSIONS: LazyLock<Vec<(String, Session)>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tls/tests/sessions");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let hex = |text: &str| {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    };
    let piece = |line: &str| match line.split_once(' ')? {
        (">", bytes) => Some((0, hex(bytes))),
        ("<", bytes) => Some((1, hex(bytes))),
        _ => None,
    };
    let session = |path: std::path::PathBuf| {
        let pieces = std::fs::read_to_string(&path).unwrap().lines().filter_map(piece).collect();
        (path.file_stem().unwrap().to_string_lossy().into_owned(), pieces)
    };
    let mut sessions: Vec<_> = files.map(session).collect();
    sessions.sort();
    sessions
});

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn conversations_give_the_same_tables_and_no_payload(calls in calls(), fate in fate()) {
        let captured = Fate { first: 0, ..fate }.captured(&calls);
        let scrubbed = scrub(&captured, b"key");
        prop_assert!(!holds(&scrubbed, &PAYLOAD));
        let read = read_back(scrubbed, &captured);
        let found = difference(analyse(&read, all_tables()), analyse(&captured, all_tables()));
        prop_assert!(found.is_none(), "{}", found.unwrap_or_default());
    }

    #[test]
    fn conversations_begun_late_keep_no_payload(calls in calls(), fate in fate()) {
        let captured = fate.captured(&calls);
        let scrubbed = scrub(&captured, b"key");
        prop_assert!(!holds(&scrubbed, &PAYLOAD));
        read_back(scrubbed, &captured);
    }

    #[test]
    fn tls_gives_the_same_tables(fate in fate()) {
        for (name, session) in SESSIONS.iter() {
            let captured = Fate { first: 0, ..fate.clone() }.of(session.clone());
            let read = read_back(scrub(&captured, b"key"), &captured);
            let [found, expected] = [&read, &captured].map(|packets| {
                let mut analysis = analyse(packets, all_tables());
                // a hello of which packets were lost may look like something else
                analysis.finished.setups = Default::default();
                analysis
            });
            let found = difference(found, expected);
            prop_assert!(found.is_none(), "{name}: {}", found.unwrap_or_default());
        }
    }

    #[test]
    fn rubbish_over_packets_ends(
        calls in calls(), fate in fate(),
        rubbish in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut captured = fate.captured(&calls);
        for (packet, at, octet) in rubbish {
            if captured.is_empty() {
                break;
            }
            let packet = packet.index(captured.len());
            let octets = &mut captured[packet].captured;
            if !octets.is_empty() {
                let at = at.index(octets.len());
                octets[at] = octet;
            }
        }
        read_back(scrub(&captured, b"key"), &captured);
    }

    #[test]
    fn rubbish_alone_is_zeroed(
        octets in prop::collection::vec(any::<u8>(), 0..400),
        link_type in prop::sample::select(vec![0, 1, 9, 12, 101, 108, 113, 228, 229, 276, 147]),
    ) {
        let original_len = octets.len() as u32;
        let one = Recorded { time_ns: 1, link_type, original_len, captured: octets };
        let scrubbed = scrub(std::slice::from_ref(&one), b"key");
        prop_assert_eq!(packets(vec![memory("scrubbed", scrubbed)]).len(), 1);
    }
}

/// Of the octets of each side, only headers, versions, cipher suites and protocols of ALPN are written.
#[test]
fn tls_keeps_no_octets_of_keys_names_and_certificates() {
    const KNOWN_PROTOCOLS: &[u8] = b"\0\x10\0\x0e\0\x0c\x02h2\x08http/1.1\0";
    let whole = Fate { sizes: vec![1_448], first: 0, lost: vec![], repeated: vec![], snaplen: usize::MAX };
    // a HelloRetryRequest is told by a constant in the place of its random (RFC 8446 section 4.1.3)
    for (name, session) in SESSIONS.iter().filter(|(name, _)| name != "tls13-hello-retry") {
        let said: Vec<Vec<u8>> = session.iter().map(|(_, bytes)| bytes.clone()).collect();
        let scrubbed = scrub(&whole.of(session.clone()), b"key");
        let shown = said.iter().flat_map(|bytes| bytes.windows(12)).filter(|window| {
            // what a record of zeros may have: its own header, a message's, and that of the next
            let zeros = window.iter().filter(|&&octet| octet == 0).count();
            zeros < 3 && holds(&scrubbed, window) && !holds(KNOWN_PROTOCOLS, window)
        });
        assert_eq!(shown.collect::<Vec<_>>(), Vec::<&[u8]>::new(), "{name}");
    }
}

/// What is in bodies: octets that nothing else consists of.
const MARKER: [u8; 12] = [0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xdb, 0xdc];

/// Octets around the marker.
fn around(before: &[u8], after: &[u8]) -> Vec<u8> {
    [before, &MARKER, after].concat()
}

/// A message or an end in a frame of its own.
fn framed(flag: u8, payload: &[u8]) -> Vec<u8> {
    [&[flag][..], &u32::try_from(payload.len()).unwrap().to_be_bytes(), payload].concat()
}

/// One RPC: what each side sends, with each body in DATA frames as they are.
fn exchanged(
    types: [&str; 2],
    http_status: &str,
    version: bool,
    request: &[u8],
    responses: &[Vec<u8>],
) -> Vec<(usize, Vec<u8>)> {
    let mut fields = vec![(":method", "POST"), (":path", "/demo.Service/Method0"), ("content-type", types[0])];
    fields.extend(version.then_some(("connect-protocol-version", "1")));
    let client =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[]), &frame(1, 4, 1, &block(&fields))].concat();
    let client = [client, frame(0, 1, 1, request)].concat();
    let head = frame(1, 4, 1, &block(&[(":status", http_status), ("content-type", types[1])]));
    let body = responses.iter().flat_map(|octets| frame(0, 0, 1, octets));
    let server = [frame(4, 0, 0, &[]), head].concat().into_iter().chain(body).chain(frame(0, 1, 1, &[])).collect();
    vec![(0, client), (1, server)]
}

/// Scrubs a conversation in segments of these sizes, which gives the same tables, and shows nothing of its bodies; whether a
/// code of Connect's stays.
fn scrubbed_turns(turns: Vec<(usize, Vec<u8>)>, sizes: Vec<usize>, why: &str) -> bool {
    let captured = Fate { sizes, first: 0, lost: vec![], repeated: vec![], snaplen: usize::MAX }.of(turns);
    let scrubbed = scrub(&captured, b"key");
    for part in MARKER.windows(3) {
        assert!(!holds(&scrubbed, part), "{why}");
    }
    let has_code = holds(&scrubbed, b"aborted");
    let read = read_back(scrubbed, &captured);
    assert_eq!(difference(analyse(&read, all_tables()), analyse(&captured, all_tables())), None, "{why}");
    has_code
}

/// The same of an RPC in long segments.
fn scrubbed_body(types: [&str; 2], http_status: &str, version: bool, request: &[u8], responses: &[Vec<u8>]) -> bool {
    let turns = exchanged(types, http_status, version, request, responses);
    for part in MARKER.windows(3) {
        assert!(turns.iter().any(|(_, bytes)| holds(bytes, part)));
    }
    scrubbed_turns(turns, vec![1_448], &format!("{types:?} {http_status} {responses:?}"))
}

#[test]
fn bodies_of_every_kind_keep_no_payload() {
    let (grpc, web, connect) = ("application/grpc", "application/grpc-web", "application/connect+json");
    let (page, json) = ("text/html", "application/json");
    let message = framed(0, &MARKER);
    let pages = [around(b"\0", b""), around(b"\x01\0", b""), around(b"<html>", b""), around(b"\x80\0", b"")];
    let web_end = framed(0x80, &around(b"grpc-message: ", b"\r\ngrpc-status: 5\r\n"));
    let connect_end = framed(2, &around(br#"{"error":{"code":"aborted","message":""#, br#""}}"#));
    for (content_type, end) in [(grpc, vec![]), (web, web_end), (connect, connect_end)] {
        let bodies = [message.clone(), [&message[..], &end].concat()];
        assert_eq!(scrubbed_body([content_type; 2], "200", false, &message, &bodies), content_type == connect);
        for first in &pages {
            let bodies = [first.clone(), pages[0].clone(), pages[2].clone()];
            for http_status in ["200", "503"] {
                assert!(!scrubbed_body([content_type, page], http_status, false, &message, &bodies));
            }
        }
    }
    let error = around(br#"{"code":"aborted","message":""#, br#""}"#);
    let bodies = std::slice::from_ref(&error);
    assert!(scrubbed_body([json; 2], "409", true, &MARKER, bodies), "its code stays");
    assert!(!scrubbed_body([json; 2], "200", true, &error, bodies), "messages that look like an error");
    assert!(!scrubbed_body([json, page], "200", true, &error, bodies), "a page");
}

/// The status stays wherever a segment, or a DATA frame, ends inside it.
#[test]
fn ends_in_bodies_are_cut_at_every_octet() {
    let web = framed(0x80, &around(b"grpc-message: ", b"\r\ngrpc-status: 5\r\n"));
    let connect = framed(2, &around(br#"{"error":{"code":"aborted","message":""#, br#""}}"#));
    let error = around(br#"{"code":"aborted","message":""#, br#""}"#);
    for (content_type, http_status, message, end) in [
        ("application/grpc-web", "200", framed(0, &MARKER), web),
        ("application/connect+json", "200", framed(0, &MARKER), connect),
        ("application/json", "409", vec![], error),
    ] {
        let turns = |bodies: &[Vec<u8>]| {
            exchanged([content_type; 2], http_status, http_status != "200", &framed(0, &MARKER), bodies)
        };
        let whole = turns(&[message.clone(), end.clone()]);
        for cut in 1..whole[1].1.len() {
            scrubbed_turns(whole.clone(), vec![100_000, cut, 100_000], &format!("{content_type}: segment of {cut}"));
        }
        for cut in 1..end.len() {
            let (front, back) = end.split_at(cut);
            let bodies = [message.clone(), front.to_vec(), back.to_vec()];
            scrubbed_turns(turns(&bodies), vec![1_448], &format!("{content_type}: DATA of {cut}"));
        }
    }
}

#[test]
fn content_types_stay_what_they_are() {
    let end = framed(0x80, &around(b"", b"\r\ngrpc-status: 5\r\n"));
    for types in [
        "application/grpc-web;charset=utf-8",
        "application/grpc-web+thrift",
        "application/grpc-web+acme ; x=y",
        "application/connect+proto; x=y",
        "application/grpc ;x",
        "application/grpc-webx",
    ] {
        scrubbed_body([types; 2], "200", false, &framed(0, &MARKER), std::slice::from_ref(&end));
    }
    let error = around(br#"{"code":"aborted","message":""#, br#""}"#);
    assert!(scrubbed_body(["application/json;charset=UTF-8"; 2], "409", true, &MARKER, &[error]));
}

#[test]
fn the_key_alone_decides() {
    let captured = packets_of(&repository("fixtures/recorded/impl-cpp.pcap"));
    assert_eq!(scrub(&captured, b"one"), scrub(&captured, b"one"));
    assert_ne!(scrub(&captured, b"one"), scrub(&captured, b"two"));
    let again = packets(vec![Source::Path(repository("fixtures/recorded/impl-cpp.pcap"))]);
    assert_eq!(captured.len(), again.len());
}

/// Where a boundary is searched in segments of few bytes, what is zeroed may decide; `grpcdiag scrub` sees that and writes
/// nothing. `GRPCDIAG_SCRUB_CASES` sets how many are tried.
#[test]
fn nearly_all_conversations_begun_late_give_the_same_tables() {
    let cases: u32 = std::env::var("GRPCDIAG_SCRUB_CASES").map_or(1_000, |cases| cases.parse().unwrap());
    let mut runner = TestRunner::new_with_rng(config(1), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let mut others = 0;
    for _ in 0..cases {
        let (calls, fate) = (calls(), fate()).new_tree(&mut runner).unwrap().current();
        let captured = Fate { first: fate.first.max(1), ..fate }.captured(&calls);
        let read = read_back(scrub(&captured, b"key"), &captured);
        others += u32::from(difference(analyse(&read, all_tables()), analyse(&captured, all_tables())).is_some());
    }
    assert!(others <= 1 + cases / 1_000, "{others} of {cases} differ");
}
