//! Follows HTTP/1.1 whose requests the protocol on top reads: each such exchange is a stream to it, with windows that never
//! bind. The responses of a connection come in the order of its requests (RFC 9112 section 9.3.2).

use crate::at::At;
use crate::http1::base64::Base64;
use crate::http1::head::{self, Body, Head};
use crate::http1::reader::Piece;
use crate::http2::connection::detect::{self, Opening};
use crate::http2::connection::events::{Events, HeaderBlock};
use crate::http2::connection::http1::{Exchange, Http1, Message};
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::State;
use crate::http2::connection::state::{End, Http2, Protocol};
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::http2::hpack::{Classifier, Field, Representation};
use crate::limits;
use crate::store::tables::Layer;

/// Begins to follow HTTP/1.1, of which `side` sent a request, or a response; `false` if the other side speaks no HTTP/1.1.
pub(in crate::http2) fn begin<A: Events>(h2: &mut Http2<A>, side: usize, is_request: bool) -> bool {
    let client = if is_request { side } else { 1 - side };
    let is_other = !matches!(h2.protocol, Protocol::Http2 | Protocol::Tls);
    let begun_inside = h2.sides[1 - side].state == State::Lost && h2.begun_late && is_other;
    if !begun_inside && !matches!(h2.sides[1 - side].state, State::Opening | State::Http1Body | State::Http1) {
        return false;
    }
    let declined = h2.upgrade.take();
    let http1 = h2.http1.get_or_insert_with(|| Box::new(Http1 { client, ..Http1::default() }));
    if let Some(request) = declined {
        http1.begun = true;
        http1.open.push_back(Exchange { stream: 0, is_head: request.is_head });
    }
    if begun_inside {
        http1.directions[1 - side].begun_inside = true;
        h2.bytes.not_http2 += h2.sides[1 - side].buffered();
        h2.sides[1 - side].state = State::Http1;
    }
    http1.client == client
}

/// Reads the next bytes of `side`; gives those that are no HTTP/1.1.
pub(in crate::http2) fn read_http1<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let Some(mut http1) = h2.http1.take() else {
        h2.sides[side].state = State::Foreign;
        return bytes;
    };
    if http1.directions[side].begun_inside && !bytes.is_empty() {
        let head = if side == http1.client { Opening::Http1Request } else { Opening::Http1Response };
        if detect::opening(bytes) != head {
            *count_bytes(h2) += bytes.len() as u64;
            h2.http1 = Some(http1);
            return &[];
        }
        http1.directions[side].begun_inside = false;
    }
    let mut rest = bytes;
    loop {
        let direction = &mut http1.directions[side];
        if direction.reader.is_between() {
            direction.first = at;
        }
        let before = rest.len();
        let piece = direction.reader.next(&mut rest);
        *count_bytes(h2) += (before - rest.len()) as u64;
        let read = match piece {
            Piece::Open => break,
            Piece::Head(octets) => begin_message(h2, &mut http1, side, &octets, at, reading),
            Piece::Body(octets) => read_body(h2, &mut http1.directions[side].message, side, octets, at, reading, watch),
            Piece::End => {
                end_message(h2, &mut http1, side, at, reading);
                Some(())
            }
            Piece::Broken => None,
        };
        if read.is_none() {
            give_up(h2, 0, "HTTP/1.1 cannot be read from here on", at, reading);
            return rest;
        }
    }
    h2.http1 = Some(http1);
    &[]
}

/// Where bytes count: those of a connection without requests of the protocol on top are another protocol's.
fn count_bytes<A: Events>(h2: &mut Http2<A>) -> &mut u64 {
    if h2.protocol == Protocol::Http1 { &mut h2.bytes.decoded } else { &mut h2.bytes.not_http2 }
}

