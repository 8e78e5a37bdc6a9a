//! Floods: whatever a capture holds a million of, memory stays within what `limits` allows, and the report is told.

use std::io::{Cursor, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use grpcdiag_core::capture_file::{CaptureReader, Packet, Source};
use grpcdiag_core::context::{Context, Options};
use grpcdiag_core::limits;
use grpcdiag_core::pipeline::{CaptureCounts, Finished, Pipeline};
use grpcdiag_core::tls::KeyLog;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One flood at a time: memory is that of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;
/// Bytes of a row of the problems table, and as many for the growth of its columns.
const PROBLEM_ROW: usize = 2 * 24;

/// How much more memory was held at most since this was made.
struct Measured {
    _alone: MutexGuard<'static, ()>,
    before: usize,
}

impl Measured {
    fn begin() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut measured = Self { _alone: alone, before: 0 };
        measured.again();
        measured
    }

    /// What is held now does not count.
    fn again(&mut self) {
        MEMORY.reset_peak_usage();
        self.before = MEMORY.current_usage();
    }

    fn assert_below(&self, most: usize) {
        let held = MEMORY.peak_usage().saturating_sub(self.before);
        assert!(held < most, "{held} bytes held, not below {most}");
    }
}

/// TCP flags.
const SYN: u8 = 2;
const ACK: u8 = 16;

const CLIENT: usize = 0;
const SERVER: usize = 1;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field without indexing (RFC 7541 section 6.2.2).
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).ok().filter(|&length| length < 127).expect("one octet");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

