//! Table size updates against the settings (RFC 7541 4.2 and 6.3).

use super::super::{HpackError, HpackErrorKind};
use super::encoder::integer;
use super::{Peer, hex};

fn update(size: usize) -> Vec<u8> {
    let mut block = Vec::new();
    integer(&mut block, 0x20, 5, size);
    block
}

fn above(size: u32, setting: u32) -> HpackError {
    HpackError { kind: HpackErrorKind::SizeUpdateAboveSetting { size, setting }, offset: 0 }
}

#[test]
fn an_update_evicts_down_to_its_size() {
    let mut peer = Peer::from_start();
    peer.decode(&hex("40 01 61 01 31  40 01 62 01 32"));
    assert_eq!(peer.table().0, 68);
    let (_, stats) = peer.decode(&update(67));
    assert_eq!(stats.table_size_updates, 1);
    assert_eq!(peer.table(), (34, vec!["b: 2".into()]));
    peer.decode(&update(0));
    assert_eq!(peer.table(), (0, vec![]));
}

#[test]
fn the_setting_bounds_updates() {
    let mut peer = Peer::from_start();
    assert!(peer.try_decode(&update(4096)).1.is_ok());
    assert_eq!(peer.try_decode(&update(4097)).1, Err(above(4097, 4096)));
    let mut peer = Peer::from_start();
    peer.decoder.set_max_size_setting(65_536);
    assert!(peer.try_decode(&update(65_536)).1.is_ok());
    assert_eq!(peer.try_decode(&update(65_537)).1, Err(above(65_537, 65_536)));
}

#[test]
fn an_announced_setting_may_be_followed_before_its_ack() {
    let mut peer = Peer::from_start();
    peer.decoder.announce_max_size_setting(8192);
    assert!(peer.try_decode(&update(8192)).1.is_ok());
    // Once a lower one is acknowledged and none is pending, the larger one is past.
    peer.decoder.announce_max_size_setting(100);
    peer.decoder.set_max_size_setting(8192);
    assert!(peer.try_decode(&update(8192)).1.is_ok());
    peer.decoder.set_max_size_setting(100);
    assert_eq!(peer.try_decode(&update(101)).1, Err(above(101, 100)));
}

#[test]
fn an_update_after_a_field_is_an_error() {
    let error = Peer::from_start().try_decode(&hex("82 20")).1.unwrap_err();
    assert_eq!(error, HpackError { kind: HpackErrorKind::SizeUpdateAfterField, offset: 1 });
}

#[test]
fn several_updates_may_begin_a_block() {
    let mut peer = Peer::from_start();
    peer.decode(&hex("40 01 61 01 31"));
    let (fields, stats) = peer.decode(&[update(0), update(4096), vec![0x82]].concat());
    assert_eq!((fields.len(), stats.table_size_updates), (1, 2));
    assert_eq!(peer.table(), (0, vec![]));
}

#[test]
fn a_lowered_setting_demands_one_update() {
    let mut peer = Peer::from_start();
    peer.decoder.set_max_size_setting(1000);
    assert!(peer.decode(&[0x82]).1.missing_size_update);
    assert!(!peer.decode(&[0x82]).1.missing_size_update, "told once");

    let mut peer = Peer::from_start();
    peer.decoder.set_max_size_setting(1000);
    assert!(!peer.decode(&update(1000)).1.missing_size_update);
}

#[test]
fn a_setting_lowered_and_raised_demands_the_lowest() {
    for (first, missing) in [(1000, false), (1001, true)] {
        let mut peer = Peer::from_start();
        peer.decoder.set_max_size_setting(1000);
        peer.decoder.set_max_size_setting(4096);
        let (_, stats) = peer.decode(&[update(first), update(4096)].concat());
        assert_eq!(stats.missing_size_update, missing);
    }
}

#[test]
fn a_raised_setting_or_a_table_already_smaller_demands_nothing() {
    let mut peer = Peer::from_start();
    peer.decoder.set_max_size_setting(65_536);
    assert!(!peer.decode(&[0x82]).1.missing_size_update);
    peer.decode(&update(500));
    peer.decoder.set_max_size_setting(1000);
    assert!(!peer.decode(&[0x82]).1.missing_size_update);
}

#[test]
fn the_table_keeps_its_size_until_an_update_raises_it() {
    let mut peer = Peer::from_start();
    peer.decode(&update(40));
    peer.decode(&hex("40 01 61 01 31  40 01 62 01 32"));
    assert_eq!(peer.table().1.len(), 1);
    peer.decode(&update(4096));
    peer.decode(&hex("40 01 63 01 33"));
    assert_eq!(peer.table().1, ["c: 3", "b: 2"]);
}

#[test]
fn after_a_late_begin_any_update_is_accepted_until_a_setting_is_known() {
    let mut peer = Peer::begun_late();
    assert!(peer.try_decode(&update(1 << 20)).1.is_ok());
    peer.decoder.set_max_size_setting(4096);
    peer.decode(&update(4096));
    assert_eq!(peer.try_decode(&update(4097)).1, Err(above(4097, 4096)));
}

#[test]
fn a_demanded_update_may_have_been_in_a_hole() {
    let mut peer = Peer::from_start();
    peer.decoder.set_max_size_setting(1000);
    peer.decoder.mark_begun_late();
    assert!(!peer.decode(&[0x82]).1.missing_size_update);
}
