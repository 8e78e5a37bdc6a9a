//! Runs both passes over a capture, packet by packet.

use crate::capture_file::{CaptureReader, OpenError, Source};
use crate::packet::Dissector;
use crate::run::pipeline::Pipeline;
use crate::run::router::Router;
use crate::store::options::Options;

use super::file::{Layout, Writer};
use super::learning::Learner;
use super::packet::Rewriter;
use super::packet_queue::Queue;
use super::replace::Replacer;
use super::shared::Shared;
use super::writing::{Report, Writing};

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Hides methods too.
    pub hide_methods: bool,
    /// Ports whose connections are HTTP/2 even when nothing else says so.
    pub ports: Vec<u16>,
}

enum Stage {
    Learning { reader: Box<CaptureReader>, pipeline: Box<Pipeline> },
    Writing(Box<Writing>),
    Over(Box<Report>),
    Broken,
}

/// Gives the sources, the same ones each time.
pub type Sources = Box<dyn Fn() -> Vec<Source> + Send>;

/// Scrubbing one capture, stepped through packet by packet.
pub struct Scrub {
    stage: Stage,
    sources: Sources,
}

/// Why a capture cannot be scrubbed.
#[derive(Debug)]
pub enum Refusal {
    /// It cannot be read a second time.
    Open(OpenError),
    /// It has more structure than is kept.
    TooLong,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::TooLong => f.write_str(
                "the capture is too long to be scrubbed in one piece: cut it by time, with editcap -A and -B",
            ),
        }
    }
}

impl Scrub {
    /// Opens the capture. `key` hides what replacements stand for; without it nobody can tell.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(sources: Sources, key: &[u8], wishes: Wishes) -> Result<Self, OpenError> {
        let reader = Box::new(CaptureReader::open(sources())?);
        let Wishes { hide_methods, ports } = wishes;
        let mut pipeline = Box::new(Pipeline::new(Options { ports, ..Options::default() }));
        let shared = Shared { replacer: Replacer::new(key), hide_methods, reasons: Vec::new(), end_bytes: 0 };
        pipeline.show_to(Box::new(Learner::new(shared)));
        Ok(Self { stage: Stage::Learning { reader, pipeline }, sources })
    }

    /// Reads up to `packets` packets; the bytes of the file that are due, `None` when there are no more.
    ///
    /// # Errors
    /// The source cannot be read again, or is too long.
    pub fn step(&mut self, packets: u32) -> Result<Option<Vec<u8>>, Refusal> {
        match &mut self.stage {
            Stage::Learning { reader, pipeline, .. } => {
                for _ in 0..packets {
                    match reader.next_packet() {
                        Some(packet) => pipeline.packet(&packet),
                        None => return self.begin_writing().map(Some),
                    }
                }
                Ok(Some(Vec::new()))
            }
            Stage::Writing(writing) => match writing.step(packets) {
                Some(bytes) => Ok(Some(bytes)),
                None => Ok(Some(self.end())),
            },
            Stage::Over(_) | Stage::Broken => Ok(None),
        }
    }

    /// Bytes read of the sources as they are on disk, in both passes.
    pub fn bytes_read(&self) -> u64 {
        match &self.stage {
            Stage::Learning { reader, .. } => reader.bytes_read(),
            Stage::Writing(writing) => writing.reader.bytes_total().unwrap_or(0) + writing.reader.bytes_read(),
            Stage::Over(_) | Stage::Broken => 0,
        }
    }

    /// What was done, once the last step gave `None`.
    pub fn report(&self) -> Option<&Report> {
        match &self.stage {
            Stage::Over(report) => Some(report),
            _ => None,
        }
    }

    fn begin_writing(&mut self) -> Result<Vec<u8>, Refusal> {
        let Stage::Learning { mut reader, pipeline } = std::mem::replace(&mut self.stage, Stage::Broken) else {
            return Ok(Vec::new());
        };
        let (finished, _, counts) = pipeline.finish();
        while reader.next_packet().is_some() {}
        let learner = finished.tap.and_then(|tap| tap.into_any().downcast::<Learner>().ok());
        let Some(mut learner) = learner.filter(|learner| !learner.full) else { return Err(Refusal::TooLong) };
        learner.conversations.iter_mut().flatten().for_each(|conversation| conversation.finish(&mut learner.shared));
        let times = counts.first_time_ns.zip(counts.last_time_ns);
        let layout = Layout::of(reader.info(), times);
        let writer = Writer::new(layout, reader.info());
        let reader = CaptureReader::open((self.sources)()).map_err(Refusal::Open)?;
        let (dissector, router, rewriter) = (Dissector::new(), Router::keeping_openings(&[1]), Rewriter::default());
        let report = Report { format: layout.name(), ..Report::default() };
        let places = Vec::new();
        self.stage = Stage::Writing(Box::new(Writing {
            reader,
            dissector,
            router,
            places,
            rewriter,
            writer,
            queue: Queue::default(),
            learner,
            report,
        }));
        Ok(Vec::new())
    }

    fn end(&mut self) -> Vec<u8> {
        let Stage::Writing(writing) = std::mem::replace(&mut self.stage, Stage::Broken) else { return Vec::new() };
        let (bytes, report) = writing.finish();
        self.stage = Stage::Over(Box::new(report));
        bytes
    }
}
