//! TCP and IP: holes, fragments, lengths that lie.

use grpcdiag_core::limits;

use crate::flood::*;
use crate::memory::*;

#[test]
fn segments_behind_holes_that_are_never_filled() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    let piece = vec![0x55; 50_000];
    // more than all connections together may keep
    for host in 0..16 {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        for n in 1..200_u32 {
            flood.segment(CLIENT, ACK, 1_001 + n * 60_000, &piece);
        }
    }
    let outcome = flood.finish();
    measured.assert_below(limits::OUT_OF_ORDER_TOTAL + 4 * MB);
    assert!(outcome.finished.connections.missing_bytes.iter().all(|&bytes| bytes > 0));
    assert!(outcome.told("bytes are missing from the capture") > 0);
}

#[test]
fn fragments_of_datagrams_that_are_never_whole() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    for n in 0..300_000_u32 {
        let mut packet = vec![0x45, 0, 0x04, 0x14];
        packet.extend((n as u16).to_be_bytes());
        packet.extend([0x20, 0, 64, 6, 0, 0, 10, (n >> 16) as u8, 0, 1, 10, 0, 0, 2]);
        packet.resize(0x414, 0);
        flood.packet(&packet);
    }
    let outcome = flood.finish();
    measured.assert_below(limits::MAX_FRAGMENT_BYTES + SMALL);
    assert_eq!(outcome.counts.fragments, 300_000);
}

/// Lengths in IP and TCP headers that no packet has.
#[test]
fn absurd_lengths_in_packets() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    for total in [0_u16, 19, 20, 39, 41, 0xffff] {
        for header in [0x40_u8, 0x41, 0x44, 0x46, 0x4f] {
            for data_offset in [0_u8, 0x10, 0x40, 0xf0] {
                let mut packet = vec![header, 0];
                packet.extend(total.to_be_bytes());
                packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
                packet.extend([0x9c, 0x40, 0xc3, 0x83, 0, 0, 0, 1, 0, 0, 0, 1, data_offset, ACK, 1, 1, 0, 0, 0, 0]);
                flood.packet(&packet);
            }
        }
    }
    let outcome = flood.finish();
    measured.assert_below(SMALL);
    assert_eq!(outcome.counts.packets, 120);
    assert!(outcome.counts.malformed > 60, "{}", outcome.counts.malformed);
}