fn request(stream: u32, path: &str) -> Vec<u8> {
    let fields = [(":path", path), (":method", "POST"), ("content-type", "application/grpc"), ("te", "trailers")];
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// An analysis into which a test sends packets, one microsecond apart; nothing of them is kept.
struct Flood {
    pipeline: Pipeline,
    number: u32,
    /// The connection's client port and its sides' next sequence numbers.
    port: u16,
    host: u32,
    next: [u32; 2],
    /// Nanoseconds between packets.
    pace: i64,
    time: i64,
}

struct Outcome {
    finished: Finished,
    cx: Context,
    counts: CaptureCounts,
}

impl Outcome {
    fn told(&self, text: &str) -> u64 {
        let known = self.cx.problems.kinds.iter().position(|kind| *kind == text);
        let kind = known.unwrap_or_else(|| panic!("{text:?} is none of {:?}", self.cx.problems.kinds));
        self.cx.problems.counts[kind]
    }
}

impl Flood {
    fn new() -> Self {
        Self::with(Options { rpc_rows: true, ..Options::default() })
    }

    fn with(options: Options) -> Self {
        let pipeline = Pipeline::new(options);
        Self { pipeline, number: 0, port: 40_000, host: 1, next: [1_000, 5_000], pace: 1_000, time: 0 }
    }

    /// A connection after its handshake.
    fn connected() -> Self {
        let mut flood = Self::new();
        flood.handshake();
        flood
    }

    /// A connection on which HTTP/2 has begun.
    fn begun() -> Self {
        let mut flood = Self::connected();
        flood.send(CLIENT, &[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
        flood.send(SERVER, &[frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat());
        flood.send(CLIENT, &frame(SETTINGS, 1, 0, &[]));
        flood
    }

    fn handshake(&mut self) {
        self.segment(CLIENT, SYN, self.next[CLIENT], &[]);
        self.next[CLIENT] += 1;
        self.segment(SERVER, SYN | ACK, self.next[SERVER], &[]);
        self.next[SERVER] += 1;
        self.segment(CLIENT, ACK, self.next[CLIENT], &[]);
    }

    /// The next bytes of a side, in segments of at most 60 kB.
    fn send(&mut self, side: usize, bytes: &[u8]) {
        for piece in bytes.chunks(60_000) {
            self.segment(side, ACK, self.next[side], piece);
            self.next[side] = self.next[side].wrapping_add(piece.len() as u32);
        }
    }

    fn segment(&mut self, side: usize, flags: u8, seq: u32, payload: &[u8]) {
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
    fn packet(&mut self, bytes: &[u8]) {
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

    fn finish(self) -> Outcome {
        let (finished, cx, counts) = self.pipeline.finish();
        Outcome { finished, cx, counts }
    }
}

/// Memory of an analysis with nothing in it, and what a connection in it takes.
const SMALL: usize = 2 * MB;

// --- Connections ---

#[test]
fn a_million_connections_of_one_syn_each() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    const COUNT: u32 = limits::CONNECTIONS as u32 + 10;
    for host in 0..COUNT {
        flood.host = 0x0a00_0000 + host;
        flood.segment(CLIENT, SYN, 7, &[]);
    }
    let outcome = flood.finish();
    // followed ones, and rows; a capture of as many packets has 75 MB
    measured.assert_below(limits::OPEN_CONNECTIONS * 17 * KB + limits::CONNECTIONS * 2_600);
    assert_eq!(outcome.finished.connections.len(), limits::CONNECTIONS);
    assert!(outcome.told("too many connections: further ones are not followed") > 0);
    let closed = outcome.told("too many open connections: those idle longest are not followed further");
    assert_eq!(closed, (limits::CONNECTIONS - limits::OPEN_CONNECTIONS) as u64);
}

/// A scan, or a flood of handshakes, costs no connection that is in use.
#[test]
fn a_flood_of_handshakes_puts_no_other_connection_away() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    flood.send(CLIENT, &request(1, "/lab.v1.Lab/Echo"));
    let (next, host) = (flood.next, flood.host);
    for other in 0..limits::OPEN_CONNECTIONS as u32 + 5_000 {
        flood.host = 0x0a00_0000 + other;
        flood.handshake();
    }
    (flood.next, flood.host) = (next, host);
    let status = field("grpc-status", "0");
    flood.send(SERVER, &frame(HEADERS, END_HEADERS | 1, 1, &status));
    let outcome = flood.finish();
    measured.assert_below(limits::OPEN_CONNECTIONS * 20 * KB);
    assert_eq!((outcome.cx.rpcs.len(), outcome.cx.rpcs.status[0]), (1, 0));
    assert!(outcome.told("too many open connections: those idle longest are not followed further") > 0);
}

/// Connections that did carry something: those idle longest go, and their RPCs end as if the capture ended there.
#[test]
fn connections_in_use_are_bounded_too() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, "/a.B/C")].concat();
    let count = limits::OPEN_CONNECTIONS as u32 + 4_000;
    for host in 0..count {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        flood.send(CLIENT, &opening);
    }
    let outcome = flood.finish();
    measured.assert_below(limits::OPEN_CONNECTIONS * 24 * KB);
    assert_eq!(outcome.cx.rpcs.len(), count as usize);
    assert!(outcome.cx.rpcs.duration_ns.iter().all(|&ns| ns >= 0));
    assert_eq!(outcome.told("too many open connections: those idle longest are not followed further"), 4_000);
}

/// Each a ClientHello that never ends, of the longest that is kept.
#[test]
fn tls_handshakes_that_never_end() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    let hello = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &vec![0; 8_000]].concat();
    for host in 0..20_000 {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        flood.send(CLIENT, &hello);
    }
    let outcome = flood.finish();
    // what was sent, and the connections
    measured.assert_below(20_000 * (17 + 2 * 8) * KB);
    assert_eq!(outcome.finished.connections.len(), 20_000);
}

// --- TCP and IP ---

#[test]
fn segments_behind_holes_that_are_never_filled() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    let piece = vec![0x55; 50_000];
    // more than all connections together may keep
    for host in 0..16 {
        (flood.host, flood.next) = (0x0a00_0000 + host, [1_000, 5_000]);
        flood.handshake();
        for n in 1..200_u32 {
            flood.segment(CLIENT, ACK, 1_001 + n * 60_000, &piece);
        }
    }
    let outcome = flood.finish();
    measured.assert_below(limits::OUT_OF_ORDER_TOTAL + 4 * MB);
    assert!(outcome.finished.connections.missing_bytes.iter().all(|&bytes| bytes > 0));
    assert!(outcome.told("bytes are missing from the capture") > 0);
}

#[test]
fn fragments_of_datagrams_that_are_never_whole() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    for n in 0..300_000_u32 {
        let mut packet = vec![0x45, 0, 0x04, 0x14];
        packet.extend((n as u16).to_be_bytes());
        packet.extend([0x20, 0, 64, 6, 0, 0, 10, (n >> 16) as u8, 0, 1, 10, 0, 0, 2]);
        packet.resize(0x414, 0);
        flood.packet(&packet);
    }
    let outcome = flood.finish();
    measured.assert_below(limits::MAX_FRAGMENT_BYTES + SMALL);
    assert_eq!(outcome.counts.fragments, 300_000);
}

