//! What reading the bytes of a connection needs besides its own state.

use crate::at::At;
use crate::store::context::Context;
use crate::store::tables::Layer;
use crate::tcp::transport::Transport;

use super::application::Application;
use super::http2::Http2;
use super::side::Side;

/// The tables to write to, and TCP's state of both senders.
#[derive(Debug)]
pub struct Reading<'a> {
    /// Tables and options of the run.
    pub cx: &'a mut Context,
    /// TCP's state of both senders.
    pub transport: &'a Transport,
}

/// Reads the bytes of one side that one packet carried. Its methods stand with what they read.
#[derive(Debug)]
pub struct Parser<'p, A: Application, W: ?Sized> {
    /// The connection.
    pub h2: &'p mut Http2<A>,
    /// The side that sent the bytes.
    pub side: usize,
    /// The packet.
    pub at: At,
    /// Tables and options of the run.
    pub cx: &'p mut Context,
    /// TCP's state of both senders.
    pub transport: &'p Transport,
    /// Who watches.
    pub watch: &'p mut W,
}

impl<A: Application, W: ?Sized> Parser<'_, A, W> {
    /// The side that sent the bytes: without a check, as it is 0 or 1.
    #[inline(always)]
    pub(in crate::http2) fn sender(&mut self) -> &mut Side<A> {
        &mut self.h2.sides[self.side & 1]
    }

    /// Notes what is wrong with the bytes.
    #[cold]
    pub(crate) fn problem(&mut self, layer: Layer, text: &'static str) {
        self.h2.problem(layer, text, self.at, self.cx);
    }

    /// Notes that the sender breaks HTTP/2. Where bytes from before are missing it may be the capture's fault.
    #[cold]
    pub(in crate::http2) fn breach(&mut self, text: &'static str) {
        if !self.h2.is_read_whole() {
            return self.problem(Layer::Http2, text);
        }
        let sender = u8::from(self.side != self.h2.client);
        self.cx.problems.breach(text, self.h2.connection, sender, self.at.packet, self.at.time);
    }
}
