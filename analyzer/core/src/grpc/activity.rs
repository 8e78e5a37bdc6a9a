//! Accounts time to an RPC when a side acts on it.

use crate::at::At;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::tables::ActRow;
use crate::tcp::transport::Transport;

use super::call::{Call, Gap};
use super::connection::Http2;
use super::turns::{PAUSE, Turns};

/// Bytes that one side sent on a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity<'a> {
    /// Row of the connection.
    pub connection: u32,
    /// The side that sent them, and whether it is the client.
    pub side: usize,
    pub is_client: bool,
    /// Where they are.
    pub at: &'a At,
    /// The latest missing frames.
    pub gap: Gap,
    pub transport: &'a Transport,
}

impl<'a> Activity<'a> {
    /// What `side` sent at `at`.
    #[inline(always)]
    pub fn new(h2: &Http2, side: usize, at: &'a At, transport: &'a Transport) -> Self {
        let is_client = side == h2.client;
        Self { connection: h2.connection, side, is_client, at, gap: h2.application.gap, transport }
    }

    /// 0 for the client, 1 for the server.
    #[inline(always)]
    pub fn direction(&self) -> u8 {
        u8::from(!self.is_client)
    }

    /// The side that is the client.
    #[inline(always)]
    pub fn client(&self) -> usize {
        if self.is_client { self.side } else { 1 - self.side }
    }

    /// Accounts a call's time up to these bytes.
    #[inline(always)]
    pub fn charge(&self, call: &mut Call, cx: &mut Context) {
        if cx.options.acts {
            return self.charge_and_note(call, cx);
        }
        call.charge_activity(self.side, self.is_client, self.at, self.transport, self.gap);
    }

    /// The same where threads were recorded: notes the part in which the sender had to act on an RPC.
    #[cold]
    fn charge_and_note(&self, call: &mut Call, cx: &mut Context) {
        let own = if self.is_client { Cause::Client } else { Cause::Server };
        let before = call.budget.get(own);
        call.charge_activity(self.side, self.is_client, self.at, self.transport, self.gap);
        let own_ns = call.budget.get(own).wrapping_sub(before);
        if own_ns > 0 && call.kind.is_rpc() {
            let duration_ns = i64::try_from(own_ns).unwrap_or(i64::MAX);
            let start_time_ns = self.at.ready_time.saturating_sub(duration_ns);
            self.push(
                call,
                ActRow { direction: self.direction(), start_time_ns, duration_ns, ..ActRow::default() },
                cx,
            );
        }
    }

    /// Notes whether the client of a call waits from these bytes on.
    #[inline(always)]
    pub fn update_turns(&self, call: &mut Call, turns: &mut Turns) {
        turns.update(call, self.client(), self.is_client, *self.at, self.transport.near_rtt[self.client()]);
    }

    /// Notes the idle interval or pause of the client that these bytes ended, if they did.
    #[inline]
    pub fn note_idle(&self, call: &Call, turns: &mut Turns, cx: &mut Context) {
        if cx.options.acts
            && let Some((start_time_ns, duration_ns)) = turns.take_idle()
        {
            let idle = 1 + u8::from(duration_ns >= PAUSE);
            self.push(call, ActRow { idle, start_time_ns, duration_ns, ..ActRow::default() }, cx);
        }
    }

    #[cold]
    fn push(&self, call: &Call, row: ActRow, cx: &mut Context) {
        if cx.acts.len() < limits::ACTS {
            let (connection, stream, method, packet) = (self.connection, call.id, call.method, self.at.packet);
            cx.acts.push(ActRow { connection, stream, method, packet, ..row });
        } else {
            cx.acts_left_out += 1;
        }
    }
}
