//! Decides who is the client, and where the capture was taken.

use serde::{Deserialize, Serialize};

use crate::packet::{Segment, TcpFlags};
use crate::tcp::connection::Connection as Tcp;

/// How client and server are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum RolesFrom {
    /// The SYN.
    Syn = 0,
    /// The HTTP/2 preface or header fields.
    Http2 = 1,
    /// Another connection with the same server, or the port numbers: a guess.
    Ports = 2,
}

/// Names in the order of [`RolesFrom`].
pub const NAMES: [&str; 3] = ["syn", "http2", "ports"];

/// The client's side by a connection's first segment, which side 0 sent.
pub fn from_first_segment(segment: &Segment<'_>, suggested: usize) -> (usize, RolesFrom) {
    match (segment.flags.contains(TcpFlags::SYN), segment.flags.contains(TcpFlags::ACK)) {
        (true, false) => (0, RolesFrom::Syn),
        (true, true) => (1, RolesFrom::Syn),
        _ => (suggested, RolesFrom::Ports),
    }
}

/// The port on which gRPC's own examples and guides listen. It lies in the ephemeral range, so that a client's port may
/// be lower.
const GRPC_PORT: u16 = 50_051;

/// The client's side by ports: servers listen on gRPC's, else on the lower one, because clients get theirs from the
/// ephemeral range (RFC 6335 section 6; `net.ipv4.ip_local_port_range`).
pub fn from_ports(source: u16, destination: u16) -> usize {
    match (source == GRPC_PORT, destination == GRPC_PORT) {
        (false, true) => 0,
        (true, false) => 1,
        _ => usize::from(source < destination),
    }
}

/// First port that Linux gives to clients (`net.ipv4.ip_local_port_range`).
const FIRST_EPHEMERAL_PORT: u16 = 32_768;

/// Whether both ports of a segment may be a client's, as far as their numbers tell.
pub fn may_be_clients(segment: &Segment<'_>) -> bool {
    let may_be = |port: u16| port >= FIRST_EPHEMERAL_PORT && port != GRPC_PORT;
    may_be(segment.source_port) && may_be(segment.destination_port)
}

/// Where the capture was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Vantage {
    /// Not known, or the round trip is too short to matter.
    #[default]
    Unknown = 0,
    /// At or near the client.
    Client = 1,
    /// At or near the server.
    Server = 2,
    /// Between the two.
    Middle = 3,
}

/// Names in the order of [`Vantage`].
pub const VANTAGES: [&str; 4] = ["unknown", "client", "server", "middle"];

/// Below this both halves of the round trip are host time, not distance: 200 microseconds.
const SHORT: i64 = 200_000;

/// By the direction that a cooked capture notes for each packet; else by the halves of the round trip: a half that is
/// a fifth of the other or less is near.
pub fn vantage(tcp: &Tcp, client: usize) -> Vantage {
    let counters = &tcp.counters;
    let sent_here = |side: usize| counters.outgoing[side] > 0 && counters.incoming[side] == 0;
    match (sent_here(client), sent_here(1 - client)) {
        (true, false) => return Vantage::Client,
        (false, true) => return Vantage::Server,
        _ => {}
    }
    let near = |side: usize| tcp.transport.near_rtt[side];
    let (to_client, to_server) = (near(client), near(1 - client));
    if to_client < 0 || to_server < 0 || to_client.max(to_server) < SHORT {
        Vantage::Unknown
    } else if to_client <= to_server / 5 {
        Vantage::Client
    } else if to_server <= to_client / 5 {
        Vantage::Server
    } else {
        Vantage::Middle
    }
}
