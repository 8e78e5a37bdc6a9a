//! Datagrams in pieces.

use crate::limits::{FRAGMENT_TIMEOUT_NS, MAX_FRAGMENT_BYTES, MAX_FRAGMENTED_DATAGRAMS};
use crate::packet::{Dissector, FragmentStats, Layer, Malformed, Outcome, Problem, Tunnel};

use super::{describe, hex};

const RAW: u32 = 101;

/// A TCP header with timestamps, and forty bytes of payload: the numbers 0 to 39.
fn tcp() -> Vec<u8> {
    let mut bytes = hex("9c40c383 01020304 0a0b0c0d 801001f5 00000000 0101080a 0000006f 000000de");
    bytes.extend(0..40);
    bytes
}

const MEANING: &str = "10.0.0.1:40000 > 10.0.0.2:50051 seq=16909060 ack=168496141 [ACK] win=501 urg=0 mss=- ws=- \
                       sackok=0 sack= ts=111/222 options=ok \
                       data=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627/40 \
                       id=0x1234 ttl=64 ecn=0 tunnel=- dir=Unknown if=0";

/// An IPv4 packet with a part of a datagram; `offset` in bytes.
fn ipv4(id: u16, protocol: u8, offset: usize, more: bool, part: &[u8]) -> Vec<u8> {
    let mut bytes = hex("4500 0000 0000 0000 4000 0000 0a000001 0a000002");
    let total_length = (20 + part.len()) as u16;
    bytes[2..4].copy_from_slice(&total_length.to_be_bytes());
    bytes[4..6].copy_from_slice(&id.to_be_bytes());
    let fragment = (offset / 8) as u16 | u16::from(more) << 13;
    bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
    bytes[9] = protocol;
    bytes.extend(part);
    bytes
}

/// The same in IPv6, with a fragment header.
fn ipv6(id: u16, next: u8, offset: usize, more: bool, part: &[u8]) -> Vec<u8> {
    let mut bytes = hex("60000000 0000 2c 3f");
    let payload_length = (8 + part.len()) as u16;
    bytes[4..6].copy_from_slice(&payload_length.to_be_bytes());
    bytes.extend(hex("fd000000000000000000000000000001 fd000000000000000000000000000002"));
    bytes.extend([next, 0]);
    bytes.extend((offset as u16 | u16::from(more)).to_be_bytes());
    bytes.extend(u32::from(id).to_be_bytes());
    bytes.extend(part);
    bytes
}

/// A fragment with one identification and any extent, for random tests.
pub(super) fn any_fragment(v6: bool, offset: u16, more: bool, length: usize) -> Vec<u8> {
    let make = if v6 { ipv6 } else { ipv4 };
    make(7, 6, usize::from(offset) * 8, more, &vec![0x50; length])
}

/// Parts of `tcp()`: 0..24, 24..48 and 48..72.
fn thirds(make: fn(u16, u8, usize, bool, &[u8]) -> Vec<u8>) -> [Vec<u8>; 3] {
    let whole = tcp();
    [0, 24, 48].map(|at| make(0x1234, 6, at, at < 48, &whole[at..at + 24]))
}

/// A dissector and the outcomes of packets that come one nanosecond after another.
#[derive(Default)]
struct Run {
    dissector: Dissector,
    time: i64,
}

impl Run {
    fn see<'a>(&'a mut self, packet: &'a [u8]) -> Outcome<'a> {
        self.see_cut(packet, packet.len())
    }

    fn see_cut<'a>(&'a mut self, packet: &'a [u8], captured: usize) -> Outcome<'a> {
        self.time += 1;
        let original_len = packet.len() as u32;
        self.dissector.dissect(RAW, &packet[..captured], original_len, self.time)
    }

    fn stats(&self) -> FragmentStats {
        self.dissector.fragment_stats()
    }
}

fn refused(problem: Problem, offset: u32) -> Outcome<'static> {
    Outcome::Malformed(Malformed { layer: Layer::Fragment, problem, offset })
}

#[test]
fn fragments_in_any_order_make_the_same_segment() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut run = Run::default();
        let parts = thirds(ipv4);
        assert_eq!(run.see(&parts[order[0]]), Outcome::Fragment);
        assert_eq!(run.see(&parts[order[1]]), Outcome::Fragment);
        assert_eq!(describe(&run.see(&parts[order[2]])), MEANING, "{order:?}");
        let expected = FragmentStats { fragments: 3, reassembled: 1, ..Default::default() };
        assert_eq!(run.stats(), expected);
    }
}

