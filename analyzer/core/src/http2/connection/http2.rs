//! One HTTP/2 connection: both senders, its open streams, and what is counted of its bytes.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::http1::reader::Reader;
use crate::http2::frame::settings::Settings;
use crate::http2::hpack::Decoder;
use crate::http2::observe::policy;
use crate::limits;
use crate::state_fields;
use crate::store::context::Context;
use crate::store::tables::Layer;

use super::application::Application;
use super::detect;
use super::http1::Http1;
use super::side::{self, Side};
use super::streams::Streams;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Protocol {
    /// Nothing was seen that shows it.
    #[default]
    Undecided = 0,
    /// HTTP/2 in the clear.
    Http2 = 1,
    /// TLS, not decrypted.
    Tls = 2,
    /// Another protocol.
    Other = 3,
    /// HTTP/1.1 that carries the protocol on top.
    Http1 = 4,
}

/// Where captured payload bytes went; the sum is all bytes fed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteCounts {
    /// Read as preface, upgrade or frames.
    pub decoded: u64,
    /// Of another protocol.
    pub not_http2: u64,
    /// TLS records.
    pub encrypted: u64,
    /// HTTP/2 whose frame boundaries are not known, or too short to tell.
    pub undecoded: u64,
    /// Behind bytes that the receiver never got.
    pub undelivered: u64,
}

/// One connection's HTTP/2.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Http2<A: Application> {
    /// Row of the connection.
    pub connection: u32,
    /// The side that is the client.
    #[serde(deserialize_with = "state_fields::side")]
    pub client: usize,
    /// The client is known by SYN, preface or header fields, not only by its port.
    pub roles_certain: bool,
    /// Both ports may be a client's, and nothing else tells who the client is.
    pub roles_guessed: bool,
    /// What is spoken.
    pub protocol: Protocol,
    /// Both senders.
    pub sides: [Side<A>; 2],
    /// Open streams.
    pub streams: Streams<A::Stream>,
    /// The protocol on top.
    pub application: A,
    /// The connection's opening is not in the capture.
    pub begun_late: bool,
    /// The user says that this is HTTP/2.
    pub(in crate::http2) forced: bool,
    /// Where bytes went.
    pub bytes: ByteCounts,
    /// The client's PINGs under gRPC's policy.
    pub policy: policy::Policy,
    pub(in crate::http2) highest_client_stream: u32,
    /// The first stream that the client opened in the capture, 0 before: lower ones were opened before it.
    pub(in crate::http2) first_stream: u32,
    /// By side: its first octets are HTTP/2's first ones.
    pub(in crate::http2) opened: [bool; 2],
    /// The upgrade request's settings, while its answer is awaited.
    pub(in crate::http2) upgrade: Option<Box<detect::Http1Head>>,
    /// Reads the body of the upgrade request.
    pub(in crate::http2) upgrade_body: Reader,
    /// Whether HTTP/1.1 is followed at all.
    pub follows_http1: bool,
    /// HTTP/1.1, while it is followed.
    pub(in crate::http2) http1: Option<Box<Http1>>,
}

impl<A: Application> Http2<A> {
    /// A connection nothing has been read of, whose header blocks are decoded by decoders like `hpack`.
    pub fn new(
        connection: u32,
        client: usize,
        roles_certain: bool,
        begun_late: bool,
        hpack: &Decoder<A::Fields>,
    ) -> Self {
        Self {
            connection,
            client,
            roles_certain,
            roles_guessed: false,
            protocol: Protocol::Undecided,
            sides: [Side::new(hpack, begun_late), Side::new(hpack, begun_late)],
            streams: Streams::default(),
            application: A::default(),
            begun_late,
            forced: false,
            bytes: ByteCounts::default(),
            policy: policy::Policy::default(),
            highest_client_stream: 0,
            first_stream: 0,
            opened: [false; 2],
            upgrade: None,
            upgrade_body: Reader::default(),
            follows_http1: true,
            http1: None,
        }
    }

    /// Reads what the next packets will; see [`Connection::touch`](crate::tcp::connection::Connection::touch).
    #[inline]
    pub fn touch(&self) -> u64 {
        let own = self.bytes.decoded ^ u64::from(self.highest_client_stream) ^ self.application.touch();
        let sides = self.sides[0].touch() ^ self.sides[1].touch();
        own ^ sides ^ self.streams.touch(self.highest_client_stream, A::touch_stream)
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
        let in_message = self.streams.find_mut(stream).map_or(0, |stream| A::owed(&stream.state, side));
        in_message.max(self.sides[side].owed_in_frame())
    }

    /// The stream whose DATA or HEADERS frame `side` has begun and not finished: windows allowed all of it.
    pub fn stream_in_frame(&self, side: usize) -> Option<u32> {
        let side = &self.sides[side];
        (side.owed_in_frame() > 0).then_some(side.last_stream)
    }

    /// The user says that this is HTTP/2: frame boundaries are searched whatever comes first.
    pub fn assume_http2(&mut self) {
        self.forced = true;
    }

    /// Whether every frame since the preface was read: else windows and HPACK tables are unknown.
    pub(in crate::http2) fn is_read_whole(&self) -> bool {
        self.protocol == Protocol::Http2 && !self.begun_late && self.sides.iter().all(|side| side.gaps == 0)
    }

    pub(crate) fn problem(&self, layer: Layer, text: &'static str, at: At, cx: &mut Context) {
        cx.problem(layer, text, self.connection, at.packet, at.time);
    }

    /// The settings that bind the frames of `side`: its peer's, as acknowledged.
    pub(crate) fn binding(&self, side: usize) -> &Settings {
        &self.sides[1 - side].in_force
    }

    /// The first octets of a side, while they do not show what it speaks.
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
        let known = !self.begun_late || (self.application.followed() > 0 && self.highest_client_stream > 0);
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

    /// The counter of the bytes that are not read.
    pub(crate) fn unread_bytes(&mut self) -> &mut u64 {
        match self.protocol {
            Protocol::Tls => &mut self.bytes.encrypted,
            Protocol::Http2 | Protocol::Http1 => &mut self.bytes.undecoded,
            Protocol::Undecided | Protocol::Other => &mut self.bytes.not_http2,
        }
    }

    /// `side` begins as HTTP/2 does. When both do, the capture holds all of it, though not TCP's opening: a client's
    /// preface is its first octets, and SETTINGS are the first frame of either side (RFC 9113 section 3.4).
    #[cold]
    pub(in crate::http2) fn opens(&mut self, side: usize) {
        self.opened[side] = true;
        if self.begun_late && self.opened == [true; 2] {
            self.begun_late = false;
            for side in &mut self.sides {
                side.hpack = side.hpack.new_like();
            }
        }
    }

    /// The client turned out to be the other side.
    pub(crate) fn set_client(&mut self, side: usize, at: At, cx: &mut Context) {
        if self.client != side {
            if self.application.followed() > 0 || self.roles_certain {
                self.problem(Layer::Http2, "both sides act as the client", at, cx);
                return;
            }
            self.client = side;
            cx.turn_rows(self.connection);
        }
        self.roles_certain = true;
        self.roles_guessed = false;
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
