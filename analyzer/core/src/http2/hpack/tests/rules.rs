//! Indices, eviction, integers and strings at their edges.

use super::super::{HpackError, HpackErrorKind, Representation};
use super::encoder::{integer, string};
use super::{Peer, hex};

/// A literal with incremental indexing and a new name.
fn insertion(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0x40];
    string(&mut block, name.as_bytes(), false);
    string(&mut block, value.as_bytes(), false);
    block
}

fn error_of(peer: &mut Peer, block: &[u8]) -> HpackError {
    peer.try_decode(block).1.unwrap_err()
}

#[test]
fn references_end_with_the_dynamic_table() {
    let mut peer = Peer::from_start();
    assert_eq!(peer.lines(&[0x80 | 61]), ["www-authenticate: "]);
    peer.decode(&insertion("a", "1"));
    assert_eq!(peer.lines(&[0x80 | 62]), ["a: 1"]);
    let kind = HpackErrorKind::IndexBeyondTables { index: 63, entries: 1 };
    assert_eq!(error_of(&mut peer, &[0x82, 0x80 | 63]), HpackError { kind, offset: 1 });
}

#[test]
fn a_name_reference_is_checked_like_an_index() {
    for block in [[0x7f, 0x00, 0x00], [0x0f, 0x30, 0x00], [0x1f, 0x30, 0x00]] {
        let kind = HpackErrorKind::IndexBeyondTables { index: 63, entries: 0 };
        assert_eq!(error_of(&mut Peer::from_start(), &block), HpackError { kind, offset: 0 });
    }
}

#[test]
fn index_zero_is_an_error_also_when_begun_late() {
    for mut peer in [Peer::from_start(), Peer::begun_late()] {
        let expected = HpackError { kind: HpackErrorKind::IndexZero, offset: 1 };
        assert_eq!(error_of(&mut peer, &[0x82, 0x80, 0x82]), expected);
    }
}

#[test]
fn fields_before_a_fault_are_passed_on() {
    let (fields, result) = Peer::from_start().try_decode(&[0x82, 0x86, 0x80]);
    assert_eq!(fields.len(), 2);
    assert_eq!(result.unwrap_err().offset, 2);
}

#[test]
fn after_a_fault_older_entries_are_unknown_and_blocks_still_decode() {
    let mut peer = Peer::from_start();
    peer.decode(&insertion("a", "1"));
    error_of(&mut peer, &[0x80]);
    assert_eq!(peer.lines(&[0x82, 0x80 | 62]), [":method: GET", "?: ?"]);
    peer.decode(&insertion("b", "2"));
    assert_eq!(peer.lines(&[0x80 | 62, 0x80 | 63]), ["b: 2", "?: ?"]);
}

#[test]
fn an_insertion_may_evict_the_entry_that_names_it() {
    // RFC 7541 4.4. Two entries of 60 bytes do not fit into 100.
    let mut peer = Peer::from_start();
    peer.decode(&hex("3f 45"));
    peer.decode(&insertion("name", &"x".repeat(24)));
    let mut block = vec![0x40 | 62];
    string(&mut block, "y".repeat(24).as_bytes(), false);
    let line = format!("name: {}", "y".repeat(24));
    assert_eq!(peer.lines(&block), std::slice::from_ref(&line));
    assert_eq!(peer.table(), (60, vec![line]));
}

#[test]
fn an_entry_that_just_fits_stays_and_a_larger_one_empties_the_table() {
    let mut peer = Peer::from_start();
    peer.decode(&hex("3f 45"));
    peer.decode(&insertion("a", "1"));
    peer.decode(&insertion("name", &"x".repeat(64)));
    assert_eq!(peer.table().0, 100);
    assert_eq!(peer.table().1.len(), 1);
    let (fields, _) = peer.decode(&insertion("name", &"x".repeat(65)));
    assert_eq!(fields[0].value.as_ref().map(Vec::len), Some(65));
    assert_eq!(peer.table(), (0, vec![]));
    let kind = HpackErrorKind::IndexBeyondTables { index: 62, entries: 0 };
    assert_eq!(error_of(&mut peer, &[0x80 | 62]).kind, kind);
}

