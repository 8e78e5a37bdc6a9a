//! Entries from before a hole, found again by the blocks behind it.

use crate::grpc::headers::HeaderClass;
use crate::grpc::protocol::Content;
use crate::store::strings::Strings;

use super::super::{Classifier, Decoder};

const REQUEST: &[(&str, &str)] = &[
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a/B"),
    (":authority", "x"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
];

/// A literal with incremental indexing (RFC 7541 section 6.2.1).
fn inserted(name: &str, value: &str) -> Vec<u8> {
    let mut octets = vec![0x40, name.len() as u8];
    octets.extend(name.as_bytes());
    octets.push(value.len() as u8);
    octets.extend(value.as_bytes());
    octets
}

/// The dynamic entries from the newest one on.
fn indexed(places: &[u8]) -> Vec<u8> {
    places.iter().map(|place| 0x80 | (62 + place)).collect()
}

/// The method a block gives, and how many of its fields are not known.
fn decoded(decoder: &mut Decoder<Strings>, strings: &mut Strings, block: &[u8]) -> (Option<u32>, usize) {
    let mut classes = Vec::new();
    decoder.decode(block, strings, &mut |field| classes.push(field.class)).unwrap();
    let method =
        classes.iter().find_map(|class| if let HeaderClass::Path(method) = class { Some(*method) } else { None });
    (method, classes.iter().filter(|class| **class == HeaderClass::Unknown).count())
}

/// After a request that inserted all its fields: te is the newest entry, :method the oldest.
fn begun() -> (Decoder<Strings>, Strings, u32) {
    let mut strings = Strings::default();
    let mut decoder = Decoder::new(&mut strings);
    let block: Vec<u8> = REQUEST.iter().flat_map(|(name, value)| inserted(name, value)).collect();
    let (method, _) = decoded(&mut decoder, &mut strings, &block);
    (decoder, strings, method.unwrap())
}

#[test]
fn any_number_of_insertions_is_found() {
    for lost in 0..20_u8 {
        let (mut decoder, mut strings, method) = begun();
        decoder.mark_hole(400);
        let block = indexed(&[5 + lost, 4 + lost, 3 + lost, 2 + lost, 1 + lost, lost]);
        assert_eq!(decoded(&mut decoder, &mut strings, &block), (Some(method), 0), "{lost} inserted in the hole");
        // what the hole inserted stays unknown
        if lost > 0 {
            assert_eq!(decoded(&mut decoder, &mut strings, &indexed(&[0])).1, 1);
        }
    }
}

#[test]
fn a_hole_too_short_for_the_insertions_was_not_what_moved_them() {
    let (mut decoder, mut strings, _) = begun();
    decoder.mark_hole(5);
    let block = indexed(&[5 + 3, 4 + 3, 3 + 3, 2 + 3, 1 + 3, 3]);
    assert_eq!(decoded(&mut decoder, &mut strings, &block), (None, 6));
}

#[test]
fn what_came_since_is_known_in_any_case() {
    let (mut decoder, mut strings, method) = begun();
    decoder.mark_hole(100);
    decoded(&mut decoder, &mut strings, &inserted(":path", "/a/C"));
    let other = strings.methods.intern(b"/a/C");
    // the newest is /a/C; two entries of the hole lie between it and the older ones
    let with = |path: u8| indexed(&[5 + 3, 4 + 3, path, 2 + 3, 1 + 3, 3]);
    assert_eq!(decoded(&mut decoder, &mut strings, &with(0)), (Some(other), 0));
    assert_eq!(decoded(&mut decoder, &mut strings, &with(3 + 3)), (Some(method), 0));
}

#[test]
fn trailers_tell_nothing() {
    let (mut decoder, mut strings, _) = begun();
    decoder.mark_hole(100);
    assert_eq!(decoded(&mut decoder, &mut strings, &indexed(&[0, 1])), (None, 2));
}

/// Found by fuzzing: each number up to the index was tried, hundreds of millions.
#[test]
fn references_far_beyond_any_table_tell_nothing() {
    let mut strings = Strings::default();
    let mut decoder = Decoder::new_begun_late(&mut strings);
    decoder.mark_hole(u64::MAX);
    let far = [0xff, 0x80, 0x80, 0x80, 0x7f]; // an index of 266 million
    assert_eq!(decoded(&mut decoder, &mut strings, &far), (None, 1));
}

#[test]
fn two_holes_add_up() {
    let (mut decoder, mut strings, method) = begun();
    decoder.mark_hole(10);
    decoded(&mut decoder, &mut strings, &inserted("a", "1"));
    decoder.mark_hole(10);
    let lost = 3; // one in each hole, one between
    let block = indexed(&[5 + lost, 4 + lost, 3 + lost, 2 + lost, 1 + lost, lost]);
    assert_eq!(decoded(&mut decoder, &mut strings, &block), (Some(method), 0));
}

#[test]
fn a_size_update_may_have_evicted_what_is_asked_for() {
    let (mut decoder, mut strings, _) = begun();
    decoder.mark_hole(100);
    let block = [vec![0x3f, 0x61], indexed(&[5, 4, 3, 2, 1, 0])].concat();
    assert_eq!(decoded(&mut decoder, &mut strings, &block), (None, 6));
}

#[test]
fn blocks_that_two_numbers_fit_tell_nothing() {
    let mut strings = Strings::default();
    let mut decoder = Decoder::new(&mut strings);
    let twice = [inserted("content-type", "application/grpc"), inserted("content-type", "application/grpc")].concat();
    decoded(&mut decoder, &mut strings, &twice);
    decoder.mark_hole(100);
    let block = [vec![0x88], indexed(&[1])].concat();
    assert_eq!(decoded(&mut decoder, &mut strings, &block).1, 1);
    assert!(strings.is_whole_block(&[HeaderClass::HttpStatus(200), HeaderClass::ContentType(Content::Grpc)]));
}
