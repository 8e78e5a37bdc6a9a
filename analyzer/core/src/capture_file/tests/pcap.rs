use crate::capture_file::{Format, measure_records};
use crate::limits::CAPTURE_PACKET_LENGTH;

use super::*;

#[test]
fn all_four_magic_numbers() {
    for order in [Order::Little, Order::Big] {
        for (magic, fraction_ns) in [(MICROSECONDS, 123_456_000), (NANOSECONDS, 123_456)] {
            let header = pcap_header(order, magic, 65_535, ETHERNET);
            let bytes = record(header, [1_700_000_001, 123_456, 3, 60], b"abc").bytes;
            let expected = Seen {
                number: 1,
                time_ns: 1_700_000_001_000_000_000 + fraction_ns,
                link_type: 1,
                interface: 0,
                captured: b"abc".to_vec(),
                original_len: 60,
            };
            assert_eq!(read_clean(&bytes), [expected], "{order:?} {magic:x}");
        }
    }
}

#[test]
fn header_is_told() {
    let header = pcap_header(Order::Big, NANOSECONDS, 128, 276);
    let (packets, info) = read(&header.bytes);
    assert_eq!(packets, []);
    assert_eq!(info.files[0].format, Format::Pcap);
    assert_eq!(info.files[0].format.name(), "pcap");
    assert_eq!(info.files[0].snaplen, Some(128));
    assert_eq!(info.interfaces[0].link_type, 276);
    assert_eq!(info.interfaces[0].ticks_per_second, Some(1_000_000_000));
    assert_eq!(info.dropped_packets(), None);
    assert_eq!(info.damage, []);
}

#[test]
fn fcs_length_is_no_part_of_the_link_type() {
    let header = pcap_header(Order::Little, MICROSECONDS, 65_535, 0x4400_0001);
    let bytes = record(header, [1, 0, 1, 1], b"x").bytes;
    assert_eq!(read_clean(&bytes)[0].link_type, 1);
}

#[test]
fn original_length_is_never_less_than_the_captured_one() {
    let header = pcap_header(Order::Little, MICROSECONDS, 65_535, ETHERNET);
    let zero = record(header, [1, 0, 4, 0], b"abcd");
    let short = record(zero, [1, 0, 4, 2], b"efgh");
    let packets = read_clean(&record(short, [1, 0, 4, 4], b"ijkl").bytes);
    assert_eq!(contents(&packets), [b"abcd", b"efgh", b"ijkl"]);
    assert!(packets.iter().all(|packet| packet.original_len == 4));
}

#[test]
fn longest_packets() {
    let longest = CAPTURE_PACKET_LENGTH;
    let packet = vec![7; longest as usize];
    let header = pcap_header(Order::Little, MICROSECONDS, 0, ETHERNET);
    let bytes = record(header, [1, 0, longest, longest], &packet).bytes;
    assert_eq!(read_clean(&bytes)[0].captured, packet);

    // Longer ones only if the file says so itself.
    let packet = vec![7; longest as usize * 2];
    for (snaplen, delivered) in [(longest, 0), (longest * 2, 1)] {
        let header = pcap_header(Order::Little, MICROSECONDS, snaplen, ETHERNET);
        let bytes = record(header, [1, 0, longest * 2, longest * 2], &packet).bytes;
        assert_eq!(read(&bytes).0.len(), delivered, "snaplen {snaplen}");
    }
}

#[test]
fn pauses_of_days_and_steps_back_are_no_damage() {
    let header = pcap_header(Order::Little, MICROSECONDS, 65_535, ETHERNET);
    let seconds = [1_700_000_000, 1_700_400_000, 1_700_800_000, 1_700_100_000];
    let writer = seconds.into_iter().fold(header, |writer, second| record(writer, [second, 1, 2, 2], b"xy"));
    let packets = read_clean(&writer.bytes);
    assert_eq!(times(&packets)[3], 1_700_100_000_000_001_000);
    assert_eq!(packets.len(), 4);
}

#[test]
fn largest_time() {
    let header = pcap_header(Order::Little, NANOSECONDS, 65_535, ETHERNET);
    let bytes = record(header, [u32::MAX, 999_999_999, 1, 1], b"x").bytes;
    assert_eq!(times(&read_clean(&bytes)), [4_294_967_295_999_999_999]);
}

#[test]
fn empty_packets_are_packets() {
    let header = pcap_header(Order::Little, MICROSECONDS, 65_535, ETHERNET);
    let bytes = record(record(header, [9, 1, 0, 60], b""), [9, 2, 1, 1], b"x").bytes;
    let packets = read_clean(&bytes);
    assert_eq!(packets[0].original_len, 60);
    assert_eq!(contents(&packets), [b"".as_slice(), b"x"]);
}

#[test]
fn whole_records_are_measured() {
    for order in [Order::Little, Order::Big] {
        let header = [1_700_000_001, 0, 3, 60].map(|word| order.word(word)).concat();
        let records = [&header, &b"abc"[..], &header, b"def", &header, b"gh"].concat();
        let is_big = order == Order::Big;
        for (length, expected) in
            [(0, (0, 0, 0)), (18, (0, 0, 0)), (19, (1, 0, 19)), (37, (1, 0, 19)), (56, (2, 19, 38))]
        {
            assert_eq!(measure_records(&records[..length], is_big, 3), expected, "{order:?}, {length} bytes");
        }
        assert_eq!(measure_records(&records, is_big, 2), (0, 0, 0), "a packet that is too long");
        assert_eq!(measure_records(&records, !is_big, u32::MAX), (0, 0, 0), "the other byte order");
    }
}