/// Lengths in IP and TCP headers that no packet has.
#[test]
fn absurd_lengths_in_packets() {
    let measured = Measured::begin();
    let mut flood = Flood::new();
    for total in [0_u16, 19, 20, 39, 41, 0xffff] {
        for header in [0x40_u8, 0x41, 0x44, 0x46, 0x4f] {
            for data_offset in [0_u8, 0x10, 0x40, 0xf0] {
                let mut packet = vec![header, 0];
                packet.extend(total.to_be_bytes());
                packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
                packet.extend([0x9c, 0x40, 0xc3, 0x83, 0, 0, 0, 1, 0, 0, 0, 1, data_offset, ACK, 1, 1, 0, 0, 0, 0]);
                flood.packet(&packet);
            }
        }
    }
    let outcome = flood.finish();
    measured.assert_below(SMALL);
    assert_eq!(outcome.counts.packets, 120);
    assert!(outcome.counts.malformed > 60, "{}", outcome.counts.malformed);
}

// --- HTTP/2 ---

#[test]
fn header_blocks_that_never_end() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    flood.send(CLIENT, &frame(HEADERS, 0, 1, &field("a", "b")));
    let continuation = frame(CONTINUATION, 0, 1, &field("c", &"d".repeat(100)).repeat(150));
    for _ in 0..4_000 {
        flood.send(CLIENT, &continuation);
    }
    let outcome = flood.finish();
    measured.assert_below(3 * limits::HEADER_BLOCK + SMALL);
    let kinds = &outcome.cx.problems.kinds;
    assert!(kinds.contains(&"header block is too long to keep: left out"), "{kinds:?}");
}

/// CVE-2016-6581: one octet stands for a field of 4 kB.
#[test]
fn header_blocks_that_expand() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let value = "v".repeat(4_000);
    let insertion = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], value.as_bytes()].concat();
    flood.send(CLIENT, &frame(HEADERS, END_HEADERS, 1, &insertion));
    let references = vec![0xbe; 16_000];
    for stream in (3..2_000).step_by(2) {
        flood.send(CLIENT, &frame(HEADERS, END_HEADERS | 1, stream, &references));
    }
    let outcome = flood.finish();
    // 64 GB of fields
    measured.assert_below(SMALL + 2 * MB);
    assert_eq!(outcome.cx.totals.frames[usize::from(HEADERS)], 1_000);
}

#[test]
fn header_tables_of_any_size() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    flood.send(SERVER, &frame(SETTINGS, 0, 0, &[0, 1, 0xff, 0xff, 0xff, 0xff]));
    flood.send(CLIENT, &frame(SETTINGS, 1, 0, &[]));
    // the table is set to 4 GB (RFC 7541 section 6.3) and filled
    flood.send(CLIENT, &frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xe0, 0xff, 0xff, 0xff, 0x0f]));
    for n in 0..4_000_u32 {
        let insertion = [&[0x40, 4][..], &n.to_be_bytes(), &[0x7f, 0xa1, 0x1e], &vec![b'v'; 4_000]].concat();
        flood.send(CLIENT, &frame(HEADERS, END_HEADERS, 2 * n + 3, &insertion));
    }
    let _ = flood.finish();
    // streams and rows besides
    measured.assert_below(4 * limits::HPACK_MAX_TABLE_BYTES as usize + 6 * MB);
}

#[test]
fn a_million_streams_that_never_end() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let mut bytes = Vec::new();
    for n in 0..1_000_000_u32 {
        bytes.extend(request(2 * n + 1, "/a.B/C"));
        if bytes.len() > 50_000 {
            flood.send(CLIENT, &bytes);
            bytes.clear();
        }
    }
    let outcome = flood.finish();
    measured.assert_below(limits::OPEN_STREAMS * KB + 20 * MB);
    assert!(outcome.told("too many open streams: further ones are not followed") > 900_000);
    assert_eq!(outcome.cx.rpcs.len(), limits::OPEN_STREAMS);
}

