//! How an input's bytes are read, and real captures in small pieces.

use std::path::PathBuf;

use grpcdiag_core::packet::{Dissector, Outcome};

use super::support::{Recorded, packets_of, repository};

/// Seeds are no longer than this, so that libFuzzer does many of them per second.
pub const SEED: usize = 4_096;

/// Takes pieces from an input; what is not there is zero or shorter.
pub struct Pieces<'a>(pub &'a [u8]);

impl<'a> Pieces<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn word(&mut self) -> u16 {
        u16::from(self.byte()) | u16::from(self.byte()) << 8
    }

    pub fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (piece, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        piece
    }
}

/// What happens on a connection: bytes of a side, or a gap in them. As an input it is a byte, a word and the bytes:
/// bit 0 of the byte is the side, bit 1 a gap; the word is a length.
pub enum Step<'a> {
    Bytes(usize, &'a [u8]),
    Gap(usize, u64),
}

const GAP: u8 = 2;

impl<'a> Pieces<'a> {
    pub fn step(&mut self) -> Option<Step<'a>> {
        if self.is_empty() {
            return None;
        }
        let (head, length) = (self.byte(), self.word());
        let side = usize::from(head & 1);
        Some(match head & GAP {
            0 => Step::Bytes(side, self.bytes(usize::from(length))),
            // up to more than any sequence number, with few bytes
            _ => Step::Gap(side, u64::from(length) << (head >> 2)),
        })
    }
}

/// Bytes of `side` as a step of an input.
pub fn step(side: usize, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&[side as u8][..], &length.to_le_bytes(), &bytes[..usize::from(length)]].concat()
}

/// The committed captures' paths, in order of their names.
pub fn captures() -> Vec<PathBuf> {
    let folders = [repository("fixtures/recorded"), repository("fixtures/synthetic/captures")];
    let mut paths: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext.to_string_lossy().starts_with("pcap")))
        .collect();
    paths.sort();
    paths
}

/// Packets from the beginning of `packets` that fit a seed.
pub fn beginning(packets: &[Recorded], skip: usize) -> &[Recorded] {
    let mut room = SEED;
    let rest = &packets[skip.min(packets.len())..];
    let count = rest.iter().take_while(|packet| {
        let left = room.checked_sub(packet.captured.len() + 16);
        room = left.unwrap_or(0);
        left.is_some()
    });
    &rest[..count.count()]
}

/// Slices of all committed captures that fit a seed: the beginning, and from the middle.
pub fn slices() -> Vec<Vec<Recorded>> {
    let mut slices = Vec::new();
    for path in captures() {
        let packets = packets_of(&path);
        for skip in [0, packets.len() / 2] {
            slices.push(beginning(&packets, skip).to_vec());
        }
    }
    slices.retain(|slice| !slice.is_empty());
    slices
}

/// The TCP payloads of packets, each with its side: 0 is that of the higher port.
pub fn payloads(packets: &[Recorded]) -> Vec<(usize, Vec<u8>)> {
    let mut dissector = Dissector::new();
    let mut payloads = Vec::new();
    for packet in packets {
        let outcome = dissector.dissect(packet.link_type, &packet.captured, packet.original_len, packet.time_ns);
        if let Outcome::Tcp(segment) = outcome
            && !segment.payload.is_empty()
        {
            payloads.push((usize::from(segment.source_port < segment.destination_port), segment.payload.to_vec()));
        }
    }
    payloads
}
