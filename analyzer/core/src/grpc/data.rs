//! Reads the messages in DATA, and charges the time for which they waited.

use crate::http2::connection::side::Side;
use crate::http2::connection::watch::Watch;
use crate::limits;
use crate::store::budget::Cause;
use crate::store::context::Context;
use crate::store::tables::{Layer, WaitRow};
use crate::tcp::send_queue::BlockedInterval;

use super::activity::Activity;
use super::body_trailers::begins_end;
use super::call::{Call, CallDirection};
use super::connection::{Grpc, Http2, Parser};
use super::health::{self, Health};
use super::message::{Event, Message};
use super::protocol::Kind;
use super::rows::touch_gap;
use super::turns::Turns;

/// Bytes of other streams that take less time than this are a sender's usual turns, nanoseconds: 1 ms.
const HEAD_OF_LINE: i64 = 1_000_000;

/// DATA this long after HEADERS is late: 1 ms, as the shortest wait.
const LATE_DATA: i64 = 1_000_000;

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// DATA of a stream, without padding.
    #[inline]
    pub(super) fn take_data(&mut self, slot: u32, data: &[u8]) {
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let sender = &mut self.h2.sides[activity.side];
        let Some(call) = self.h2.streams.state_mut(slot) else { return };
        let behind = std::mem::replace(&mut sender.data_slot, slot) != slot
            && call.is_inside(activity.side)
            && call.directions[activity.side].gaps == sender.gaps
            && !activity.transport.queues[activity.side].late;
        if behind && activity.at.time - call.since >= HEAD_OF_LINE {
            activity.push_behind(call, self.cx);
        }
        activity.charge(call, self.cx);
        call.directions[activity.side].doubtful = false;
        let gap = sender.gap_touches(call.directions[activity.side].gaps, call.first.packet);
        if !call.has_messages_alone && !reads_messages(call, activity.is_client) {
            if call.kind.is_rpc() {
                call.trailers_cut |= gap;
                self.watch.stream_end(call, data);
                self.keep_trailers(slot, data);
            }
            return;
        }
        let direction = &mut call.directions[activity.side];
        if direction.gaps != sender.gaps {
            if gap {
                direction.reader.lose();
            }
            direction.gaps = sender.gaps;
        }
        if direction.reader.is_lost() && call.kind != Kind::ConnectUnary {
            direction.reader.resume(data, sender.frame_from(data.len()));
        }
        if data.len() <= health::LONGEST && !activity.is_client {
            let is_check = self.cx.strings.methods.get(call.method).is_some_and(health::is_check);
            if let Some(status) = health::status(data).filter(|_| is_check) {
                self.h2.application.health = Some(Health { status, at: *activity.at });
                self.watch.stream_health(data);
            }
        }
        self.watch.stream_data(call, data, sender.frame_from(data.len()).is_some());
        let foreign = activity.read_messages(call, sender, &mut self.h2.application.turns, data, self.cx);
        if call.begun_before {
            call.answers_before(activity.client());
        }
        activity.update_turns(call, &mut self.h2.application.turns);
        activity.note_idle(call, &mut self.h2.application.turns, self.cx);
        if gap {
            touch_gap(call, self.cx);
        }
        if let Some(octets) = foreign
            && !self.may_stand(slot, octets)
        {
            self.problem(Layer::Grpc, "DATA is not length-prefixed messages");
        }
    }

    /// Keeps octets of a body that may be trailers; those of a page are not kept.
    #[cold]
    fn keep_trailers(&mut self, slot: u32, octets: &[u8]) {
        let Some(call) = self.h2.streams.state_mut(slot) else { return };
        let may_end = call.in_trailers || call.kind == Kind::ConnectUnary;
        if may_end && !self.h2.application.trailers.add(call.id, octets, &mut self.cx.trailer_bytes) {
            self.problem(Layer::Grpc, "too many RPCs end in their bodies at once: not all ends are read");
        }
    }

    /// Whether octets that are no message may stand in a response: as the RPC's end in the body, which is kept.
    #[cold]
    fn may_stand(&mut self, slot: u32, octets: &[u8]) -> bool {
        let Some(call) = self.h2.streams.state_mut(slot) else { return false };
        let begins = self.side != self.h2.client && begins_end(call.kind, octets);
        call.in_trailers |= begins;
        if begins {
            self.keep_trailers(slot, octets);
        }
        begins
    }

    /// Ends the message of a direction whose body is one message without a prefix.
    #[cold]
    pub(super) fn end_unframed(&mut self, slot: u32) {
        let activity = Activity::new(self.h2, self.side, &self.at, self.transport);
        let Some(call) = self.h2.streams.state_mut(slot) else { return };
        let refused = !activity.is_client && call.is_refused();
        if !call.finished && !refused {
            let (sender, turns) = (&mut self.h2.sides[activity.side], &mut self.h2.application.turns);
            activity.read_messages(call, sender, turns, &[], self.cx);
        }
    }

    /// `length` bytes of a stream's DATA are not in the capture.
    pub(super) fn take_gap(&mut self, slot: u32, length: u32) {
        let (side, sender) = (self.side, &mut self.h2.sides[self.side]);
        let Some(call) = self.h2.streams.state_mut(slot) else { return };
        call.charge(self.at.time, Cause::CaptureGap);
        call.trailers_cut |= side != self.h2.client && (call.in_trailers || call.is_refused());
        let direction = &mut call.directions[side];
        let was_inside = direction.reader.is_inside() && direction.gaps == sender.gaps;
        if direction.reader.lacks(length) {
            self.take_cut_trailers(slot, length);
        } else {
            direction.reader.skip(length);
            if was_inside && !direction.reader.is_inside() {
                sender.unfinished_messages = sender.unfinished_messages.saturating_sub(1);
            }
        }
        if let Some(call) = self.h2.streams.state_mut(slot) {
            touch_gap(call, self.cx);
        }
    }

    /// The missing bytes are exactly the rest of a message: its length is proved by its prefix.
    fn take_cut_trailers(&mut self, slot: u32, length: u32) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let Self { side, at, transport, .. } = *self;
        let mut parser = Parser { h2: self.h2, side, at, cx: self.cx, transport, watch: &mut () };
        let mut left = length as usize;
        while left > 0 {
            let piece = left.min(ZEROS.len());
            parser.take_data(slot, ZEROS.get(..piece).unwrap_or_default());
            left -= piece;
        }
    }
}

