//! One connection with all its layers: TCP, TLS, HTTP/2 and gRPC.

pub mod content;
pub mod encrypted;
pub mod piece;
mod records;
pub mod roles;
pub mod set_up;
pub mod shared;
mod summary;
pub mod tap;

use crate::at::{self, At};
use crate::grpc::state::Http2;
use crate::http2::connection::state::End;
use crate::packet::{Segment, TcpFlags};
use crate::store::budget::Budget;
use crate::store::context::Context;
use crate::store::tables::{ClosingRow, ConnectionRow, DirectionRow, SetupRow, TurnRow, UnansweredRow, UndeliveredRow};
use crate::tcp::connection::Connection as Tcp;

use content::{Content, ContentReader};
use piece::Before;
use roles::RolesFrom;
use shared::Shared;

/// What is left of a connection that is over.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The number of its first packet.
    pub id: u32,
    /// Its row, without addresses.
    pub row: ConnectionRow,
    /// The budgets of its RPCs, summed.
    pub budget: Budget,
    /// The habits of the client and of the server.
    pub directions: [DirectionRow; 2],
    /// Whose turn it was.
    pub turns: TurnRow,
    /// How it was set up.
    pub setup: SetupRow,
}

/// Where the capture ends, and up to where it is whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureEnd {
    /// Its last TCP packet.
    pub last: At,
    /// The last packet in front of damage that cost packets: what connections did that sent no packet after it is not
    /// known. 0 without such damage.
    pub damage: u32,
}

/// A connection that still receives packets.
#[derive(Debug)]
pub struct Connection {
    tcp: Tcp,
    content: Content,
    roles_from: RolesFrom,
    /// How it was at the last cut, if there was one.
    before: Option<Box<Before>>,
}

impl Connection {
    /// A connection whose first packet is `segment`, from side 0. `client` is the side its addresses suggest.
    pub fn new(row: u32, segment: &Segment<'_>, client: usize, at: At, cx: &mut Context, shared: &Shared) -> Self {
        let (client, roles_from) = roles::from_first_segment(segment, client);
        let begun_late = !segment.flags.contains(TcpFlags::SYN);
        let mut http2 = Http2::new(row, client, roles_from == RolesFrom::Syn, begun_late, &mut cx.strings);
        if cx.options.ports.iter().any(|&port| port == segment.source_port || port == segment.destination_port) {
            http2.assume_http2();
        }
        http2.follows_http1 = !cx.options.as_scrubbed;
        let tcp = Tcp::new(row, segment, at, shared.tap.is_some());
        Self { tcp, content: Content::new(http2), roles_from, before: None }
    }

    /// Reads what its next packets will need, and nothing else: all of it is fetched at once, while another connection
    /// is worked on.
    #[inline]
    pub fn touch(&self) {
        std::hint::black_box(self.tcp.touch() ^ self.content.http2.touch());
    }

    /// Whether it has carried no payload.
    pub fn is_empty(&self) -> bool {
        self.tcp.counters.payload_bytes == 0
    }

    /// The number of its last packet.
    pub fn last_packet(&self) -> u32 {
        self.tcp.last.packet
    }

    /// Whether both sides have closed, or one has reset.
    pub fn is_finished(&self) -> bool {
        self.tcp.is_finished()
    }

    /// Takes one segment of `side`.
    #[inline]
    pub fn segment(&mut self, side: usize, segment: &Segment<'_>, at: At, cx: &mut Context, shared: &mut Shared) {
        let content = &mut self.content;
        self.tcp.segment(side, segment, at, &mut ContentReader { content, cx, shared });
    }

    /// Ends the connection: holes are given up, open RPCs end, the row is made.
    pub fn finish(mut self, replaced: bool, capture_end: CaptureEnd, cx: &mut Context, shared: &mut Shared) -> Ended {
        push_undelivered(&self.tcp, &self.content, cx);
        let content = &mut self.content;
        self.tcp.give_up_all(&mut ContentReader { content, cx, shared });
        let (end, at) = end_of_rpcs(&self.tcp, content.http2.client, replaced, capture_end);
        self.tcp.transport.is_acknowledged = [0, 1].map(|side| self.tcp.is_acknowledged(side));
        content.finish(end, at, &self.tcp.transport, cx, shared);
        push_unanswered(&self.tcp, content, cx);
        push_closings(&self.tcp, &self.content, self.last_cut(), cx);
        self.rows(at, cx)
    }
}

