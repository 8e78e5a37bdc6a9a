//! Connections driven by hand-made segments.

mod closing;
mod duplicates;
mod end_stream;
mod held_path;
mod holes;
mod late_resets;
mod nagle;
mod order;
mod properties;
mod round_trips;
mod shut_windows;
mod unreceived;
mod waits;
mod windows;

use crate::at::At;
use crate::connection::CaptureEnd;
use crate::grpc::status;
use crate::limits;
use crate::packet::{Address, PacketDirection, SackBlocks, Segment, TcpFlags};
use crate::store::budget::{Budget, Cause};
use crate::store::context::Context;
use crate::store::options::Options;
use crate::store::tables::{ConnectionRow, Connections};
use crate::tcp::note::Note;

use super::router::Router;
use super::shard::Shard;

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const SYN_ACK: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
const FIN_ACK: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);
const RST: TcpFlags = TcpFlags::RST;
const MS: i64 = 1_000_000;
const CLIENT: (Address, u16) = (Address::v4([10, 0, 0, 1]), 40_000);
const SERVER: (Address, u16) = (Address::v4([10, 0, 0, 2]), 50_051);
const CLIENT_ISN: u32 = 5_000;
const SERVER_ISN: u32 = 9_000;

/// A segment of the client without options; every packet has an IPv4 identification of its own.
fn segment(flags: TcpFlags, seq: u32, ack: u32, payload: &[u8]) -> Segment<'_> {
    Segment {
        source: CLIENT.0,
        destination: SERVER.0,
        source_port: CLIENT.1,
        destination_port: SERVER.1,
        seq,
        ack,
        flags,
        window: 500,
        urgent: 0,
        mss: None,
        window_scale: None,
        sack_permitted: false,
        sack: SackBlocks::default(),
        timestamps: None,
        options_malformed: false,
        options_cut: false,
        payload,
        payload_len: u32::try_from(payload.len()).unwrap(),
        ip_id: None,
        ttl: 64,
        ecn: 0,
        tunnel: None,
        packet_direction: PacketDirection::Unknown,
        cooked_interface: 0,
    }
}

/// The same from the server.
fn reply(flags: TcpFlags, seq: u32, ack: u32, payload: &[u8]) -> Segment<'_> {
    Segment {
        source: SERVER.0,
        destination: CLIENT.0,
        source_port: SERVER.1,
        destination_port: CLIENT.1,
        ..segment(flags, seq, ack, payload)
    }
}

/// Sequence number of the client's byte at `offset`.
fn from_client(offset: u32) -> u32 {
    CLIENT_ISN.wrapping_add(1).wrapping_add(offset)
}

/// Sequence number of the server's byte at `offset`.
fn from_server(offset: u32) -> u32 {
    SERVER_ISN.wrapping_add(1).wrapping_add(offset)
}

/// A capture as it is recorded; each packet comes a millisecond after the last unless the test says when.
struct Capture {
    router: Router,
    shard: Shard,
    end: At,
    packet: u32,
    time: i64,
}

/// What a capture has become.
struct Seen {
    connections: Connections,
    cx: Context,
    budgets: Vec<Budget>,
}

impl Capture {
    fn new() -> Self {
        let options = Options { frames: true, messages: true, packets: true, rpc_rows: true, ..Options::default() };
        Self { router: Router::new(&[1]), shard: Shard::new(options), end: At::default(), packet: 0, time: 0 }
    }

    /// A connection opened by a handshake with MSS 1460, window scale 7 and RTT halves of 3 ms and 1 ms.
    fn opened() -> Self {
        let mut capture = Self::new();
        let options = Segment { mss: Some(1_460), window_scale: Some(7), ..segment(SYN, CLIENT_ISN, 0, &[]) };
        capture.at(10 * MS, options);
        let options =
            Segment { mss: Some(1_460), window_scale: Some(7), ..reply(SYN_ACK, SERVER_ISN, from_client(0), &[]) };
        capture.at(13 * MS, options);
        capture.at(14 * MS, segment(ACK, from_client(0), from_server(0), &[]));
        capture
    }

    /// Records a packet a millisecond after the last.
    fn add(&mut self, segment: Segment<'_>) {
        self.at(self.time + MS, segment);
    }

    /// Records a packet at a time, with an identification of its own if it has none.
    fn at(&mut self, time: i64, segment: Segment<'_>) {
        self.packet += 1;
        self.time = time;
        let own = u16::try_from(self.packet % 60_000 + 1).unwrap();
        let segment = Segment { ip_id: segment.ip_id.or(Some(own)), ..segment };
        let at = At::new(self.packet, time);
        self.end = if time >= self.end.time { at } else { self.end };
        let route = self.router.route(&segment).unwrap();
        self.shard.segment(&route, &segment, at);
    }

    /// Data of the client from `offset` on.
    fn client(&mut self, offset: u32, payload: &[u8]) {
        self.add(segment(ACK, from_client(offset), from_server(0), payload));
    }

    /// Data of the server from `offset` on.
    fn server(&mut self, offset: u32, payload: &[u8]) {
        self.add(reply(ACK, from_server(offset), from_client(0), payload));
    }

    /// The server acknowledges the client's bytes before `offset`.
    fn server_acks(&mut self, offset: u32) {
        self.add(reply(ACK, from_server(0), from_client(offset), &[]));
    }

    fn cx(&mut self) -> &mut Context {
        &mut self.shard.cx
    }

