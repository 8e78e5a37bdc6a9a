//! A capture that can be shown to others: the same packets at the same times with the same structure, and nothing that
//! anybody sent. See docs/scrub.md for what stays.
//!
//! Two passes over the source. The first runs the decoder and is shown all bytes of all connections in the order in
//! which it reads them; per side it notes what is structure, with replaced strings (`stream`). The second writes every
//! packet anew (`packet`): zeros, known header fields, and the structure that its payload's place in the sender's bytes
//! has. So a retransmitted byte gets what it got the first time, and a byte that nobody read is zero.

mod addresses;
mod block;
mod checksum;
mod control;
mod edits;
mod fields;
mod file;
mod hello;
mod messages;
mod opening;
mod packet;
mod packet_queue;
mod replace;
mod stream;
mod tls;

use std::any::Any;

use crate::at::At;
use crate::capture_file::{CaptureReader, OpenError, Source};
use crate::connection::tap::Tap;
use crate::grpc::call::Call;
use crate::grpc::state::Grpc;
use crate::http2::connection::detect::Opening;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::FrameHeader;
use crate::http2::hpack::Representation;
use crate::limits;
use crate::packet::{Dissector, Outcome, Segment, TcpFlags};
use crate::run::pipeline::Pipeline;
use crate::run::router::{Routed, Router};
use crate::store::context::Options;

use file::{Layout, Writer};
use packet::{Payload, Rewriter};
use packet_queue::Queue;
use replace::Replacer;
use stream::{Carries, Conversation, Shared};

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Hides methods too.
    pub hide_methods: bool,
    /// Ports whose connections are HTTP/2 even when nothing else says so.
    pub ports: Vec<u16>,
}

/// What the first pass finds.
#[derive(Debug)]
struct Learner {
    /// By row; `None` while nothing was delivered.
    conversations: Vec<Option<Box<Conversation>>>,
    shared: Shared,
    /// Whose bytes are being read: row and side.
    now: (usize, usize),
    memory: usize,
    full: bool,
}

impl Learner {
    fn new(shared: Shared) -> Self {
        Self { conversations: Vec::new(), shared, now: (0, 0), memory: 0, full: false }
    }

    /// Bytes of a side of a connection come next.
    fn turn_to(&mut self, connection: u32, side: usize) {
        if let Some(Some(before)) = self.conversations.get_mut(self.now.0) {
            self.memory += before.grown();
            self.full = self.memory > limits::SCRUB_STRUCTURE_BYTES;
        }
        self.now = (connection as usize, side);
        if self.conversations.len() <= self.now.0 {
            self.conversations.resize_with(self.now.0 + 1, || None);
        }
        if let Some(conversation) = self.conversations.get_mut(self.now.0) {
            conversation.get_or_insert_default();
        }
    }

    /// Tells the conversation whose bytes are being read.
    fn tell(&mut self, what: impl FnOnce(&mut Conversation, usize, &mut Shared)) {
        let (row, side) = self.now;
        if let Some(Some(conversation)) = self.conversations.get_mut(row).filter(|_| !self.full) {
            what(conversation, side, &mut self.shared);
        }
    }
}

impl Tap for Learner {
    fn delivered(&mut self, connection: u32, side: usize, offset: i64, bytes: &[u8], tls: bool) {
        self.turn_to(connection, side);
        self.tell(|conversation, side, _| conversation.delivered(side, offset, bytes, tls));
    }

    fn missing(&mut self, connection: u32, side: usize, length: u64) {
        self.turn_to(connection, side);
        self.tell(|conversation, side, _| conversation.missing(side, length));
    }

    fn unread(&mut self, connection: u32, side: usize, kept: &[u8]) {
        self.turn_to(connection, side);
        self.undecided(kept);
    }

