//! pcap (draft-ietf-opsawg-pcap): a file header of 24 bytes, then records of a 16-byte header and a packet.

use crate::limits::{
    CAPTURE_INTERFACES, CAPTURE_PACKET_LENGTH, CAPTURE_PACKET_LENGTH_DECLARED, CAPTURE_RESYNC_RECORD_LENGTH,
    CAPTURE_RESYNC_RECORDS, CAPTURE_TIME_JUMP_SECONDS,
};

use super::error::OpenErrorKind;
use super::header_errors::{header_cut, unsupported_version};
use super::info::{CaptureInfo, Interface};
use super::input::Input;
use super::record::{Order, Record};
use super::skip_damage::{end_of_stream, skip_damage};

const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// The bits of the file header's last word that are the LINKTYPE_; above are the FCS length and reserved bits.
const LINK_TYPE_MASK: u32 = 0xffff;
/// The bit that says that the FCS length is given.
const FCS_KNOWN: u32 = 1 << 26;

/// What the magic number says.
#[derive(Debug, Clone, Copy)]
pub(super) struct PcapLayout {
    order: Order,
    /// Units of the time stamp's second word in a second, and nanoseconds in such a unit.
    units: u32,
    unit_ns: i64,
}

impl PcapLayout {
    /// None if the bytes do not begin with one of the four magic numbers.
    pub fn from_magic(bytes: &[u8]) -> Option<PcapLayout> {
        let (order, nanoseconds) = match bytes.first_chunk()? {
            [0xa1, 0xb2, 0xc3, 0xd4] => (Order::Big, false),
            [0xd4, 0xc3, 0xb2, 0xa1] => (Order::Little, false),
            [0xa1, 0xb2, 0x3c, 0x4d] => (Order::Big, true),
            [0x4d, 0x3c, 0xb2, 0xa1] => (Order::Little, true),
            _ => return None,
        };
        let (units, unit_ns) = if nanoseconds { (1_000_000_000, 1) } else { (1_000_000, 1000) };
        Some(PcapLayout { order, units, unit_ns })
    }
}

/// A pcap file behind its header.
pub(super) struct PcapFile {
    file: usize,
    layout: PcapLayout,
    link_type: u32,
    interface: u32,
    /// No packet of this file is longer, in bytes.
    longest: u32,
    last_seconds: Option<u32>,
}

struct RecordHeader {
    seconds: u32,
    fraction: u32,
    captured: u32,
    original: u32,
}

impl RecordHeader {
    fn is_zero(&self) -> bool {
        self.seconds | self.fraction | self.captured | self.original == 0
    }
}

impl PcapFile {
    /// Takes the file header; gives the file and its snaplen in bytes.
    pub fn open(
        layout: PcapLayout,
        file: usize,
        input: &mut Input,
        info: &mut CaptureInfo,
    ) -> Result<(PcapFile, u32), OpenErrorKind> {
        if !input.ensure(FILE_HEADER) {
            return Err(header_cut(input, "pcap"));
        }
        let (words, _) = input.waiting().as_chunks::<4>();
        let &[_, version, _, _, snaplen, link_type, ..] = words else {
            return Err(header_cut(input, "pcap"));
        };
        let [major, minor] = layout.order.u16s(version);
        // Before 2.4 the two lengths of a record may be swapped, and AIX has link types of its own (libpcap, sf-pcap.c).
        if (major, minor) != (2, 4) {
            return Err(unsupported_version("pcap", major, minor));
        }
        let snaplen = layout.order.u32(snaplen);
        let word = layout.order.u32(link_type);
        let link_type = word & LINK_TYPE_MASK;
        let fcs_bytes = if word & FCS_KNOWN == 0 { 0 } else { word >> 29 << 1 }; // said in units of 16 bits
        input.take(FILE_HEADER);
        let interface = Interface {
            file,
            link_type,
            fcs_bytes,
            snaplen,
            name: None,
            ticks_per_second: Some(u64::from(layout.units)),
            dropped_packets: None,
            received_packets: None,
        };
        let opened = PcapFile {
            file,
            layout,
            link_type,
            interface: info.add_interface(interface).ok_or_else(too_many_interfaces)?,
            longest: snaplen.clamp(CAPTURE_PACKET_LENGTH, CAPTURE_PACKET_LENGTH_DECLARED),
            last_seconds: None,
        };
        Ok((opened, snaplen))
    }

    /// The next packet's record; None at the end of what can be read.
    pub fn next_record(&mut self, input: &mut Input, info: &mut CaptureInfo) -> Option<Record> {
        loop {
            let Some(header) = self.header_at(input, 0) else {
                let certain = None::<fn(&mut Input) -> bool>;
                end_of_stream(input, info, self.file, RECORD_HEADER, certain);
                return None;
            };
            if self.is_doubtful(&header) && !self.is_confirmed(input, &header) {
                let why = self.describe(&header);
                let is_record = |input: &mut Input| self.records_follow(input);
                if skip_damage(input, info, self.file, &why, is_record) {
                    continue;
                }
                return None;
            }
            let length = RECORD_HEADER + header.captured as usize;
            if input.ensure(length) {
                return Some(self.take_record(input, &header));
            }
            let is_record = Some(|input: &mut Input| self.records_follow(input));
            if !end_of_stream(input, info, self.file, length, is_record) {
                return None;
            }
        }
    }