/// Adds a row for each side whose last packets were retransmitted after a timeout, and got no answer.
fn push_unanswered(tcp: &Tcp, content: &Content, cx: &mut Context) {
    for (side, sent) in (0..2).filter_map(|side| Some((side, tcp.transport.in_vain_of(side)?))) {
        let (ping_packet, ping_time_ns) = at::place(content.http2.sides[1 - side].pinged);
        cx.unanswered.push(UnansweredRow {
            connection: tcp.row,
            direction: content.http2.direction(side),
            heard_packet: sent.heard.0,
            heard_time_ns: sent.heard.1,
            first_packet: sent.first.packet,
            first_time_ns: sent.first.time,
            retransmissions: sent.retransmissions,
            timeouts: sent.timeouts,
            again_packet: sent.again.packet,
            again_time_ns: sent.again.time,
            last_packet: sent.last.packet,
            last_time_ns: sent.last.time,
            ping_packet,
            ping_time_ns,
        });
    }
}

/// Adds a row for each side whose first unacknowledged bytes never arrived: they were retransmitted in vain, or left a hole
/// that was never filled. Its peer was heard after them, or reported later bytes, so the path is not gone.
fn push_undelivered(tcp: &Tcp, content: &Content, cx: &mut Context) {
    for side in 0..2 {
        let half = &tcp.halves[side];
        let sent = half.undelivered.from(half.acked);
        let hole = tcp.hole(side);
        let heard = tcp.transport.unanswered[side].heard;
        let first = if sent.retransmissions > 0 { sent.first } else { hole.map_or(sent.first, |hole| hole.1) };
        let reported = heard.0 > first.packet || sent.selective.packet > 0;
        if !reported || sent.retransmissions == 0 && hole.is_none() {
            continue;
        }
        let behind =
            if sent.selective.packet > 0 { sent.selective } else { hole.map_or(sent.selective, |hole| hole.1) };
        cx.undelivered.push(UndeliveredRow {
            connection: tcp.row,
            direction: content.http2.direction(side),
            first_packet: first.packet,
            first_time_ns: first.time,
            retransmissions: sent.retransmissions,
            shortest: sent.shortest,
            last_packet: sent.last.packet,
            last_time_ns: sent.last.time,
            hole_bytes: hole.map_or(0, |hole| hole.0),
            behind_packet: behind.packet,
            behind_time_ns: behind.time,
            longest_bytes: sent.longest_acked,
            longest_seen_bytes: half.longest_payload,
            segment_bytes: half.segment_size(&tcp.halves[1 - side]),
            heard_packet: heard.0,
            heard_time_ns: heard.1,
        });
    }
}

/// Adds a row for each FIN and RST behind packet `cut`.
fn push_closings(tcp: &Tcp, content: &Content, cut: u32, cx: &mut Context) {
    let behind = tcp.closings.iter().zip(&content.closings).filter(|(closing, _)| closing.at.packet > cut);
    for (closing, known) in behind {
        let (ping_packet, ping_time_ns) = at::place(known.ping);
        cx.closings.push(ClosingRow {
            connection: tcp.row,
            direction: content.http2.direction(closing.side),
            packet: closing.at.packet,
            time_ns: closing.at.time,
            reset: u8::from(closing.is_reset),
            ttl: closing.ttl,
            least_ttl: closing.ttls[0],
            most_ttl: closing.ttls[1],
            identification: closing.ip_id.map_or(u32::MAX, u32::from),
            identification_before: closing.ip_id_before.map_or(u32::MAX, u32::from),
            own_packet: closing.own.0,
            own_time_ns: closing.own.1,
            peer_packet: closing.peer.0,
            peer_time_ns: closing.peer.1,
            peer_idle_ns: closing.peer_idle,
            open_rpcs: known.open_rpcs,
            ping_packet,
            ping_time_ns,
            later_packets: closing.later,
            later_packet: closing.later_at.packet,
            later_time_ns: closing.later_at.time,
        });
    }
}

/// How open RPCs end: no answer comes after the server's FIN or a reset, but one may after the client's FIN.
fn end_of_rpcs(tcp: &Tcp, client: usize, replaced: bool, capture_end: CaptureEnd) -> (End, At) {
    let server = 1 - client;
    // a FIN behind bytes that never arrived did not arrive either
    let fin = tcp.transport.fins[server].filter(|_| !tcp.undelivered[server]);
    let last = tcp.reset.into_iter().chain(fin).min_by_key(|at| at.time);
    match (last, tcp.closed_by) {
        (Some(at), Some(side)) if side == server => (End::ServerCloses, at),
        (Some(at), _) => (End::ClientCloses, at),
        (None, _) if replaced => (End::Replaced, tcp.last),
        (None, _) if tcp.last.packet <= capture_end.damage => (End::NotKnown, tcp.last),
        (None, _) => (End::CaptureEnds, capture_end.last),
    }
}
