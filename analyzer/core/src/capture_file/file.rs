//! One source: its compression, its format, its records.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::compression::Compression;
use super::error::{OpenError, OpenErrorKind};
use super::format::{Recognised, recognise};
use super::info::{CaptureInfo, FileInfo, Format};
use super::input::{ByteStream, Input, Opened, counted};
use super::pcap::PcapFile;
use super::pcapng::PcapngFile;
use super::record::Record;

/// Bytes that tell a compression.
const COMPRESSION_MAGIC: usize = 4;

/// A source whose header has been read.
pub(super) struct CaptureFile {
    input: Input,
    records: Records,
    peeked: Option<Record>,
}

enum Records {
    Pcap(PcapFile),
    Pcapng(PcapngFile),
}

impl CaptureFile {
    /// Recognises the source's compression and format, and adds it to `info`.
    /// What is read from it is added to `count`.
    pub fn open(opened: Opened, count: &Arc<AtomicU64>, info: &mut CaptureInfo) -> Result<CaptureFile, OpenError> {
        let Opened { name, stream, .. } = opened;
        let result = read_header(counted(stream, count), &name, info);
        result.map_err(|kind| OpenError { file: name, kind })
    }

    /// The next packet's record; None at the end of what can be read.
    #[inline]
    pub fn next_record(&mut self, info: &mut CaptureInfo) -> Option<Record> {
        if self.peeked.is_some() {
            return self.peeked.take();
        }
        match &mut self.records {
            Records::Pcap(pcap) => pcap.next_record(&mut self.input, info),
            Records::Pcapng(pcapng) => pcapng.next_record(&mut self.input, info),
        }
    }

    /// Whether it is a pcap file.
    pub fn is_pcap(&self) -> bool {
        matches!(self.records, Records::Pcap(_))
    }

    /// The pcapng file with its bytes, if it is one.
    pub fn pcapng(&mut self) -> Option<(&mut PcapngFile, &mut Input)> {
        match &mut self.records {
            Records::Pcap(_) => None,
            Records::Pcapng(pcapng) => Some((pcapng, &mut self.input)),
        }
    }

    /// The first packet's time in nanoseconds since the epoch, if there is a packet and it has one.
    pub fn first_time(&mut self, info: &mut CaptureInfo) -> Option<i64> {
        let record = self.next_record(info);
        let time = record.as_ref().and_then(|record| record.time_ns);
        self.peeked = record;
        time
    }

    /// The bytes of the packet whose record was given last.
    #[inline]
    pub fn packet_bytes(&self, record: &Record) -> &[u8] {
        self.input.slice(record.data.clone())
    }
}

fn read_header(stream: ByteStream, name: &str, info: &mut CaptureInfo) -> Result<CaptureFile, OpenErrorKind> {
    let (mut input, compression) = decompressed(stream)?;
    let file = info.files.len();
    let (records, format, snaplen) = match recognise(&mut input)? {
        Recognised::Pcap(layout) => {
            let (pcap, snaplen) = PcapFile::open(layout, file, &mut input, info)?;
            (Records::Pcap(pcap), Format::Pcap, Some(snaplen))
        }
        Recognised::Pcapng => {
            let pcapng = PcapngFile::open(file, &mut input)?;
            (Records::Pcapng(pcapng), Format::Pcapng, None)
        }
    };
    info.files.push(FileInfo { name: name.to_owned(), format, compression, snaplen });
    Ok(CaptureFile { input, records, peeked: None })
}

/// The stream without its compression, if it has one.
fn decompressed(mut stream: ByteStream) -> Result<(Input, Option<Compression>), OpenErrorKind> {
    let mut first_bytes = Vec::with_capacity(COMPRESSION_MAGIC);
    let mut beginning = stream.by_ref().take(COMPRESSION_MAGIC as u64);
    beginning.read_to_end(&mut first_bytes).map_err(|error| OpenErrorKind::Unreadable(error.to_string()))?;
    let compression = Compression::recognise(&first_bytes);
    let whole: ByteStream = Box::new(io::Cursor::new(first_bytes).chain(stream));
    let input = Input::new(match compression {
        Some(compression) => Box::new(compression.decompress(whole)),
        None => whole,
    });
    Ok((input, compression))
}
