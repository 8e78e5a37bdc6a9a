//! Turns captured packets into tables: one pass, one packet at a time.

use std::sync::Arc;

use crate::at::At;
use crate::capture_file::Packet;
use crate::clock_steps::{Clock, Step, Then};
use crate::connection::CaptureEnd;
use crate::connection::tap::Tap;
use crate::limits;
use crate::packet::{Dissector, Malformed, Outcome, dns};
use crate::store::context::Context;
use crate::store::emitted_rpcs::{Due, Taken};
use crate::store::options::Options;
use crate::store::tables::{Layer, NO_CONNECTION};
use crate::tls::KeyLog;

use super::connection_opening::Opening;
pub use super::finished::Finished;
use super::icmp_errors::Collected;
use super::merge;
use super::order_rows::order_rows;
use super::questions::Questions;
use super::replay::Replay;
use super::router::{Routed, Router};
use super::shards::Shards;
use super::threads::Remote;

/// Counts of what was recorded.
#[derive(Clone, Debug, Default)]
pub struct CaptureCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Bytes recorded.
    pub captured_bytes: u64,
    /// The earliest time, nanoseconds since the epoch.
    pub first_time_ns: Option<i64>,
    /// The latest time, nanoseconds since the epoch.
    pub last_time_ns: Option<i64>,
    /// TCP packets.
    pub tcp: u64,
    /// Packets that are not TCP.
    pub not_tcp: u64,
    /// Packets that cannot be read as what they claim to be.
    pub malformed: u64,
    /// Packets cut by the snaplen.
    pub truncated: u64,
    /// IP fragments that wait for, or make up, a datagram.
    pub fragments: u64,
    /// Packets of link types that are not supported.
    pub unsupported_link: u64,
    /// Packets with an earlier time than the one before.
    pub time_steps_back: u64,
    /// Forward steps of the capture's clock: times behind them are given without them.
    pub clock_steps: Vec<Step>,
    /// Further ones.
    pub clock_steps_not_listed: u64,
    /// Connections that carried no payload beyond those with rows.
    pub connections_not_listed: u64,
    /// DNS questions beyond those with rows.
    pub lookups_not_listed: u64,
    /// ICMP errors of kinds beyond those with rows.
    pub icmp_errors_not_listed: u64,
    /// Packets that came in a tunnel.
    pub tunnelled: u64,
    /// Link types in the order of first sight.
    pub link_types: Vec<u32>,
}

/// The whole analysis of one run.
#[derive(Debug)]
pub struct Pipeline {
    dissector: Dissector,
    pub(super) router: Router,
    pub(super) shards: Shards,
    pub(super) replay: Replay,
    pub(super) questions: Questions,
    pub(super) icmp_errors: Collected,
    /// Counts of what was recorded.
    pub counts: CaptureCounts,
    pub(super) last_time: i64,
    /// Steps of the capture's clock; `None` when times are wanted as recorded.
    pub(super) clock: Option<Clock>,
    /// The latest TCP packet and its time.
    end_packet: u32,
    pub(super) end_time: i64,
    /// Packets before the last cut.
    pub packets_before: u32,
}

/// How often rows are asked for before the first of them must be there: the other thread has work meanwhile.
const MOST_LATE: usize = 4;

/// Cost of a segment in this thread, which also reads, against one in a thread of its own; measured.
const WEIGHTS: [u64; 2] = [2, 1];
/// The same where rows are taken while the run goes on, in one order: the other thread gets all connections.
const WEIGHTS_OF_ROWS: [u64; 2] = [1 << 62, 1];

impl Pipeline {
    /// A run that keeps the tables `options` asks for. With tables of rows, whose order matters, one thread reads all
    /// connections: this one, or another one for RPCs. Else two share them, with the same result.
    pub fn new(options: Options) -> Self {
        Self::with_keys(options, Arc::default())
    }

    /// The same, which decrypts TLS with the secrets in `keys`.
    pub fn with_keys(options: Options, keys: Arc<KeyLog>) -> Self {
        let alone = options.reads_in_order() || options.streams() || options.threads < 2;
        let remote = if alone { None } else { Remote::start(options.clone(), Arc::clone(&keys)).ok() };
        let clock = (!options.file_times).then(Clock::default);
        let weights = if options.rpc_rows { &WEIGHTS_OF_ROWS } else { &WEIGHTS };
        let weights = if remote.is_some() { &weights[..] } else { &weights[..1] };
        let mut router = Router::keeping_openings(weights);
        if keys.connections() > 0 || keys.grows() {
            router.expect_decryption();
        }
        Self {
            dissector: Dissector::new(),
            router,
            replay: Replay::new(options.ports.clone()),
            questions: Questions::default(),
            icmp_errors: Collected::default(),
            shards: Shards::new(options, keys, remote),
            counts: CaptureCounts::default(),
            last_time: i64::MIN,
            clock,
            end_packet: 0,
            end_time: 0,
            packets_before: 0,
        }
    }