/// A head is whole. `None` when it is none, or when what follows cannot be read.
fn begin_message<A: Events>(
    h2: &mut Http2<A>,
    http1: &mut Http1,
    side: usize,
    octets: &[u8],
    at: At,
    reading: &mut Reading<'_>,
) -> Option<()> {
    let first = http1.directions[side].first;
    let mut room = head::room();
    if side != http1.client {
        let head = head::parse_response(octets, &mut room)?;
        return begin_response(h2, http1, side, &head, [first, at], reading);
    }
    let head = head::parse_request(octets, &mut room)?;
    let body = head.body().filter(|_| head.method != "CONNECT" && http1.open.len() < limits::HTTP1_REQUESTS)?;
    let content = content_of::<A>(&head).filter(|_| head.method == "POST" && !head.is_coded());
    let stream = match content {
        Some(_) => http1.followed.checked_mul(2)?.checked_add(1)?,
        None => 0,
    };
    http1.begun = true;
    http1.followed += u32::from(stream != 0);
    http1.open.push_back(Exchange { stream, is_head: head.method == "HEAD" });
    http1.directions[side].reader.begin_body(body);
    http1.directions[side].message = Message { stream, base64: base64_of(content), is_answer: false };
    if stream == 0 {
        return Some(());
    }
    if h2.protocol != Protocol::Http1 {
        h2.protocol = Protocol::Http1;
        h2.bytes.not_http2 = h2.bytes.not_http2.saturating_sub(octets.len() as u64);
        h2.bytes.decoded += octets.len() as u64;
    }
    let pseudo = [(&b":method"[..], &b"POST"[..]), (b":path", head.path())];
    pass_head(h2, [side, stream as usize], &pseudo, &head, [first, at], reading);
    Some(())
}

fn begin_response<A: Events>(
    h2: &mut Http2<A>,
    http1: &mut Http1,
    side: usize,
    head: &Head<'_, '_>,
    [first, at]: [At; 2],
    reading: &mut Reading<'_>,
) -> Option<()> {
    let request = http1.open.front().copied();
    // a server may say to an idle connection that it waits no longer (RFC 9110 section 15.5.9)
    let may_be_unasked = if http1.begun { head.status == 408 } else { h2.begun_late };
    if request.is_none() && !may_be_unasked {
        return None; // its request is not in the capture, or later in it
    }
    let is_answer = request.is_some();
    let Exchange { stream, is_head } = request.unwrap_or_default();
    let is_interim = (100..200).contains(&head.status);
    if !is_interim {
        let body = if is_head || matches!(head.status, 204 | 304) { Body::Length(0) } else { head.body()? };
        http1.directions[side].reader.begin_body(body);
        let base64 = base64_of(content_of::<A>(head)).filter(|_| !head.is_coded());
        http1.directions[side].message = Message { stream, base64, is_answer };
    }
    if stream != 0 {
        let status = head.status.to_string();
        pass_head(h2, [side, stream as usize], &[(b":status", status.as_bytes())], head, [first, at], reading);
    }
    (head.status != 101).then_some(())
}

/// The type under which the protocol on top reads a message, and whether its body is base64.
fn content_of<A: Events>(head: &Head<'_, '_>) -> Option<(&'static [u8], bool)> {
    A::content_over_http1(head.value(b"content-type")?)
}

