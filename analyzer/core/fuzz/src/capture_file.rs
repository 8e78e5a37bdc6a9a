//! Capture files: pcap, pcapng, and both compressed.

use std::collections::HashMap;
use std::io::{Cursor, Write};

use grpcdiag_core::capture_file::{CaptureReader, Copy, OpenError, Source};
use grpcdiag_core::limits::CAPTURE_DAMAGE_ENTRIES;

use super::input::{self, captures};
use super::support::pcap;

/// An input is a file.
pub fn run(data: &[u8]) {
    let mut reader = match open(data) {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut count = 0;
    while let Some(packet) = reader.next_packet() {
        count += 1;
        assert_eq!(packet.number, count);
        assert!(packet.original_len as usize >= packet.captured.len());
        let interface = packet.interface as usize;
        assert!(interface < reader.info().interfaces.len());
    }
    assert!(reader.info().damage.len() <= CAPTURE_DAMAGE_ENTRIES);
    assert_eq!(reader.info().packets, count);
    assert!(reader.next_packet().is_none());
    let copy = annotated(data, count);
    assert_eq!(packets(&copy), packets(data), "the copy has the same packets");
}

fn open(data: &[u8]) -> Result<CaptureReader, OpenError> {
    CaptureReader::open(vec![Source::Reader("input".to_owned(), Box::new(Cursor::new(data.to_vec())))])
}

/// The file with a comment on each packet.
fn annotated(data: &[u8], packets: u32) -> Vec<u8> {
    let comments: HashMap<_, _> = (1..=packets).map(|number| (number, vec![format!("packet {number}")])).collect();
    let mut copy = Copy::new(open(data).expect("opened before"), comments);
    let mut bytes = Vec::new();
    while let Some(piece) = copy.step(3) {
        bytes.extend(piece);
    }
    assert_eq!(copy.copies().packets, packets);
    assert_eq!(copy.copies().commented + copy.copies().without_room, packets);
    bytes
}

/// Time, original length, link type and bytes of each packet; none of a file that cannot be opened.
fn packets(data: &[u8]) -> Vec<(i64, u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let Ok(mut reader) = open(data) else { return found };
    while let Some(packet) = reader.next_packet() {
        found.push((packet.time_ns, packet.original_len, packet.link_type, packet.captured.to_vec()));
    }
    found
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = input::slices().iter().map(|slice| pcap(&slice[..slice.len().min(8)])).collect();
    for path in captures() {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let small = &bytes[..bytes.len().min(2_000)];
        if path.extension().is_some_and(|extension| extension == "pcapng") || seeds.len().is_multiple_of(4) {
            seeds.extend([small.to_vec(), gzip(small), lz4(small), zstd(small)]);
        } else {
            seeds.push(small.to_vec());
        }
    }
    seeds
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}
