//! The same from pieces of any size, sides exchanged, directions out of order.

use super::DECRYPTABLE;
use super::support::Recording;

#[test]
fn pieces_of_any_size() {
    for name in DECRYPTABLE {
        let recording = Recording::load(name);
        let whole = recording.run();
        for size in [1, 2, 3, 5, 7, 64, 1448] {
            let told = recording.clone().cut(size).run();
            assert_eq!(told.plain, recording.plain, "{name} in pieces of {size}");
            assert_eq!(told.events, whole.events, "{name} in pieces of {size}");
            assert_eq!(told.facts.sides, whole.facts.sides, "{name} in pieces of {size}");
        }
    }
}

#[test]
fn a_record_over_several_pieces_has_its_first_place() {
    let recording = Recording::load("tls13-aes128");
    let told = recording.clone().cut(100).run();
    assert!(told.places.iter().all(|(_, first, last)| first <= last));
    let bytes: usize = recording.plain.iter().map(Vec::len).sum();
    assert!(told.places.iter().any(|(_, first, last)| last - first == 3), "300 bytes in four pieces of {bytes}");
}

#[test]
fn sides_exchanged() {
    for name in DECRYPTABLE {
        let recording = Recording::load(name).swapped();
        let told = recording.run();
        assert_eq!(told.plain, recording.plain, "{name}");
        assert_eq!(told.facts.client, Some(1), "{name}");
    }
}

#[test]
fn one_direction_before_the_other() {
    // In a renegotiation the keys follow from hellos that both directions encrypt, which must come in order.
    for name in DECRYPTABLE.iter().filter(|name| !name.contains("renegotiated")) {
        for first in 0..2 {
            let recording = Recording::load(name).one_side_first(first);
            let told = recording.run();
            let lost = (told.lost(0), told.lost(1));
            assert_eq!(told.plain, recording.plain, "{name}, side {first} first, lost {lost:?}");
        }
    }
}

#[test]
fn one_direction_alone() {
    for name in DECRYPTABLE {
        for side in 0..2 {
            let mut recording = Recording::load(name);
            recording.pieces.retain(|(s, _)| *s == side);
            let told = recording.run();
            assert_eq!(told.plain, [Vec::<u8>::new(), Vec::new()], "{name}");
            assert_eq!(told.facts.client, Some(0), "{name}");
            assert!(told.facts.sides[side].records > 3, "{name}: what was held back is told at the end");
            assert!(!told.has("HandshakeComplete"), "{name}");
        }
    }
}

/// What a connection costs while it waits: a million of them are kept at once.
#[test]
fn a_session_is_small() {
    let size = std::mem::size_of::<crate::tls::Session<[i64; 3]>>();
    assert!(size <= 1280, "{size}");
}