fn base64_of(content: Option<(&'static [u8], bool)>) -> Option<Base64> {
    content.filter(|&(_, is_base64)| is_base64).map(|_| Base64::default())
}

/// Gives a head to the protocol on top as a header block.
fn pass_head<A: Events>(
    h2: &mut Http2<A>,
    [side, stream]: [usize; 2],
    pseudo: &[(&[u8], &[u8])],
    head: &Head<'_, '_>,
    [first, last]: [At; 2],
    reading: &mut Reading<'_>,
) {
    let mut block = A::Block::default();
    let content = content_of::<A>(head);
    let mut pass = |name: &[u8], value: &[u8]| {
        let (name, value) = (Some(name), Some(value));
        let class = A::fields(reading.cx).classify(name, value);
        let representation = Representation::LiteralWithoutIndexing;
        A::field(&mut block, &Field { name, value, class, representation, entry: None });
    };
    pseudo.iter().for_each(|(name, value)| pass(name, value));
    for field in head.fields {
        let name = field.name.to_ascii_lowercase();
        match content {
            Some((content, _)) if name == "content-type" => pass(name.as_bytes(), content),
            _ => pass(name.as_bytes(), field.value),
        }
    }
    let summary = &A::block_ends(h2, block, true, reading.cx);
    let block = HeaderBlock { side, stream: stream as u32, summary, end_stream: false, first, last };
    A::headers(h2, &block, reading);
}

/// `None` when a body that should be base64 is none.
fn read_body<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    message: &mut Message,
    side: usize,
    octets: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> Option<()> {
    let slot = h2.streams.slot(message.stream).filter(|_| message.stream != 0).unwrap_or(NONE);
    if slot == NONE {
        return Some(());
    }
    let Some(base64) = &mut message.base64 else {
        A::data(h2, side, slot, octets, at, reading, watch);
        return Some(());
    };
    let mut data = Vec::with_capacity(octets.len());
    let is_base64 = base64.decode(octets, &mut data);
    if !data.is_empty() {
        A::data(h2, side, slot, &data, at, reading, watch);
    }
    is_base64.then_some(())
}

fn end_message<A: Events>(h2: &mut Http2<A>, http1: &mut Http1, side: usize, at: At, reading: &mut Reading<'_>) {
    let Message { stream, is_answer, .. } = std::mem::take(&mut http1.directions[side].message);
    if is_answer {
        http1.open.pop_front();
    }
    if stream != 0 {
        let slot = h2.streams.slot(stream).unwrap_or(NONE);
        A::end_stream(h2, side, stream, slot, at, reading);
    }
}

/// `length` octets of `side` are not in the capture. Inside a body, whose end is known, reading goes on; base64 has lost
/// where its groups begin.
pub(in crate::http2) fn gap<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    length: u64,
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let Some(http1) = &mut h2.http1 else { return };
    let direction = &mut http1.directions[side];
    if direction.begun_inside {
        return;
    }
    let Message { stream, base64, .. } = direction.message;
    if stream != 0 && base64.is_some() || !direction.reader.skip(length) {
        return give_up(h2, length, "bytes are missing: HTTP/1.1 cannot be read from here on", at, reading);
    }
    if let Some(slot) = h2.streams.slot(stream).filter(|_| stream != 0) {
        A::data_lacks(h2, side, slot, u32::try_from(length).unwrap_or(u32::MAX), at, reading);
    }
    read_http1(h2, side, &[], at, reading, watch);
}

/// Follows no further: which response belongs to which request, or where one begins, is unknown.
fn give_up<A: Events>(h2: &mut Http2<A>, missing: u64, why: &'static str, at: At, reading: &mut Reading<'_>) {
    h2.http1 = None;
    let is_followed = h2.protocol == Protocol::Http1;
    for side in 0..2 {
        let kept = h2.sides[side].buffered();
        *(if is_followed { &mut h2.bytes.undecoded } else { &mut h2.bytes.not_http2 }) += kept;
        h2.sides[side].lose(missing, at.packet);
        h2.sides[side].state = State::Foreign;
    }
    if is_followed {
        A::doubt(h2, at);
        h2.problem(Layer::Http2, why, at, reading.cx);
    }
}

/// The connection is over: its end may be that of a response.
pub(in crate::http2) fn finish<A: Events>(h2: &mut Http2<A>, end: End, at: At, reading: &mut Reading<'_>) {
    let Some(mut http1) = h2.http1.take() else { return };
    let server = 1 - http1.client;
    if end == End::ServerCloses && http1.directions[server].reader.is_until_close() {
        end_message(h2, &mut http1, server, at, reading);
    }
}