    /// Takes the rows of RPCs that are complete. What another thread takes meanwhile comes with a later call.
    pub fn take_rpcs(&mut self, due: Due) -> Vec<Taken> {
        match &mut self.shards.remote {
            Some(remote) => {
                remote.take_rpcs(due);
                remote.taken(MOST_LATE)
            }
            None => vec![self.shards.here.cx.take_complete(due)],
        }
    }

    /// The rows of RPCs that another thread was told to take, and that no call has given.
    pub fn taken_rpcs(&mut self) -> Vec<Taken> {
        self.shards.remote.as_mut().map(|remote| remote.taken(0)).unwrap_or_default()
    }

    /// The tables of rows that are filled while this thread reads.
    pub fn rows(&mut self) -> &mut Context {
        &mut self.shards.here.cx
    }

    /// Shows all bytes of all connections that this thread reads to `tap`. [`Finished`] returns it.
    pub fn show_to(&mut self, tap: Box<dyn Tap>) {
        self.shards.here.shared.tap = Some(tap);
    }

    /// Connections that get rows.
    pub fn connections(&self) -> u64 {
        self.router.known().len() as u64
    }

    /// Bytes of memory that what was read will need beyond what it has: for connections that wait to be read by either
    /// thread, for rows at the end, and for the next packets.
    pub fn memory_to_come(&self) -> u64 {
        let begun = self.router.begun.saturating_sub(self.shards.begun());
        let waiting = begun.min(2 * limits::OPEN_CONNECTIONS as u64) * limits::MEMORY_PER_OPEN_CONNECTION;
        limits::MEMORY_MARGIN + waiting + self.connections() * limits::MEMORY_PER_CONNECTION
    }

