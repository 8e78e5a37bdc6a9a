//! Whatever the bytes are: no panic, an end, and bounds kept. `pcap-parser` reads the same from whole files.

use pcap_parser::{Block, PcapBlockOwned, PcapError};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::limits::CAPTURE_DAMAGE_ENTRIES;

use super::*;

/// Reads to the end. A packet takes at least 12 bytes of its file, so there cannot be more.
fn survive(bytes: &[u8]) {
    let Ok(mut reader) = open(bytes) else {
        return;
    };
    let mut count = 0;
    while let Some(packet) = reader.next_packet() {
        count += 1;
        assert_eq!(packet.number, count);
        assert!(packet.original_len as usize >= packet.captured.len());
        assert!((packet.interface as usize) < reader.info().interfaces.len());
    }
    assert!(reader.info().damage.len() <= CAPTURE_DAMAGE_ENTRIES);
    assert_eq!(reader.info().packets, count);
    assert!(reader.next_packet().is_none());
}

/// What to do to a capture: bytes overwritten, then a piece taken out.
type Change = (Vec<(usize, u8)>, usize, usize);

fn change() -> impl Strategy<Value = Change> {
    (vec((any::<usize>(), any::<u8>()), 0..12), any::<usize>(), 0usize..40)
}

fn changed(mut bytes: Vec<u8>, (places, begin, length): Change) -> Vec<u8> {
    for (place, value) in places {
        let place = place % bytes.len();
        bytes[place] = value;
    }
    let begin = begin % bytes.len();
    let end = bytes.len().min(begin + length);
    bytes.drain(begin..end);
    bytes
}

fn rich_pcapng(order: Order) -> Vec<u8> {
    let options = Writer::new(order).option(2, b"lo").option(9, &[9]).option(1, b"hi");
    let options = options.option(14, &[0; 8]).option(0, &[]).bytes;
    let statistics = Writer::new(order).u32(0).u32(0).u32(0).option(5, &[1; 8]);
    let secrets = Writer::new(order).u32(1).u32(4).raw(b"keys");
    let simple = Writer::new(order).u32(3).raw(b"abc\0");
    [
        section(order),
        interface(order, 1, &options),
        enhanced(order, 0, 5, b"first"),
        block(order, 10, &secrets.bytes),
        block(order, 3, &simple.bytes),
        enhanced(order, 0, 6, b"second"),
        block(order, 5, &statistics.bytes),
        block(order, 4, &[0; 4]),
        enhanced(order, 0, 7, b"third"),
    ]
    .concat()
}

/// The packets that `pcap-parser` reads: captured and original length, bytes.
fn oracle(bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut reader = pcap_parser::create_reader(1 << 20, bytes).expect("a capture");
    let mut packets = Vec::new();
    loop {
        let offset = match reader.next() {
            Ok((offset, PcapBlockOwned::Legacy(p))) => {
                packets.push((p.caplen, p.origlen, p.data.to_vec()));
                offset
            }
            Ok((offset, PcapBlockOwned::NG(Block::EnhancedPacket(p)))) => {
                let data = p.data[..p.caplen as usize].to_vec();
                packets.push((p.caplen, p.origlen, data));
                offset
            }
            Ok((offset, _)) => offset,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().expect("memory");
                continue;
            }
            Err(PcapError::Eof) => return packets,
            Err(error) => panic!("{error:?}"),
        };
        reader.consume(offset);
    }
}

fn triples(packets: &[Seen]) -> Vec<(u32, u32, Vec<u8>)> {
    let triple = |p: &Seen| (p.captured.len() as u32, p.original_len, p.captured.clone());
    packets.iter().map(triple).collect()
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Little), Just(Order::Big)]
}

proptest! {
    #[test]
    fn random_bytes(bytes in vec(any::<u8>(), 0..600)) {
        survive(&bytes);
    }

    #[test]
    fn random_records(bytes in vec(any::<u8>(), 0..2000)) {
        survive(&[plain_pcap(1), bytes].concat());
    }

    #[test]
    fn random_blocks(order in order(), blocks in vec((0u32..12, vec(any::<[u8; 4]>(), 0..20)), 0..20)) {
        let blocks = blocks.iter().map(|(kind, body)| block(order, *kind, body.as_flattened()));
        let blocks: Vec<_> = blocks.collect();
        survive(&[section(order), interface(order, 1, &[]), blocks.concat()].concat());
    }

    #[test]
    fn changed_pcap(count in 1u32..30, change in change()) {
        survive(&changed(plain_pcap(count), change));
    }

    #[test]
    fn changed_pcapng(order in order(), change in change()) {
        survive(&changed(rich_pcapng(order).repeat(3), change));
    }

    #[test]
    fn random_compressed(bytes in vec(any::<u8>(), 0..2000)) {
        let magics: [&[u8]; 3] = [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"];
        for magic in magics {
            survive(&[magic, bytes.as_slice()].concat());
        }
    }

    #[test]
    fn same_packets_as_pcap_parser(order in order(), packets in vec(vec(any::<u8>(), 1..300), 0..40)) {
        let header = pcap_header(order, MICROSECONDS, 65_535, ETHERNET);
        let pcap = packets.iter().fold(header, |writer, packet| {
            let length = packet.len() as u32;
            record(writer, [1_700_000_000, 1, length, length + 7], packet)
        });
        prop_assert_eq!(triples(&read_clean(&pcap.bytes)), oracle(&pcap.bytes));
        let blocks: Vec<_> = packets.iter().map(|packet| enhanced(order, 0, 9, packet)).collect();
        let pcapng = [section(order), interface(order, 1, &[]), blocks.concat()].concat();
        prop_assert_eq!(triples(&read_clean(&pcapng)), oracle(&pcapng));
    }
}
