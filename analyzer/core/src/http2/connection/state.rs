//! The state of one connection.

use crate::at::At;
use crate::grpc::headers::Strings;
use crate::grpc::turns;
use crate::grpc::used::UsedMethods;
use crate::http2::frame::header::FrameType;
use crate::http2::frame::settings::{self, Settings};
use crate::http2::observe::policy;
use crate::limits;
use crate::store::budget::Budget;
use crate::store::context::Context;
use crate::store::tables::Layer;

use super::reading::Reading;
use super::side::{self, Side};
use super::streams::Streams;
use super::watch::Watch;
use super::{detect, late, parser};

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Protocol {
    /// Nothing that tells has been seen.
    #[default]
    Undecided = 0,
    /// HTTP/2 in the clear.
    Http2 = 1,
    /// TLS, not decrypted.
    Tls = 2,
    /// Another protocol.
    Other = 3,
}

/// Where captured payload bytes went; the sum is all bytes fed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Read as preface, upgrade or frames.
    pub decoded: u64,
    /// Of another protocol.
    pub not_http2: u64,
    /// TLS records.
    pub encrypted: u64,
    /// HTTP/2 whose frame boundaries are not known, or too short to tell.
    pub undecoded: u64,
}

/// One connection's HTTP/2.
#[derive(Debug)]
pub struct Http2 {
    /// Row of the connection.
    pub connection: u32,
    /// The side that is the client.
    pub client: usize,
    /// The client is known by SYN, preface or header fields, not only by its port.
    pub roles_certain: bool,
    /// What is spoken.
    pub protocol: Protocol,
    /// Both senders.
    pub sides: [Side; 2],
    /// Open streams.
    pub streams: Streams,
    /// The connection's opening is not in the capture.
    pub begun_late: bool,
    /// The user says that this is HTTP/2.
    pub(in crate::http2) forced: bool,
    /// The methods of its RPCs.
    pub methods: UsedMethods,
    /// Until when bytes are missing that may have been of any stream, nanoseconds since the epoch; -1 when none are.
    pub gap_time: i64,
    /// RPCs seen.
    pub rpcs: u32,
    /// RPCs open now.
    pub open_rpcs: u32,
    /// Most RPCs open at once.
    pub max_open_rpcs: u32,
    /// Streams that are not gRPC.
    pub other_streams: u32,
    /// Where bytes went.
    pub bytes: ByteCounts,
    /// The client's implementation and version, from its `user-agent`.
    pub client_agent: Option<u32>,
    /// The budgets of the RPCs that ended, summed.
    pub budget: Budget,
    /// Of them, the time in a congestion window that a loss had reduced, nanoseconds.
    pub after_loss_ns: u64,
    /// Whose turn it is.
    pub turns: turns::Turns,
    /// The client's PINGs under gRPC's policy.
    pub policy: policy::Policy,
    /// An answer was recorded before its request, and is lost: the capture point mixed the directions.
    pub answered_early: bool,
    pub(in crate::http2) highest_client_stream: u32,
    /// The first stream that the client opened in the capture, 0 before: lower ones were opened before it.
    pub(in crate::http2) first_stream: u32,
    /// What was begun before the capture.
    pub(in crate::http2) late: late::Before,
    /// The upgrade request's settings, while its answer is awaited.
    pub(in crate::http2) upgrade: Option<detect::Http1Head>,
}

impl Http2 {
    /// A connection nothing has been read of.
    pub fn new(connection: u32, client: usize, roles_certain: bool, begun_late: bool, strings: &mut Strings) -> Self {
        Self {
            connection,
            client,
            roles_certain,
            protocol: Protocol::Undecided,
            sides: [Side::new(strings, begun_late), Side::new(strings, begun_late)],
            streams: Streams::default(),
            begun_late,
            forced: false,
            methods: UsedMethods::default(),
            gap_time: -1,
            rpcs: 0,
            open_rpcs: 0,
            max_open_rpcs: 0,
            other_streams: 0,
            bytes: ByteCounts::default(),
            client_agent: None,
            budget: Budget::default(),
            after_loss_ns: 0,
            turns: turns::Turns::default(),
            policy: policy::Policy::default(),
            answered_early: false,
            highest_client_stream: 0,
            first_stream: 0,
            late: late::Before::default(),
            upgrade: None,
        }
    }

    /// Reads what the next packets will; see [`Connection::touch`](crate::tcp::connection::Connection::touch).
    #[inline]
    pub fn touch(&self) -> u64 {
        let own = self.bytes.decoded
            ^ u64::from(self.rpcs ^ self.highest_client_stream)
            ^ self.budget.0[0]
            ^ self.budget.0[8];
        let sides = self.sides[0].touch() ^ self.sides[1].touch();
        own ^ sides ^ self.streams.touch(self.highest_client_stream)
    }

    /// 0 for client to server, 1 for server to client.
    #[inline]
    pub fn direction(&self, side: usize) -> u8 {
        u8::from(side != self.client)
    }

    /// Whether `side` has begun a message, frame or header block and not finished it.
    #[inline]
    pub fn owes(&self, side: usize) -> bool {
        self.sides[side].owes()
    }

    /// Bytes `side` still owes as far as is known: the rest of `stream`'s message, or of the frame being read.
    pub fn owed(&mut self, side: usize, stream: u32) -> u64 {
        let in_message = self.streams.find_mut(stream).map_or(0, |s| u64::from(s.directions[side].reader.owed()));
        in_message.max(self.sides[side].owed_in_frame())
    }

    /// The user says that this is HTTP/2: frame boundaries are searched whatever comes first.
    pub fn assume_http2(&mut self) {
        self.forced = true;
    }