#[test]
fn ipv6_fragments_make_a_segment() {
    let mut run = Run::default();
    let parts = thirds(ipv6);
    assert_eq!(run.see(&parts[2]), Outcome::Fragment);
    assert_eq!(run.see(&parts[0]), Outcome::Fragment);
    let expected = MEANING.replace("10.0.0.", "fd00::").replace("id=0x1234 ttl=64", "id=- ttl=63");
    assert_eq!(describe(&run.see(&parts[1])), expected);
}

#[test]
fn a_missing_fragment_means_no_segment_until_it_expires() {
    let mut run = Run::default();
    let parts = thirds(ipv4);
    assert_eq!(run.see(&parts[0]), Outcome::Fragment);
    assert_eq!(run.see(&parts[2]), Outcome::Fragment);
    assert_eq!(run.stats().waiting, 1);
    run.time += FRAGMENT_TIMEOUT_NS;
    // Too late: it now starts a datagram of its own.
    assert_eq!(run.see(&parts[1]), Outcome::Fragment);
    assert_eq!((run.stats().expired, run.stats().waiting), (1, 1));
}

#[test]
fn a_clock_that_goes_backwards_does_not_keep_old_fragments() {
    let mut run = Run { time: 10 * FRAGMENT_TIMEOUT_NS, ..Default::default() };
    let parts = thirds(ipv4);
    run.see(&ipv4(1, 6, 0, true, &[0; 8]));
    run.time = 0;
    run.see(&parts[0]);
    run.see(&parts[1]);
    run.time = 2 * FRAGMENT_TIMEOUT_NS;
    assert_eq!(run.see(&parts[2]), Outcome::Fragment, "the other two were too old");
    assert_eq!(run.stats().expired, 1);
}

#[test]
fn repeated_fragments_are_ignored() {
    for make in [ipv4, ipv6] {
        let mut run = Run::default();
        let parts = thirds(make);
        run.see(&parts[0]);
        assert_eq!(run.see(&parts[0]), Outcome::Fragment);
        run.see(&parts[1]);
        assert_eq!(run.see(&parts[1]), Outcome::Fragment);
        assert!(matches!(run.see(&parts[2]), Outcome::Tcp(_)));
        assert_eq!(run.stats().duplicates, 2);
    }
}

#[test]
fn in_ipv4_the_first_of_overlapping_fragments_wins() {
    let mut run = Run::default();
    let (parts, whole) = (thirds(ipv4), tcp());
    assert_eq!(run.see(&parts[1]), Outcome::Fragment);
    // Bytes 16..56 with other contents where 24..48 are held; the edges are right.
    let mut liar = whole[16..56].to_vec();
    liar[8..32].fill(0xee);
    assert_eq!(run.see(&ipv4(0x1234, 6, 16, true, &liar)), Outcome::Fragment);
    assert_eq!(run.see(&parts[0]), Outcome::Fragment);
    assert_eq!(describe(&run.see(&parts[2])), MEANING);
    assert_eq!(run.stats().overlapped, 3);
}

#[test]
fn in_ipv6_overlapping_fragments_drop_the_datagram() {
    let mut run = Run::default();
    let (parts, whole) = (thirds(ipv6), tcp());
    run.see(&parts[0]);
    let overlapping = ipv6(0x1234, 6, 16, true, &whole[16..48]);
    assert_eq!(run.see(&overlapping), refused(Problem::FragmentOverlap, 48));
    assert_eq!(run.see(&parts[1]), refused(Problem::FragmentOverlap, 48));
    assert_eq!(run.see(&parts[2]), refused(Problem::FragmentOverlap, 48));
    assert_eq!((run.stats().refused, run.stats().held_bytes), (3, 0));
    // The same place with other bytes overlaps as well.
    let mut run = Run::default();
    run.see(&parts[0]);
    assert_eq!(run.see(&ipv6(0x1234, 6, 0, true, &[0xee; 24])), refused(Problem::FragmentOverlap, 48));
}

#[test]
fn contradictions_about_the_length_drop_the_datagram() {
    let parts = thirds(ipv4);
    let mut run = Run::default();
    run.see(&parts[2]);
    let beyond = ipv4(0x1234, 6, 72, true, &[0; 8]);
    assert_eq!(run.see(&beyond), refused(Problem::FragmentConflict, 20));
    assert_eq!(run.see(&parts[0]), refused(Problem::FragmentConflict, 20));
    let mut run = Run::default();
    run.see(&parts[1]);
    let last_before = ipv4(0x1234, 6, 8, false, &[0; 8]);
    assert_eq!(run.see(&last_before), refused(Problem::FragmentConflict, 20));
}

