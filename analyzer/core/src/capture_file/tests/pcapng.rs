use crate::capture_file::clock::Clock;
use crate::capture_file::{Format, Secrets};
use crate::limits::{
    CAPTURE_COMMENTS, CAPTURE_INTERFACES, CAPTURE_SECRETS_BLOCKS, CAPTURE_SECRETS_LENGTH, LATEST_TIME,
};

use super::*;

const BOTH: [Order; 2] = [Order::Little, Order::Big];

/// A section with one interface of these options, and a packet with these ticks.
fn one_packet(order: Order, options: &[u8], ticks: u64) -> Vec<u8> {
    let packet = enhanced(order, 0, ticks, b"packet");
    [section(order), interface(order, 1, options), packet].concat()
}

#[test]
fn enhanced_packets_in_both_orders() {
    for order in BOTH {
        let expected = Seen {
            number: 1,
            time_ns: 1_700_000_001_123_456_000,
            link_type: 1,
            interface: 0,
            captured: b"packet".to_vec(),
            original_len: 6,
        };
        let bytes = one_packet(order, &[], 1_700_000_001_123_456);
        assert_eq!(read_clean(&bytes), [expected], "{order:?}");
        let info = read(&bytes).1;
        assert_eq!(info.files[0].format, Format::Pcapng);
        assert_eq!(info.files[0].snaplen, None);
        assert_eq!(info.interfaces[0].ticks_per_second, Some(1_000_000));
    }
}

#[test]
fn clocks() {
    let tick_counts: [(u8, i64, u64, i64); 10] = [
        (6, 0, 1_700_000_000_000_001, 1_700_000_000_000_001_000),
        (9, 0, 1_700_000_000_000_000_001, 1_700_000_000_000_000_001),
        (3, 0, 1_700_000_000_001, 1_700_000_000_001_000_000),
        (0, 0, 1_700_000_000, 1_700_000_000_000_000_000),
        (12, 0, 1_234_567_890_123_456, 1_234_567_890_123),
        // 2^-20 s: 1.5 s.
        (0x80 | 20, 0, 1_572_864, 1_500_000_000),
        (0x80 | 32, 0, 1_700_000_000 << 32 | 1 << 31, 1_700_000_000_500_000_000),
        (0x80, 0, 1_700_000_000, 1_700_000_000_000_000_000),
        (6, 3600, 1_700_000_000_000_001, 1_700_003_600_000_001_000),
        (6, -3600, 1_700_000_000_000_001, 1_699_996_400_000_001_000),
    ];
    for (resolution, offset, ticks, expected) in tick_counts {
        for order in BOTH {
            let offset_bytes = Writer::new(order).u64(offset.cast_unsigned()).bytes;
            let options = Writer::new(order).option(9, &[resolution]);
            let options = options.option(14, &offset_bytes).option(0, &[]).bytes;
            let packets = read_clean(&one_packet(order, &options, ticks));
            assert_eq!(times(&packets), [expected], "{resolution} {offset} {order:?}");
        }
    }
}

#[test]
fn ticks_per_second() {
    let expected = [
        (0, Some(1)),
        (6, Some(1_000_000)),
        (9, Some(1_000_000_000)),
        (12, Some(1_000_000_000_000)),
        (19, Some(10_000_000_000_000_000_000)),
        (20, None),
        (127, None),
        (0x80 | 20, Some(1_048_576)),
        (0x80 | 63, Some(1 << 63)),
        (0xff, None),
    ];
    for (resolution, ticks) in expected {
        assert_eq!(Clock::new(resolution, 0).ticks_per_second(), ticks, "{resolution}");
    }
}

#[test]
fn impossible_times_are_the_nearest_possible_and_noted_once() {
    let order = Order::Little;
    let mut bytes = one_packet(order, &[], u64::MAX);
    bytes.extend(enhanced(order, 0, u64::MAX - 1, b"x"));
    bytes.extend(enhanced(order, 0, 5, b"y"));
    let (packets, info) = read(&bytes);
    assert_eq!(times(&packets), [LATEST_TIME, LATEST_TIME, 5000]);
    assert_eq!(info.damage.len(), 1, "{:?}", info.damage);
    assert_eq!(Clock::new(6, i64::MIN).time(1), (0, false));
    assert_eq!(Clock::new(6, i64::MAX).time(1), (LATEST_TIME, false));
    assert_eq!(Clock::new(0xff, 1).time(u64::MAX), (1_000_000_000, true));
}

