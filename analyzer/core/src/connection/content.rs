//! Reads the bytes of a connection: HTTP/2 with gRPC, in the clear or in TLS, or another protocol.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::grpc::connection::Http2;
use crate::http2::connection::http2::End;
use crate::http2::connection::reading::Reading;
use crate::store::context::Context;
use crate::tcp::connection::Connection as Tcp;
use crate::tcp::events::Events;
use crate::tcp::transport::Transport;
use crate::waits::{self, Layers, Stop};

use super::encrypted::Encrypted;
use super::prologue;
use super::set_up::{Alert, Beginning, alert_of, first_line};
use super::shared::Shared;

/// The layers above TCP.
#[derive(Debug, Serialize, Deserialize)]
pub struct Content {
    /// HTTP/2, with its RPCs.
    pub http2: Http2,
    /// TLS, if the connection begins with a TLS record.
    #[serde(skip)]
    pub tls: Option<Box<Encrypted>>,
    /// The first bytes of each side; those that came first decide whether it is TLS.
    pub beginnings: [Option<Beginning>; 2],
    /// A side has asked for a tunnel by CONNECT.
    asks_tunnel: bool,
    /// The first alert, of a peer that speaks TLS to one that does not.
    alert: Option<Alert>,
    /// By side: what was binding when it sent its last data, if it owed more.
    stops: [Option<Stop>; 2],
    /// What was known at each of TCP's closings.
    pub closings: Vec<AtClosing>,
}

/// What is known above TCP when a side closes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AtClosing {
    /// RPCs that are open.
    pub open_rpcs: u32,
    /// The side's first PING that its peer has not acknowledged.
    pub ping: Option<At>,
}

impl Content {
    /// The content of a connection of which nothing was read.
    pub fn new(http2: Http2) -> Self {
        Self {
            http2,
            tls: None,
            beginnings: [None; 2],
            asks_tunnel: false,
            alert: None,
            stops: [None; 2],
            closings: Vec::new(),
        }
    }

    /// Whether `side` has begun something that it has not sent completely.
    #[inline]
    fn owes(&self, side: usize) -> bool {
        self.http2.owes(side) || self.tls.as_ref().is_some_and(|tls| tls.owed(side) > 0)
    }

    #[inline]
    fn layers<'a>(&'a mut self, tcp: &'a mut Tcp, side: usize) -> Layers<'a> {
        let record_rest = self.tls.as_ref().map_or(0, |tls| tls.owed(side));
        Layers { tcp, http2: &mut self.http2, record_rest }
    }

    /// Decides by the first bytes of a side what they are.
    #[cold]
    fn begin(&mut self, side: usize, bytes: &[u8], at: At, cx: &mut Context) {
        if self.beginnings.iter().all(Option::is_none) {
            self.tls = Encrypted::if_begins(bytes);
        }
        let first = Beginning::new(bytes, at);
        self.beginnings[side] = Some(first);
        let is_first = self.tls.is_none() && self.http2.sides[side].gaps == 0;
        if side != self.http2.client
            && is_first
            && first.is_foreign()
            && self.beginnings[1 - side].is_some_and(|peer| peer.is_ours())
        {
            let line = first_line(bytes).map(|line| cx.strings.agents.intern(line));
            self.http2.application.server_agent = self.http2.application.server_agent.or(line);
        }
        if self.tls.is_none() {
            self.alert = self.alert.or(alert_of(bytes).map(|description| Alert { side, description, at }));
        }
    }

    /// The first alert that was readable and is more than the notice of an end.
    pub fn alert(&self) -> Option<Alert> {
        self.tls.as_ref().map_or(self.alert, |tls| tls.alert())
    }

    /// The connection is over: what is open ends at `at`.
    pub fn finish(&mut self, end: End, at: At, transport: &Transport, cx: &mut Context, shared: &mut Shared) {
        if let Some(tap) = &mut shared.tap {
            for side in 0..2 {
                self.http2.undecided(side).into_iter().for_each(|kept| tap.unread(self.http2.connection, side, kept));
            }
            tap.over(self.http2.connection);
        }
        let reading = &mut Reading { cx, transport };
        if let Some(tls) = &mut self.tls {
            tls.finish(&mut self.http2, at, shared.decryptor(), reading);
        }
        self.http2.finish(end, at, reading);
        let (connection, client) = (self.http2.connection, self.http2.client);
        self.http2.application.methods.write(connection, reading.cx);
        if let Some(tls) = &self.tls {
            tls.write(connection, client, reading.cx);
        }
    }
}

/// The content of a connection while TCP reads its packets.
#[derive(Debug)]
pub struct ContentReader<'a> {
    /// The content.
    pub content: &'a mut Content,
    /// Tables and options.
    pub cx: &'a mut Context,
    /// What connections share.
    pub shared: &'a mut Shared,
}

