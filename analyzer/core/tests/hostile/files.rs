//! Capture files and key logs.

use std::io::{Cursor, Write};

use grpcdiag_core::capture_file::{CaptureReader, Source};
use grpcdiag_core::limits;
use grpcdiag_core::tls::KeyLog;

use crate::memory::*;

/// What reading a file to its end leaves to be said.
fn read(bytes: Vec<u8>) -> (u32, Vec<String>) {
    let source = Source::Reader("bomb".to_owned(), Box::new(Cursor::new(bytes)));
    let mut reader = CaptureReader::open(vec![source]).expect("a capture");
    while reader.next_packet().is_some() {}
    let damage = reader.info().damage.iter().map(|damage| damage.reason.clone());
    (reader.info().packets, damage.collect())
}

/// A pcap file's header: little-endian, microseconds, Ethernet.
const PCAP: [u8; 24] = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

/// `count` empty packets.
fn records(count: usize) -> Vec<u8> {
    let record = [1_u32, 0, 16, 16].map(u32::to_le_bytes).concat();
    [record, vec![0; 16]].concat().repeat(count)
}

/// 4 MB of packets in each of 200 frames of some hundred bytes.
#[test]
fn files_that_expand_without_end() {
    use ruzstd::encoding::{CompressionLevel::Fastest, compress_to_vec};
    let mut measured = Measured::begin();
    let packets = compress_to_vec(&records(1 << 17)[..], Fastest);
    let bomb = [compress_to_vec(&PCAP[..], Fastest), packets.repeat(200)].concat();
    let most = limits::CAPTURE_EXPANSION_FREE + bomb.len() as u64 * limits::CAPTURE_EXPANSION;
    assert!(most < 200 << 22, "{} bytes are no bomb", bomb.len());
    measured.again();
    let (packets, damage) = read(bomb);
    measured.assert_below(16 * MB);
    assert!(u64::from(packets) * 32 <= most && packets > 1_000, "{packets} packets");
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].contains("expands to more than"), "{damage:?}");
}

/// gzip's and lz4's best is below the limit.
#[test]
fn files_that_compress_well_are_read_whole() {
    let mut measured = Measured::begin();
    const COUNT: usize = 3 << 20;
    let plain = [&PCAP[..], &records(COUNT)].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&plain).unwrap();
    drop(plain);
    for file in [gzip.finish().unwrap(), lz4.finish().unwrap()] {
        assert!(file.len() < COUNT * 32 / 100);
        measured.again();
        let (packets, damage) = read(file);
        measured.assert_below(16 * MB);
        assert_eq!((packets as usize, damage), (COUNT, vec![]));
    }
}

#[test]
fn blocks_and_records_of_absurd_lengths() {
    let section = [0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    let section = [&section[..], &[0xff; 8], &[28, 0, 0, 0]].concat();
    let mut measured = Measured::begin();
    for length in [0_u32, 11, 12, 13, 16 << 20, 17 << 20, u32::MAX - 3, u32::MAX] {
        for kind in [0_u32, 1, 2, 3, 5, 6, 10, 0x0a0d_0d0a] {
            measured.again();
            let block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
            let _ = read([&section[..], &block, &vec![1; 100_000]].concat());
            let record = [[0; 4], [0; 4], length.to_le_bytes(), length.to_le_bytes()].concat();
            let _ = read([&PCAP[..], &record, &vec![1; 100_000]].concat());
            measured.assert_below(4 * MB);
        }
    }
}

/// A key log of more connections than are kept, and a line without an end.
#[test]
fn huge_key_logs() {
    let mut measured = Measured::begin();
    let count = limits::TLS_KEY_LOG_CONNECTIONS + 50_000;
    let mut text = Vec::new();
    for n in 0..count {
        text.extend(format!("CLIENT_RANDOM {n:064x} {:096x}\n", 1).bytes());
    }
    measured.again();
    let mut log = KeyLog::parse(&text);
    measured.assert_below(limits::TLS_KEY_LOG_CONNECTIONS * 900);
    assert_eq!((log.lines, log.over_limit), (count as u64, 50_000));
    let endless = vec![b'A'; 20 * MB];
    measured.again();
    log.extend(&endless);
    measured.assert_below(KB);
    assert_eq!(log.damaged, 1);
}