/// A wait is charged to streams with an unfinished message: its cost does not grow with the streams that are open.
#[test]
fn waits_beside_very_many_streams() {
    let _alone = Measured::begin(); // its memory would be counted as another's
    let mut flood = Flood::begun();
    for n in 0..limits::OPEN_STREAMS as u32 {
        flood.send(CLIENT, &request(2 * n + 1, "/a.B/C"));
    }
    let last = 2 * limits::OPEN_STREAMS as u32 - 1;
    flood.send(CLIENT, &frame(DATA, 0, last, &[0, 0xff, 0xff, 0xff, 0xff]));
    flood.pace = 2_000_000;
    // 2 ms apart inside a message: each packet ends a wait
    for _ in 0..100_000 {
        flood.send(CLIENT, &frame(DATA, 0, last, &[0; 4]));
    }
    let outcome = flood.finish();
    assert_eq!(outcome.cx.waits.len(), 100_000);
    assert!(outcome.cx.waits.streams.iter().all(|&streams| streams == 0), "beyond the places that are searched");
}

#[test]
fn settings_that_nobody_acknowledges() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let frames = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).repeat(1_000);
    for _ in 0..1_000 {
        flood.send(SERVER, &frames);
    }
    let outcome = flood.finish();
    measured.assert_below(limits::ROWS_AHEAD * PROBLEM_ROW + SMALL);
    let told = outcome.told("too many SETTINGS frames without an acknowledgement");
    assert_eq!(told as usize, 1_000_000 - limits::PENDING_SETTINGS);
    assert!(outcome.cx.problems.rows.len() <= limits::PROBLEMS);
}

#[test]
fn pings_and_goaways_without_end() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    for n in 0..500_u32 {
        let mut frames = frame(PING, 0, 0, b"deadbeef").repeat(1_000);
        for m in 0..400_u32 {
            let reason = [&[0; 8][..], format!("reason {n} {m} {}", "x".repeat(60)).as_bytes()].concat();
            frames.extend(frame(GOAWAY, 0, 0, &reason));
        }
        flood.send(SERVER, &frames);
    }
    let outcome = flood.finish();
    let rows = |most| most + limits::ROWS_AHEAD;
    measured.assert_below(rows(limits::GOAWAYS) * 40 + rows(limits::PINGS) * 60 + SMALL);
    assert_eq!(outcome.cx.totals.frames[usize::from(PING)], 500_000);
    assert_eq!(outcome.cx.goaways.len(), limits::GOAWAYS);
    assert!(outcome.cx.pings.len() <= limits::PINGS);
    assert!(outcome.cx.goaway_reasons.len() <= limits::GOAWAY_REASONS);
    assert!(outcome.cx.goaway_reasons.iter().all(|reason| reason.len() <= 64));
}