#[test]
fn impossible_extents_are_refused_and_leave_the_datagram_alone() {
    let mut run = Run::default();
    let parts = thirds(ipv4);
    run.see(&parts[0]);
    run.see(&parts[1]);
    for (offset, more, length) in [(48, true, 12), (48, true, 0), (65_528, false, 8)] {
        let packet = ipv4(0x1234, 6, offset, more, &vec![0; length]);
        assert_eq!(run.see(&packet), refused(Problem::FragmentExtent, 20));
    }
    assert_eq!(describe(&run.see(&parts[2])), MEANING);
}

#[test]
fn fragments_of_other_datagrams_do_not_mix() {
    let whole = tcp();
    let part = |id, protocol| ipv4(id, protocol, 24, true, &whole[24..48]);
    let mut other_host = part(0x1234, 6);
    other_host[19] = 9;
    let mut run = Run::default();
    let parts = thirds(ipv4);
    run.see(&parts[0]);
    run.see(&parts[2]);
    for stranger in [part(0x1235, 6), part(0x1234, 17), other_host] {
        assert_eq!(run.see(&stranger), Outcome::Fragment);
    }
    assert_eq!(describe(&run.see(&parts[1])), MEANING);
    assert_eq!(run.stats().waiting, 3);
}

#[test]
fn a_cut_fragment_ends_the_payload_but_not_its_length() {
    let mut run = Run::default();
    let parts = thirds(ipv4);
    run.see(&parts[0]);
    run.see_cut(&parts[1], 20 + 16);
    match run.see(&parts[2]) {
        Outcome::Tcp(segment) => {
            assert_eq!(segment.payload, [0, 1, 2, 3, 4, 5, 6, 7]);
            assert_eq!(segment.payload_len, 40);
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_flood_stays_within_the_limits_and_evicts_the_oldest() {
    let mut run = Run::default();
    let parts = thirds(ipv4);
    run.see(&parts[0]);
    run.see(&parts[1]);
    for id in 0..1000 {
        run.see(&ipv4(id, 17, 65_000, true, &[0; 64]));
        let stats = run.stats();
        assert!(stats.waiting <= MAX_FRAGMENTED_DATAGRAMS as u64);
        assert!(stats.held_bytes <= MAX_FRAGMENT_BYTES as u64);
    }
    assert_eq!(run.see(&parts[2]), Outcome::Fragment, "the other two were evicted");
    let stats = run.stats();
    assert_eq!(stats.evicted + stats.waiting, 1002);
    for id in 0..1000 {
        run.see(&ipv4(id, 17, 0, true, &[0; 8]));
    }
    assert_eq!(run.stats().waiting, MAX_FRAGMENTED_DATAGRAMS as u64);
}

#[test]
fn too_many_gaps_drop_the_datagram() {
    let mut run = Run::default();
    let mut seen = |at: usize| {
        let packet = ipv4(1, 6, at * 16, true, &[0; 8]);
        run.see(&packet) == Outcome::Fragment
    };
    let stored = (0..100).take_while(|at| seen(*at)).count();
    assert_eq!(stored, crate::limits::MAX_FRAGMENT_RANGES);
}

/// VXLAN in a fragmented datagram, and inside it a fragmented datagram again.
#[test]
fn a_fragmented_tunnel_may_carry_fragments() {
    let tunnelled = |inner: &[u8]| {
        let mut bytes = hex("d903 12b5 0000 0000 08000000 00002a00 020000000002 020000000001 0800");
        bytes.extend(inner);
        bytes
    };
    let mut run = Run::default();
    for (id, inner) in thirds(ipv4).iter().enumerate() {
        let outer = tunnelled(inner);
        let (first, second) = outer.split_at(32);
        let first = ipv4(id as u16, 17, 0, true, first);
        let second = ipv4(id as u16, 17, 32, false, second);
        assert_eq!(run.see(&second), Outcome::Fragment);
        match (id, run.see(&first)) {
            (0 | 1, outcome) => assert_eq!(outcome, Outcome::Fragment),
            (_, Outcome::Tcp(segment)) => assert_eq!(segment.tunnel, Some(Tunnel::Vxlan)),
            (_, outcome) => panic!("{outcome:?}"),
        }
    }
    assert_eq!(run.stats().reassembled, 4);
    assert_eq!(run.stats().waiting, 0);
}

#[test]
fn a_fragment_header_inside_reassembled_fragments_is_malformed() {
    let mut run = Run::default();
    let mut inner = hex("06 00 0001 00000009");
    inner.extend(tcp());
    run.see(&ipv6(1, 44, 0, true, &inner[..40]));
    let rest = ipv6(1, 44, 40, false, &inner[40..]);
    let expected = Malformed { layer: Layer::Ipv6Extension, problem: Problem::FragmentInFragment, offset: 0 };
    assert_eq!(run.see(&rest), Outcome::Malformed(expected));
}
