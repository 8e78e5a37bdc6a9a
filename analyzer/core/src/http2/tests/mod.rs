//! The HTTP/2 reader against the conformance vectors, and against exchanges written out byte by byte.

mod blocks;
mod bodies;
mod conformance;
mod cut;
mod flow_control;
mod hostile;
mod http1;
mod late;
mod limits;
mod preface;
mod settings;
mod streams;

use crate::at::At;
use crate::grpc::connection::Http2;
use crate::grpc::status;
use crate::http2::connection::http2::End;
use crate::http2::connection::reading::Reading;
use crate::http2::frame::header::{FrameType, flag};
use crate::http2::hpack::Decoder;
use crate::limits as bounds;
use crate::store::context::Context;
use crate::store::options::Options;
use crate::store::tables::rpc_flag;
use crate::tcp::transport::Transport;

/// The side that opens the connection.
const CLIENT: usize = 0;
const SERVER: usize = 1;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS identifiers (RFC 9113 section 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const INTERRUPTED: &str = "a header block was interrupted by another frame";

// --- Writing frames ---

fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind.0, flags], &stream.to_be_bytes(), payload].concat()
}

fn settings_frame(pairs: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        pairs.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(FrameType::SETTINGS, 0, 0, &payload)
}

fn settings_ack() -> Vec<u8> {
    frame(FrameType::SETTINGS, flag::ACK, 0, &[])
}

fn ping() -> Vec<u8> {
    frame(FrameType::PING, 0, 0, b"deadbeef")
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(FrameType::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    frame(FrameType::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// A whole header block in one frame.
fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(FrameType::HEADERS, flags | flag::END_HEADERS, stream, block)
}

fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(FrameType::DATA, flags, stream, payload)
}

/// DATA with a pad length octet and `pad` octets of padding.
fn padded_data(stream: u32, payload: &[u8], pad: u8) -> Vec<u8> {
    let padded = [&[pad][..], payload, &vec![0; usize::from(pad)]].concat();
    frame(FrameType::DATA, flag::PADDED, stream, &padded)
}

/// A literal field without indexing (RFC 7541 section 6.2.2).
fn plain(name: &str, value: &str) -> Vec<u8> {
    literal(0x00, name, value)
}

/// A literal field that becomes the newest entry of the dynamic table, index 62 (RFC 7541 section 6.2.1).
fn inserted(name: &str, value: &str) -> Vec<u8> {
    literal(0x40, name, value)
}

/// The dynamic table's newest entry.
const NEWEST: [u8; 1] = [0x80 | 62];

fn literal(form: u8, name: &str, value: &str) -> Vec<u8> {
    let (name_length, value_length) = (u8::try_from(name.len()).unwrap(), u8::try_from(value.len()).unwrap());
    assert!(name_length < 127 && value_length < 127, "a length of one octet");
    [&[form, name_length], name.as_bytes(), &[value_length], value.as_bytes()].concat()
}

/// A gRPC request's fields but for `:path`.
fn request_fields() -> Vec<u8> {
    [plain(":method", "POST"), plain("te", "trailers"), plain("content-type", "application/grpc")].concat()
}

/// A gRPC request's header block.
fn request_block(path: &str) -> Vec<u8> {
    [plain(":path", path), request_fields()].concat()
}

fn response_block() -> Vec<u8> {
    [plain(":status", "200"), plain("content-type", "application/grpc")].concat()
}

fn status_block(code: &str) -> Vec<u8> {
    plain("grpc-status", code)
}

/// A length-prefixed message of `length` octets.
fn message(length: usize) -> Vec<u8> {
    [&[0][..], &u32::try_from(length).unwrap().to_be_bytes(), &vec![0xaa; length]].concat()
}

/// A whole unary request in two frames.
fn request(stream: u32, path: &str, length: usize) -> Vec<u8> {
    [headers(stream, 0, &request_block(path)), data(stream, flag::END_STREAM, &message(length))].concat()
}

/// A whole unary response in three frames.
fn response(stream: u32, length: usize, code: &str) -> Vec<u8> {
    let head = headers(stream, 0, &response_block());
    [head, data(stream, 0, &message(length)), headers(stream, flag::END_STREAM, &status_block(code))].concat()
}

// --- Reading them ---

/// What a test compares of an RPC; all but packets and times.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rpc {
    stream: u32,
    method: Option<String>,
    status: Option<&'static str>,
    request: (u32, u64),
    response: (u32, u64),
    complete: bool,
}

/// A connection into which a test feeds bytes; each feeding is one packet, one millisecond after the last.
struct Exchange {
    h2: Http2,
    cx: Context,
    packet: u32,
}

impl Exchange {
    /// Nothing was sent; the client is known by its SYN.
    fn opened() -> Self {
        Self::new(CLIENT, true, false)
    }

    /// The capture begins in the middle; ports suggest that `client` is the client.
    fn late(client: usize) -> Self {
        Self::new(client, false, true)
    }

    fn new(client: usize, certain: bool, late: bool) -> Self {
        let options = Options { frames: true, messages: true, rpc_rows: true, ..Options::default() };
        let mut cx = Context::new(options);
        let h2 = Http2::new(0, client, certain, late, &Decoder::new(&mut cx.strings));
        Self { h2, cx, packet: 0 }
    }