    #[inline]
    fn take_record(&mut self, input: &mut Input, header: &RecordHeader) -> Record {
        self.last_seconds = Some(header.seconds);
        input.take(RECORD_HEADER);
        // Two words of 32 bits cannot overflow 64, in either unit.
        let time_ns = i64::from(header.seconds) * 1_000_000_000 + i64::from(header.fraction) * self.layout.unit_ns;
        Record {
            time_ns: Some(time_ns),
            link_type: self.link_type,
            interface: self.interface,
            original_len: header.original.max(header.captured),
            data: input.take(header.captured as usize),
        }
    }

    /// The record header `at` so many bytes ahead; None if the stream ends before its end.
    #[inline]
    fn header_at(&self, input: &mut Input, at: usize) -> Option<RecordHeader> {
        if !input.ensure(at + RECORD_HEADER) {
            return None;
        }
        let bytes: &[u8; RECORD_HEADER] = input.waiting().get(at..)?.first_chunk()?;
        let (words, _) = bytes.as_chunks::<4>();
        let &[seconds, fraction, captured, original] = words else {
            return None;
        };
        let order = self.layout.order;
        Some(RecordHeader {
            seconds: order.u32(seconds),
            fraction: order.u32(fraction),
            captured: order.u32(captured),
            original: order.u32(original),
        })
    }

    /// Whether a header is unusual; few are, and some of those are right.
    #[inline]
    fn is_doubtful(&self, header: &RecordHeader) -> bool {
        header.captured > self.longest
            || header.fraction >= self.layout.units
            || (header.captured > header.original && header.original != 0)
            || (header.captured == 0 && header.original == 0)
            || !is_near(self.last_seconds, header.seconds)
    }

    /// Whether an unusual header may be right: quirks of writers and pauses of days are, if another header follows.
    #[cold]
    fn is_confirmed(&self, input: &mut Input, header: &RecordHeader) -> bool {
        if header.captured > self.longest || header.is_zero() {
            return false;
        }
        match self.header_at(input, RECORD_HEADER + header.captured as usize) {
            Some(next) => next.captured <= self.longest && !next.is_zero(),
            None => true,
        }
    }

    /// Whether [`CAPTURE_RESYNC_RECORDS`] usual headers follow one another here, or fewer that end exactly with the file.
    /// A single one does by chance, unless its time is near that of a record before it.
    fn records_follow(&self, input: &mut Input) -> bool {
        let mut at = 0;
        let mut seconds = self.last_seconds;
        for count in 0..CAPTURE_RESYNC_RECORDS {
            let Some(header) = self.header_at(input, at) else {
                let fewest = if self.last_seconds.is_some() { 1 } else { 2 };
                return count >= fewest && input.waiting().len() == at;
            };
            if !self.is_usual(&header) || !is_near(seconds, header.seconds) {
                return false;
            }
            seconds = Some(header.seconds);
            at += RECORD_HEADER + header.captured as usize;
        }
        true
    }

    fn is_usual(&self, header: &RecordHeader) -> bool {
        header.captured <= self.longest.min(CAPTURE_RESYNC_RECORD_LENGTH)
            && header.original <= CAPTURE_PACKET_LENGTH_DECLARED
            && (header.captured <= header.original || header.original == 0)
            && (header.captured, header.original) != (0, 0)
            && header.fraction < self.layout.units
    }

    fn describe(&self, header: &RecordHeader) -> String {
        format!(
            "impossible record header: captured length {} (at most {}), original length {}, time {} s and {} of {}",
            header.captured, self.longest, header.original, header.seconds, header.fraction, self.layout.units
        )
    }
}

/// How many whole records of at most `longest` bytes begin a piece of a pcap, where the last of them begins, and where it ends.
pub fn measure_records(piece: &[u8], is_big_endian: bool, longest: u32) -> (usize, usize, usize) {
    let order = if is_big_endian { Order::Big } else { Order::Little };
    let (mut count, mut last, mut end) = (0, 0, 0);
    while let Some(rest) = piece.get(end..)
        && let Some(captured) = rest.get(8..).and_then(|bytes| bytes.first_chunk()).map(|word| order.u32(*word))
    {
        let length = RECORD_HEADER + captured as usize;
        if captured > longest || rest.len() < length {
            break;
        }
        (count, last, end) = (count + 1, end, end + length);
    }
    (count, last, end)
}

fn too_many_interfaces() -> OpenErrorKind {
    OpenErrorKind::Unreadable(format!("{CAPTURE_INTERFACES} interfaces came before it"))
}

#[inline]
fn is_near(known: Option<u32>, seconds: u32) -> bool {
    known.is_none_or(|known| known.abs_diff(seconds) <= CAPTURE_TIME_JUMP_SECONDS)
}
