//! Decides what the first octets of a direction are, and which state reads them.

use crate::at::At;
use crate::http1::head::Body;
use crate::http1::reader::{Piece, Reader};
use crate::http2::connection::application::Application;
use crate::http2::connection::detect::{self, Opening};
use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::State;
use crate::http2::connection::state::{Http2, Protocol};
use crate::http2::connection::watch::Watch;
use crate::http2::frame::boundary_search::Search;
use crate::http2::frame::settings;
use crate::limits;

use super::http1;

pub(in crate::http2) fn read_opening<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let mut kept = h2.sides[side].search.take().unwrap_or_default();
    h2.bytes.undecoded += kept.add(bytes, at);
    match judge_opening(h2, side, &kept, at, reading, watch) {
        Some(used) => h2.sides[side].replay = Some((kept, used)),
        None => h2.sides[side].search = Some(kept),
    }
    &[]
}

/// Decides what a direction's first bytes are and sets the state that reads them; gives how many of them need no
/// further reading, or `None` to wait for more.
pub(in crate::http2) fn judge_opening<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    kept: &Search,
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> Option<usize> {
    let bytes = kept.bytes();
    let what = detect::opening(bytes);
    let (state, used) = match what {
        Opening::Undecided => return None,
        Opening::Preface => {
            h2.protocol = Protocol::Http2;
            h2.set_client(side, at, reading.cx);
            h2.opens(side);
            h2.bytes.decoded += detect::PREFACE.len() as u64;
            h2.sides[side].habits.other_content();
            (State::Header, detect::PREFACE.len())
        }
        Opening::Settings => {
            h2.protocol = Protocol::Http2;
            h2.opens(side);
            (State::Header, 0)
        }
        Opening::Http1Request | Opening::Http1Response => {
            return judge_http1(h2, side, what == Opening::Http1Request, kept, at, reading, watch);
        }
        Opening::Tls => {
            h2.protocol = Protocol::Tls;
            (State::Foreign, 0)
        }
        Opening::Other if h2.begun_late || h2.forced || h2.protocol == Protocol::Http2 => {
            h2.sides[side].hpack.mark_begun_late();
            (State::Lost, 0)
        }
        Opening::Other => {
            watch.foreign(bytes.len());
            h2.protocol = if h2.protocol == Protocol::Undecided { Protocol::Other } else { h2.protocol };
            (State::Foreign, 0)
        }
    };
    watch.opening(bytes, what);
    h2.sides[side].state = state;
    Some(used)
}

/// HTTP/1.1: an upgrade to h2c is followed (RFC 7540 section 3.2), all else is another protocol as long as no request of the
/// protocol on top comes. A watcher is told of HTTP/2 alone.
fn judge_http1<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    is_request: bool,
    kept: &Search,
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> Option<usize> {
    let head = match detect::http1_head(kept.bytes()) {
        Some(head) => head,
        None if kept.len() < limits::HTTP1_HEAD => return None,
        None => detect::Http1Head::default(),
    };
    let used = head.length;
    let agreed = head.switching && head.upgrade_h2c && h2.upgrade.is_some();
    let asked = head.body.filter(|_| head.upgrade_h2c && is_request && h2.http1.is_none());
    watch.http1(kept.bytes(), used, asked.is_some() || agreed, agreed);
    if agreed {
        h2.protocol = Protocol::Http2;
        h2.sides[side].state = State::Header;
        accept_upgrade(h2, side, at, reading);
    } else if let Some(body) = asked {
        h2.set_client(side, at, reading.cx);
        h2.sides[side].frame_first = kept.first();
        h2.upgrade_body = Reader::default();
        h2.upgrade_body.begin_body(body);
        h2.sides[side].state = if body == Body::Length(0) { State::Opening } else { State::Http1Body };
        h2.upgrade = Some(Box::new(head));
    } else {
        let follows = used > 0 && h2.follows_http1 && !watch.watches() && http1::begin(h2, side, is_request);
        h2.protocol = if h2.protocol == Protocol::Http1 { Protocol::Http1 } else { Protocol::Other };
        h2.sides[side].state = if follows { State::Http1 } else { State::Foreign };
        return Some(0);
    }
    h2.bytes.decoded += used as u64;
    Some(used)
}

pub(in crate::http2) fn read_http1_body<'a, A: Application>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
) -> &'a [u8] {
    let mut rest = bytes;
    h2.sides[side].state = loop {
        match h2.upgrade_body.next(&mut rest) {
            Piece::Body(_) => {}
            Piece::Open => break State::Http1Body,
            Piece::End => break State::Opening,
            Piece::Head(_) | Piece::Broken => break State::Foreign,
        }
    };
    h2.bytes.decoded += (bytes.len() - rest.len()) as u64;
    rest
}

/// The server accepted an upgrade to h2c: the client's `HTTP2-Settings` are in force (RFC 7540 section 3.2).
fn accept_upgrade<A: Events>(h2: &mut Http2<A>, server: usize, at: At, reading: &mut Reading<'_>) {
    let Some(head) = h2.take_upgrade() else { return };
    let client = 1 - server;
    let pairs = settings::pairs(&head.settings);
    h2.sides[client].in_force = h2.sides[client].in_force.with(pairs).0;
    let table_size = h2.sides[client].in_force.header_table_size;
    h2.sides[server].allow_table_size(table_size);
    let first = h2.sides[client].frame_first();
    A::upgraded(h2, client, &head, first, at, reading);
}