#[test]
fn simple_packets_take_the_time_before_and_the_snaplen() {
    for order in BOTH {
        let simple = |original: u32, packet: &[u8]| {
            let body = Writer::new(order).u32(original).raw(packet).pad();
            block(order, 3, &body.bytes)
        };
        let snaplen_5 = block(order, 1, &Writer::new(order).u16(101).u16(0).u32(5).bytes);
        let bytes =
            [section(order), snaplen_5, simple(3, b"one"), enhanced(order, 0, 77, b"two"), simple(900, b"three...")]
                .concat();
        let (packets, info) = read(&bytes);
        assert_eq!(contents(&packets), [b"one".as_slice(), b"two", b"three"]);
        assert_eq!(times(&packets), [0, 77_000, 77_000]);
        assert_eq!(packets[2].original_len, 900);
        assert_eq!(packets[2].link_type, 101);
        assert_eq!(info.packets_without_time, 2);
        assert_eq!(info.damage, []);
    }
}

#[test]
fn obsolete_packets() {
    for order in BOTH {
        let fixed = Writer::new(order).u16(1).u16(0xffff).u32(1).u32(2);
        let body = fixed.u32(5).u32(70).raw(b"later").pad().bytes;
        let bytes =
            [section(order), interface(order, 1, &[]), interface(order, 113, &[]), block(order, 2, &body)].concat();
        let packets = read_clean(&bytes);
        assert_eq!(contents(&packets), [b"later"]);
        assert_eq!(times(&packets), [((1 << 32) + 2) * 1000]);
        assert_eq!((packets[0].interface, packets[0].link_type), (1, 113));
        assert_eq!(packets[0].original_len, 70);
    }
}

#[test]
fn sections_have_their_own_order_and_interfaces() {
    let bytes = [
        one_packet(Order::Little, &[], 1),
        section(Order::Big),
        interface(Order::Big, 101, &[]),
        interface(Order::Big, 276, &[]),
        enhanced(Order::Big, 1, 2, b"big"),
        one_packet(Order::Little, &[], 3),
    ]
    .concat();
    let packets = read_clean(&bytes);
    assert_eq!(contents(&packets), [b"packet".as_slice(), b"big", b"packet"]);
    let places: Vec<_> = packets.iter().map(|p| (p.interface, p.link_type)).collect();
    assert_eq!(places, [(0, 1), (2, 276), (3, 1)]);
    assert_eq!(times(&packets), [1000, 2000, 3000]);
}

#[test]
fn dropped_packets_are_the_last_statistics_of_each_interface() {
    for order in BOTH {
        let statistics = |interface: u32, counts: &[(u16, u64)]| {
            let fixed = Writer::new(order).u32(interface).u32(0).u32(0);
            let body = counts
                .iter()
                .fold(fixed, |body, &(code, count)| body.option(code, &Writer::new(order).u64(count).bytes));
            block(order, 5, &body.bytes)
        };
        let start = [section(order), interface(order, 1, &[]), interface(order, 1, &[])].concat();
        assert_eq!(read(&start).1.dropped_packets(), None);
        let none_lost = [&start[..], &statistics(0, &[(4, 1000), (5, 0)])].concat();
        assert_eq!(read(&none_lost).1.received_packets(), None, "of no interest");
        let unsaid = [&start[..], &statistics(0, &[(4, 1000), (5, 1)]), &statistics(1, &[(5, 1)])].concat();
        assert_eq!(read(&unsaid).1.received_packets(), None);
        let bytes = [
            start,
            statistics(0, &[(4, 1000), (5, 1), (7, 1)]),
            statistics(0, &[(4, 2000), (5, 3), (7, 40)]),
            statistics(1, &[(5, 500)]),
            statistics(1, &[(4, 9)]),
            statistics(7, &[(5, 9000)]),
        ]
        .concat();
        let info = read(&bytes).1;
        assert_eq!(info.interfaces[0].dropped_packets, Some(43));
        assert_eq!((info.dropped_packets(), info.received_packets()), (Some(543), Some(2009)));
    }
}

