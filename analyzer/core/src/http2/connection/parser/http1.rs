//! Follows HTTP/1.1 whose requests the protocol on top reads: each such exchange is a stream to it, with windows that never
//! bind. The responses of a connection come in the order of its requests (RFC 9112 section 9.3.2).

use crate::at::At;
use crate::http1::base64::Base64;
use crate::http1::head::{self, Body, Head};
use crate::http1::reader::Piece;
use crate::http2::connection::detect::{self, Opening};
use crate::http2::connection::events::{Events, HeaderBlock};
use crate::http2::connection::http1::{Exchange, Http1, Message};
use crate::http2::connection::http2::{End, Protocol};
use crate::http2::connection::reading::Parser;
use crate::http2::connection::side::State;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::http2::hpack::{Classifier, Field, Representation};
use crate::limits;
use crate::store::tables::Layer;

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    /// Begins to follow HTTP/1.1, of which a request or a response was sent; `false` if the other side speaks no HTTP/1.1.
    pub(super) fn begin_http1(&mut self, is_request: bool) -> bool {
        let (h2, peer) = (&mut *self.h2, 1 - self.side);
        let client = if is_request { self.side } else { peer };
        let is_other = !matches!(h2.protocol, Protocol::Http2 | Protocol::Tls);
        let begun_inside = h2.sides[peer].state == State::Lost && h2.begun_late && is_other;
        if !begun_inside && !matches!(h2.sides[peer].state, State::Opening | State::Http1Body | State::Http1) {
            return false;
        }
        let declined = h2.upgrade.take();
        let http1 = h2.http1.get_or_insert_with(|| Box::new(Http1 { client, ..Http1::default() }));
        if let Some(request) = declined {
            http1.begun = true;
            http1.open.push_back(Exchange { stream: 0, is_head: request.is_head });
        }
        if begun_inside {
            http1.directions[peer].begun_inside = true;
            h2.bytes.not_http2 += h2.sides[peer].buffered();
            h2.sides[peer].state = State::Http1;
        }
        http1.client == client
    }

    /// Reads the next bytes; gives those that are no HTTP/1.1.
    pub(super) fn read_http1<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (side, at) = (self.side, self.at);
        let Some(mut http1) = self.h2.http1.take() else {
            self.sender().state = State::Foreign;
            return bytes;
        };
        if http1.directions[side].begun_inside && !bytes.is_empty() {
            let head = if side == http1.client { Opening::Http1Request } else { Opening::Http1Response };
            if detect::opening(bytes) != head {
                *self.count_http1() += bytes.len() as u64;
                self.h2.http1 = Some(http1);
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
            *self.count_http1() += (before - rest.len()) as u64;
            let read = match piece {
                Piece::Open => break,
                Piece::Head(octets) => self.begin_message(&mut http1, &octets),
                Piece::Body(octets) => self.read_body(&mut http1.directions[side].message, octets),
                Piece::End => {
                    self.end_message(&mut http1);
                    Some(())
                }
                Piece::Broken => None,
            };
            if read.is_none() {
                self.give_up_http1(0, "HTTP/1.1 cannot be read from here on");
                return rest;
            }
        }
        self.h2.http1 = Some(http1);
        &[]
    }

    /// Where bytes count: those of a connection without requests of the protocol on top are another protocol's.
    fn count_http1(&mut self) -> &mut u64 {
        let bytes = &mut self.h2.bytes;
        if self.h2.protocol == Protocol::Http1 { &mut bytes.decoded } else { &mut bytes.not_http2 }
    }

    /// A head is whole. `None` when it is none, or when what follows cannot be read.
    fn begin_message(&mut self, http1: &mut Http1, octets: &[u8]) -> Option<()> {
        let direction = &mut http1.directions[self.side];
        let first = direction.first;
        let mut room = head::room();
        if self.side != http1.client {
            let head = head::parse_response(octets, &mut room)?;
            return self.begin_response(http1, &head, first);
        }
        let head = head::parse_request(octets, &mut room)?;
        let body = head.body().filter(|_| head.method != "CONNECT" && http1.open.len() < limits::HTTP1_REQUESTS)?;
        let content = content_of::<A>(&head).filter(|_| head.method == "POST" && !head.is_coded());
        let may_be_read = matches!(head.method, "GET" | "POST") && content.is_none();
        let is_read = may_be_read && A::is_over_http1(head.method == "GET", head.path(), &|name| head.value(name));
        let stream = if content.is_some() || is_read { http1.followed.checked_mul(2)?.checked_add(1)? } else { 0 };
        http1.begun = true;
        http1.followed += u32::from(stream != 0);
        http1.open.push_back(Exchange { stream, is_head: head.method == "HEAD" });
        direction.reader.begin_body(body);
        direction.message = Message { stream, base64: base64_of(content), is_answer: false };
        if stream == 0 {
            return Some(());
        }
        if self.h2.protocol != Protocol::Http1 {
            self.h2.protocol = Protocol::Http1;
            self.h2.bytes.not_http2 = self.h2.bytes.not_http2.saturating_sub(octets.len() as u64);
            self.h2.bytes.decoded += octets.len() as u64;
        }
        self.pass_head(stream, &[(b":method", head.method.as_bytes()), (b":path", head.path())], &head, first);
        Some(())
    }

    fn begin_response(&mut self, http1: &mut Http1, head: &Head<'_, '_>, first: At) -> Option<()> {
        let request = http1.open.front().copied();
        // a server may say to an idle connection that it waits no longer (RFC 9110 section 15.5.9)
        let may_be_unasked = if http1.begun { head.status == 408 } else { self.h2.begun_late };
        if request.is_none() && !may_be_unasked {
            return None; // its request is not in the capture, or later in it
        }
        let is_answer = request.is_some();
        let Exchange { stream, is_head } = request.unwrap_or_default();
        let is_interim = (100..200).contains(&head.status);
        if !is_interim {
            let body = if is_head || matches!(head.status, 204 | 304) { Body::Length(0) } else { head.body()? };
            let base64 = base64_of(content_of::<A>(head)).filter(|_| !head.is_coded());
            let direction = &mut http1.directions[self.side];
            direction.reader.begin_body(body);
            direction.message = Message { stream, base64, is_answer };
        }
        if stream != 0 {
            self.pass_head(stream, &[(b":status", head.status.to_string().as_bytes())], head, first);
        }
        (head.status != 101).then_some(())
    }

    /// Gives a head to the protocol on top as a header block.
    fn pass_head(&mut self, stream: u32, pseudo: &[(&[u8], &[u8])], head: &Head<'_, '_>, first: At) {
        let mut block = A::Block::default();
        let content = content_of::<A>(head);
        let mut pass = |name: &[u8], value: &[u8]| {
            let (name, value) = (Some(name), Some(value));
            let class = A::fields(self.cx).classify(name, value);
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
        let summary = &A::block_ends(self.h2, block, true, self.cx);
        A::headers(self, &HeaderBlock { stream, summary, end_stream: false, first });
    }

    /// `None` when a body that should be base64 is none.
    fn read_body(&mut self, message: &mut Message, octets: &[u8]) -> Option<()> {
        let Some(slot) = self.h2.streams.slot(message.stream).filter(|_| message.stream != 0) else { return Some(()) };
        let Some(base64) = &mut message.base64 else {
            A::data(self, slot, octets);
            return Some(());
        };
        let mut data = Vec::with_capacity(octets.len());
        let is_base64 = base64.decode(octets, &mut data);
        if !data.is_empty() {
            A::data(self, slot, &data);
        }
        is_base64.then_some(())
    }

    fn end_message(&mut self, http1: &mut Http1) {
        let Message { stream, is_answer, .. } = std::mem::take(&mut http1.directions[self.side].message);
        if is_answer {
            http1.open.pop_front();
        }
        if stream != 0 {
            let slot = self.h2.streams.slot(stream).unwrap_or(NONE);
            A::end_stream(self, stream, slot);
        }
    }

    /// `length` octets are not in the capture. Inside a body, whose end is known, reading goes on; base64 has lost where its
    /// groups begin.
    pub(super) fn gap_in_http1(&mut self, length: u64) {
        let Some(http1) = &mut self.h2.http1 else { return };
        let direction = &mut http1.directions[self.side];
        if direction.begun_inside {
            return;
        }
        let Message { stream, base64, .. } = direction.message;
        if stream != 0 && base64.is_some() || !direction.reader.skip(length) {
            return self.give_up_http1(length, "bytes are missing: HTTP/1.1 cannot be read from here on");
        }
        if let Some(slot) = self.h2.streams.slot(stream).filter(|_| stream != 0) {
            A::data_lacks(self, slot, u32::try_from(length).unwrap_or(u32::MAX));
        }
        self.read_http1(&[]);
    }

    /// Follows no further: which response belongs to which request, or where one begins, is unknown.
    fn give_up_http1(&mut self, missing: u64, why: &'static str) {
        self.h2.http1 = None;
        let is_followed = self.h2.protocol == Protocol::Http1;
        for side in 0..2 {
            let kept = self.h2.sides[side].buffered();
            let bytes = &mut self.h2.bytes;
            *(if is_followed { &mut bytes.undecoded } else { &mut bytes.not_http2 }) += kept;
            self.h2.sides[side].lose(missing, self.at.packet);
            self.h2.sides[side].state = State::Foreign;
        }
        if is_followed {
            A::doubt(self.h2, self.at);
            self.problem(Layer::Http2, why);
        }
    }

    /// The connection is over: its end may be that of a response.
    pub(super) fn finish_http1(&mut self, end: End) {
        let Some(mut http1) = self.h2.http1.take() else { return };
        self.side = 1 - http1.client;
        if end == End::ServerCloses && http1.directions[self.side].reader.is_until_close() {
            self.end_message(&mut http1);
        }
    }
}

/// The type under which the protocol on top reads a message, and whether its body is base64.
fn content_of<A: Events>(head: &Head<'_, '_>) -> Option<(&'static [u8], bool)> {
    A::content_over_http1(head.value(b"content-type")?)
}

fn base64_of(content: Option<(&'static [u8], bool)>) -> Option<Base64> {
    content.filter(|&(_, is_base64)| is_base64).map(|_| Base64::default())
}