#[test]
fn entries_are_classified_once() {
    let mut peer = Peer::from_start();
    peer.decode(&insertion("a", "1"));
    let calls = peer.classifier.calls;
    peer.decode(&[0x80 | 62; 50]);
    peer.decode(&[0x82; 50]);
    assert_eq!(peer.classifier.calls, calls);
    peer.decoder = peer.decoder.new_like();
    assert_eq!(peer.lines(&[0x82]), [":method: GET"]);
    assert_eq!(peer.classifier.calls, calls);
}

#[test]
fn integers_end_at_32_bits_and_five_octets() {
    let index = |octets: &str| error_of(&mut Peer::from_start(), &hex(octets)).kind;
    let beyond = |index| HpackErrorKind::IndexBeyondTables { index, entries: 0 };
    assert_eq!(index("ff 80 ff ff ff 0f"), beyond(u32::MAX));
    assert_eq!(index("ff 81 ff ff ff 0f"), HpackErrorKind::IntegerOverflow);
    assert_eq!(index("ff ff ff ff ff 7f"), HpackErrorKind::IntegerOverflow);
    assert_eq!(index("ff 80 80 80 80 80 00"), HpackErrorKind::IntegerOverflow);
    // Zeros that only lengthen the integer are allowed up to the limit.
    assert_eq!(index("ff 80 80 80 80 00"), beyond(127));
}

#[test]
fn blocks_cut_anywhere_are_truncated_or_whole() {
    let mut block = vec![0x82];
    let mut ends = vec![0, 1];
    for huffman in [false, true] {
        block.extend([0x40]);
        string(&mut block, "n".repeat(200).as_bytes(), huffman);
        string(&mut block, b"value", huffman);
        ends.push(block.len());
        integer(&mut block, 0x80, 7, 62);
        ends.push(block.len());
    }
    for end in 0..=block.len() {
        let result = Peer::from_start().try_decode(&block[..end]).1;
        match result {
            Ok(_) => assert!(ends.contains(&end), "{end}"),
            Err(error) => {
                assert_eq!(error.kind, HpackErrorKind::Truncated);
                assert!(!ends.contains(&end) && error.offset <= end, "{end}");
            }
        }
    }
}

#[test]
fn huffman_faults_tell_where_their_string_begins() {
    let cases = [
        ("82 00 81 ff 00", HpackErrorKind::HuffmanPadding, 2),
        ("00 01 61 82 1f ff", HpackErrorKind::HuffmanPadding, 3),
        ("00 84 ff ff ff ff 00", HpackErrorKind::HuffmanEndOfString, 1),
    ];
    for (block, kind, offset) in cases {
        assert_eq!(error_of(&mut Peer::from_start(), &hex(block)), HpackError { kind, offset });
    }
}

#[test]
fn representations_are_told_apart() {
    use Representation::{Indexed, LiteralIncremental, LiteralWithoutIndexing, NeverIndexed};
    let (fields, stats) = Peer::from_start().decode(&hex("82  41 01 61  01 01 61  11 01 61"));
    let kinds: Vec<_> = fields.iter().map(|field| field.representation).collect();
    assert_eq!(kinds, [Indexed, LiteralIncremental, LiteralWithoutIndexing, NeverIndexed]);
    assert_eq!(stats.fields, 4);
    // ":method" and "GET", then three times ":authority" and one octet.
    assert_eq!(stats.list_bytes, (7 + 3 + 32) + 3 * (10 + 1 + 32));
}

#[test]
fn errors_tell_what_where_and_what_follows() {
    let text = error_of(&mut Peer::from_start(), &[0x82, 0x80 | 70]).to_string();
    assert!(text.contains("reference to index 70; the tables end at 61"), "{text}");
    assert!(text.contains("octet 1 of the header block"), "{text}");
    assert!(text.contains("unknown from now on"), "{text}");
}

#[test]
fn churn_does_not_grow_the_arena() {
    let mut peer = Peer::from_start();
    for nth in 0..100_000 {
        peer.decode(&insertion("grpc-timeout", &format!("{nth}u")));
        let arena = peer.decoder.tables.dynamic.arena_len();
        assert!(arena <= 2 * 4096 + 64, "{arena} bytes after {nth} insertions");
    }
    assert_eq!(peer.lines(&[0x80 | 62, 0x80 | 63]), ["grpc-timeout: 99999u", "grpc-timeout: 99998u"]);
    // 12 + 6 + 32 bytes each.
    assert_eq!(peer.table().1.len(), 4096 / 50);
}