/// Whether DATA is messages, and not a page or the RPC's end.
#[cold]
fn reads_messages(call: &Call, is_client: bool) -> bool {
    call.kind.is_rpc() && (is_client || !(call.in_trailers || call.is_refused()))
}

impl Activity<'_> {
    /// Reads the messages in DATA; gives the octets from where it is something else. Of a body that is one message none are
    /// its end.
    #[inline(always)]
    fn read_messages<'b>(
        &self,
        call: &mut Call,
        sender: &mut Side<Grpc>,
        turns: &mut Turns,
        data: &'b [u8],
        cx: &mut Context,
    ) -> Option<&'b [u8]> {
        let direction = &mut call.directions[self.side];
        let headers = if direction.reader.messages == 0 { direction.headers } else { (-1, 0) };
        let framed = call.kind != Kind::ConnectUnary;
        if framed && let Some(message) = direction.reader.take_whole(data, self.at) {
            self.begin_message(call, headers, turns, cx);
            self.end_message(call, sender, &message, cx);
            return None;
        }
        self.read_parts(call, sender, turns, data, cx)
    }

    /// The same for DATA that is not one whole message.
    #[inline(never)]
    fn read_parts<'b>(
        &self,
        call: &mut Call,
        sender: &mut Side<Grpc>,
        turns: &mut Turns,
        data: &'b [u8],
        cx: &mut Context,
    ) -> Option<&'b [u8]> {
        let framed = call.kind != Kind::ConnectUnary;
        let CallDirection { mut reader, headers, .. } = call.directions[self.side];
        let mut headers = if reader.messages == 0 { headers } else { (-1, 0) };
        let mut foreign = None;
        let mut on_event = |event: Event<'_>| match event {
            Event::Begin => {
                sender.unfinished_messages += 1;
                self.begin_message(call, std::mem::replace(&mut headers, (-1, 0)), turns, cx);
            }
            Event::End(message) => {
                sender.unfinished_messages = sender.unfinished_messages.saturating_sub(1);
                self.end_message(call, sender, &message, cx);
            }
            Event::NotGrpc(left) => foreign = Some(left),
        };
        match data {
            _ if framed => reader.feed(data, *self.at, &mut on_event),
            [] => reader.end_unframed(*self.at, &mut on_event),
            _ => reader.feed_unframed(data, *self.at, &mut on_event),
        }
        call.directions[self.side].reader = reader;
        foreign.and_then(|left| data.get(data.len().saturating_sub(left)..))
    }

    /// A message begins, the first of its direction if its `headers` are given.
    #[inline(always)]
    fn begin_message(&self, call: &mut Call, headers: (i64, u32), turns: &mut Turns, cx: &mut Context) {
        let now = self.at.time;
        turns.message_begins(self.is_client, now);
        if headers.0 > self.gap.time && now - headers.0 >= LATE_DATA {
            self.push_delay(call, headers, cx);
        }
        if !self.is_client && call.turn_since > self.gap.time {
            let turnaround = (now - call.turn_since).max(0);
            if !self.transport.queues[self.side].is_blocked() {
                turns.took(turnaround, call.method);
            }
            cx.method(call.method).add_turnaround(turnaround as u64);
            turns.answered(call.turn_since, now);
            call.turn_since = -1;
        }
    }

    #[inline(always)]
    fn end_message(&self, call: &mut Call, sender: &mut Side<Grpc>, message: &Message<'_>, cx: &mut Context) {
        if self.is_client {
            call.turn_since = self.at.ready_time;
        }
        sender.habits.message(message.length, *self.at);
        self.count_message(call, message, cx);
    }

    /// Inside its message a stream's bytes come after those of other streams: they went first.
    #[cold]
    fn push_behind(&self, call: &mut Call, cx: &mut Context) {
        cx.waits.push(WaitRow {
            connection: self.connection,
            direction: self.direction(),
            stream: call.id,
            start_time_ns: call.since,
            duration_ns: self.at.time - call.since,
            cause: Cause::HeadOfLine as u8,
            owed_bytes: u64::from(call.directions[self.side].reader.owed()),
            stopped_at_packet: call.last_packet,
            stopped_time_ns: call.last_time,
            resumed_at_packet: self.at.packet,
            streams: 1,
            method: call.method,
            ..WaitRow::NOTHING_KNOWN
        });
        call.charge(self.at.time, Cause::HeadOfLine);
    }
}

