//! Capture files as a stream of packets: pcap and pcapng, plain or compressed, from files or standard input, one or several of a
//! rotated capture, in memory that does not grow with them.
//!
//! ```text
//! Source -> Input (one buffer) <- Decompressor        input.rs, compression.rs
//!             | bytes
//!           PcapFile / PcapngFile -> Record           pcap.rs, pcapng/, resync.rs
//!             | one at a time
//!           CaptureReader -> Packet<'_>               this file
//! ```
//!
//! Damage is data, not an error: everything that can be read is delivered, [`CaptureInfo::damage`] says what could not.
//!
//! # Why no crate reads the formats
//! `pcap-parser` 0.17 is the oracle of the tests, not the reader. It is fast enough (40 million small pcap packets a second where this reads 50), but:
//! - it gives a record's lengths only when all its bytes are there, so they can neither be judged nor reported before, and a false
//!   length cannot be told from one that needs more bytes: an Enhanced Packet Block whose packet is longer than the block is
//!   `Incomplete` for ever;
//! - its readers want the whole file header from one `read`, which a pipe does not promise, and drop the cause of read errors;
//! - no Obsolete Packet Block; binary `if_tsresol` are refused (the high bit is compared, too); `if_tsoffset` and statistics are
//!   read as little-endian in big-endian sections; seconds are 32 bits;
//! - options are a heap allocation for each packet that has any.
//!
//! What would remain are three or four fixed words in each of four block types. Decompression is left to crates.

mod clock;
mod compression;
mod copy;
mod error;
mod file;
mod format;
mod header_errors;
mod info;
mod input;
mod pcap;
mod pcapng;
mod record;
mod skip_damage;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use compression::Compression;
pub use copy::{Copies, Copy};
pub use error::{OpenError, OpenErrorKind};
pub use info::{CaptureInfo, Damage, FileInfo, Format, Interface, Secrets};
pub use input::{ByteStream, Source};
pub use pcap::measure_records;

use file::CaptureFile;
use input::Opened;

/// A packet as recorded. Its bytes stay valid until the next is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// From 1, over all files; stays at the largest number beyond 4,294,967,295 packets.
    pub number: u32,
    /// Nanoseconds since the epoch (1970-01-01 00:00:00 UTC).
    pub time_ns: i64,
    /// The LINKTYPE_ value (<https://www.tcpdump.org/linktypes.html>).
    pub link_type: u32,
    /// Index into [`CaptureInfo::interfaces`].
    pub interface: u32,
    /// The bytes that were recorded.
    pub captured: &'a [u8],
    /// The packet's length in bytes when it was seen; never less than what was recorded.
    pub original_len: u32,
}

/// The packets of one capture.
pub struct CaptureReader {
    current: Option<CaptureFile>,
    waiting: VecDeque<Pending>,
    info: CaptureInfo,
    last_time_ns: i64,
    bytes_read: Arc<AtomicU64>,
    bytes_total: Option<u64>,
}

/// A source whose turn has not come.
enum Pending {
    /// A regular file, closed until then: a rotated capture may have more files than a process may open.
    Closed(PathBuf),
    Open(Box<CaptureFile>),
}

impl CaptureReader {
    /// Opens a capture. Several sources are read in the order of their first packets' times (those without one come last, in the
    /// order given). One source is not read further than its header.
    ///
    /// # Errors
    /// There is no source, or one of them cannot be read or is no capture, or all of them are empty; the error names it.
    /// A file that is empty among others is [left out](CaptureInfo::left_out).
    pub fn open(sources: Vec<Source>) -> Result<CaptureReader, OpenError> {
        let mut reader = CaptureReader {
            current: None,
            waiting: VecDeque::new(),
            info: CaptureInfo::default(),
            last_time_ns: 0,
            bytes_read: Arc::default(),
            bytes_total: Some(0),
        };
        let alone = sources.len() == 1;
        let mut pending = Vec::with_capacity(sources.len());
        for source in sources {
            let is_file = matches!(&source, Source::Path(path) if path.is_file());
            match reader.open_source(source, alone) {
                Ok(one) => pending.push(one),
                Err(error) if error.kind.is_empty() && is_file && !alone => reader.info.left_out.push(error),
                Err(error) => return Err(error),
            }
        }
        pending.sort_by_key(|(first_time, _)| (first_time.is_none(), *first_time));
        reader.waiting = pending.into_iter().map(|(_, pending)| pending).collect();
        if reader.waiting.is_empty() {
            let empty = reader.info.left_out.first().cloned();
            return Err(empty.unwrap_or(OpenError { file: String::new(), kind: OpenErrorKind::NoSource }));
        }
        reader.open_next();
        Ok(reader)
    }

