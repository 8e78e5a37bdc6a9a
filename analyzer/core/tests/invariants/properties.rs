//! What holds for every conversation, however its bytes travelled, and for every broken capture.

use grpcdiag_core::capture_file::{CaptureReader, Source};
use grpcdiag_core::grpc::status::{NOT_SEEN, UNAVAILABLE};
use grpcdiag_core::run::pipeline::Pipeline;
use proptest::prelude::*;

use crate::support::conversation::{Call, HANDSHAKE, Sent, Wire, record, turns};
use crate::support::{Analysis, Recorded, all_tables, analyse, memory, packets_of, repository};

/// Packets that may pass each other.
const WINDOW: usize = 16;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
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

/// How the bytes of a conversation travel.
#[derive(Clone, Debug)]
struct Journey {
    /// Calls that are open together.
    together: usize,
    /// Sizes of segments, used over and over.
    sizes: Vec<usize>,
    /// Packets that come twice: which, how much later, and whether as another packet (a retransmission).
    repeated: Vec<(prop::sample::Index, usize, bool)>,
    /// How far each packet is moved back, used over and over.
    delays: Vec<usize>,
    closes: bool,
}

fn journey() -> impl Strategy<Value = Journey> {
    let size = prop_oneof![1..10_usize, 1..1_448_usize, 1_448..9_000_usize];
    let repeated = prop::collection::vec((any::<prop::sample::Index>(), 0..WINDOW, any::<bool>()), 0..8);
    let delays = prop_oneof![Just(vec![0]), prop::collection::vec(0..WINDOW, 1..40)];
    (1..4_usize, prop::collection::vec(size, 1..20), repeated, delays, any::<bool>())
        .prop_map(|(together, sizes, repeated, delays, closes)| Journey { together, sizes, repeated, delays, closes })
}

impl Journey {
    fn travel(&self, calls: &[Call]) -> Vec<Recorded> {
        let mut wire = Wire::opened();
        let mut sizes = self.sizes.iter().copied().cycle();
        for (side, bytes) in turns(calls, self.together) {
            wire.data(side, &bytes, &mut sizes);
        }
        if self.closes {
            wire.close();
        }
        let mut sent = std::mem::take(&mut wire.sent);
        self.repeat(&mut sent, &mut wire);
        let handshake = sent.drain(..HANDSHAKE).collect::<Vec<_>>();
        record(&[handshake, self.shuffle(sent)].concat())
    }

    fn repeat(&self, sent: &mut Vec<Sent>, wire: &mut Wire) {
        for (which, later, retransmitted) in &self.repeated {
            let index = HANDSHAKE + which.index(sent.len() - HANDSHAKE);
            let original = &sent[index];
            let copy = if *retransmitted { original.again(wire.fresh_identification()) } else { original.clone() };
            sent.insert((index + 1 + later).min(sent.len()), copy);
        }
    }

    /// Moves packets back by less than the window, among the packets that one side sends in a row: neither side can
    /// answer what it has not received.
    fn shuffle(&self, sent: Vec<Sent>) -> Vec<Sent> {
        let mut delayed: Vec<(usize, Sent)> = (0..).zip(sent).collect();
        for run in delayed.chunk_by_mut(|(_, before), (_, after)| before.side == after.side) {
            run.sort_by_key(|(place, _)| place + self.delays[place % self.delays.len()]);
        }
        delayed.into_iter().map(|(_, sent)| sent).collect()
    }
}

/// Of a call: its stream, method, status, and messages and bytes in both directions.
type Meant = (u32, Option<String>, u8, (u32, u64), (u32, u64));

fn said(calls: &[Call]) -> Vec<Meant> {
    let of = |(stream, call): (u32, &Call)| {
        let count = |lengths: &[usize]| u32::try_from(lengths.len()).unwrap();
        let request = (count(&call.requests), call.request_bytes());
        (stream, Some(call.path()), call.status, request, (count(&call.responses), call.response_bytes()))
    };
    (1..).step_by(2).zip(calls).map(of).collect()
}

fn heard(analysis: &Analysis) -> Vec<Meant> {
    let rpcs = analysis.rpcs().into_iter();
    rpcs.map(|rpc| (rpc.stream, rpc.method, rpc.status, rpc.request, rpc.response)).collect()
}

