//! Packets without end, made one by one and not kept.

use grpcdiag_core::capture_file::Packet;
use grpcdiag_core::run::pipeline::{CaptureCounts, Finished, Pipeline};
use grpcdiag_core::store::context::Context;
use grpcdiag_core::store::options::Options;

/// TCP flags.
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field without indexing (RFC 7541 section 6.2.2).
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).ok().filter(|&length| length < 127).expect("one octet");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

pub fn request(stream: u32, path: &str) -> Vec<u8> {
    let fields = [(":path", path), (":method", "POST"), ("content-type", "application/grpc"), ("te", "trailers")];
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// An analysis into which a test sends packets, one microsecond apart; nothing of them is kept.
pub struct Flood {
    pub pipeline: Pipeline,
    pub number: u32,
    /// The connection's client port and its sides' next sequence numbers.
    pub port: u16,
    pub host: u32,
    pub next: [u32; 2],
    /// Nanoseconds between packets.
    pub pace: i64,
    pub time: i64,
}

pub struct Outcome {
    pub finished: Finished,
    pub cx: Context,
    pub counts: CaptureCounts,
}

impl Outcome {
    pub fn told(&self, text: &str) -> u64 {
        let known = self.cx.problems.kinds.iter().position(|kind| *kind == text);
        let kind = known.unwrap_or_else(|| panic!("{text:?} is none of {:?}", self.cx.problems.kinds));
        self.cx.problems.counts[kind]
    }
}

impl Flood {
    pub fn new() -> Self {
        Self::with(Options { rpc_rows: true, ..Options::default() })
    }

    pub fn with(options: Options) -> Self {
        let pipeline = Pipeline::new(options);
        Self { pipeline, number: 0, port: 40_000, host: 1, next: [1_000, 5_000], pace: 1_000, time: 0 }
    }

    /// A connection on which HTTP/2 has begun.
    pub fn begun() -> Self {
        let mut flood = Self::new();
        flood.begin();
        flood
    }

    pub fn begin(&mut self) {
        self.handshake();
        self.send(CLIENT, &[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
        self.send(SERVER, &[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat());
        self.send(CLIENT, &frame(SETTINGS, 1, 0, &[]));
    }

    pub fn handshake(&mut self) {
        self.segment(CLIENT, SYN, self.next[CLIENT], &[]);
        self.next[CLIENT] += 1;
        self.segment(SERVER, SYN | ACK, self.next[SERVER], &[]);
        self.next[SERVER] += 1;
        self.segment(CLIENT, ACK, self.next[CLIENT], &[]);
    }

    /// The next bytes of a side, in segments of at most 60 kB.
    pub fn send(&mut self, side: usize, bytes: &[u8]) {
        for piece in bytes.chunks(60_000) {
            self.segment(side, ACK, self.next[side], piece);
            self.next[side] = self.next[side].wrapping_add(piece.len() as u32);
        }
    }

    pub fn segment(&mut self, side: usize, flags: u8, seq: u32, payload: &[u8]) {
        let (client, server) = (self.host.to_be_bytes(), [10, 99, 0, 1]);
        let (from, to) = if side == CLIENT { (client, server) } else { (server, client) };
        let ports = if side == CLIENT { [self.port, 50_051] } else { [50_051, self.port] };
        let length = u16::try_from(40 + payload.len()).unwrap();
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend((self.number as u16).to_be_bytes());
        packet.extend([0, 0, 64, 6, 0, 0]);
        packet.extend([from, to].concat());
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.extend(seq.to_be_bytes());
        packet.extend(self.next[1 - side].to_be_bytes());
        packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(payload);
        self.packet(&packet);
    }

    /// A packet that begins with its IP header.
    pub fn packet(&mut self, bytes: &[u8]) {
        const RAW: u32 = 101;
        self.number += 1;
        self.time += self.pace;
        self.pipeline.packet(&Packet {
            number: self.number,
            time_ns: self.time,
            link_type: RAW,
            interface: 0,
            captured: bytes,
            original_len: bytes.len() as u32,
        });
    }

    pub fn finish(self) -> Outcome {
        let (finished, cx, counts) = self.pipeline.finish();
        Outcome { finished, cx, counts }
    }
}
