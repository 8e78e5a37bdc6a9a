//! gRPC conversations written out by hand: HTTP/2 frames, HPACK literals, TCP segments, IPv4 packets.

use super::Recorded;

/// LINKTYPE_RAW: packets begin with the IP header.
const RAW: u32 = 101;
const CLIENT: usize = 0;
const SERVER: usize = 1;
const MS: i64 = 1_000_000;

/// A call as its client and server mean it.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: u8,
    pub status: u8,
    pub requests: Vec<usize>,
    pub responses: Vec<usize>,
    /// DATA frames hold at most this many octets.
    pub frame: usize,
    /// Octets of padding in each DATA frame.
    pub padding: Option<u8>,
}

impl Call {
    pub fn path(&self) -> String {
        format!("/demo.Service/Method{}", self.method)
    }

    pub fn request_bytes(&self) -> u64 {
        self.requests.iter().map(|&length| length as u64).sum()
    }

    pub fn response_bytes(&self) -> u64 {
        self.responses.iter().map(|&length| length as u64).sum()
    }

    fn request(&self, stream: u32) -> Vec<u8> {
        let fields =
            [(":method", "POST"), (":path", &self.path()), ("content-type", "application/grpc"), ("te", "trailers")];
        let mut bytes = frame(1, 4, stream, &block(&fields));
        bytes.extend(self.data(stream, &self.requests));
        bytes.extend(frame(0, 1, stream, &[]));
        bytes
    }

    fn response(&self, stream: u32) -> Vec<u8> {
        let mut bytes = frame(1, 4, stream, &block(&[(":status", "200"), ("content-type", "application/grpc")]));
        bytes.extend(self.data(stream, &self.responses));
        bytes.extend(frame(1, 5, stream, &block(&[("grpc-status", &self.status.to_string())])));
        bytes
    }

    /// Messages, cut into DATA frames without regard to their boundaries.
    fn data(&self, stream: u32, lengths: &[usize]) -> Vec<u8> {
        let message =
            |&length: &usize| [&[0][..], &u32::try_from(length).unwrap().to_be_bytes(), &vec![0xaa; length]].concat();
        let messages: Vec<u8> = lengths.iter().flat_map(message).collect();
        let cut = |piece: &[u8]| match self.padding {
            Some(padding) => frame(0, 8, stream, &[&[padding][..], piece, &vec![0; usize::from(padding)]].concat()),
            None => frame(0, 0, stream, piece),
        };
        messages.chunks(self.frame.max(1)).flat_map(cut).collect()
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let field = |(name, value): &(&str, &str)| {
        let lengths = [name.len(), value.len()].map(|length| u8::try_from(length).unwrap());
        [&[0, lengths[0]], name.as_bytes(), &[lengths[1]], value.as_bytes()].concat()
    };
    fields.iter().flat_map(field).collect()
}

/// Who says what, in the order in which one waits for the other: calls in groups that are answered together.
pub fn turns(calls: &[Call], together: usize) -> Vec<(usize, Vec<u8>)> {
    let settings = frame(4, 0, 0, &[]);
    let ack = frame(4, 1, 0, &[]);
    let mut turns = vec![
        (CLIENT, [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()),
        (SERVER, [settings.clone(), ack.clone()].concat()),
        (CLIENT, ack),
    ];
    let streams: Vec<(u32, &Call)> = (1..).step_by(2).zip(calls).collect();
    for group in streams.chunks(together.max(1)) {
        turns.extend(group.iter().map(|(stream, call)| (CLIENT, call.request(*stream))));
        turns.extend(group.iter().rev().map(|(stream, call)| (SERVER, call.response(*stream))));
    }
    turns
}

/// A segment before it has its IPv4 header.
#[derive(Clone, Debug)]
pub struct Sent {
    pub side: usize,
    client_port: u16,
    flags: u8,
    seq: u32,
    ack: u32,
    identification: u16,
    pub payload: Vec<u8>,
}

/// Writes down the segments of a connection.
pub struct Wire {
    client_port: u16,
    next: [u32; 2],
    identification: u16,
    pub sent: Vec<Sent>,
}

/// Packets of the handshake.
pub const HANDSHAKE: usize = 3;

impl Wire {
    /// A connection that is open; both initial sequence numbers are just before the wrap-around.
    pub fn opened() -> Self {
        Self::opened_on(40_000, [u32::MAX - 700, u32::MAX - 70])
    }

    /// A connection from a port, with the initial sequence numbers of client and server.
    pub fn opened_on(client_port: u16, isn: [u32; 2]) -> Self {
        let mut wire = Self { client_port, next: isn, identification: 0, sent: Vec::new() };
        for (side, flags) in [(CLIENT, 0x02), (SERVER, 0x12), (CLIENT, 0x10)] {
            wire.send(side, flags, &[]);
            wire.next[side] = wire.next[side].wrapping_add(u32::from(flags >> 1 & 1));
        }
        wire
    }

    fn send(&mut self, side: usize, flags: u8, payload: &[u8]) {
        let identification = self.fresh_identification();
        let (seq, ack) = (self.next[side], if flags & 0x10 == 0 { 0 } else { self.next[1 - side] });
        let payload = payload.to_vec();
        self.next[side] = seq.wrapping_add(u32::try_from(payload.len()).unwrap());
        self.sent.push(Sent { side, client_port: self.client_port, flags, seq, ack, identification, payload });
    }

    /// Sends bytes in segments of the sizes given, over and over.
    pub fn data(&mut self, side: usize, bytes: &[u8], sizes: &mut impl Iterator<Item = usize>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap_or(1_448).clamp(1, rest.len()));
            self.send(side, 0x18, piece);
            rest = after;
        }
    }

