//! Reads the packets of a capture in the order of their times.
//!
//! A capture that is in order costs nothing more: it is read as it is, and read again from its beginning, sorted, when a packet
//! comes whose time is before that of the packet in front of it. What cannot be read again, or whose rows are taken meanwhile, is
//! sorted from the beginning.

use std::path::PathBuf;

use crate::capture_file::{CaptureInfo, CaptureReader, OpenError, Source};
use crate::packet_order::{Numbers, Sorter};

use super::pipeline::Pipeline;

/// The packets of a capture.
pub struct InOrder {
    reader: CaptureReader,
    order: Order,
}

enum Order {
    /// They are in order so far; the files are read again if they are not.
    Supposed { files: Vec<PathBuf>, last_time_ns: i64 },
    /// They are sorted.
    Sorted(Box<Sorter>),
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// More packets may come.
    More,
    /// There are no more.
    End,
    /// They are not in order: they come again from the first one on, for another pipeline.
    Again,
}

impl InOrder {
    /// Opens a capture; `may_begin_again` is false if what was read is used before all is read. Packets are numbered behind
    /// `before` others.
    ///
    /// # Errors
    /// See [`CaptureReader::open`].
    pub fn open(sources: Vec<Source>, may_begin_again: bool, before: u32) -> Result<Self, OpenError> {
        let file = |source: &Source| match source {
            Source::Path(path) if path.is_file() => Some(path.clone()),
            _ => None,
        };
        let files: Option<Vec<PathBuf>> = sources.iter().map(file).collect();
        let order = match files.filter(|_| may_begin_again && before == 0) {
            Some(files) => Order::Supposed { files, last_time_ns: i64::MIN },
            None => Order::Sorted(Box::new(Sorter::behind(before))),
        };
        Ok(Self { reader: CaptureReader::open(sources)?, order })
    }

    /// Hands up to so many packets to `pipeline`.
    ///
    /// # Errors
    /// The files cannot be read again.
    pub fn read(&mut self, packets: u32, pipeline: &mut Pipeline) -> Result<Read, OpenError> {
        match &mut self.order {
            Order::Supposed { last_time_ns, .. } => {
                let read = read_unsorted(&mut self.reader, last_time_ns, packets, pipeline);
                if read == Read::Again {
                    self.begin_again()?;
                }
                Ok(read)
            }
            Order::Sorted(sorter) => Ok(read_sorted(&mut self.reader, sorter, packets, pipeline)),
        }
    }

    #[cold]
    fn begin_again(&mut self) -> Result<(), OpenError> {
        if let Order::Supposed { files, .. } = &mut self.order {
            let sources = std::mem::take(files).into_iter().map(Source::Path).collect();
            self.reader = CaptureReader::open(sources)?;
            self.order = Order::Sorted(Box::default());
        }
        Ok(())
    }

    /// The reader of the files.
    pub fn reader(&self) -> &CaptureReader {
        &self.reader
    }

    /// What the capture says about itself.
    pub fn info(&self) -> &CaptureInfo {
        self.reader.info()
    }

    /// What was sorted; `None` while all is in order.
    pub fn sorter(&self) -> Option<&Sorter> {
        match &self.order {
            Order::Supposed { .. } => None,
            Order::Sorted(sorter) => Some(sorter),
        }
    }

    /// Takes the numbers in the file of the packets that were read.
    pub fn take_numbers(&mut self) -> Numbers {
        match &mut self.order {
            Order::Supposed { .. } => Numbers::default(),
            Order::Sorted(sorter) => std::mem::take(&mut sorter.numbers),
        }
    }

    /// The numbers in the file of the packets that were read.
    pub fn numbers(&self) -> Option<&Numbers> {
        self.sorter().map(|sorter| &sorter.numbers)
    }
}

/// Until a packet comes whose time is before that of the one in front of it.
fn read_unsorted(reader: &mut CaptureReader, last_time_ns: &mut i64, packets: u32, pipeline: &mut Pipeline) -> Read {
    for _ in 0..packets {
        let Some(packet) = reader.next_packet() else { return Read::End };
        if packet.time_ns < *last_time_ns {
            return Read::Again;
        }
        *last_time_ns = packet.time_ns;
        pipeline.packet(&packet);
    }
    Read::More
}

fn read_sorted(reader: &mut CaptureReader, sorter: &mut Sorter, packets: u32, pipeline: &mut Pipeline) -> Read {
    for _ in 0..packets {
        while sorter.due().is_none() {
            match reader.next_packet() {
                Some(packet) => sorter.push(&packet),
                None if sorter.is_over() => return Read::End,
                None => sorter.end(),
            }
        }
        if let Some(packet) = sorter.give() {
            pipeline.packet(&packet);
        }
    }
    Read::More
}
