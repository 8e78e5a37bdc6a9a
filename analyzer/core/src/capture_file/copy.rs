//! Writes a capture again as pcapng, with comments on packets: the blocks of a pcapng file as they are, a pcap file as a section
//! with one interface. What is damaged is left out.

use std::collections::HashMap;

use crate::limits;

use super::CaptureReader;
use super::file::CaptureFile;
use super::info::{CaptureInfo, Interface};
use super::pcapng::{BlockWriter, Copied};
use super::record::{Order, Record};

/// How many packets were written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copies {
    /// Packets written, with new comments or without.
    pub packets: u32,
    /// Those with new comments.
    pub commented: u32,
    /// Those that should have comments, but whose blocks have no room for any (Simple Packet Blocks).
    pub without_room: u32,
}

/// Writes one capture again, piece by piece.
pub struct Copy {
    reader: CaptureReader,
    comments: HashMap<u32, Vec<String>>,
    copies: Copies,
    /// Index of the pcap file whose section is begun.
    begun: Option<usize>,
}

impl Copy {
    /// `reader` is at its beginning, and reads regular files alone; `comments` are those of packets by number.
    pub fn new(reader: CaptureReader, comments: HashMap<u32, Vec<String>>) -> Copy {
        Copy { reader, comments, copies: Copies::default(), begun: None }
    }

    /// Bytes read of the files as they are on disk.
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }

    /// What was written so far.
    pub fn copies(&self) -> Copies {
        self.copies
    }

    /// Writes up to `packets` packets, fewer if they are large; None after the last.
    pub fn step(&mut self, packets: u32) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let last = self.copies.packets.saturating_add(packets);
        while self.copies.packets < last && out.len() < limits::SCRUB_OUTPUT {
            if !self.copy(&mut out) {
                return if out.is_empty() { None } else { Some(out) };
            }
        }
        Some(out)
    }

    /// Writes the next block of the current file, or turns to the next file; false at the end.
    fn copy(&mut self, out: &mut Vec<u8>) -> bool {
        let number = self.copies.packets.saturating_add(1);
        let comments = self.comments.get(&number).map(Vec::as_slice).unwrap_or_default();
        let info = &mut self.reader.info;
        let index = info.files.len();
        let Some(file) = self.reader.current.as_mut() else { return false };
        if file.is_pcap() && self.begun != Some(index) {
            self.begun = Some(index);
            begin_section(info.interfaces.last(), out);
        }
        match file.copy_block(info, comments, out) {
            Some(Copied::Packet { commented }) => {
                info.packets = number;
                self.copies.packets = number;
                self.copies.commented += u32::from(commented);
                self.copies.without_room += u32::from(!commented && !comments.is_empty());
                true
            }
            Some(Copied::Other) => true,
            None => self.reader.open_next(),
        }
    }
}

impl CaptureFile {
    /// Writes the next packet of a pcap file, the next block of a pcapng file; None at the end.
    fn copy_block(&mut self, info: &mut CaptureInfo, comments: &[String], out: &mut Vec<u8>) -> Option<Copied> {
        if let Some((pcapng, input)) = self.pcapng() {
            return pcapng.copy_block(input, info, comments, out);
        }
        let record = self.next_record(info)?;
        write_packet(&record, info.interfaces.last(), self.packet_bytes(&record), comments, out);
        Some(Copied::Packet { commented: !comments.is_empty() })
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

/// Writes a pcap file's header as a section with one interface.
fn begin_section(interface: Option<&Interface>, out: &mut Vec<u8>) {
    const SECTION: u32 = 0x0a0d_0d0a;
    const IF_TSRESOL: u16 = 9;
    let mut section = BlockWriter::begin(Order::Little, SECTION, out);
    section.words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
    section.end();
    let Some(interface) = interface else { return };
    let digits: u32 = if interface.ticks_per_second == Some(NANOSECONDS) { 9 } else { 6 };
    let mut description = BlockWriter::begin(Order::Little, 1, out);
    description.words(&[interface.link_type, interface.snaplen]);
    description.bytes(&Order::Little.halves([IF_TSRESOL, 1]));
    description.words(&[digits, 0]);
    description.end();
}

fn write_packet(record: &Record, interface: Option<&Interface>, bytes: &[u8], comments: &[String], out: &mut Vec<u8>) {
    const ENHANCED_PACKET: u32 = 6;
    const EPB_FLAGS: u16 = 2;
    let ticks = interface.and_then(|interface| interface.ticks_per_second).unwrap_or(NANOSECONDS);
    let unit_ns = NANOSECONDS / ticks.clamp(1, NANOSECONDS);
    let time = record.time_ns.unwrap_or(0).max(0).cast_unsigned() / unit_ns;
    let mut block = BlockWriter::begin(Order::Little, ENHANCED_PACKET, out);
    block.words(&[0, (time >> 32) as u32, time as u32, bytes.len() as u32, record.original_len]);
    block.bytes(bytes);
    block.pad();
    let fcs = interface.map_or(0, |interface| interface.fcs_bytes);
    block.comments(comments, fcs > 0);
    if fcs > 0 {
        block.bytes(&Order::Little.halves([EPB_FLAGS, 4]));
        block.words(&[fcs << 5, 0]); // bits 5 to 8, then the end of the options
    }
    block.end();
}
