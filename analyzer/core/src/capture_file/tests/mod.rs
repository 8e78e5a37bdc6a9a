//! Captures written byte by byte, and what must be read from them.

mod compression;
mod damage;
mod damage_pcapng;
mod fuzz;
mod pcap;
mod pcapng;
mod sources;

use super::record::Order;
use super::{CaptureInfo, CaptureReader, OpenError, Packet, Source};

const ETHERNET: u32 = 1;

/// A packet, kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    number: u32,
    time_ns: i64,
    link_type: u32,
    interface: u32,
    captured: Vec<u8>,
    original_len: u32,
}

impl From<Packet<'_>> for Seen {
    fn from(packet: Packet<'_>) -> Seen {
        Seen {
            number: packet.number,
            time_ns: packet.time_ns,
            link_type: packet.link_type,
            interface: packet.interface,
            captured: packet.captured.to_vec(),
            original_len: packet.original_len,
        }
    }
}

fn source(bytes: &[u8]) -> Source {
    let stream = std::io::Cursor::new(bytes.to_vec());
    Source::Reader("test".to_owned(), Box::new(stream))
}

fn open(bytes: &[u8]) -> Result<CaptureReader, OpenError> {
    CaptureReader::open(vec![source(bytes)])
}

fn drain(mut reader: CaptureReader) -> (Vec<Seen>, CaptureInfo) {
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        packets.push(Seen::from(packet));
    }
    (packets, reader.info().clone())
}

fn read(bytes: &[u8]) -> (Vec<Seen>, CaptureInfo) {
    drain(open(bytes).expect("a capture"))
}

/// The packets of a capture in which nothing is wrong.
fn read_clean(bytes: &[u8]) -> Vec<Seen> {
    let (packets, info) = read(bytes);
    assert_eq!(info.damage, []);
    packets
}

fn times(packets: &[Seen]) -> Vec<i64> {
    packets.iter().map(|packet| packet.time_ns).collect()
}

fn contents(packets: &[Seen]) -> Vec<&[u8]> {
    packets.iter().map(|p| p.captured.as_slice()).collect()
}

/// Writes numbers in a byte order.
struct Writer {
    order: Order,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(order: Order) -> Writer {
        Writer { order, bytes: Vec::new() }
    }

    fn u16(mut self, value: u16) -> Writer {
        self.bytes.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    fn u32(mut self, value: u32) -> Writer {
        self.bytes.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    fn u64(mut self, value: u64) -> Writer {
        self.bytes.extend(match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Fills up to 32 bits.
    fn pad(mut self) -> Writer {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
        self
    }

    fn option(self, code: u16, value: &[u8]) -> Writer {
        let length = u16::try_from(value.len()).expect("an option's length");
        self.u16(code).u16(length).raw(value).pad()
    }
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

fn pcap_header(order: Order, magic: u32, snaplen: u32, link_type: u32) -> Writer {
    let version = Writer::new(order).u32(magic).u16(2).u16(4);
    version.u32(0).u32(0).u32(snaplen).u32(link_type)
}

/// A record header's four words and the packet.
fn record(writer: Writer, words: [u32; 4], packet: &[u8]) -> Writer {
    let header = words.into_iter().fold(writer, Writer::u32);
    header.raw(packet)
}

/// A pcap of `count` packets, one a second, whose lengths and bytes differ.
fn plain_pcap(count: u32) -> Vec<u8> {
    plain_pcap_from(1_700_000_000, count)
}

fn plain_pcap_from(first_second: u32, count: u32) -> Vec<u8> {
    let header = pcap_header(Order::Little, MICROSECONDS, 262_144, ETHERNET);
    let writer = (0..count).fold(header, |writer, i| {
        let packet = packet_bytes(i);
        let length = packet.len() as u32;
        record(writer, [first_second + i, 7, length, length], &packet)
    });
    writer.bytes
}

/// Bytes that look like no record header.
fn packet_bytes(i: u32) -> Vec<u8> {
    vec![0xf0 | (i as u8 & 15); 20 + (i as usize % 5)]
}

fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let length = 12 + body.len() as u32;
    let front = Writer::new(order).u32(kind).u32(length);
    front.raw(body).u32(length).bytes
}

fn section(order: Order) -> Vec<u8> {
    let body = Writer::new(order).u32(0x1a2b_3c4d).u16(1).u16(0);
    block(order, 0x0a0d_0d0a, &body.u64(u64::MAX).bytes)
}

fn interface(order: Order, link_type: u16, options: &[u8]) -> Vec<u8> {
    let body = Writer::new(order).u16(link_type).u16(0).u32(262_144);
    block(order, 1, &body.raw(options).bytes)
}

fn enhanced(order: Order, interface: u32, ticks: u64, packet: &[u8]) -> Vec<u8> {
    let length = packet.len() as u32;
    let words = [interface, (ticks >> 32) as u32, ticks as u32, length, length];
    let fixed = words.into_iter().fold(Writer::new(order), Writer::u32);
    block(order, 6, &fixed.raw(packet).pad().bytes)
}

/// A pcapng of one section, one interface and `count` packets, one a second.
fn plain_pcapng(count: u32) -> Vec<u8> {
    let order = Order::Little;
    let mut bytes = [section(order), interface(order, 1, &[])].concat();
    for i in 0..count {
        let ticks = 1_700_000_000_000_007 + u64::from(i) * 1_000_000;
        bytes.extend(enhanced(order, 0, ticks, &packet_bytes(i)));
    }
    bytes
}
