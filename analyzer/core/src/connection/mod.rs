//! One connection with all its layers: TCP, TLS, HTTP/2 and gRPC.

use serde::{Deserialize, Serialize};

mod before;
pub mod content;
pub mod encrypted;
mod end_rows;
mod interval_end;
pub mod prologue;
mod records;
pub mod roles;
pub mod set_up;
pub mod shared;
mod summary;
pub mod tap;

use crate::at::At;
use crate::grpc::connection::Http2;
use crate::grpc::unreceived::correct_unreceived;
use crate::http2::connection::http2::End;
use crate::packet::{Segment, TcpFlags};
use crate::store::budget::Budget;
use crate::store::context::Context;
use crate::store::strings::Strings;
use crate::store::tables::{ConnectionRow, DirectionRow, SetupRow, TurnRow};
use crate::tcp::connection::Connection as Tcp;

use before::Before;
use content::{Content, ContentReader};
use end_rows::{push_closings, push_unanswered, push_undelivered};
use roles::RolesFrom;
use shared::Shared;

/// What is left of a connection that is over.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
#[derive(Debug, Serialize, Deserialize)]
pub struct Connection {
    tcp: Tcp,
    content: Content,
    roles_from: RolesFrom,
    /// How it was at the last cut, if there was one.
    before: Option<Box<Before>>,
}

impl Connection {
    /// A connection whose first packet is `segment`, from side 0. `client` is the side its addresses suggest.
    pub fn new(row: u32, segment: &Segment<'_>, client: usize, at: At, cx: &mut Context, shared: &mut Shared) -> Self {
        let (client, roles_from) = roles::from_first_segment(segment, client);
        let begun_late = !segment.flags.contains(TcpFlags::SYN);
        let hpack = shared.hpack(&mut cx.strings);
        let mut http2 = Http2::new(row, client, roles_from == RolesFrom::Syn, begun_late, hpack);
        if cx.options.ports.iter().any(|&port| port == segment.source_port || port == segment.destination_port) {
            http2.assume_http2();
        }
        http2.roles_guessed = roles_from == RolesFrom::Ports && roles::may_be_clients(segment);
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

    /// Makes it fit to be saved: without values of header fields. `false` when it cannot be, because it is TLS.
    pub fn prepare_saving(&mut self) -> bool {
        self.content.http2.sides.iter_mut().for_each(|side| side.forget_values());
        self.content.tls.is_none()
    }

    /// Whether the connection can be saved without loss: it has carried payload, and has no TLS state, which is never
    /// saved.
    pub fn can_be_packed(&self) -> bool {
        !self.is_empty() && self.content.tls.is_none()
    }

    /// Shares HPACK's static table with other connections again, after the connection was restored from its saved form.
    pub fn share_again(&mut self, shared: &mut Shared, strings: &mut Strings) {
        let like = shared.hpack(strings);
        self.content.http2.sides.iter_mut().for_each(|side| side.share_static_table(like));
    }

    /// Whether the connection has carried no payload.
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
        self.tcp.note_acknowledged();
        content.finish(end, at, &self.tcp.transport, cx, shared);
        let sent = &self.tcp.halves[1 - content.http2.client];
        if let Some(since) = sent.undelivered.lost_since(sent.acked)
            && !self.tcp.is_gone(content.http2.client)
        {
            correct_unreceived(&mut content.http2, since, end, at, &self.tcp.transport, cx);
        }
        if let Some(repeats) = &mut content.http2.application.repeats {
            repeats.finish(self.tcp.row, cx);
        }
        push_unanswered(&self.tcp, content, cx);
        push_closings(&self.tcp, &self.content, self.last_cut(), cx);
        self.rows(at, cx)
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