    /// Both sides close.
    pub fn close(&mut self) {
        for side in [CLIENT, SERVER] {
            self.send(side, 0x11, &[]);
            self.next[side] = self.next[side].wrapping_add(1);
        }
    }

    /// The server resets the connection.
    pub fn reset(&mut self) {
        self.send(SERVER, 0x14, &[]);
    }

    /// The client acknowledges what has come.
    pub fn acknowledge(&mut self) {
        self.send(CLIENT, 0x10, &[]);
    }

    /// An identification that no packet has had of late; 0 stands for none.
    pub fn fresh_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1).max(1);
        self.identification
    }
}

impl Sent {
    /// The same bytes retransmitted: another packet.
    pub fn again(&self, identification: u16) -> Self {
        Self { identification, ..self.clone() }
    }

    /// The packet as recorded, a millisecond after the one before.
    pub fn recorded(&self, number: usize) -> Recorded {
        let captured = self.packet();
        let time_ns = 1_700_000_000_000 * MS + i64::try_from(number).unwrap() * MS;
        Recorded { time_ns, link_type: RAW, original_len: u32::try_from(captured.len()).unwrap(), captured }
    }

    fn packet(&self) -> Vec<u8> {
        let length = u16::try_from(40 + self.payload.len()).unwrap();
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let ports = [self.client_port, 50_051];
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend(self.identification.to_be_bytes());
        packet.extend([0x40, 0, 64, 6, 0, 0]);
        packet.extend(addresses[self.side]);
        packet.extend(addresses[1 - self.side]);
        packet.extend(ports[self.side].to_be_bytes());
        packet.extend(ports[1 - self.side].to_be_bytes());
        packet.extend(self.seq.to_be_bytes());
        packet.extend(self.ack.to_be_bytes());
        packet.extend([0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(&self.payload);
        packet
    }
}

/// The packets as recorded, in the order given.
pub fn record(sent: &[Sent]) -> Vec<Recorded> {
    sent.iter().enumerate().map(|(number, sent)| sent.recorded(number)).collect()
}
