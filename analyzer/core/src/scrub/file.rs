//! The file that is written: pcap where the source is, else pcapng, in little-endian order. It holds packets, their
//! times and lengths, what tells an interface's link type, and counts of lost packets; no names and no comments.

use crate::capture_file::{CaptureInfo, Format, Interface};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// pcap; nanoseconds of a unit of its times.
    Pcap { unit_ns: i64 },
    /// pcapng with nanoseconds.
    Pcapng,
}

impl Layout {
    /// pcap, when all sources are, have one link type, and times that fit.
    pub fn of(info: &CaptureInfo, times: Option<(i64, i64)>) -> Self {
        let pcap = info.files.iter().all(|file| file.format == Format::Pcap);
        let one = info.interfaces.windows(2).all(|pair| matches!(pair, [a, b] if a.link_type == b.link_type));
        let seconds = |ns: i64| u32::try_from(ns.div_euclid(1_000_000_000)).is_ok();
        let fits = times.is_none_or(|(first, last)| seconds(first) && seconds(last));
        if !(pcap && one && fits) {
            return Self::Pcapng;
        }
        let fine = info.interfaces.iter().any(|interface| interface.ticks_per_second != Some(1_000_000));
        Self::Pcap { unit_ns: if fine { 1 } else { 1_000 } }
    }

    /// The format's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcap { .. } => "pcap",
            Self::Pcapng => "pcapng",
        }
    }
}

/// Writes one file piece by piece.
#[derive(Debug)]
pub(super) struct Writer {
    layout: Layout,
    interfaces: usize,
    pub out: Vec<u8>,
}

impl Writer {
    /// Writes the file's header; `info` is what was found in reading the source to its end.
    pub fn new(layout: Layout, info: &CaptureInfo) -> Self {
        let mut writer = Self { layout, interfaces: 0, out: Vec::new() };
        match layout {
            Layout::Pcap { unit_ns } => {
                let magic: u32 = if unit_ns == 1 { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
                let snaplen = info.interfaces.iter().map(|interface| interface.snaplen).max().unwrap_or(0);
                let link_type = info.interfaces.first().map_or(0, |interface| interface.link_type);
                writer.words(&[magic, 2 | 4 << 16, 0, 0, snaplen, link_type]);
            }
            Layout::Pcapng => {
                let length_unknown = u32::MAX;
                writer.block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, length_unknown, length_unknown], &[]);
                for interface in &info.interfaces {
                    writer.interface(interface);
                }
            }
        }
        writer
    }

    fn interface(&mut self, interface: &Interface) {
        const IF_TSRESOL: u32 = 9;
        const NANOSECONDS: u32 = 9;
        let options = [IF_TSRESOL | 1 << 16, NANOSECONDS, 0];
        let words = [interface.link_type & 0xffff, interface.snaplen];
        self.block(1, &[&words[..], &options].concat(), &[]);
        self.interfaces += 1;
    }

    /// Writes a packet.
    pub fn packet(&mut self, time_ns: i64, interface: u32, original: u32, bytes: &[u8]) {
        let captured = bytes.len() as u32;
        match self.layout {
            Layout::Pcap { unit_ns } => {
                let seconds = time_ns.div_euclid(1_000_000_000) as u32;
                let fraction = (time_ns.rem_euclid(1_000_000_000) / unit_ns) as u32;
                self.words(&[seconds, fraction, captured, original]);
                self.out.extend_from_slice(bytes);
            }
            Layout::Pcapng => {
                let time = time_ns.max(0).cast_unsigned();
                let words = [interface, (time >> 32) as u32, time as u32, captured, original];
                self.block(6, &words, bytes);
            }
        }
    }

    /// All packets are written.
    pub fn finish(&mut self, info: &CaptureInfo) {
        if self.layout != Layout::Pcapng {
            return;
        }
        const ISB_IFRECV: u32 = 4;
        const ISB_IFDROP: u32 = 5;
        let option = |code: u32, count: u64| [code | 8 << 16, count as u32, (count >> 32) as u32];
        for (number, interface) in info.interfaces.iter().enumerate() {
            if let Some(dropped) = interface.dropped_packets {
                let received = interface.received_packets.map(|count| option(ISB_IFRECV, count));
                let received = received.as_ref().map_or(&[][..], |option| option);
                let options = [&[number as u32, 0, 0], received, &option(ISB_IFDROP, dropped), &[0]].concat();
                self.block(5, &options, &[]);
            }
        }
    }

    fn block(&mut self, kind: u32, words: &[u32], bytes: &[u8]) {
        let padded = bytes.len().next_multiple_of(4);
        let length = (12 + words.len() * 4 + padded) as u32;
        self.words(&[kind, length]);
        self.words(words);
        self.out.extend_from_slice(bytes);
        self.out.resize(self.out.len() + padded - bytes.len(), 0);
        self.words(&[length]);
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.out.extend_from_slice(&word.to_le_bytes());
        }
    }
}