/// Frames of 2^24 - 1 octets and messages of 4 GB, of which only the beginning is there.
#[test]
fn absurd_lengths_in_frames_and_messages() {
    let mut measured = Measured::begin();
    for kind in 0..16_u8 {
        measured.again();
        let mut flood = Flood::begun();
        flood.send(CLIENT, &request(1, "/a.B/C"));
        flood.send(CLIENT, &frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
        flood.send(CLIENT, &[0xff, 0xff, 0xff, kind, 0, 0, 0, 0, 1]);
        for _ in 0..100 {
            flood.send(CLIENT, &[0; 50_000]);
        }
        let outcome = flood.finish();
        measured.assert_below(SMALL);
        assert_eq!(outcome.cx.rpcs.len(), 1);
    }
}

#[test]
fn a_million_methods_and_agents() {
    let measured = Measured::begin();
    let mut flood = Flood::begun();
    let mut bytes = Vec::new();
    for n in 0..300_000_u32 {
        let path = format!("/{n}/{}", "m".repeat(100));
        let fields = [(":path", &*path), ("content-type", "application/grpc"), ("user-agent", &path[1..])];
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
        bytes.extend(frame(HEADERS, END_HEADERS | 1, 2 * n + 1, &block));
        bytes.extend(frame(3, 0, 2 * n + 1, &[0, 0, 0, 8]));
        if bytes.len() > 50_000 {
            flood.send(CLIENT, &bytes);
            bytes.clear();
        }
    }
    flood.send(CLIENT, &bytes);
    let outcome = flood.finish();
    let strings = 2 * 3 * limits::INTERNED_TOTAL;
    let methods = limits::INTERNED_STRINGS * 400 + limits::METHOD_HISTOGRAMS * 20 * KB;
    let failures = limits::ROWS_AHEAD * 120;
    measured.assert_below(strings + methods + 300_000 * 150 + failures + 20 * MB);
    assert_eq!(outcome.cx.rpcs.len(), 300_000);
    let texts = outcome.cx.strings.methods.texts();
    assert_eq!(texts.len(), limits::INTERNED_STRINGS + 1);
    assert_eq!(texts.iter().filter(|text| *text == "(more names than are told apart)").count(), 1);
}

// --- Files ---

/// What reading a file to its end leaves to be said.
fn read(bytes: Vec<u8>) -> (u32, Vec<String>) {
    let source = Source::Reader("bomb".to_owned(), Box::new(Cursor::new(bytes)));
    let mut reader = CaptureReader::open(vec![source]).expect("a capture");
    while reader.next_packet().is_some() {}
    let damage = reader.info().damage.iter().map(|damage| damage.reason.clone());
    (reader.info().packets, damage.collect())
}

/// A pcap file's header: little-endian, microseconds, Ethernet.
const PCAP: [u8; 24] = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

/// `count` empty packets.
fn records(count: usize) -> Vec<u8> {
    let record = [1_u32, 0, 16, 16].map(u32::to_le_bytes).concat();
    [record, vec![0; 16]].concat().repeat(count)
}

/// 4 MB of packets in each of 200 frames of some hundred bytes.
#[test]
fn files_that_expand_without_end() {
    use ruzstd::encoding::{CompressionLevel::Fastest, compress_to_vec};
    let mut measured = Measured::begin();
    let packets = compress_to_vec(&records(1 << 17)[..], Fastest);
    let bomb = [compress_to_vec(&PCAP[..], Fastest), packets.repeat(200)].concat();
    let most = limits::CAPTURE_EXPANSION_FREE + bomb.len() as u64 * limits::CAPTURE_EXPANSION;
    assert!(most < 200 << 22, "{} bytes are no bomb", bomb.len());
    measured.again();
    let (packets, damage) = read(bomb);
    measured.assert_below(16 * MB);
    assert!(u64::from(packets) * 32 <= most && packets > 1_000, "{packets} packets");
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].contains("expands to more than"), "{damage:?}");
}

/// gzip's and lz4's best is below the limit.
#[test]
fn files_that_compress_well_are_read_whole() {
    let mut measured = Measured::begin();
    const COUNT: usize = 3 << 20;
    let plain = [&PCAP[..], &records(COUNT)].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&plain).unwrap();
    drop(plain);
    for file in [gzip.finish().unwrap(), lz4.finish().unwrap()] {
        assert!(file.len() < COUNT * 32 / 100);
        measured.again();
        let (packets, damage) = read(file);
        measured.assert_below(16 * MB);
        assert_eq!((packets as usize, damage), (COUNT, vec![]));
    }
}

#[test]
fn blocks_and_records_of_absurd_lengths() {
    let section = [0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    let section = [&section[..], &[0xff; 8], &[28, 0, 0, 0]].concat();
    let mut measured = Measured::begin();
    for length in [0_u32, 11, 12, 13, 16 << 20, 17 << 20, u32::MAX - 3, u32::MAX] {
        for kind in [0_u32, 1, 2, 3, 5, 6, 10, 0x0a0d_0d0a] {
            measured.again();
            let block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
            let _ = read([&section[..], &block, &vec![1; 100_000]].concat());
            let record = [[0; 4], [0; 4], length.to_le_bytes(), length.to_le_bytes()].concat();
            let _ = read([&PCAP[..], &record, &vec![1; 100_000]].concat());
            measured.assert_below(4 * MB);
        }
    }
}

/// A key log of more connections than are kept, and a line without an end.
#[test]
fn huge_key_logs() {
    let mut measured = Measured::begin();
    let count = limits::TLS_KEY_LOG_CONNECTIONS + 50_000;
    let mut text = Vec::new();
    for n in 0..count {
        text.extend(format!("CLIENT_RANDOM {n:064x} {:096x}\n", 1).bytes());
    }
    measured.again();
    let mut log = KeyLog::parse(&text);
    measured.assert_below(limits::TLS_KEY_LOG_CONNECTIONS * 900);
    assert_eq!((log.lines, log.over_limit), (count as u64, 50_000));
    let endless = vec![b'A'; 20 * MB];
    measured.again();
    log.extend(&endless);
    measured.assert_below(KB);
    assert_eq!(log.damaged, 1);
}
