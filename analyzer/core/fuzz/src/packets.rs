//! Packets of any link type, one dissector for all: what fragments leave behind meets the next packet.

use grpcdiag_core::limits::{MAX_FRAGMENT_BYTES, MAX_FRAGMENTED_DATAGRAMS};
use grpcdiag_core::packet::{Dissector, Outcome};

use super::input::{self, Pieces};

const LINK_TYPES: [u32; 12] = [0, 1, 9, 12, 14, 101, 108, 113, 228, 229, 276, 147];
/// A step of the clock: 256 of them pass the age at which fragments are given up.
const TICK: i64 = 200_000_000;

/// An input is packets: link type and a step of the clock in a byte each, length in a word, bytes.
pub fn run(data: &[u8]) {
    let mut pieces = Pieces(data);
    let mut dissector = Dissector::new();
    let mut time = 0;
    while !pieces.is_empty() {
        let (link, step, length) = (pieces.byte(), pieces.byte(), pieces.word());
        let link_type = LINK_TYPES[usize::from(link) % LINK_TYPES.len()];
        time += i64::from(step) * TICK;
        // a length beyond the input makes a packet that the capture cut
        dissect(&mut dissector, link_type, pieces.bytes(usize::from(length)), u32::from(length), time);
        let stats = dissector.fragment_stats();
        assert!(stats.waiting <= MAX_FRAGMENTED_DATAGRAMS as u64 && stats.held_bytes <= MAX_FRAGMENT_BYTES as u64);
    }
}

fn dissect(dissector: &mut Dissector, link_type: u32, bytes: &[u8], original_len: u32, time: i64) {
    if let Outcome::Tcp(segment) = dissector.dissect(link_type, bytes, original_len, time) {
        assert!(segment.payload.len() as u32 <= segment.payload_len);
        assert!(segment.payload_len <= original_len.max(65_535));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for slice in input::slices() {
        let mut seed = Vec::new();
        for packet in &slice {
            let link = LINK_TYPES.iter().position(|&link| link == packet.link_type);
            let (Some(link), Ok(length)) = (link, u16::try_from(packet.captured.len())) else { continue };
            if seed.len() + packet.captured.len() > 600 && !seed.is_empty() {
                seeds.push(std::mem::take(&mut seed));
            }
            seed.extend([link as u8, 1]);
            seed.extend(length.to_le_bytes());
            seed.extend(&packet.captured);
        }
        seeds.push(seed);
    }
    seeds.retain(|seed| !seed.is_empty() && seed.len() < 2_000);
    seeds.dedup();
    let every = seeds.len() / 400 + 1;
    seeds.into_iter().step_by(every).collect()
}
