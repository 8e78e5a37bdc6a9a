//! Accounts time to an RPC when a side acts on it.

use crate::at::At;
use crate::http2::connection::watch::Watch;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::tables::ActRow;
use crate::tcp::transport::Transport;

use super::call::Call;
use super::state::{Grpc, Parser};
use super::turns::{PAUSE, Turns};

/// Bytes that one side sent on a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Act<'a> {
    /// Row of the connection.
    pub connection: u32,
    /// The side that sent them, and whether it is the client.
    pub side: usize,
    pub is_client: bool,
    /// Where they are.
    pub at: At,
    /// Up to when bytes are missing that may have been of any stream.
    pub gap_time: i64,
    pub transport: &'a Transport,
}

impl<'p, W: Watch<Grpc> + ?Sized> Parser<'p, W> {
    /// What is read now.
    #[inline(always)]
    pub(super) fn act(&self) -> Act<'p> {
        Act {
            connection: self.h2.connection,
            side: self.side,
            is_client: self.side == self.h2.client,
            at: self.at,
            gap_time: self.h2.application.gap_time,
            transport: self.transport,
        }
    }
}

impl Act<'_> {
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

    /// Accounts a call's time up to these bytes. Where threads were recorded, it notes the part in which their sender had to
    /// act on an RPC.
    #[inline]
    pub fn charge(&self, call: &mut Call, cx: &mut Context) {
        let own = if self.is_client { Cause::Client } else { Cause::Server };
        let before = if cx.options.acts { call.budget.get(own) } else { 0 };
        call.charge_activity(self.side, self.is_client, &self.at, self.transport, self.gap_time);
        if cx.options.acts && call.kind.is_rpc() {
            self.note(call, call.budget.get(own).wrapping_sub(before), cx);
        }
    }

    #[cold]
    fn note(&self, call: &Call, own_ns: u64, cx: &mut Context) {
        if own_ns > 0 {
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
        turns.update(call, self.client(), self.is_client, self.at, self.transport.near_rtt[self.client()]);
    }

    /// Notes the idle interval or pause of the client that these bytes ended, if they did.
    #[inline]
    pub fn note_idle(&self, call: &Call, turns: &mut Turns, cx: &mut Context) {
        if let Some((start_time_ns, duration_ns)) = turns.take_idle().filter(|_| cx.options.acts) {
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
