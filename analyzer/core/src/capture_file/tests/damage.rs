use std::io::Read;

use crate::capture_file::input::Input;
use crate::capture_file::skip_damage::search;
use crate::limits::CAPTURE_DAMAGE_ENTRIES;

use super::*;

/// Every prefix of a capture gives a prefix of its packets, without a panic; a cut packet is noted, a boundary is not.
fn check_all_cuts(bytes: &[u8], header: usize, boundaries: &[usize]) {
    let whole = read_clean(bytes);
    for length in 0..bytes.len() {
        let cut = &bytes[..length];
        let Ok(reader) = open(cut) else {
            assert!(length < header, "no capture after {length} bytes");
            continue;
        };
        assert!(length >= header, "a capture after {length} bytes");
        let (packets, info) = drain(reader);
        assert!(whole.starts_with(&packets), "{length} bytes");
        if boundaries.contains(&length) {
            assert_eq!(info.damage, [], "{length} bytes");
            continue;
        }
        let begin = boundaries.iter().rev().find(|&&b| b < length);
        let begin = *begin.expect("a boundary before") as u64;
        assert_eq!(info.damage.len(), 1, "{length} bytes");
        assert_eq!(info.damage[0].offset, begin, "{length} bytes");
        assert_eq!(info.damage[0].packet as usize, packets.len());
        assert!(info.damage[0].reason.contains("missing"));
    }
}

#[test]
fn pcap_cut_anywhere() {
    let bytes = plain_pcap(6);
    let mut boundaries = vec![24];
    for i in 0..6 {
        boundaries.push(boundaries[i as usize] + 16 + packet_bytes(i).len());
    }
    check_all_cuts(&bytes, 24, &boundaries);
}

#[test]
fn pcapng_cut_anywhere() {
    let bytes = plain_pcapng(6);
    let mut boundaries = vec![28, 48];
    for i in 0..6 {
        let length = 32 + packet_bytes(i).len().next_multiple_of(4);
        boundaries.push(boundaries[i as usize + 1] + length);
    }
    check_all_cuts(&bytes, 28, &boundaries);
}

#[test]
fn cut_says_how_much_is_missing() {
    let bytes = plain_pcap(3);
    let info = read(&bytes[..bytes.len() - 5]).1;
    let reason = "the file ends inside a record: 5 of 38 bytes are missing";
    assert_eq!(info.damage[0].reason, reason);
    assert_eq!(info.damage[0].offset, bytes.len() as u64 - 38);
}

/// Overwrites a word of the `index`th record's header.
fn with_word(bytes: &[u8], index: u32, word: usize, value: u32) -> Vec<u8> {
    let before: usize = (0..index).map(|i| 16 + packet_bytes(i).len()).sum();
    let at = 24 + before + 4 * word;
    let mut damaged = bytes.to_vec();
    damaged[at..at + 4].copy_from_slice(&value.to_le_bytes());
    damaged
}

/// All packets but some, by the index that their first second gives.
fn missing(packets: &[Seen], count: u32) -> Vec<u32> {
    let seconds: Vec<_> = packets.iter().map(|p| p.time_ns / 1_000_000_000).collect();
    let is_missing = |i: &u32| !seconds.contains(&(1_700_000_000 + i64::from(*i)));
    (0..count).filter(is_missing).collect()
}

#[test]
fn absurd_captured_length_costs_one_packet() {
    let bytes = with_word(&plain_pcap(20), 10, 2, 0xffff_fff0);
    let (packets, info) = read(&bytes);
    assert_eq!(missing(&packets, 20), [10]);
    assert_eq!(info.damage.len(), 1);
    let damage = &info.damage[0];
    let begin = 24 + (0..10).map(|i| 16 + packet_bytes(i).len() as u64).sum::<u64>();
    assert_eq!((damage.offset, damage.packet), (begin, 10));
    assert!(damage.reason.contains("captured length 4294967280"));
    assert!(damage.reason.contains("skipped 36 bytes"), "{}", damage.reason);
    assert!(damage.reason.contains(&format!("to offset {}", begin + 36)));
}

#[test]
fn slightly_false_captured_length_costs_no_other_packet() {
    for length in [10, 19, 21, 25, 36] {
        let (packets, info) = read(&with_word(&plain_pcap(20), 5, 2, length));
        let lost = missing(&packets, 20);
        assert!(lost.len() <= 1, "{length}: {lost:?}");
        assert_eq!(info.damage.len(), 1, "{length}");
    }
}

#[test]
fn length_behind_the_end_of_the_file() {
    let bytes = with_word(&plain_pcap(20), 10, 2, 200_000);
    let (packets, info) = read(&with_word(&bytes, 10, 3, 200_000));
    assert_eq!(missing(&packets, 20), [10]);
    assert!(info.damage[0].reason.contains("would end behind the file"));
}

#[test]
fn a_hole_of_zeros_is_skipped() {
    let mut bytes = plain_pcap(20);
    let begin = 24 + (0..7).map(|i| 16 + packet_bytes(i).len()).sum::<usize>();
    bytes[begin..begin + 76].fill(0);
    let (packets, info) = read(&bytes);
    assert_eq!(missing(&packets, 20), [7, 8]);
    assert_eq!(info.damage.len(), 1);

    let tail = [plain_pcap(4), vec![0; 1000]].concat();
    let (packets, info) = read(&tail);
    assert_eq!(packets.len(), 4);
    assert!(info.damage[0].reason.contains("no record follows within 1000 bytes"));
}

#[test]
fn lost_bytes_are_skipped() {
    let mut bytes = plain_pcap(30);
    bytes.drain(300..420);
    let (packets, info) = read(&bytes);
    assert!(packets.len() >= 24, "{}", packets.len());
    assert_eq!(info.damage.len(), 1);
    assert_eq!(packets.last().map(|p| p.time_ns), Some(1_700_000_029_000_007_000));
}

#[test]
fn damage_in_the_last_records() {
    for index in [17, 18, 19] {
        let (packets, info) = read(&with_word(&plain_pcap(20), index, 2, u32::MAX));
        assert_eq!(missing(&packets, 20), [index]);
        assert_eq!(info.damage.len(), 1);
    }
}

#[test]
fn search_takes_no_more_than_its_distance() {
    let zeros = || Input::new(Box::new(std::io::repeat(0)));
    let mut input = zeros();
    assert!(!search(&mut input, 1000, |_| false));
    assert_eq!(input.offset(), 1000);
    let mut input = zeros();
    assert!(search(&mut input, 1000, |input| input.offset() == 999));
    assert_eq!(input.offset(), 999);
}

#[test]
fn damage_entries_are_bounded() {
    let order = Order::Little;
    let undeclared = enhanced(order, 9, 1, b"x").repeat(CAPTURE_DAMAGE_ENTRIES + 40);
    let info = read(&[section(order), undeclared].concat()).1;
    assert_eq!(info.damage.len(), CAPTURE_DAMAGE_ENTRIES);
    assert_eq!(info.damage_not_listed, 40);
}

#[test]
fn failing_stream_keeps_what_came_before() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let bytes = plain_pcap(3);
    let begin = std::io::Cursor::new(bytes[..bytes.len() - 3].to_vec());
    let source = Source::Reader("disk".to_owned(), Box::new(begin.chain(Failing)));
    let (packets, info) = drain(CaptureReader::open(vec![source]).expect("a capture"));
    assert_eq!(packets.len(), 2);
    assert!(info.damage[0].reason.contains("the disk is gone"));
    assert!(info.damage[0].reason.contains("35 bytes"));
}