    fn over(&mut self, connection: u32) {
        if let Some(Some(conversation)) = self.conversations.get_mut(connection as usize) {
            conversation.over();
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Watch<Grpc> for Learner {
    fn watches(&self) -> bool {
        true
    }

    fn reads(&mut self, behind: usize) {
        self.tell(|conversation, side, _| conversation.reads(side, behind));
    }

    fn opening(&mut self, kept: &[u8], what: Opening) {
        self.tell(|conversation, side, _| conversation.opening(side, kept, what));
    }

    fn http1(&mut self, kept: &[u8], head: usize, upgrade: bool, agreed: bool) {
        self.tell(|conversation, side, shared| conversation.http1(side, kept, head, upgrade, agreed, shared));
    }

    fn undecided(&mut self, kept: &[u8]) {
        self.tell(|conversation, side, _| conversation.undecided(side, kept));
    }

    fn searched(&mut self, left: usize, boundary: Option<usize>) {
        self.tell(|conversation, side, _| conversation.searched(side, left, boundary));
    }

    fn held(&mut self, headers: &[(usize, u32)]) {
        self.tell(|conversation, side, _| conversation.held(side, headers));
    }

    fn foreign(&mut self, left: usize) {
        self.tell(|conversation, side, _| conversation.foreign(side, left));
    }

    fn frame(&mut self, header: FrameHeader, left: usize) {
        self.tell(|conversation, side, _| conversation.frame(side, header, left));
    }

    fn control(&mut self, header: FrameHeader, payload: &[u8]) {
        self.tell(|conversation, side, shared| conversation.control(side, header, payload, shared));
    }

    fn field(&mut self, name: Option<&[u8]>, value: Option<&[u8]>, representation: Representation) {
        self.tell(|conversation, side, _| conversation.field(side, name, value, representation));
    }

    fn block(&mut self, octets: &[u8], whole: bool) {
        self.tell(|conversation, side, shared| conversation.block(side, octets, whole, shared));
    }

    fn pad_length(&mut self, pad: u8, left: usize) {
        self.tell(|conversation, side, _| conversation.pad_length(side, pad, left));
    }

    fn data(&mut self, left: usize) {
        self.tell(|conversation, side, _| conversation.data(side, left));
    }

    fn beginnings(&mut self, octets: &[u8], header: FrameHeader) {
        self.tell(|conversation, side, _| conversation.beginnings(side, octets, header));
    }

    fn stream_data(&mut self, call: &Call, octets: &[u8], begins: bool) {
        self.tell(|conversation, side, _| {
            conversation.messages(side, &call.directions[side].reader, octets, begins);
        });
    }
}

/// Where a sender's bytes are in its sequence numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    started: bool,
    /// Its SYN was seen.
    opened: bool,
    seq: u32,
    offset: i64,
}

impl Place {
    /// The offset of a segment's first payload byte.
    fn of(&mut self, segment: &Segment<'_>) -> i64 {
        let first = segment.seq.wrapping_add(u32::from(segment.flags.contains(TcpFlags::SYN)));
        if !self.started {
            (self.started, self.seq) = (true, first);
        }
        let offset = self.offset + i64::from(first.wrapping_sub(self.seq) as i32);
        let end = offset + i64::from(segment.payload_len);
        if segment.payload_len > 0 && end > self.offset {
            (self.seq, self.offset) = (first.wrapping_add(segment.payload_len), end);
        }
        offset
    }
}

/// The offset of a segment's first payload byte. Bytes of a peer that the capture has not shown count from the first ACK of
/// them on, as [`Connection`](crate::tcp::connection::Connection) counts them.
fn locate(places: &mut [Place; 2], side: usize, segment: &Segment<'_>) -> Option<i64> {
    let place = places.get_mut(side)?;
    let offset = place.of(segment);
    let is_syn = segment.flags.contains(TcpFlags::SYN);
    place.opened |= is_syn;
    let answered = place.opened && segment.flags.contains(TcpFlags::ACK) && !is_syn;
    let peer = places.get_mut(1 - side)?;
    if answered && !peer.started {
        (peer.started, peer.seq) = (true, segment.ack);
    }
    Some(offset)
}

/// A connection, and what was made of it.
#[derive(Clone, Debug)]
pub struct Treated {
    /// Both ends as they are written: the sender of the first packet, and the other.
    pub ends: [String; 2],
    /// `http2`, `tls`, `other` or `nothing`.
    pub carries: &'static str,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Format of what is written.
    pub format: &'static str,
    /// Packets written.
    pub packets: u64,
    /// Packets of other protocols than TCP: only their link and IP headers stay.
    pub not_tcp: u64,
    /// IP fragments whose datagram is not whole, or no TCP: only their IP headers stay.
    pub fragments: u64,
    /// Packets that cannot be read as what they claim to be.
    pub unreadable: u64,
    /// Addresses with their replacements.
    pub addresses: Vec<(String, String)>,
    /// Methods with their replacements.
    pub methods: Vec<(String, String)>,
    /// Implementations with their replacements.
    pub agents: Vec<(String, String)>,
    /// Debug texts of GOAWAY frames that were left out.
    pub reasons: Vec<String>,
    /// The connections by row.
    pub connections: Vec<Treated>,
}

/// The second pass.
struct Writing {
    reader: CaptureReader,
    dissector: Dissector,
    router: Router,
    places: Vec<[Place; 2]>,
    rewriter: Rewriter,
    writer: Writer,
    queue: Queue,
    learner: Box<Learner>,
    report: Report,
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
        let shared = Shared { replacer: Replacer::new(key), hide_methods, reasons: Vec::new() };
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
        learner.conversations.iter_mut().flatten().for_each(|conversation| conversation.finish());
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

impl Writing {
    fn step(&mut self, packets: u32) -> Option<Vec<u8>> {
        for _ in 0..packets {
            if !self.packet() {
                return None;
            }
            if self.writer.out.len() >= limits::SCRUB_OUTPUT {
                break;
            }
        }
        Some(std::mem::take(&mut self.writer.out))
    }

    fn packet(&mut self) -> bool {
        let Self { reader, dissector, router, places, rewriter, writer, queue, learner, report } = self;
        let Some(packet) = reader.next_packet() else { return false };
        report.packets += 1;
        let outcome = dissector.dissect(packet.link_type, packet.captured, packet.original_len, packet.time_ns);
        let payload = match outcome {
            Outcome::Tcp(ref segment) => payload_of(segment, packet.captured, router, places, &learner.conversations),
            Outcome::NotTcp(_) => {
                report.not_tcp += 1;
                None
            }
            Outcome::Fragment => None,
            Outcome::Malformed(_) | Outcome::UnsupportedLink(_) => {
                report.unreadable += 1;
                None
            }
        };
        let key = &learner.shared.replacer.key;
        let (bytes, fragment) = rewriter.rewrite(packet.link_type, packet.captured, packet.original_len, payload, key);
        queue.push(&packet, bytes, fragment, writer);
        // a payload that is not in the packet's own bytes is that of a datagram which this fragment completes
        if let (Some(fragment), Some(payload)) = (fragment, payload.filter(|payload| payload.at.is_none())) {
            queue.complete(&fragment, payload, rewriter, key);
        }
        queue.write_ready(writer);
        true
    }

    fn finish(mut self) -> (Vec<u8>, Report) {
        self.queue.write_all(&mut self.writer);
        self.writer.finish(self.reader.info());
        let Learner { conversations, mut shared, .. } = *self.learner;
        let mut report = Report { fragments: self.queue.emptied, ..self.report };
        // as long as names are kept
        let kept = |octets: &[u8]| octets.get(..limits::INTERNED_BYTES).unwrap_or(octets).to_vec();
        let text = |octets: &[u8]| String::from_utf8_lossy(&kept(octets)).into_owned();
        let methods = shared.replacer.methods().iter();
        report.methods = methods.map(|(before, after)| (text(before), text(after))).collect();
        report.agents = shared.replacer.agents().iter().map(|(a, b)| (a.clone(), b.clone())).collect();
        report.reasons = std::mem::take(&mut shared.reasons);
        let (addresses, key) = (&mut self.rewriter.addresses, &shared.replacer.key);
        for (row, known) in self.router.known().iter().enumerate() {
            let ends = [known.first_sender, known.other].map(|(address, port)| {
                let mapped = match address.ip() {
                    std::net::IpAddr::V4(ip) => std::net::Ipv4Addr::from(addresses.v4(ip.into(), key)).into(),
                    std::net::IpAddr::V6(ip) => std::net::Ipv6Addr::from(addresses.v6(ip.into(), key)).into(),
                };
                std::net::SocketAddr::new(mapped, port).to_string()
            });
            let carries = match conversations.get(row).and_then(|conversation| Some(conversation.as_ref()?.carries)) {
                Some(Carries::Http2) => "http2",
                Some(Carries::Tls) => "tls",
                Some(Carries::Other) => "other",
                Some(Carries::Nothing) | None => "nothing",
            };
            report.connections.push(Treated { ends, carries });
        }
        report.addresses = addresses.texts();
        (self.writer.out, report)
    }
}

/// Where a segment's payload is in its packet and in its sender's bytes.
fn payload_of<'a>(
    segment: &Segment<'_>,
    captured: &[u8],
    router: &mut Router,
    places: &mut Vec<[Place; 2]>,
    conversations: &'a [Option<Box<Conversation>>],
) -> Option<Payload<'a>> {
    let (opening, route) = match router.place(segment, At::default()) {
        Routed::Read(route) => (None, route),
        Routed::Begun(opening, route) => (Some(opening), route),
        Routed::Kept(..) | Routed::Ignored => return None, // without payload
    };
    let row = route.number as usize;
    if places.len() <= row {
        places.resize(row + 1, [Place::default(); 2]);
    }
    let places = places.get_mut(row)?;
    for (early, segment, _) in opening.iter().flat_map(|opening| opening.routed(route.number, route.place)) {
        locate(places, early.side, &segment)?;
    }
    let offset = locate(places, route.side, segment)?;
    // a payload put together from fragments is elsewhere, and no place in this packet
    let at = segment.payload.as_ptr().addr().wrapping_sub(captured.as_ptr().addr());
    let length = segment.payload.len();
    let inside = at <= captured.len() && length <= captured.len() - at;
    let edits = conversations.get(row).and_then(|one| one.as_ref()).map(|one| one.edits(route.side));
    Some(Payload { at: inside.then_some(at), length, edits, offset })
}