    /// The next packet; None at the end of the last source. What cannot be read is recorded in [`info`](Self::info).
    #[inline]
    pub fn next_packet(&mut self) -> Option<Packet<'_>> {
        let record = loop {
            let current = self.current.as_mut();
            match current.and_then(|file| file.next_record(&mut self.info)) {
                Some(record) => break record,
                None if self.open_next() => {}
                None => return None,
            }
        };
        if record.time_ns.is_none() {
            let count = &mut self.info.packets_without_time;
            *count = count.saturating_add(1);
        }
        self.last_time_ns = record.time_ns.unwrap_or(self.last_time_ns);
        self.info.packets = self.info.packets.saturating_add(1);
        Some(Packet {
            number: self.info.packets,
            time_ns: self.last_time_ns,
            link_type: record.link_type,
            interface: record.interface,
            captured: self.current.as_ref()?.packet_bytes(&record),
            original_len: record.original_len,
        })
    }

    /// Bytes read from the sources so far, compressed as they are.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Length of all sources in bytes, compressed as they are; None if one is not a regular file.
    pub fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }

    /// What is known so far besides the packets.
    pub fn info(&self) -> &CaptureInfo {
        &self.info
    }

    /// Gives the source with its first packet's time, which matters only if it is not alone.
    fn open_source(&mut self, source: Source, alone: bool) -> Result<(Option<i64>, Pending), OpenError> {
        let opened = match source {
            Source::Path(path) => return self.open_path(path, alone),
            Source::Stdin => Opened::stream("standard input".to_owned(), Box::new(std::io::stdin())),
            Source::Reader(name, stream) => Opened::stream(name, stream),
        };
        self.open_kept(opened, alone)
    }

    fn open_path(&mut self, path: PathBuf, alone: bool) -> Result<(Option<i64>, Pending), OpenError> {
        let opened = Opened::path(&path)?;
        let Some(length) = opened.length.filter(|_| !alone) else {
            return self.open_kept(opened, alone);
        };
        self.add_to_total(Some(length));
        // Only the first packet's time is wanted: what is counted and noted on the way comes again when the file is read.
        let mut aside = CaptureInfo::default();
        let mut file = CaptureFile::open(opened, &Arc::default(), &mut aside)?;
        let first_time = file.first_time(&mut aside);
        Ok((first_time, Pending::Closed(path)))
    }

    fn open_kept(&mut self, opened: Opened, alone: bool) -> Result<(Option<i64>, Pending), OpenError> {
        self.add_to_total(opened.length);
        let mut file = CaptureFile::open(opened, &self.bytes_read, &mut self.info)?;
        let first_time = if alone { None } else { file.first_time(&mut self.info) };
        Ok((first_time, Pending::Open(Box::new(file))))
    }

    fn add_to_total(&mut self, length: Option<u64>) {
        let sum = self.bytes_total.zip(length);
        self.bytes_total = sum.and_then(|(total, length)| total.checked_add(length));
    }

    /// Turns to the next source that can be read; false, and none current, if there is none.
    #[cold]
    fn open_next(&mut self) -> bool {
        self.current = None;
        while let Some(pending) = self.waiting.pop_front() {
            match pending {
                Pending::Open(file) => self.current = Some(*file),
                Pending::Closed(path) => self.current = self.reopen(&path),
            }
            if self.current.is_some() {
                return true;
            }
        }
        false
    }

    /// The file could be read when its turn was decided; if it no longer can, that is damage.
    fn reopen(&mut self, path: &Path) -> Option<CaptureFile> {
        let count = &self.bytes_read;
        let opened = Opened::path(path);
        match opened.and_then(|opened| CaptureFile::open(opened, count, &mut self.info)) {
            Ok(file) => Some(file),
            Err(error) => {
                let file = self.info.files.len();
                self.info.add_damage(file, 0, || format!("{error}; the file has changed and is left out"));
                None
            }
        }
    }
}