/// Messages by stream and direction, in order: index and length.
fn messages_said(calls: &[Call]) -> Vec<(u32, u8, u32, u32)> {
    let mut messages = Vec::new();
    for (stream, call) in (1..).step_by(2).zip(calls) {
        for (direction, lengths) in [(0, &call.requests), (1, &call.responses)] {
            let lengths = (0..).zip(lengths);
            messages.extend(lengths.map(|(index, &length)| (stream, direction, index, u32::try_from(length).unwrap())));
        }
    }
    messages
}

fn messages_heard(analysis: &Analysis) -> Vec<(u32, u8, u32, u32)> {
    let table = &analysis.cx.messages;
    let row = |row: usize| (table.stream[row], table.direction[row], table.index[row], table.length[row]);
    let mut messages: Vec<_> = (0..table.len()).map(row).collect();
    messages.sort_unstable();
    messages
}

proptest! {
    #![proptest_config(config(400))]

    /// Invariant 5: splitting, coalescing, repeating and reordering segments never changes RPCs or messages.
    #[test]
    fn order_does_not_matter_beyond_tcps_own_freedom(calls in calls(), journey in journey()) {
        let packets = journey.travel(&calls);
        let analysis = analyse(&packets, all_tables());
        prop_assert_eq!(heard(&analysis), said(&calls));
        prop_assert_eq!(messages_heard(&analysis), messages_said(&calls));
        prop_assert!(analysis.rpcs().iter().all(|rpc| rpc.is_complete() && !rpc.touches_gap()));
        prop_assert_eq!(analysis.check_bytes(), Ok(()));
        prop_assert_eq!(analysis.check_durations(), Ok(()));
        prop_assert_eq!(analysis.check_both_ends(&packets), Ok(()));
        prop_assert_eq!(&analysis.finished.connections.missing_bytes, &[0]);
    }

    /// A capture without some of its packets gives fewer messages, never other ones.
    #[test]
    fn what_is_missing_is_not_made_up(
        calls in calls(),
        journey in journey(),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let mut packets = journey.travel(&calls);
        for index in gone {
            packets.remove(index.index(packets.len()));
        }
        let analysis = analyse(&packets, all_tables());
        prop_assert_eq!(analysis.check_bytes(), Ok(()));
        prop_assert_eq!(analysis.check_durations(), Ok(()));
        prop_assert_eq!(analysis.check_both_ends(&packets), Ok(()));
        let known = said(&calls);
        for rpc in heard(&analysis) {
            let same = known.iter().find(|call| call.0 == rpc.0);
            prop_assert!(same.is_some(), "{:?}", rpc);
            prop_assert!(rpc.1.is_none() || same.is_some_and(|call| call.1 == rpc.1), "{:?} of {:?}", rpc, same);
            // a server seen to close first makes open calls UNAVAILABLE
            let told = [NOT_SEEN, UNAVAILABLE].contains(&rpc.2) || same.is_some_and(|call| call.2 == rpc.2);
            prop_assert!(told, "{:?} of {:?}", rpc, same);
        }
        // positions are among the messages that were read
        let sent = messages_said(&calls);
        let mut left = sent.iter();
        for (stream, direction, _, length) in messages_heard(&analysis) {
            let found = left.any(|&(s, d, _, l)| (s, d, l) == (stream, direction, length));
            prop_assert!(found, "{} bytes on {} are none of {:?}, or out of order", length, stream, sent);
        }
    }
}

/// Small captures of many kinds, to be broken.
const VALID: [&str; 12] = [
    "begun_late.pcap",
    "capture_hole.pcap",
    "continuation.pcap",
    "fragments.pcap",
    "h2c_upgrade.pcap",
    "padding.pcap",
    "pcapng_blocks.pcapng",
    "reordering.pcap",
    "rst_stream.pcap",
    "sll2.pcap",
    "snaplen_96.pcap",
    "vxlan.pcap",
];

fn valid(which: prop::sample::Index) -> std::path::PathBuf {
    repository("fixtures/synthetic/captures").join(VALID[which.index(VALID.len())])
}

/// Reads a file's bytes; they need not be a capture.
fn read(bytes: Vec<u8>) -> Option<Analysis> {
    let sources: Vec<Source> = vec![memory("broken", bytes)];
    let mut reader = CaptureReader::open(sources).ok()?;
    let mut pipeline = Pipeline::new(all_tables());
    while let Some(packet) = reader.next_packet() {
        pipeline.packet(&packet);
    }
    let (finished, cx, counts) = pipeline.finish();
    Some(Analysis { finished, cx, counts })
}

