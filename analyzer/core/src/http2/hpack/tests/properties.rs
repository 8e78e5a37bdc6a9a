//! Properties over random connections and random bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::Representation;
use super::encoder::{Encoder, Meant, Plan};
use super::{Owned, Peer};

/// A block to encode: a size update perhaps, and fields.
type Block = (Option<usize>, Vec<Plan>);

fn representation() -> impl Strategy<Value = Representation> {
    prop_oneof![
        4 => Just(Representation::Indexed),
        3 => Just(Representation::LiteralIncremental),
        1 => Just(Representation::LiteralWithoutIndexing),
        1 => Just(Representation::NeverIndexed),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let names = [":path", ":status", "content-type", "grpc-timeout", "te", "x-a", "x-b", ""];
    let name = select(names.to_vec()).prop_map(|name| name.as_bytes().to_vec());
    let common = select(vec!["", "200", "trailers", "application/grpc", "/a.B/C"]);
    let value = prop_oneof![
        5 => common.prop_map(|value| value.as_bytes().to_vec()),
        2 => vec(any::<u8>(), 0..60),
        1 => (200..1500_usize).prop_map(|len| vec![b'L'; len]),
    ];
    (name, value, representation(), any::<bool>(), any::<bool>()).prop_map(
        |(name, value, representation, huffman, name_reference)| Plan {
            name,
            value,
            representation,
            huffman,
            name_reference,
        },
    )
}

fn connection() -> impl Strategy<Value = Vec<Block>> {
    let resize = prop_oneof![8 => Just(None), 1 => (0..=4096_usize).prop_map(Some)];
    vec((resize, vec(plan(), 0..8)), 1..20)
}

fn encode(blocks: &[Block]) -> Vec<(Vec<u8>, Vec<Meant>)> {
    let mut encoder = Encoder::new();
    blocks.iter().map(|(resize, plans)| encoder.block(*resize, plans)).collect()
}

/// What an observer sees who has watched since block `since`.
fn seen(meant: &Meant, since: usize) -> Owned {
    Owned {
        name: (meant.name_since >= since).then(|| meant.name.clone()),
        value: (meant.value_since >= since).then(|| meant.value.clone()),
        representation: meant.representation,
    }
}

/// Decodes the blocks from `since` on and compares all that must be known, and unknown.
fn check_from(peer: &mut Peer, encoded: &[(Vec<u8>, Vec<Meant>)], since: usize) {
    for (block, meant) in &encoded[since..] {
        let (fields, stats) = peer.decode(block);
        let expected: Vec<Owned> = meant.iter().map(|meant| seen(meant, since)).collect();
        assert_eq!(fields, expected);
        let unknown = expected.iter().filter(|field| field.name.is_none() || field.value.is_none());
        assert_eq!(stats.unknown_fields as usize, unknown.count());
        let list_bytes: usize = meant.iter().map(|f| f.name.len() + f.value.len() + 32).sum();
        assert!(stats.list_bytes <= list_bytes as u64);
        assert!(stats.unknown_fields > 0 || stats.list_bytes == list_bytes as u64);
    }
}

proptest! {
    #[test]
    fn round_trip(blocks in connection()) {
        let mut encoder = Encoder::new();
        let mut peer = Peer::from_start();
        for (resize, plans) in &blocks {
            let (block, meant) = encoder.block(*resize, plans);
            let (fields, _) = peer.decode(&block);
            let expected: Vec<Owned> = meant.iter().map(|meant| seen(meant, 0)).collect();
            prop_assert_eq!(fields, expected);
            prop_assert_eq!(peer.table().0 as usize, encoder.size());
        }
    }

    #[test]
    fn a_late_observer_knows_exactly_what_was_sent_since(
        blocks in connection(), late in any::<prop::sample::Index>(),
    ) {
        let encoded = encode(&blocks);
        let since = late.index(encoded.len());
        check_from(&mut Peer::begun_late(), &encoded, since);
    }

    #[test]
    fn after_a_hole_the_observer_knows_exactly_what_was_sent_since(
        blocks in connection(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
    ) {
        let encoded = encode(&blocks);
        let (from, to) = (from.index(encoded.len()), to.index(encoded.len()));
        let mut peer = Peer::from_start();
        check_from(&mut peer, &encoded[..from.min(to)], 0);
        peer.decoder.mark_begun_late();
        check_from(&mut peer, &encoded, from.max(to));
    }

    #[test]
    fn random_bytes_never_panic(
        blocks in vec(vec(any::<u8>(), 0..200), 1..8), late in any::<bool>(), setting in any::<u32>(),
    ) {
        let mut peer = if late { Peer::begun_late() } else { Peer::from_start() };
        for block in &blocks {
            let (fields, result) = peer.try_decode(block);
            match result {
                Ok(stats) => prop_assert_eq!(stats.fields as usize, fields.len()),
                Err(error) => prop_assert!(error.offset <= block.len()),
            }
            peer.decoder.announce_max_size_setting(setting);
            peer.decoder.set_max_size_setting(setting);
            prop_assert_eq!(peer.lines(&[0x82]), vec![":method: GET"]);
        }
    }

    #[test]
    fn damaged_blocks_never_panic(
        blocks in connection(), at in any::<prop::sample::Index>(), with in any::<u8>(),
    ) {
        let mut peer = Peer::from_start();
        for (mut block, _) in encode(&blocks) {
            if !block.is_empty() {
                let at = at.index(block.len());
                block[at] ^= with;
            }
            let _ = peer.try_decode(&block);
        }
        prop_assert_eq!(peer.lines(&[0x82]), vec![":method: GET"]);
    }
}