impl ContentReader<'_> {
    /// Leaves out what stands before the protocol in the first bytes of a side; returns its length.
    #[cold]
    fn skip_prologue(&mut self, side: usize, offset: i64, bytes: &[u8]) -> usize {
        let content = &mut *self.content;
        let length = prologue::length(bytes, content.asks_tunnel);
        let Some(skipped) = bytes.get(..length).filter(|skipped| !skipped.is_empty()) else { return 0 };
        content.asks_tunnel |= prologue::asks_tunnel(skipped);
        content.http2.bytes.decoded += length as u64;
        if let Some(tap) = &mut self.shared.tap {
            tap.prologue(content.http2.connection, side, offset, skipped);
        }
        length
    }

    /// Reads bytes, and shows them to the tap.
    #[cold]
    fn show(&mut self, transport: &Transport, side: usize, offset: i64, bytes: &[u8], at: At) {
        let Some(mut tap) = self.shared.tap.take() else { return };
        let Content { http2, tls, .. } = &mut *self.content;
        let reading = &mut Reading { cx: self.cx, transport };
        tap.delivered(http2.connection, side, offset, bytes, tls.is_some());
        match tls {
            Some(tls) => tls.feed(http2, side, bytes, at, self.shared.decryptor(), reading),
            None => http2.feed(side, bytes, at, reading, &mut *tap),
        }
        self.shared.tap = Some(tap);
    }
}

impl Events for ContentReader<'_> {
    #[inline]
    fn context(&mut self) -> &mut Context {
        self.cx
    }

    #[inline]
    fn client(&self) -> usize {
        self.content.http2.client
    }

    #[inline]
    fn sends(&mut self, tcp: &mut Tcp, side: usize, length: i64, payload: &[u8], at: At) {
        if waits::was_silent(tcp.halves[side].last_data_time, at) {
            waits::note_stall(&mut self.content.layers(tcp, side), side, at, self.cx);
        }
        if self.content.owes(side) {
            if let Some(stop) = self.content.stops[side] {
                waits::resumed(&mut self.content.layers(tcp, side), side, &stop, length, at, self.cx);
            }
        } else if tcp.transport.queues[side].is_blocked()
            || tcp.halves[side].congestion.is_after_loss()
            || waits::may_be_held(&tcp.halves[side], payload, at)
        {
            waits::began(&mut self.content.layers(tcp, side), side, length, payload, at, self.cx);
        }
    }

    #[inline]
    fn sent(&mut self, tcp: &mut Tcp, side: usize) {
        if self.content.owes(side) {
            self.content.stops[side] = Some(waits::stopped(&mut self.content.layers(tcp, side), side));
        } else {
            self.content.stops[side] = None;
        }
    }

    #[inline]
    fn deliver(&mut self, transport: &Transport, side: usize, offset: i64, bytes: &[u8], at: At) {
        let (mut offset, mut bytes) = (offset, bytes);
        if self.content.beginnings[side].is_none() {
            let skipped = self.skip_prologue(side, offset, bytes);
            (offset, bytes) = (offset + skipped as i64, bytes.get(skipped..).unwrap_or_default());
            if bytes.is_empty() {
                return;
            }
            self.content.begin(side, bytes, at, self.cx);
        }
        if self.shared.tap.is_some() {
            return self.show(transport, side, offset, bytes, at);
        }
        let Content { http2, tls, .. } = &mut *self.content;
        let reading = &mut Reading { cx: self.cx, transport };
        match tls {
            Some(tls) => tls.feed(http2, side, bytes, at, self.shared.decryptor(), reading),
            None => http2.feed(side, bytes, at, reading, &mut ()),
        }
    }

    fn lacks(&mut self, transport: &Transport, side: usize, length: u64, at: At) {
        let mut tap = self.shared.tap.take();
        let Content { http2, tls, .. } = &mut *self.content;
        if let Some(tap) = &mut tap {
            tap.missing(http2.connection, side, length);
        }
        let reading = &mut Reading { cx: self.cx, transport };
        match (tls, &mut tap) {
            (Some(tls), _) => tls.gap(http2, side, length, at, self.shared.decryptor(), reading),
            (None, Some(tap)) => http2.gap(side, length, at, reading, &mut **tap),
            (None, None) => http2.gap(side, length, at, reading, &mut ()),
        }
        self.shared.tap = tap;
    }

    fn closes(&mut self, side: usize) {
        let http2 = &self.content.http2;
        let known = AtClosing { open_rpcs: http2.application.open_rpcs, ping: http2.sides[1 - side].pinged };
        self.content.closings.push(known);
    }

    fn drops(&mut self, bytes: usize) {
        self.content.http2.bytes.undelivered += bytes as u64;
    }

    fn pauses_unjudged(&mut self, tcp: &mut Tcp, side: usize, start: i64, at: At) {
        waits::not_judged(&mut self.content.layers(tcp, side), side, start, at);
    }
}