/// Charges a wait of `side` to the RPCs whose messages it interrupted, and gives how many they were. Of a connection with
/// very many open streams only the first [`limits::STREAMS_SEARCHED_PER_WAIT`] slots are looked at, in their order.
///
/// A stream whose own window is used up waited for that, not for `wait`, if other streams could send: also gives how many did.
/// One that was inside a message when frames were missed, and has not been seen since, may be over.
pub fn charge_wait(h2: &mut Http2, side: usize, wait: &BlockedInterval) -> (u32, u32) {
    let gaps = h2.sides[side].gaps;
    let initial = h2.window_sizes(side).map(|[stream, _]| stream);
    let in_frame = h2.stream_in_frame(side);
    let by_window = matches!(wait.cause, Cause::StreamWindow | Cause::ConnectionWindow);
    let searched = h2.streams.slots_mut().take(limits::STREAMS_SEARCHED_PER_WAIT);
    let is_inside = |call: &Call| call.is_inside(side) && call.directions[side].gaps == gaps;
    let unfinished = searched.filter(|stream| stream.id != 0 && is_inside(&stream.state));
    let (mut streams, mut apart) = (0, 0);
    for stream in unfinished.take(limits::STREAMS_PER_WAIT) {
        let none_left = initial.is_some_and(|initial| initial + stream.credit[side] <= 0);
        let used_up = none_left && !by_window && in_frame != Some(stream.id);
        let cause = if used_up { Cause::StreamWindow } else { wait.cause };
        stream.state.charge(wait.start, if used_up { cause } else { Cause::Transmission });
        stream.state.charge_interval(wait.end, &BlockedInterval { cause, ..*wait });
        streams += 1;
        apart += u32::from(used_up);
    }
    (streams, apart)
}
