use super::*;

/// Where the packet block of index `i` of `plain_pcapng` begins.
fn block_begin(i: u32) -> usize {
    let length = |i| 32 + packet_bytes(i).len().next_multiple_of(4);
    48 + (0..i).map(length).sum::<usize>()
}

fn with_word(bytes: &[u8], at: usize, value: u32) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    damaged[at..at + 4].copy_from_slice(&value.to_le_bytes());
    damaged
}

/// Damages one word; gives the number of packets left, and the one damage.
fn damaged(at: usize, value: u32) -> (usize, String) {
    let (packets, info) = read(&with_word(&plain_pcapng(10), at, value));
    assert_eq!(info.damage.len(), 1, "{:?}", info.damage);
    (packets.len(), info.damage[0].reason.clone())
}

#[test]
fn impossible_block_lengths() {
    for length in [0, 4, 8, 11, 57, 0x7fff_fffc, u32::MAX] {
        let (packets, reason) = damaged(block_begin(4) + 4, length);
        assert_eq!(packets, 9, "{length}");
        assert!(reason.contains("impossible length"), "{reason}");
        assert!(reason.contains("records continue"), "{reason}");
    }
}

#[test]
fn false_but_possible_block_lengths() {
    for length in [12, 28, 48, 60, 400, 1_000_000] {
        let (packets, _) = damaged(block_begin(4) + 4, length);
        assert_eq!(packets, 9, "{length}");
    }
}

#[test]
fn false_trailing_length_costs_nothing_if_a_block_follows() {
    for i in [5, 10] {
        let (packets, reason) = damaged(block_begin(i) - 4, 77);
        assert_eq!(packets, 10);
        assert!(reason.contains("so the block is used"), "{reason}");
    }
}

#[test]
fn packet_longer_than_its_block() {
    let (packets, reason) = damaged(block_begin(4) + 20, 25);
    assert_eq!(packets, 9);
    assert!(reason.contains("25 bytes in a block with room for 24"), "{reason}");
}

#[test]
fn undeclared_interface() {
    let (packets, reason) = damaged(block_begin(4) + 8, 3);
    assert_eq!(packets, 9);
    assert!(reason.contains("interface 3"), "{reason}");
}

#[test]
fn interface_behind_damage_is_not_numbered() {
    let order = Order::Little;
    let ruined = with_word(&interface(order, 113, &[]), 4, 3);
    let bytes = [
        section(order),
        interface(order, 1, &[]),
        ruined,
        interface(order, 276, &[]),
        enhanced(order, 0, 1, b"sure"),
        enhanced(order, 1, 2, b"gone"),
        enhanced(order, 2, 3, b"gone"),
        section(order),
        interface(order, 101, &[]),
        enhanced(order, 0, 4, b"new"),
    ]
    .concat();
    let (packets, info) = read(&bytes);
    assert_eq!(contents(&packets), [b"sure".as_slice(), b"new"]);
    assert_eq!(packets[1].link_type, 101);
    assert_eq!(info.damage.len(), 4, "{:?}", info.damage);
}

#[test]
fn short_blocks() {
    let order = Order::Little;
    for kind in [1, 2, 3, 5, 6, 10] {
        let bytes = [plain_pcapng(2), block(order, kind, b""), enhanced(order, 0, 1, b"x")];
        let (packets, info) = read(&bytes.concat());
        assert_eq!(packets.len(), 3, "{kind}");
        assert_eq!(info.damage.len(), 1, "{kind}");
    }
    let secrets = Writer::new(order).u32(1).u32(9).raw(b"12345678").bytes;
    let info = read(&[plain_pcapng(1), block(order, 10, &secrets)].concat()).1;
    assert_eq!((info.secrets.len(), info.damage.len()), (0, 1));
}

#[test]
fn section_of_another_version_ends_the_file() {
    let order = Order::Little;
    let magic = Writer::new(order).u32(0x1a2b_3c4d).u16(2).u16(0).u64(0);
    let version_2 = block(order, 0x0a0d_0d0a, &magic.bytes);
    let (packets, info) = read(&[plain_pcapng(2), version_2, plain_pcapng(2)].concat());
    assert_eq!(packets.len(), 2);
    assert!(info.damage[0].reason.contains("2.0"));
}

#[test]
fn section_without_byte_order_is_skipped() {
    let order = Order::Little;
    let ruined = with_word(&section(order), 8, 0x1234_5678);
    let (packets, info) = read(&[plain_pcapng(2), ruined, plain_pcapng(3)].concat());
    assert_eq!(packets.len(), 5);
    assert_eq!(info.damage.len(), 1);
    assert!(info.damage[0].reason.contains("byte-order magic"));
}

#[test]
fn interfaces_end_with_their_section_even_if_the_next_is_ruined() {
    let order = Order::Little;
    let bytes = [
        plain_pcapng(2),
        with_word(&section(order), 8, 0x1234_5678),
        interface(order, 276, &[]),
        enhanced(order, 0, 9, b"of the ruined section"),
    ]
    .concat();
    let (packets, info) = read(&bytes);
    assert_eq!(packets.len(), 2);
    assert_eq!(info.damage.len(), 3, "{:?}", info.damage);
}
