//! Random and damaged bytes: nothing panics, and what comes out stays within the packet.

use proptest::prelude::*;

use crate::packet::{Dissector, Outcome};

use super::vectors;

const LINK_TYPES: [u32; 12] = [0, 1, 9, 12, 14, 101, 108, 113, 228, 229, 276, 147];

/// Dissects in all link types and checks what must hold for any input.
fn check(bytes: &[u8], original_len: u32) {
    let mut dissector = Dissector::new();
    for (time, link_type) in LINK_TYPES.into_iter().enumerate() {
        let on_the_wire = original_len.max(bytes.len() as u32);
        match dissector.dissect(link_type, bytes, original_len, time as i64) {
            Outcome::Tcp(segment) => {
                assert!(segment.payload.len() as u32 <= segment.payload_len);
                assert!(segment.payload_len <= on_the_wire.max(65_535));
                assert!(segment.payload.len() <= bytes.len());
            }
            Outcome::Malformed(malformed) => assert!(malformed.offset <= bytes.len() as u32),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        original_len in any::<u32>(),
    ) {
        check(&bytes, original_len);
        check(&bytes, bytes.len() as u32);
    }

    /// Random bytes hardly get past the first header, so true packets are damaged in a few places.
    #[test]
    fn damaged_packets_never_panic(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        extra in 0_u32..100,
    ) {
        let vectors = vectors();
        let vector = which.get(&vectors);
        let mut bytes = vector.bytes.clone();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        check(&bytes, bytes.len() as u32 + extra);
    }

    /// A dissector that is shared by all packets, as in a capture, with a clock that jumps.
    #[test]
    fn damaged_fragments_never_panic(
        packets in prop::collection::vec((0_u16..0x40, any::<bool>(), 0_usize..64, any::<bool>(), 0..40_000_000_000_i64), 1..60),
    ) {
        let mut dissector = Dissector::new();
        for (offset, more, length, v6, time) in packets {
            let bytes = super::fragments::any_fragment(v6, offset, more, length);
            dissector.dissect(101, &bytes, bytes.len() as u32, time);
            prop_assert!(dissector.fragment_stats().waiting <= 2);
            prop_assert!(dissector.fragment_stats().held_bytes <= 2 * 4096);
        }
    }
}