    /// Both sides have announced and acknowledged empty SETTINGS.
    fn begun() -> Self {
        let mut exchange = Self::opened();
        exchange.client(&[PREFACE, &settings_frame(&[])].concat());
        exchange.server(&[settings_frame(&[]), settings_ack()].concat());
        exchange.client(&settings_ack());
        exchange
    }

    fn client(&mut self, bytes: &[u8]) {
        self.send(CLIENT, bytes);
    }

    fn server(&mut self, bytes: &[u8]) {
        self.send(SERVER, bytes);
    }

    fn send(&mut self, side: usize, bytes: &[u8]) {
        let at = self.tick();
        self.feed_at(side, bytes, at);
    }

    fn feed_at(&mut self, side: usize, bytes: &[u8], at: At) {
        let reading = &mut Reading { cx: &mut self.cx, transport: &Transport::default() };
        self.h2.feed(side, bytes, at, reading, &mut ());
    }

    /// `length` bytes of `side` are not in the capture.
    fn lose(&mut self, side: usize, length: u64) {
        let at = self.tick();
        let reading = &mut Reading { cx: &mut self.cx, transport: &Transport::default() };
        self.h2.gap(side, length, at, reading, &mut ());
    }

    fn tick(&mut self) -> At {
        self.packet += 1;
        At::new(self.packet, i64::from(self.packet) * 1_000_000)
    }

    /// Frames of a type, of both sides.
    fn counted(&self, kind: FrameType) -> u32 {
        self.h2.sides.iter().map(|side| side.habits.frames[kind.index()]).sum()
    }

    fn finish(&mut self, end: End) {
        let at = self.tick();
        let reading = &mut Reading { cx: &mut self.cx, transport: &Transport::default() };
        self.h2.finish(end, at, reading);
    }

    fn rpcs(&self) -> Vec<Rpc> {
        let (table, sizes) = (&self.cx.rpcs, &self.cx.rpc_sizes);
        let methods = self.cx.strings.methods.texts();
        let rpc = |row: usize| Rpc {
            stream: table.stream[row],
            method: methods
                .get(table.method[row] as usize)
                .filter(|_| table.flags[row] & rpc_flag::METHOD_UNKNOWN == 0)
                .cloned(),
            status: status::NAMES.get(usize::from(table.status[row])).copied(),
            request: (sizes.request_messages[row], sizes.request_bytes[row]),
            response: (sizes.response_messages[row], sizes.response_bytes[row]),
            complete: table.flags[row] & rpc_flag::COMPLETE != 0,
        };
        (0..table.len()).map(rpc).collect()
    }

    /// The only RPC there is.
    fn rpc(&self) -> Rpc {
        let mut rpcs = self.rpcs();
        assert_eq!(rpcs.len(), 1, "{rpcs:?}");
        rpcs.remove(0)
    }

    /// Status and completeness of the only RPC.
    fn outcome(&self) -> (Option<&'static str>, bool) {
        let rpc = self.rpc();
        (rpc.status, rpc.complete)
    }

    /// Each message: stream, direction, index, length.
    fn messages(&self) -> Vec<(u32, u8, u32, u32)> {
        let table = &self.cx.messages;
        (0..table.len())
            .map(|row| (table.stream[row], table.direction[row], table.index[row], table.length[row]))
            .collect()
    }

    /// Each frame: direction, stream, type, flags, length.
    fn frames(&self) -> Vec<(u8, u32, u8, u8, u32)> {
        let table = &self.cx.frames;
        let cells = |row: usize| {
            (table.direction[row], table.stream[row], table.kind[row], table.flags[row], table.length[row])
        };
        (0..table.len()).map(cells).collect()
    }

    /// The texts of all problems, each once.
    fn problems(&self) -> &[&'static str] {
        &self.cx.problems.kinds
    }

    /// Who broke HTTP/2 with each problem: 2 where that is not known.
    fn broken_by(&self) -> &[u8] {
        &self.cx.problems.rows.broken_by
    }

    /// All bytes that were fed, wherever they went.
    fn accounted(&self) -> u64 {
        let bytes = self.h2.bytes;
        bytes.decoded + bytes.not_http2 + bytes.encrypted + bytes.undecoded
    }
}

/// The unary RPC that most tests make.
fn unary(stream: u32, path: &str, request: u64, response: u64, status: &'static str) -> Rpc {
    Rpc {
        stream,
        method: Some(path.to_owned()),
        status: Some(status),
        request: (1, request),
        response: (1, response),
        complete: true,
    }
}

#[test]
fn a_unary_exchange_is_read() {
    let mut exchange = Exchange::begun();
    exchange.client(&request(1, "/demo.Echo/Say", 10));
    exchange.server(&response(1, 300, "0"));
    assert_eq!(exchange.rpc(), unary(1, "/demo.Echo/Say", 10, 300, "OK"));
    assert_eq!(exchange.messages(), [(1, 0, 0, 10), (1, 1, 0, 300)]);
    assert!(exchange.problems().is_empty(), "{:?}", exchange.problems());
    assert!(exchange.h2.streams.is_empty(), "nothing is kept of a stream that is over");
    // packets 4 and 5 carry the request and the answer, a millisecond apart
    assert_eq!((exchange.cx.rpcs.start_time_ns[0], exchange.cx.rpcs.duration_ns[0]), (4_000_000, 1_000_000));
    assert_eq!((exchange.cx.rpcs.first_packet[0], exchange.cx.rpcs.last_packet[0]), (4, 5));
}