    fn finish(self) -> Seen {
        let (rows, cx, _) = self.shard.into_finished(CaptureEnd { last: self.end, damage: 0 });
        let mut connections = Connections::default();
        let ended: Vec<_> = rows.iter().map(|finished| finished.ended().expect("rows")).collect();
        for (known, ended) in self.router.known().iter().zip(&ended) {
            let ports = [known.first_sender.1, known.other.1].map(u32::from);
            let client = usize::from(ended.row.client_side);
            let (client_port, server_port) = (ports[client], ports[1 - client]);
            connections.push(ConnectionRow { client_port, server_port, ..ended.row });
        }
        let budgets = ended.iter().map(|ended| ended.budget).collect();
        let seen = Seen { connections, cx, budgets };
        seen.check();
        seen
    }
}

impl Seen {
    /// What holds for every capture: all payload bytes are accounted for, budgets add up.
    fn check(&self) {
        let table = &self.connections;
        for row in 0..table.len() {
            let sum = table.decoded_bytes[row]
                + table.retransmitted_bytes[row]
                + table.not_http2_bytes[row]
                + table.encrypted_bytes[row]
                + table.undecoded_bytes[row]
                + table.undelivered_bytes[row];
            assert_eq!(table.payload_bytes[row], sum, "connection {row}");
        }
        for (budget, duration) in self.cx.rpc_budgets.iter().zip(&self.cx.rpcs.duration_ns) {
            assert_eq!(i64::try_from(budget.total()), Ok(*duration));
        }
        let rpcs: u64 = self.cx.rpc_budgets.iter().map(Budget::total).sum();
        assert_eq!(self.budgets.iter().map(Budget::total).sum::<u64>(), rpcs);
    }

    /// Methods of the RPCs in the order of their streams' beginnings.
    fn methods(&self) -> Vec<Option<String>> {
        let names = self.cx.strings.methods.texts();
        self.cx.rpcs.method.iter().map(|&method| names.get(method as usize).cloned()).collect()
    }

    /// The notes of the packets that carry payload.
    fn notes(&self) -> Vec<Note> {
        const ALL: [Note; 5] = [Note::None, Note::Retransmission, Note::Duplicate, Note::OutOfOrder, Note::KeepAlive];
        let packets = &self.cx.packets;
        let with_payload = (0..packets.len()).filter(|&row| packets.payload_bytes[row] > 0);
        with_payload.map(|row| ALL[usize::from(packets.note[row])]).collect()
    }

    fn problems(&self) -> &[&'static str] {
        &self.cx.problems.kinds
    }

    fn status(&self, rpc: usize) -> Option<&'static str> {
        status::NAMES.get(usize::from(self.cx.rpcs.status[rpc])).copied()
    }
}

// --- The HTTP/2 that the segments carry ---

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Fields as literals without indexing.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let field = |(name, value): &(&str, &str)| {
        let (name_length, value_length) = (u8::try_from(name.len()).unwrap(), u8::try_from(value.len()).unwrap());
        [&[0, name_length], name.as_bytes(), &[value_length], value.as_bytes()].concat()
    };
    fields.iter().flat_map(field).collect()
}

/// The preface and empty SETTINGS.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &[])[..]].concat()
}

/// A request whose message has `length` bytes.
fn request(stream: u32, method: &str, length: usize) -> Vec<u8> {
    let fields =
        block(&[(":method", "POST"), (":path", method), ("content-type", "application/grpc"), ("te", "trailers")]);
    [frame(1, 4, stream, &fields), frame(0, 1, stream, &message(length))].concat()
}

/// A response whose message has `length` bytes, with status OK.
fn response(stream: u32, length: usize) -> Vec<u8> {
    let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
    [
        frame(1, 4, stream, &head),
        frame(0, 0, stream, &message(length)),
        frame(1, 5, stream, &block(&[("grpc-status", "0")])),
    ]
    .concat()
}

fn message(length: usize) -> Vec<u8> {
    [&[0][..], &u32::try_from(length).unwrap().to_be_bytes(), &vec![0xaa; length]].concat()
}

/// What a client sends for one call.
fn call(method: &str, length: usize) -> Vec<u8> {
    [preface(), request(1, method, length)].concat()
}

#[test]
fn a_connection_has_its_row() {
    let mut capture = Capture::opened();
    let (sent, answered) = (call("/a/B", 10), [frame(4, 0, 0, &[]), response(1, 20)].concat());
    capture.client(0, &sent);
    capture.server(0, &answered);
    let seen = capture.finish();
    let table = &seen.connections;
    assert_eq!(table.len(), 1);
    assert_eq!((table.client_port[0], table.server_port[0], table.rpcs[0]), (40_000, 50_051, 1));
    assert_eq!((table.packets_client[0], table.packets_server[0]), (3, 2));
    assert_eq!((table.bytes_client[0], table.bytes_server[0]), (sent.len() as u64, answered.len() as u64));
    assert_eq!((table.complete[0], table.roles_from[0], table.protocol[0]), (1, 0, 1));
    assert_eq!((table.first_packet[0], table.last_packet[0]), (1, 5));
    assert_eq!((table.opened_time_ns[0], table.last_time_ns[0], table.closed_time_ns[0]), (10 * MS, 16 * MS, -1));
    assert_eq!((seen.methods(), seen.status(0)), (vec![Some("/a/B".to_owned())], Some("OK")));
    assert_eq!(seen.problems(), [""; 0]);
}
