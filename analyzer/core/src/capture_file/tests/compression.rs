use std::io::Write;

use crate::capture_file::{Compression, OpenErrorKind};

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new().content_checksum(true);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

type Compress = fn(&[u8]) -> Vec<u8>;

const ALL: [(Compression, Compress); 3] =
    [(Compression::Gzip, gzip), (Compression::Zstd, zstd), (Compression::Lz4, lz4)];

/// A frame that carries nothing, the same for Zstandard and LZ4.
fn skippable() -> Vec<u8> {
    let head = Writer::new(Order::Little).u32(0x184d_2a53).u32(5);
    head.raw(b"hello").bytes
}

#[test]
fn recognised_by_content() {
    for bytes in [plain_pcap(5000), plain_pcapng(5000)] {
        let plain = read_clean(&bytes);
        for (compression, compress) in ALL {
            let (packets, info) = read(&compress(&bytes));
            assert_eq!(info.damage, [], "{compression:?}");
            assert_eq!(packets, plain, "{compression:?}");
            assert_eq!(info.files[0].compression, Some(compression));
        }
        assert_eq!(read(&bytes).1.files[0].compression, None);
    }
}

#[test]
fn members_and_frames_follow_one_another() {
    let bytes = plain_pcap(1000);
    let plain = read_clean(&bytes);
    for (compression, compress) in ALL {
        let parts: Vec<_> = bytes.chunks(7001).map(compress).collect();
        assert_eq!(read_clean(&parts.concat()), plain, "{compression:?}");
    }
}

#[test]
fn skippable_frames_are_skipped() {
    let bytes = plain_pcap(1000);
    let plain = read_clean(&bytes);
    let parts = |compress: Compress| bytes.chunks(9001).map(compress).collect::<Vec<_>>();
    let between = parts(lz4).join(skippable().as_slice());
    assert_eq!(read_clean(&[between, skippable()].concat()), plain);
    let between = parts(zstd).join(skippable().as_slice());
    assert_eq!(read_clean(&[skippable(), between, skippable()].concat()), plain);
}

#[test]
fn cut_anywhere() {
    let bytes = plain_pcap(40);
    let plain = read_clean(&bytes);
    for (compression, compress) in ALL {
        let whole = [compress(&bytes[..600]), compress(&bytes[600..])].concat();
        let first = compress(&bytes[..600]).len();
        for length in (0..whole.len()).filter(|&length| length != first) {
            let Ok(reader) = open(&whole[..length]) else {
                continue;
            };
            let (packets, info) = drain(reader);
            assert!(plain.starts_with(&packets), "{compression:?} {length}");
            assert_eq!(info.damage.len(), 1, "{compression:?} {length}");
            let reason = &info.damage[0].reason;
            assert!(reason.contains("data is cut short"), "{reason}");
        }
    }
}

#[test]
fn corrupt_anywhere() {
    let bytes = plain_pcap(60);
    let plain = read_clean(&bytes);
    for (compression, compress) in ALL {
        let whole = compress(&bytes);
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let Ok(reader) = open(&damaged) else {
                    continue;
                };
                let (packets, info) = drain(reader);
                // Header fields that say nothing about the content may change unnoticed; the content may not.
                let noticed = !info.damage.is_empty();
                assert!(noticed || packets == plain, "{compression:?} {at} {flip}");
            }
        }
    }
}

#[test]
fn what_follows_the_last_member_is_noted() {
    for (compression, compress) in ALL {
        let (packets, info) = read(&[compress(&plain_pcap(9)), b"sixteen bytes...".to_vec()].concat());
        assert_eq!(packets.len(), 9, "{compression:?}");
        assert_eq!(info.damage.len(), 1, "{compression:?}");
        assert!(info.damage[0].reason.contains("corrupt"), "{:?}", info.damage);
    }
}

#[test]
fn too_large_window_is_refused() {
    // Window descriptor 0x90: 2^28 bytes (RFC 8878 section 3.1.1.1.2).
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x90, 0x01, 0x00, 0x00];
    let error = open(&frame).err().expect("refused");
    let OpenErrorKind::Unreadable(why) = error.kind else {
        panic!("{error}");
    };
    assert!(why.contains("zstd data is corrupt"), "{why}");
}

#[test]
fn decompressed_content_is_judged() {
    for (_, compress) in ALL {
        let error = open(&compress(b"just some text, long enough")).err().expect("refused");
        assert!(matches!(error.kind, OpenErrorKind::NotACapture { .. }), "{error}");
        let error = open(&compress(b"")).err().expect("refused");
        assert_eq!(error.kind, OpenErrorKind::Empty);
    }
}