    /// Whether every frame since the preface was read: else windows are unknown, not 65,535.
    fn windows_known(&self) -> bool {
        self.protocol == Protocol::Http2 && !self.begun_late && self.sides.iter().all(|side| side.gaps == 0)
    }

    /// The connection's flow-control window for DATA of `side`; `None` while unknown.
    pub fn connection_window(&self, side: usize) -> Option<i64> {
        let window = i64::from(settings::DEFAULT_WINDOW) + self.sides[side].connection_credit;
        if self.windows_known() { Some(window) } else { self.late_window(side) }
    }

    /// The flow-control window of a stream for DATA of `side`; `None` while unknown.
    pub fn stream_window(&mut self, side: usize, id: u32) -> Option<i64> {
        let initial = i64::from(self.sides[1 - side].in_force.initial_window_size);
        if !self.windows_known() {
            return None;
        }
        self.streams.find_mut(id).map(|stream| initial + stream.directions[side].credit)
    }

    /// The connection is over, or the capture: open RPCs end. `closed` tells how (see [`End`]).
    pub fn finish<W: Watch + ?Sized>(&mut self, end: End, at: At, reading: &mut Reading<'_, W>) {
        for side in 0..2 {
            let buffered = self.sides[side].buffered();
            self.bytes.undecoded += buffered;
        }
        for id in self.streams.ids() {
            self.end_open_stream(id, end, at, reading);
        }
        for side in &self.sides {
            for (sum, &count) in reading.cx.totals.frames.iter_mut().zip(&side.habits.frames) {
                *sum += u64::from(count);
            }
        }
    }

    /// Frames are missing, which may have ended any RPC that is open: those that go on are seen again. They do not count
    /// as open any more, for else each hole would leave some open for ever.
    #[cold]
    pub(in crate::http2) fn doubt_open_rpcs(&mut self, until: At) {
        self.gap_time = self.gap_time.max(until.time);
        if self.open_rpcs == 0 {
            return; // also the bound of what holes cost: each stream is doubted once
        }
        for stream in self.streams.open_rpcs() {
            stream.waiting = false;
            stream.counted = false;
        }
        self.open_rpcs = 0;
        self.turns.doubt();
    }

    pub(crate) fn problem(&self, layer: Layer, text: &'static str, at: At, cx: &mut Context) {
        cx.problem(layer, text, self.connection, at.packet, at.time);
    }

    /// The settings that bind the frames of `side`: its peer's, as acknowledged.
    pub(crate) fn binding(&self, side: usize) -> &Settings {
        &self.sides[1 - side].in_force
    }

    /// Bytes of `side` are missing from the capture.
    pub fn gap<W: Watch + ?Sized>(&mut self, side: usize, length: u64, at: At, reading: &mut Reading<'_, W>) {
        parser::gap(self, side, length, at, reading);
    }

    /// Takes the next bytes of `side`'s stream of bytes, all carried by the packet of `at`.
    #[inline]
    pub fn feed<W: Watch + ?Sized>(&mut self, side: usize, bytes: &[u8], at: At, reading: &mut Reading<'_, W>) {
        parser::feed(self, side, bytes, at, reading);
    }

    /// First octets of a side that do not tell yet what they are.
    pub fn undecided(&self, side: usize) -> Option<&[u8]> {
        let side = &self.sides[side];
        side.search.as_ref().filter(|_| side.state == side::State::Opening).map(|kept| kept.bytes())
    }

    /// The highest stream identifier the client has used; new streams have higher ones (RFC 9113 section 5.1.1).
    #[inline]
    pub(crate) fn highest_stream(&self) -> u32 {
        self.highest_client_stream
    }

    /// The highest stream identifier that a frame may have, as far as earlier ones tell: clients number upwards.
    pub(in crate::http2) fn highest_plausible(&self) -> Option<u32> {
        let known = !self.begun_late || (self.rpcs > 0 && self.highest_client_stream > 0);
        known.then(|| self.highest_client_stream.saturating_add(limits::RESYNC_STREAMS))
    }

    #[inline]
    pub(crate) fn raise_highest_stream(&mut self, id: u32) {
        self.highest_client_stream = self.highest_client_stream.max(id);
    }

    /// The client opens a stream: those below were opened before the capture, if they are not known.
    #[inline]
    pub(crate) fn note_first_stream(&mut self, id: u32) {
        if self.first_stream == 0 {
            self.first_stream = id;
        }
    }

    /// Whether a stream that is not known was opened before the capture.
    pub(crate) fn opened_before(&self, id: u32) -> bool {
        self.begun_late && (self.first_stream == 0 || id < self.first_stream)
    }

    pub(crate) fn take_upgrade(&mut self) -> Option<detect::Http1Head> {
        self.upgrade.take()
    }

    /// The client turned out to be the other side.
    pub(crate) fn set_client(&mut self, side: usize, at: At, cx: &mut Context) {
        if self.client != side {
            if self.rpcs > 0 || self.roles_certain {
                self.problem(Layer::Http2, "both sides act as the client", at, cx);
                return;
            }
            self.client = side;
            cx.turn_rows(self.connection);
        }
        self.roles_certain = true;
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed or reset it first.
    ServerCloses,
    /// The client closed or reset it first.
    ClientCloses,
    /// Another connection took its addresses and ports.
    Replaced,
    /// The capture ends first.
    CaptureEnds,
    /// The capture lacks packets after the connection's last one: whether it went on is not known.
    NotKnown,
}

/// Index into the frame totals.
pub(crate) fn total_index(kind: FrameType) -> usize {
    usize::from(kind.0).min(FrameType::KNOWN)
}