#[test]
fn secrets_names_and_comments() {
    for order in BOTH {
        let comment = |text: &[u8]| Writer::new(order).option(1, text).option(0, &[]).bytes;
        let magic = Writer::new(order).u32(0x1a2b_3c4d).u16(1).u16(0).u64(0);
        let options = Writer::new(order).option(2, b"eth0").option(1, b"an interface").bytes;
        let packet = Writer::new(order).u32(0).u32(0).u32(9).u32(3).u32(3);
        let packet = packet.raw(b"abc\0").raw(&comment(b"a packet")).bytes;
        let secrets = Writer::new(order).u32(0x544c_534b).u32(5).raw(b"keys\n").pad();
        let secrets = secrets.raw(&comment(b"secrets")).bytes;
        let names = Writer::new(order).option(1, &[10, 0, 0, 1, b'h', 0]).option(0, &[]);
        let names = names.raw(&comment(b"names")).bytes;
        let statistics = Writer::new(order).u32(0).u32(0).u32(0).raw(&comment(b"\xffnd"));
        let bytes = [
            block(order, 0x0a0d_0d0a, &magic.raw(&comment(b"a section")).bytes),
            interface(order, 1, &options),
            block(order, 6, &packet),
            block(order, 10, &secrets),
            block(order, 4, &names),
            block(order, 5, &statistics.bytes),
        ]
        .concat();
        let (packets, info) = read(&bytes);
        assert_eq!(contents(&packets), [b"abc"]);
        let comments = ["a section", "an interface", "a packet", "secrets", "names", "\u{fffd}nd"];
        assert_eq!(info.comments, comments);
        assert_eq!(info.interfaces[0].name.as_deref(), Some("eth0"));
        let (kind, data) = (0x544c_534b, b"keys\n".to_vec());
        assert_eq!(info.secrets, [Secrets { kind, data: data.into() }]);
        assert_eq!(info.damage, []);
    }
}

#[test]
fn unknown_blocks_are_skipped() {
    let order = Order::Little;
    let bytes = [
        one_packet(order, &[], 1),
        block(order, 0x0bad, b"12345678"),
        block(order, 0x8000_0001, b""),
        block(order, 0x7fff_ffff, &[0xff; 400]),
        enhanced(order, 0, 2, b"second"),
    ]
    .concat();
    let packets = read_clean(&bytes);
    assert_eq!(contents(&packets), [b"packet", b"second"]);
}

#[test]
fn secrets_are_bounded_in_number_and_length() {
    let order = Order::Little;
    let secrets = |data: &[u8]| block(order, 10, &Writer::new(order).u32(1).u32(data.len() as u32).raw(data).bytes);
    let many = [section(order), secrets(b"").repeat(CAPTURE_SECRETS_BLOCKS + 5)].concat();
    let long = [section(order), secrets(&vec![b'k'; 1 << 20]).repeat(20)].concat();
    for (bytes, count) in [(many, CAPTURE_SECRETS_BLOCKS), (long, CAPTURE_SECRETS_LENGTH >> 20)] {
        let info = read(&bytes).1;
        assert_eq!(info.secrets.len(), count);
        assert_eq!(info.damage.len(), 1, "{:?}", info.damage);
        assert!(info.damage[0].reason.contains("decryption secrets: the rest is left out"));
    }
}

#[test]
fn lists_are_bounded() {
    let order = Order::Little;
    let comment = Writer::new(order).option(1, b"again").bytes;
    let section_with_comment = {
        let magic = Writer::new(order).u32(0x1a2b_3c4d).u16(1).u16(0).u64(0);
        block(order, 0x0a0d_0d0a, &magic.raw(&comment).bytes)
    };
    let info = read(&section_with_comment.repeat(CAPTURE_COMMENTS + 5)).1;
    assert_eq!(info.comments.len(), CAPTURE_COMMENTS);

    let interfaces = interface(order, 1, &[]).repeat(CAPTURE_INTERFACES + 5);
    let packet = enhanced(order, CAPTURE_INTERFACES as u32 - 1, 1, b"kept");
    let lost = enhanced(order, CAPTURE_INTERFACES as u32, 1, b"lost");
    let (packets, info) = read(&[section(order), interfaces, packet, lost].concat());
    assert_eq!(info.interfaces.len(), CAPTURE_INTERFACES);
    assert_eq!(contents(&packets), [b"kept"]);
    assert_eq!(info.damage.len(), 6);
}