    /// Takes the next packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let Some(clock) = &mut self.clock else {
            return self.read(packet, packet.time_ns.clamp(0, limits::LATEST_TIME));
        };
        match clock.keeps(packet) {
            Then::Read => {
                let time = clock.corrected(packet.time_ns);
                self.read(packet, time);
            }
            Then::Nothing => {}
            Then::ReadKept => self.read_kept(),
            Then::ReadKeptFirst => {
                self.read_kept();
                self.packet(packet);
            }
        }
    }

    /// Reads the packets that were kept after a pause.
    #[cold]
    pub(super) fn read_kept(&mut self) {
        let Some(clock) = &mut self.clock else { return };
        let kept = clock.take();
        for packet in &kept {
            let time = self.clock.as_ref().map_or(0, |clock| clock.corrected(packet.packet().time_ns));
            self.read(&packet.packet(), time);
        }
    }

    /// Reads a packet of `time`, which is passed by itself: a packet with another time would be a copy of words written just
    /// before, which the processor waits for.
    #[inline]
    fn read(&mut self, packet: &Packet<'_>, time: i64) {
        self.count(packet, time);
        let outcome = self.dissector.dissect(packet.link_type, packet.captured, packet.original_len, time);
        match outcome {
            Outcome::Tcp(ref segment) => {
                self.counts.tcp += 1;
                if let Some(clock) = &mut self.clock {
                    clock.note(segment, time);
                }
                self.counts.tunnelled += u64::from(segment.tunnel.is_some());
                let at = At::new(packet.number, time);
                if at.time >= self.end_time {
                    (self.end_packet, self.end_time) = (at.packet, at.time);
                }
                if segment.source_port == dns::PORT || segment.destination_port == dns::PORT {
                    self.questions.take_segment(segment, at.packet, at.time);
                }
                match self.router.place(segment, at) {
                    Routed::Read(route) => self.shards.deliver(&route, segment, at),
                    Routed::Begun(opening, route) => {
                        self.shards.begin(&opening, &route);
                        self.shards.deliver(&route, segment, at);
                    }
                    Routed::Kept(opening, number) => {
                        show_kept(&mut self.shards.here.cx, &mut self.replay, opening, number);
                        self.shards.note_kept();
                    }
                    Routed::Ignored => note_ignored(&mut self.shards.here.cx, self.router.ignored, at),
                }
            }
            Outcome::Dns(ref datagram) => {
                self.counts.not_tcp += 1;
                self.questions.take(datagram, packet.number, time);
            }
            Outcome::Icmp(ref error) => {
                self.counts.not_tcp += 1;
                if let Some(about) = self.router.find(error.source, error.destination, error.seq) {
                    self.icmp_errors.take(error, about, At::new(packet.number, time));
                }
            }
            Outcome::NotTcp(_) => self.counts.not_tcp += 1,
            Outcome::Fragment => self.counts.fragments += 1,
            Outcome::Malformed(malformed) => {
                self.counts.malformed += 1;
                note_malformed(&mut self.shards.here.cx, malformed, packet.number, time);
            }
            Outcome::UnsupportedLink(_) => self.counts.unsupported_link += 1,
        }
    }

    #[inline]
    fn count(&mut self, packet: &Packet<'_>, time: i64) {
        let counts = &mut self.counts;
        counts.packets += 1;
        counts.bytes += u64::from(packet.original_len);
        counts.captured_bytes += packet.captured.len() as u64;
        counts.truncated += u64::from(packet.captured.len() < packet.original_len as usize);
        counts.time_steps_back += u64::from(time < self.last_time);
        self.last_time = time;
        if counts.first_time_ns.is_none_or(|first| time < first) {
            counts.first_time_ns = Some(time);
        }
        if counts.last_time_ns.is_none_or(|last| time > last) {
            counts.last_time_ns = Some(time);
        }
        if counts.link_types.last() != Some(&packet.link_type) && !counts.link_types.contains(&packet.link_type) {
            counts.link_types.push(packet.link_type);
        }
    }

    /// The capture is over: connections end, and what several threads found becomes one.
    pub fn finish(self) -> (Finished, Context, CaptureCounts) {
        self.finish_damaged(0)
    }

    /// The same of a capture that lacks packets after its packet `damage`.
    pub fn finish_damaged(mut self, damage: u32) -> (Finished, Context, CaptureCounts) {
        self.read_kept();
        self.shards.read_buffered();
        if let Some(clock) = &mut self.clock {
            self.counts.clock_steps = std::mem::take(&mut clock.steps);
            self.counts.clock_steps_not_listed = clock.steps_not_listed;
        }
        let Self { router, shards, mut replay, questions, icmp_errors, mut counts, end_packet, end_time, .. } = self;
        counts.connections_not_listed = router.not_listed;
        counts.lookups_not_listed = questions.not_listed;
        counts.icmp_errors_not_listed = icmp_errors.not_listed;
        let Shards { here: shard, mut remote, .. } = shards;
        let end = CaptureEnd { last: At::new(end_packet, end_time), damage };
        if let Some(remote) = &mut remote {
            remote.end(end);
        }
        let (ours, mut cx, tap) = shard.into_finished(end);
        let (mut theirs, mut agents) = (Vec::new(), Vec::new());
        if let Some(remote) = remote {
            // theirs is the larger part: the smaller one moves
            let (finished, larger) = remote.join();
            let smaller = std::mem::replace(&mut cx, larger);
            (theirs, agents) = (finished, merge::absorb(&mut cx, smaller));
        }
        if cx.options.packets && cx.options.selection.is_some() {
            for (row, known) in (0..).zip(router.known()) {
                let packets = known.opening().and_then(|opening| replay.packets(opening, row)).unwrap_or_default();
                (0..packets.len()).filter_map(|row| packets.get(row)).for_each(|row| cx.push_packet(row));
            }
        }
        order_rows(&mut cx);
        let mut rows = merge::in_order(ours, theirs, agents).peekable();
        let known = (0..).zip(router.known()).filter_map(|(row, known)| {
            let ended = match known.opening() {
                Some(opening) => replay.end(opening, row, 0, end),
                None => rows.next_if(|&(number, _)| number == row).map(|(_, ended)| ended),
            };
            Some((known.ends(), ended?))
        });
        let finished = Finished { tap, ..Finished::new(known, questions, icmp_errors) };
        (finished, cx, counts)
    }
}

/// Writes the row of a packet that is kept, if rows of packets are wanted.
#[inline]
fn show_kept(cx: &mut Context, replay: &mut Replay, opening: &Opening, number: Option<u32>) {
    let Options { packets, unlisted_packets, ref selection, .. } = cx.options;
    if packets
        && selection.is_none()
        && (unlisted_packets || number.is_some())
        && let Some(row) = replay.last_packet(opening, number.unwrap_or(NO_CONNECTION))
    {
        cx.rpc_order.read(row.packet);
        cx.push_packet(row);
    }
}

#[cold]
fn note_ignored(cx: &mut Context, ignored: u64, at: At) {
    if ignored == 1 {
        let text = "too many connections: further ones are not followed";
        cx.problem(Layer::Tcp, text, NO_CONNECTION, at.packet, at.time);
    }
}

#[cold]
fn note_malformed(cx: &mut Context, malformed: Malformed, packet: u32, time: i64) {
    let text = if malformed.is_cut() {
        "packet is cut by the snaplen before its TCP payload"
    } else {
        "packet headers are malformed"
    };
    cx.problem(Layer::Packet, text, NO_CONNECTION, packet, time);
}
