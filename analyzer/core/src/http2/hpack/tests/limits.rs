//! Hostile sizes: what is too much is measured, withheld and told, and the table stays in step.

use crate::limits::{
    HPACK_MAX_LIST_BYTES, HPACK_MAX_NAME_BYTES, HPACK_MAX_TABLE_BYTES, HPACK_MAX_VALUE_BYTES,
    HPACK_RETAINED_SCRATCH_BYTES,
};

use super::super::HpackErrorKind;
use super::encoder::{integer, string};
use super::{Field, Peer, hex};

fn insertion(name: &str, value: &str, huffman: bool) -> Vec<u8> {
    let mut block = vec![0x40];
    string(&mut block, name.as_bytes(), huffman);
    string(&mut block, value.as_bytes(), huffman);
    block
}

/// A decoder whose table may have `size` bytes.
fn with_table(size: u32) -> Peer {
    let mut peer = Peer::from_start();
    peer.decoder.set_max_size_setting(size);
    let mut update = Vec::new();
    integer(&mut update, 0x20, 5, size as usize);
    peer.decode(&update);
    peer
}

#[test]
fn a_bomb_of_references_is_counted_and_withheld() {
    let mut peer = Peer::from_start();
    peer.decode(&insertion("bomb", &"x".repeat(4060), false));
    let (fields, stats) = peer.decode(&[0xbe; 100_000]);
    assert_eq!((stats.fields, stats.list_bytes), (100_000, 409_600_000));
    assert_eq!(fields.len() as u64, HPACK_MAX_LIST_BYTES / 4096);
    assert_eq!(stats.withheld_fields as usize, 100_000 - fields.len());
    assert_eq!(stats.unknown_fields, 0);
}

#[test]
fn insertions_beyond_the_list_limit_keep_their_place_and_size() {
    for huffman in [false, true] {
        let mut peer = Peer::from_start();
        peer.decode(&insertion("bomb", &"x".repeat(4000), false));
        let calls = peer.classifier.calls;
        let late = insertion("late", "value", huffman);
        let (_, stats) = peer.decode(&[vec![0xbe; 300], late].concat());
        assert!(stats.withheld_fields > 0);
        assert_eq!(peer.classifier.calls, calls, "what is withheld is not classified");
        assert_eq!(peer.table().0, 4036 + 41);
        assert_eq!(peer.lines(&[0xbe]), ["?: ?"]);
        assert!(peer.lines(&[0xbf])[0].starts_with("bomb: xxx"));
    }
}

#[test]
fn strings_at_the_limit_are_kept_and_longer_ones_only_measured() {
    for (name, value, known) in [(0, 0, (true, true)), (1, 0, (false, true)), (0, 1, (true, false))] {
        let mut peer = Peer::from_start();
        let name = "n".repeat(HPACK_MAX_NAME_BYTES + name);
        let value = "v".repeat(HPACK_MAX_VALUE_BYTES + value);
        let (fields, stats) = peer.decode(&insertion(&name, &value, false));
        assert_eq!((fields[0].name.is_some(), fields[0].value.is_some()), known);
        assert_eq!(stats.list_bytes as usize, name.len() + value.len() + 32);
        assert_eq!(stats.unknown_fields, u32::from(known != (true, true)));
    }
}

#[test]
fn long_huffman_strings_are_measured_exactly_and_checked() {
    let mut peer = Peer::from_start();
    // 'n' has 6 bits: 1,400 of them are 1,050 octets, more than a name may have.
    let (fields, stats) = peer.decode(&insertion(&"n".repeat(1400), "v", true));
    assert_eq!((fields[0].name.is_none(), stats.list_bytes), (true, 1400 + 1 + 32));
    assert_eq!(peer.table().0, 1400 + 1 + 32);
    let mut bad = vec![0x00];
    integer(&mut bad, 0x80, 7, 2000);
    bad.extend([0xff; 2001]);
    let error = peer.try_decode(&bad).1.unwrap_err();
    assert_eq!(error.kind, HpackErrorKind::HuffmanEndOfString);
}

#[test]
fn a_long_string_does_not_keep_its_memory() {
    let mut peer = Peer::from_start();
    let (fields, _) = peer.decode(&insertion("n", &"v".repeat(50_000), true));
    assert_eq!(fields[0].value.as_ref().map(Vec::len), Some(50_000));
    assert!(peer.decoder.value_scratch.len() <= HPACK_RETAINED_SCRATCH_BYTES);
}

#[test]
fn beyond_the_largest_table_the_oldest_become_unknown() {
    let mut peer = with_table(10 * HPACK_MAX_TABLE_BYTES);
    let value = "v".repeat(4096 - 32 - 1);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"] {
        peer.decode(&insertion(name, &value, false));
    }
    let first = |peer: &mut Peer, index: u8| peer.lines(&[0x80 | index])[0][..4].to_string();
    assert_eq!(peer.table().0, HPACK_MAX_TABLE_BYTES);
    assert_eq!(first(&mut peer, 62 + 15), "a: v");
    assert_eq!(peer.try_decode(&[0x80 | (62 + 15)]).1.unwrap().unknown_fields, 0);
    peer.decode(&insertion("q", &value, false));
    assert_eq!(first(&mut peer, 62 + 15), "b: v");
    assert_eq!(first(&mut peer, 62 + 16), "?: ?");
}

#[test]
fn the_largest_table_is_strict_until_it_overflows() {
    let mut peer = with_table(10 * HPACK_MAX_TABLE_BYTES);
    peer.decode(&insertion("a", "1", false));
    assert!(peer.try_decode(&[0xbf]).1.is_err());
}

#[test]
fn an_entry_beyond_the_largest_table_keeps_its_place() {
    let mut peer = with_table(10 * HPACK_MAX_TABLE_BYTES);
    peer.decode(&insertion("a", "1", false));
    peer.decode(&insertion("b", &"v".repeat(HPACK_MAX_TABLE_BYTES as usize), false));
    peer.decode(&insertion("c", "3", false));
    let known = |field: Field<'_, u64>| field.name.is_some() && field.value.is_some();
    let mut seen = Vec::new();
    let mut sink = |field: Field<'_, u64>| seen.push(known(field));
    let stats = peer.decoder.decode(&hex("be bf c0"), &mut peer.classifier, &mut sink).unwrap();
    assert_eq!(stats.unknown_fields, 2);
    assert_eq!(seen, [true, false, false]);
}