proptest! {
    #![proptest_config(config(300))]

    /// Flipped bits anywhere in a capture file.
    #[test]
    fn a_broken_file_does_no_harm(
        which: prop::sample::Index,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..30),
    ) {
        let mut bytes = std::fs::read(valid(which)).unwrap();
        for (index, bit) in flips {
            let place = index.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        if let Some(analysis) = read(bytes) {
            prop_assert_eq!(analysis.check_bytes(), Ok(()));
            prop_assert_eq!(analysis.check_durations(), Ok(()));
        }
    }

    /// Flipped bits in packets whose records are sound: deeper layers see them.
    #[test]
    fn broken_packets_do_no_harm(
        which: prop::sample::Index,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8_u8), 1..60),
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..10),
    ) {
        let mut packets = packets_of(&valid(which));
        for (packet, index, bit) in flips {
            let at = packet.index(packets.len());
            let bytes = &mut packets[at].captured;
            let place = index.index(bytes.len());
            bytes[place] ^= 1 << bit;
        }
        for (a, b) in order {
            let (a, b) = (a.index(packets.len()), b.index(packets.len()));
            packets.swap(a, b);
        }
        let analysis = analyse(&packets, all_tables());
        prop_assert_eq!(analysis.check_bytes(), Ok(()));
        prop_assert_eq!(analysis.check_durations(), Ok(()));
        prop_assert_eq!(analysis.check_both_ends(&packets), Ok(()));
    }

    /// Clocks that jump to any time there is, before 1970 and after 2262: RPCs and messages stay what they are. A repeated
    /// response may be one that its client had not received for long: then the status is unknown.
    #[test]
    fn absurd_times_do_no_harm(
        calls in calls(),
        journey in journey(),
        times in prop::collection::vec(prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), 0..100_i64], 1..30),
    ) {
        let mut packets = journey.travel(&calls);
        for (packet, &time) in packets.iter_mut().zip(times.iter().cycle()) {
            packet.time_ns = time;
        }
        let analysis = analyse(&packets, all_tables());
        let (mut heard, said) = (heard(&analysis), said(&calls));
        for (one, expected) in heard.iter_mut().zip(&said).filter(|(one, _)| one.2 == NOT_SEEN) {
            one.2 = expected.2;
        }
        prop_assert_eq!(heard, said);
        prop_assert_eq!(analysis.check_bytes(), Ok(()));
        prop_assert!(analysis.cx.rpcs.duration_ns.iter().chain(&analysis.cx.waits.duration_ns).all(|&ns| ns >= 0));
    }

    /// Bytes that were never a packet.
    #[test]
    fn random_packets_do_no_harm(
        packets in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..200), prop::sample::select(vec![0, 1, 9, 101, 108, 113, 228, 276]), any::<i64>()),
            0..30,
        ),
    ) {
        let packets: Vec<Recorded> = packets
            .into_iter()
            .map(|(captured, link_type, time_ns)| {
                let original_len = u32::try_from(captured.len()).unwrap();
                Recorded { time_ns, link_type, original_len, captured }
            })
            .collect();
        let analysis = analyse(&packets, all_tables());
        prop_assert_eq!(analysis.check_bytes(), Ok(()));
        prop_assert_eq!(analysis.counts.packets, packets.len() as u64);
    }

    /// A connection's bytes that were never HTTP/2, or only begin like it.
    #[test]
    fn random_bytes_on_a_connection_do_no_harm(
        begins in prop::sample::select(vec![&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\x04\0\0\0\0\0", b"GET / H", b"\x16\x03\x01"]),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..10_u8], 0..3_000),
        size in 1..600_usize,
        late: bool,
    ) {
        let mut wire = Wire::opened();
        wire.data(0, &[begins, &bytes].concat(), &mut std::iter::repeat(size));
        wire.data(1, &bytes, &mut std::iter::repeat(size));
        let packets = record(&wire.sent[if late { HANDSHAKE } else { 0 }..]);
        let analysis = analyse(&packets, all_tables());
        prop_assert_eq!(analysis.check_bytes(), Ok(()));
        prop_assert_eq!(analysis.check_durations(), Ok(()));
        prop_assert_eq!(analysis.check_both_ends(&packets), Ok(()));
    }
}
