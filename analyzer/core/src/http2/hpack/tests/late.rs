//! What an observer knows who came late or missed a part.

use super::super::HpackErrorKind;
use super::encoder::string;
use super::{Peer, hex};

const A1: &str = "40 01 61 01 31";
const B2: &str = "40 01 62 01 32";

#[test]
fn insertions_since_resolve_and_older_entries_are_unknown() {
    let mut peer = Peer::begun_late();
    let (fields, stats) = peer.decode(&hex("82 be ff 80 01"));
    assert_eq!((fields.len(), stats.fields, stats.unknown_fields), (3, 3, 2));
    assert_eq!(stats.list_bytes, 42 + 2 * 32);
    assert_eq!(peer.lines(&hex(A1)), ["a: 1"]);
    assert_eq!(peer.lines(&hex("be bf")), ["a: 1", "?: ?"]);
    peer.decode(&hex(B2));
    assert_eq!(peer.lines(&hex("be bf c0")), ["b: 2", "a: 1", "?: ?"]);
}

#[test]
fn an_insertion_with_an_unknown_name_keeps_its_place() {
    let mut peer = Peer::begun_late();
    peer.decode(&hex(A1));
    assert_eq!(peer.lines(&hex("7f 00 02 78 78")), ["?: xx"]);
    peer.decode(&hex(B2));
    let (fields, stats) = peer.decode(&hex("be bf c0 c1"));
    let lines: Vec<_> = fields.iter().map(super::line).collect();
    assert_eq!(lines, ["b: 2", "?: xx", "a: 1", "?: ?"]);
    assert_eq!(stats.unknown_fields, 2);
    // A name taken from the placeholder is unknown too.
    assert_eq!(peer.lines(&hex("0f 30 01 79")), ["?: y"]);
}

#[test]
fn a_hole_makes_every_entry_unknown() {
    let mut peer = Peer::from_start();
    peer.decode(&hex(A1));
    peer.decoder.mark_begun_late();
    assert_eq!(peer.lines(&hex("be")), ["?: ?"]);
    peer.decode(&hex(B2));
    assert_eq!(peer.lines(&hex("be bf")), ["b: 2", "?: ?"]);
}

#[test]
fn emptying_the_table_makes_it_known_again() {
    for update in ["20", "3f 00"] {
        let mut peer = Peer::begun_late();
        let error = peer.try_decode(&hex(&format!("{update} be"))).1.map(|stats| stats.unknown_fields);
        // Size 31 leaves no room for an entry of 32 bytes, size 0 neither.
        let kind = HpackErrorKind::IndexBeyondTables { index: 62, entries: 0 };
        assert_eq!(error.unwrap_err().kind, kind);
    }
    let mut peer = Peer::begun_late();
    assert_eq!(peer.lines(&hex("3f 01 be")), ["?: ?"], "32 bytes can hold an entry");
}

#[test]
fn insertions_that_fill_a_table_of_known_size_make_it_known_again() {
    let mut peer = Peer::begun_late();
    // 68 bytes hold two entries of 34: the third insertion evicts the first, and all before it.
    peer.decode(&hex("3f 25"));
    peer.decode(&hex(&[A1, B2].concat()));
    assert_eq!(peer.lines(&hex("c0")), ["?: ?"]);
    peer.decode(&hex("40 01 63 01 33"));
    assert_eq!(peer.lines(&hex("be bf")), ["c: 3", "b: 2"]);
    let kind = HpackErrorKind::IndexBeyondTables { index: 64, entries: 2 };
    assert_eq!(peer.try_decode(&hex("c0")).1.unwrap_err().kind, kind);
}

#[test]
fn an_entry_too_large_for_a_table_of_known_size_makes_it_known_again() {
    let mut peer = Peer::begun_late();
    peer.decode(&hex("3f 02"));
    peer.decode(&hex(A1));
    assert_eq!(peer.table(), (0, vec![]));
    assert!(peer.try_decode(&hex("be")).1.is_err());
}

#[test]
fn a_table_of_unknown_size_keeps_more_than_the_default() {
    let mut peer = Peer::begun_late();
    let mut block = vec![0x40];
    string(&mut block, b"name", false);
    string(&mut block, "v".repeat(964).as_bytes(), false);
    peer.decode(&hex(A1));
    for _ in 0..16 {
        peer.decode(&block);
    }
    assert_eq!(peer.table().0, 16 * 1000 + 34);
    assert_eq!(peer.lines(&hex("ce")), ["a: 1"]);
    peer.decode(&block);
    assert_eq!(peer.lines(&hex("cf")), ["?: ?"], "beyond what is kept, not an error");
}

#[test]
fn a_setting_bounds_a_table_of_unknown_size() {
    let mut peer = Peer::begun_late();
    peer.decoder.set_max_size_setting(40);
    peer.decode(&hex(&[A1, B2].concat()));
    assert_eq!(peer.table().1, ["b: 2"]);
    assert_eq!(peer.lines(&hex("bf")), ["?: ?"]);
    assert!(!peer.decode(&[0x82]).1.missing_size_update);
}

#[test]
fn an_entry_too_large_for_a_table_of_unknown_size_keeps_its_place() {
    let mut peer = Peer::begun_late();
    let mut block = vec![0x40];
    string(&mut block, b"name", false);
    string(&mut block, "v".repeat(20_000).as_bytes(), false);
    peer.decode(&hex(A1));
    assert_eq!(peer.decode(&block).0[0].value.as_ref().map(Vec::len), Some(20_000));
    peer.decode(&hex(B2));
    let mut classes = Vec::new();
    let mut sink = |field: super::Field<'_, u64>| classes.push((field.name.is_some(), field.class));
    peer.decoder.decode(&hex("be bf"), &mut peer.classifier, &mut sink).unwrap();
    let value = "v".repeat(20_000);
    let expected = super::digest(Some(b"name"), Some(value.as_bytes()));
    assert_eq!(classes[1], (false, expected), "the strings are gone, the class stays");
    assert!(classes[0].0);
}
