//! Whatever the bytes, nothing panics; however they are cut, the same is told.

use proptest::prelude::*;

use super::DECRYPTABLE;
use super::support::{Piece, Recording};

fn piece() -> impl Strategy<Value = (usize, Piece)> {
    let record = (20..25_u8, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(kind, body)| {
        let [high, low] = (body.len() as u16).to_be_bytes();
        Piece::Bytes([vec![kind, 3, 3, high, low], body].concat())
    });
    let handshake = (1..25_u8, prop::collection::vec(any::<u8>(), 0..80)).prop_map(|(kind, body)| {
        let length = body.len() as u8;
        Piece::Bytes([vec![22, 3, 3, 0, length + 4, kind, 0, 0, length], body].concat())
    });
    let noise = prop::collection::vec(any::<u8>(), 1..50).prop_map(Piece::Bytes);
    let gap = prop_oneof![0..300_u64, any::<u64>()].prop_map(Piece::Gap);
    (0..2_usize, prop_oneof![4 => record, 4 => handshake, 1 => noise, 1 => gap])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_pieces(pieces in prop::collection::vec(piece(), 0..60), size in 1..100_usize) {
        let recording = Recording { pieces, ..Recording::default() };
        recording.run();
        recording.cut(size).run();
    }

    #[test]
    fn damaged_recordings(
        name in 0..DECRYPTABLE.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..6),
        gaps in prop::collection::vec((0..2_usize, 0..3000_usize, 0..300_usize), 0..4),
        size in 1..300_usize,
    ) {
        let mut recording = Recording::load(DECRYPTABLE[name]);
        for (piece, place, value) in changes {
            let piece = piece.index(recording.pieces.len());
            if let (_, Piece::Bytes(bytes)) = &mut recording.pieces[piece] {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
        }
        for (side, begin, length) in gaps {
            recording = recording.with_gap(side, begin..begin + length);
        }
        let whole = recording.run();
        let cut = recording.cut(size).run();
        prop_assert_eq!(&cut.plain, &whole.plain);
        prop_assert_eq!(&cut.gaps, &whole.gaps);
        // What one side waits for may come within a piece of the other's: the sides' events interleave differently.
        let sorted = |mut events: Vec<String>| { events.sort(); events };
        prop_assert_eq!(sorted(cut.events), sorted(whole.events));
        prop_assert_eq!(cut.facts.sides, whole.facts.sides);
    }

    #[test]
    fn any_cut_tells_the_same(name in 0..DECRYPTABLE.len(), sizes in prop::collection::vec(1..500_usize, 1..20)) {
        let recording = Recording::load(DECRYPTABLE[name]);
        let mut sizes = sizes.into_iter().cycle();
        let mut cut = Recording { pieces: vec![], ..recording.clone() };
        for (side, piece) in &recording.pieces {
            let mut rest = piece.bytes();
            while !rest.is_empty() {
                let (bytes, left) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
                cut.pieces.push((*side, Piece::Bytes(bytes.to_vec())));
                rest = left;
            }
        }
        let (whole, cut) = (recording.run(), cut.run());
        prop_assert_eq!(&cut.plain, &recording.plain);
        prop_assert_eq!(cut.events, whole.events);
    }

    #[test]
    fn any_key_log(text in prop::collection::vec(any::<u8>(), 0..400)) {
        let log = crate::tls::KeyLog::parse(&text);
        prop_assert!(log.damaged + log.unused + log.over_limit <= log.lines);
    }
}
