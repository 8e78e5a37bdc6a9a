use super::*;

const MS: i64 = 1_000_000;

/// The numbers in the file of packets with these times in milliseconds, in the order in which they are given.
fn sorted(times: &[i64]) -> (Vec<u32>, Sorter) {
    let mut sorter = Sorter::default();
    let mut given = Vec::new();
    let take = |sorter: &mut Sorter, given: &mut Vec<u32>| {
        while sorter.due().is_some() {
            let place = sorter.give().map_or(0, |packet| packet.number);
            given.push(sorter.numbers.number(place));
        }
    };
    for (number, time) in (1..).zip(times) {
        let captured = &[0; 4];
        let (time_ns, original_len) = (time * MS, 4);
        sorter.push(&Packet { number, time_ns, link_type: 1, interface: 0, captured, original_len });
        take(&mut sorter, &mut given);
    }
    sorter.end();
    take(&mut sorter, &mut given);
    (given, sorter)
}

#[test]
fn packets_get_the_order_of_their_times_and_equal_times_that_of_the_file() {
    let (given, sorter) = sorted(&[100, 103, 101, 103, 102, 102, 130]);
    assert_eq!(given, [1, 3, 5, 6, 2, 4, 7]);
    assert_eq!(sorter.moved, 3);
}

#[test]
fn packets_before_a_step_back_beyond_the_window_stay_before_it() {
    let (given, sorter) = sorted(&[1000, 1002, 1001, 500, 502, 501, 1003]);
    assert_eq!(given, [1, 3, 2, 4, 6, 5, 7]);
    assert_eq!(sorter.moved, 2);
}

#[test]
fn a_packet_waits_no_longer_than_the_window() {
    let mut sorter = Sorter::default();
    for (number, time_ns) in [(1, 0), (2, 20 * MS - 1), (3, 20 * MS)] {
        sorter.push(&Packet { number, time_ns, link_type: 1, interface: 0, captured: &[], original_len: 0 });
        assert_eq!(sorter.due(), (number == 3).then_some(0));
    }
}

#[test]
fn ranges_of_numbers_become_ranges_of_places_that_hold_them() {
    let (given, sorter) = sorted(&[100, 101, 104, 103, 102, 105]);
    assert_eq!(given, [1, 2, 5, 4, 3, 6]);
    let mut ranges = [[1, 2], [2, 3], [5, 6], [6, 6], [3, 5]];
    sorter.numbers.cover(ranges.iter_mut());
    assert_eq!(ranges, [[1, 2], [2, 5], [3, 6], [6, 6], [3, 5]]);
}

/// A TCP segment in an IPv4 packet without a link layer: from one port to another, with so many octets.
fn segment([from, to]: [u16; 2], seq: u32, ack: u32, octets: u16) -> Vec<u8> {
    let length = 40 + octets;
    let mut packet = [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0, 0, 64, 6, 0, 0]].concat();
    packet.extend([10, 0, 0, from as u8, 10, 0, 0, to as u8]);
    packet.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
    packet.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    packet.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    packet.resize(usize::from(length), 0);
    packet
}

/// The order in which segments with times in milliseconds are given.
fn order_of(segments: &[(i64, Vec<u8>)]) -> Vec<u32> {
    let mut sorter = Sorter::default();
    for (number, (time, captured)) in (1..).zip(segments) {
        let original_len = captured.len() as u32;
        sorter.push(&Packet { number, time_ns: time * MS, link_type: 101, interface: 0, captured, original_len });
    }
    sorter.end();
    let mut given = Vec::new();
    while let Some(place) = sorter.give().map(|packet| packet.number) {
        given.push(sorter.numbers.number(place));
    }
    given
}

#[test]
fn an_acknowledgement_stays_behind_its_data_whatever_the_times_say() {
    let data = |time| (time, segment([1, 2], 1000, 500, 100));
    let answer = |time| (time, segment([2, 1], 500, 1100, 10));
    assert_eq!(order_of(&[data(107), answer(101), (102, segment([1, 2], 1100, 510, 0))]), [1, 2, 3]);
    assert_eq!(order_of(&[answer(101), data(100)]), [2, 1]);
}

#[test]
fn an_acknowledgement_of_earlier_data_is_put_before_later_data() {
    let data = (107, segment([1, 2], 1000, 500, 100));
    let acknowledgement = (101, segment([2, 1], 500, 1000, 0)); // of what comes before it
    let of_others = (102, segment([2, 3], 500, 1100, 0));
    assert_eq!(order_of(&[data, acknowledgement, of_others]), [2, 3, 1]);
}
