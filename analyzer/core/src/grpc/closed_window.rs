//! Accounts the time of calls whose sender waits for a closed TCP receive window, when nothing ends that in the capture.

use std::ops::Range;

use crate::http2::connection::watch::Watch;
use crate::http2::connection::windows::LITTLE;
use crate::store::budget::Cause;
use crate::tcp::transport::Transport;

use super::call::{Call, UsedUp};
use super::connection::{Grpc, Http2, Parser};
use super::rows::{Closed, OPEN_FOR};

/// A side that a closed receive window blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedWindow {
    side: usize,
    /// From its last bytes, or from when it is to send the next message.
    since: i64,
    /// Up to where packets show it.
    until: i64,
    /// It is inside a message of the call. Otherwise it owes the next one, of which bytes may be among those it cannot send.
    is_inside: bool,
}

impl ClosedWindow {
    /// The time from which packets do not show whether the RPC waited for the application.
    pub(super) fn unknown_since(self) -> Option<i64> {
        (!self.is_inside).then_some(self.since)
    }

    /// The side, and the cause for which a call waits in the time that is [`shown`](Self::shown).
    pub(super) fn blocked(self) -> (usize, Cause) {
        (self.side, if self.is_inside { Cause::ReceiveWindow } else { Cause::Unexplained })
    }

    /// The time for which the cause is shown, of a call that waits up to `now`.
    pub(super) fn shown(self, now: i64) -> Range<i64> {
        self.since..if self.is_inside { self.until } else { now }
    }
}

impl Call {
    /// The side that has to send, and that its peer's closed window blocked up to `now` or a time before.
    pub(super) fn find_closed_window(&self, now: i64, client: usize, transport: &Transport) -> Option<ClosedWindow> {
        [0, 1].into_iter().find_map(|side| {
            let (is_inside, owes) = (self.is_inside(side), self.owing_side(client) == side);
            let (since, until) = transport.closed_window(side, now).filter(|_| is_inside || owes)?;
            let since = if is_inside { since } else { since.max(self.last_time) };
            Some(ClosedWindow { side, since, until, is_inside })
        })
    }

    /// Accounts the time in which a closed window blocked a message of the call.
    pub(super) fn charge_closed_window(&mut self, shut: ClosedWindow) {
        if shut.is_inside {
            self.charge(shut.since, Cause::Transmission);
            self.charge(shut.until, Cause::ReceiveWindow);
        }
    }
}

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// Accounts the time in which a closed window blocked a sender, up to its peer's bytes, which end the call or not.
    #[inline]
    pub(super) fn charge_closed_window(&mut self, id: u32, is_end: bool) {
        if self.transport.shut.iter().any(|window| window.is_shut()) {
            self.charge_closed_window_until_now(id, is_end);
        }
    }

    #[cold]
    fn charge_closed_window_until_now(&mut self, id: u32, is_end: bool) {
        let (client, now, transport) = (self.h2.client, self.at.time, self.transport);
        let blocked = find_used_up(self.h2, id).is_some();
        let Some(call) = self.h2.streams.find_mut(id).map(|stream| &mut stream.state) else { return };
        let mut sides = self.h2.sides.iter().zip(&call.directions);
        let read = sides.all(|(side, kept)| side.is_read_whole(kept.gaps, call.first.packet));
        let lost = lost_since(call, client, transport).is_some() || transport.in_vain().is_some();
        if blocked || !read || lost || transport.unheard.contains(&true) || call.finished || !call.kind.is_rpc() {
            return;
        }
        let Some(shut) = call.find_closed_window(now, client, transport) else { return };
        if let Some(since) = shut.unknown_since() {
            call.charge_open(since, client, transport);
        }
        call.charge_closed_window(shut);
        call.charge(now, Cause::Unexplained);
        if is_end && now - shut.since >= OPEN_FOR {
            let closed = if self.side == client { Closed::ByReset } else { Closed::ByServer };
            self.push_open(id, shut.shown(now), Some(shut.blocked()), closed);
        }
    }
}

/// Since when lost bytes hold up a call, of which nothing can be read any more: the server's, or its own request's. Beside it
/// their sender.
pub(super) fn lost_since(call: &Call, client: usize, transport: &Transport) -> Option<(i64, usize)> {
    let sent_behind = |offset: i64| usize::from(call.last_side) == client && call.position > offset;
    let request = transport.lost_since[client].filter(|&(offset, _)| sent_behind(offset));
    let response = transport.lost_since[1 - client].map(|(_, since)| (since, 1 - client));
    response.into_iter().chain(request.map(|(_, since)| (since, client))).min()
}

/// The sender whose window for this stream is used up, if it may have more to send. Others use the connection's up as well: that
/// concerns it only inside a message, or if it has to send the next one.
pub(super) fn find_used_up(h2: &mut Http2, id: u32) -> Option<UsedUp> {
    let client = h2.client;
    let call = h2.streams.find_mut(id).map(|stream| &stream.state)?;
    let (owing, sent) = (call.owing_side(client), call.last_time.max(call.first.time));
    let ended = call.directions.each_ref().map(|direction| direction.ended);
    let least = [0, 1].map(|side| i64::from(call.directions[side].reader.owed()).clamp(1, LITTLE));
    let sends = [0, 1].map(|side| side == owing || call.directions[side].reader.is_inside());
    [client, 1 - client].into_iter().filter(|&side| !ended[side]).find_map(|side| {
        if h2.stream_in_frame(side) == Some(id) {
            return None; // both windows allowed the rest of the frame
        }
        let used_up = |window: Option<i64>| window.is_some_and(|window| window < least[side]);
        let connection = (sends[side] && used_up(h2.connection_window(side))).then_some(Cause::ConnectionWindow);
        let cause = connection.or_else(|| used_up(h2.stream_window(side, id)).then_some(Cause::StreamWindow));
        let all_sent = h2.sides[side].data_sent;
        cause.map(|window| UsedUp { side, window, since: if connection.is_some() { all_sent } else { sent } })
    })
}
