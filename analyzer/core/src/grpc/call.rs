//! Follows one RPC while it goes on: where its time goes, and who has to act next.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::http2::connection::streams::NONE;
use crate::state_fields;
use crate::store::budget::{Budget, Cause, LossTime};
use crate::tcp::queue::TARGET;
use crate::tcp::rtt::RTO_MIN;
use crate::tcp::send_queue::BlockedInterval;
use crate::tcp::transport::Transport;
use crate::tcp::unanswered::Unanswered;

pub use super::direction::{CallDirection, Gap};
use super::protocol::{Content, Kind};
use super::status::Source;

/// A sender whose HTTP/2 window allows no more DATA of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedUp {
    pub side: usize,
    /// Which window it is.
    pub window: Cause,
    /// Since when, at the earliest.
    pub since: i64,
}

/// What is known of the RPC on a stream, or of another use of the stream.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// The stream identifier.
    pub id: u32,
    /// What it carries.
    pub kind: Kind,
    /// The capture does not hold the request's `content-type`: that the stream is an RPC is a guess.
    pub is_guessed: bool,
    /// Row in the RPC table, or [`NONE`].
    pub rpc: u32,
    /// The call has a row even in a run that writes rows of some RPCs only.
    pub is_example: bool,
    /// Row in the table of other requests, or [`NONE`].
    pub other_request: u32,
    /// The interned method.
    pub method: u32,
    /// The RPC is over; only draining is left.
    pub finished: bool,
    /// Number of gaps in the connection's frames when the call's last frame was seen, see [`Gap`].
    pub gaps_seen: u32,
    /// Its outcome is not written: whether its client read the response is not known.
    pub unread: bool,
    /// Offset behind the first byte of the packet that ended the response with OK: its client has received it when it
    /// acknowledges that. 0 before.
    pub receipt: i64,
    /// Its outcome was reported before the last cut.
    pub reported: bool,
    /// `:status` of the response, 0 before.
    pub http_status: u16,
    /// `content-type` of the response.
    pub content: Content,
    /// `grpc-status` of a response whose header fields do not end the stream.
    pub status_in_headers: Option<u8>,
    /// DATA of both sides holds gRPC messages alone: neither a page nor trailers.
    pub has_messages_alone: bool,
    /// `server` or `via` of the response, or [`NONE`].
    pub answered_by: u32,
    /// `grpc-message`, or [`NONE`].
    pub grpc_message: u32,
    /// The response's body has reached its trailers, which [`BodyTrailers`](super::body_trailers::BodyTrailers) keeps.
    pub in_trailers: bool,
    /// Bytes of these trailers are not in the capture.
    pub trailers_cut: bool,
    /// A response header block had fields that the capture does not hold: the status may have been among them.
    pub status_hidden: bool,
    /// What tells an error where the status is hidden, if anything does.
    pub hidden_error: Option<Source>,
    /// Both directions, by side.
    pub directions: [CallDirection; 2],
    /// The request HEADERS' first byte.
    pub first: At,
    /// The side whose bytes came last.
    #[serde(deserialize_with = "state_fields::side")]
    pub last_side: u8,
    /// The packet in which they came.
    pub last_packet: u32,
    /// When they could be read.
    pub last_time: i64,
    /// The offset of their end in that side's bytes.
    pub position: i64,
    /// The time up to which `budget` accounts, nanoseconds since the epoch.
    pub since: i64,
    /// Where the RPC's time went so far.
    pub budget: Budget,
    /// Of it, what losses cost.
    pub loss: LossTime,
    /// The name of its method was sent before the capture.
    pub method_unnamed: bool,
    /// Its stream was opened before the capture.
    pub begun_before: bool,
    /// On such a stream: request messages from before the capture that were answered in the capture.
    pub answered_before: u32,
    /// Its client waits for an answer, or a message is on the way.
    pub waiting: bool,
    /// It is among the open RPCs of its connection; not so after a gap, in which it may have ended.
    pub counted: bool,
    /// Its deadline as the client sent it, nanoseconds, -1 for none.
    pub timeout_ns: i64,
    /// Attempts of the same call before this one, as its client says.
    pub previous_attempts: u8,
    /// The request's `x-request-id`, as a number that equal ones share; 0 for none.
    pub request_id: u64,
    /// Its `traceparent`, by its number among those of the run.
    pub trace: Option<u32>,
    /// Bytes of the call are missing from the capture.
    pub touches_gap: bool,
    /// Its end may be among them: its time is known no further than its last frame.
    pub end_missing: bool,
    /// Fields of its request's headers are not known.
    pub headers_unknown: bool,
    /// The longest time without a packet of the stream, nanoseconds.
    pub silence_ns: i64,
    /// The packets before and behind it.
    pub silence_packets: (u32, u32),
    /// Who reset it and with what error code.
    pub reset: Option<(u8, u32)>,
    /// When the latest request message that has no answer yet was whole, or when the request was over if that was clearly
    /// later; negative when there is none.
    pub turn_since: i64,
    /// From the last answer to another RPC of its method, which came meanwhile, to its failure; negative for none.
    pub since_answer_ns: i64,
    /// From the last bytes of the stream to the client's RST_STREAM; negative for none.
    pub since_bytes_ns: i64,
}

impl Call {
    /// Makes this the call on stream `id`, whose first frame is at `first`. In place, because a call is some 300 bytes.
    #[inline]
    pub fn begin(&mut self, id: u32, kind: Kind, first: At, gaps: [u32; 2]) {
        let (rpc, method, since, last_time) = (NONE, NONE, first.time, first.time);
        *self = Self {
            id,
            kind,
            rpc,
            method,
            first,
            since,
            last_time,
            has_messages_alone: kind == Kind::Grpc,
            other_request: NONE,
            answered_by: NONE,
            grpc_message: NONE,
            turn_since: -1,
            since_answer_ns: -1,
            since_bytes_ns: -1,
            timeout_ns: -1,
            ..Self::default()
        };
        for (direction, gaps) in self.directions.iter_mut().zip(gaps) {
            direction.gaps = gaps;
            direction.headers.0 = -1;
        }
    }

    /// Whether the client waits for an answer, or a message is on the way. Otherwise the server waits for the client.
    #[inline]
    pub fn waits(&self, client: usize) -> bool {
        let (request, response) = (&self.directions[client], &self.directions[1 - client]);
        self.kind.is_rpc()
            && !self.finished
            && (request.ended
                || request.reader.messages == 0
                || request.reader.messages.saturating_add(self.answered_before) > response.reader.messages
                || request.reader.is_inside()
                || response.reader.is_inside())
    }

    /// More answers than request messages have been seen: earlier requests were sent before the capture.
    #[cold]
    pub fn answers_before(&mut self, client: usize) {
        let (request, response) = (&self.directions[client].reader, &self.directions[1 - client].reader);
        self.answered_before = self.answered_before.max(response.messages.saturating_sub(request.messages));
    }

    /// Whether the response so far is none that the RPC's protocol allows: another HTTP status, or another media type.
    #[inline]
    pub fn is_answered_otherwise(&self) -> bool {
        let refused = self.http_status != 200 && self.kind != Kind::ConnectUnary;
        self.http_status != 0 && (refused || !self.content.answers(self.kind))
    }

    /// Whether the response's body is no message: it is a page, or an error of Connect's. Where `:status` is not in the
    /// capture, only a body without prefixes may be such an error.
    #[inline]
    pub fn is_refused(&self) -> bool {
        match self.http_status {
            0 => self.kind == Kind::ConnectUnary,
            status => status != 200 || self.is_answered_otherwise(),
        }
    }

    /// Whether it may be no RPC of gRPC's: the response of a request whose type is not known is of another protocol. So is an
    /// error in JSON, which Connect gives by any HTTP status.
    pub fn may_be_no_rpc(&self) -> bool {
        let may_be_connect = matches!(self.content, Content::None | Content::Message);
        self.is_guessed && (self.http_status == 200 || may_be_connect) && self.is_answered_otherwise()
    }

    /// Whether the missing bytes of its body may hold its status.
    pub fn may_lack_its_end(&self) -> bool {
        let in_body = match self.kind {
            Kind::GrpcWeb | Kind::ConnectStream => self.http_status == 200,
            Kind::ConnectUnary => self.http_status != 200,
            Kind::Grpc | Kind::Other => false,
        };
        in_body && (self.touches_gap || self.trailers_cut)
    }

    /// Whether its request may have header fields that the capture does not hold.
    pub fn may_lack_fields(&self) -> bool {
        self.headers_unknown || self.begun_before
    }

    /// Whether a message of `side` has begun and is not whole, as far as that is known.
    #[inline]
    pub fn is_inside(&self, side: usize) -> bool {
        self.directions[side].reader.is_inside() && !self.directions[side].doubtful
    }

    /// Accounts the time up to `now` to `cause`.
    #[inline]
    pub fn charge(&mut self, now: i64, cause: Cause) {
        if now > self.since {
            self.budget.add(cause, now.abs_diff(self.since));
            self.since = now;
        }
    }

    /// Accounts the time up to the end of an interval, or `now`, to its cause.
    pub fn charge_interval(&mut self, now: i64, interval: &BlockedInterval) {
        let before = self.since;
        self.charge(now.min(interval.end), interval.cause);
        if interval.cause == Cause::CongestionWindow && interval.after_loss {
            let passed_ns = self.since.abs_diff(before);
            self.loss.reduced_window_ns = self.loss.reduced_window_ns.wrapping_add(passed_ns);
        }
    }

    /// Accounts the time up to `now` to lost bytes, and counts what of it was in an outage.
    pub(super) fn charge_loss(&mut self, now: i64, (from, to): (i64, i64)) {
        let before = self.since;
        self.charge(now, Cause::LossRecovery);
        let (begin, end) = (before.max(from), self.since.min(to));
        if end > begin {
            self.loss.outage_ns = self.loss.outage_ns.wrapping_add(end.abs_diff(begin));
        }
    }

    /// Accounts the time up to bytes of `side` at `at`.
    ///
    /// Inside a message bytes were moving (waits are charged apart, before). Between messages nobody owed a byte on
    /// the wire, so the other side waited for the one that sent next. If the other side had sent before, the round trip from the
    /// capture point to that side and back is propagation, and what packets took longer than that was a queue.
    /// What was sent up to the end of `gap` is not in the capture.
    #[inline(always)]
    pub fn charge_activity(&mut self, side: usize, is_client: bool, at: &At, transport: &Transport, gap: Gap) {
        if gap.count != self.gaps_seen {
            self.gaps_seen = gap.count;
            self.charge_gap(if is_client { side } else { 1 - side }, gap.time, at.ready_time);
        }
        if (self.last_packet, self.last_time, usize::from(self.last_side)) == (at.packet, at.ready_time, side) {
            self.position = transport.queues[side].position; // no time has passed since the bytes before
        } else {
            self.charge_turn(side, is_client, at, transport);
        }
    }

    /// Accounts what is known of nobody: up to `gap_time`, before which frames are missing that may have been of this call, and
    /// to `now` where these may have ended the request, or a message.
    #[cold]
    fn charge_gap(&mut self, client: usize, gap_time: i64, now: i64) {
        if gap_time < self.last_time {
            return; // it was seen behind them
        }
        let is_known = self.directions[client].ended && !self.is_inside(0) && !self.is_inside(1);
        self.directions.iter_mut().for_each(|direction| direction.doubtful = true);
        let until = gap_time.min(now);
        self.charge(if is_known { until } else { now }, Cause::CaptureGap);
        self.last_time = self.last_time.max(until); // bytes of it may have been in the gap
    }

    #[inline(never)]
    fn charge_turn(&mut self, side: usize, is_client: bool, at: &At, transport: &Transport) {
        let queues = &transport.queues;
        let since = if self.touches_gap { self.since } else { self.last_time };
        let silence_ns = at.ready_time - since;
        if silence_ns > self.silence_ns {
            self.silence_ns = silence_ns;
            self.silence_packets = (self.last_packet.max(self.first.packet), at.packet);
        }
        if at.ready_time > self.since {
            let follows_peer = usize::from(self.last_side) != side;
            // bytes that waited for others came in another packet
            let came = at.packet == at.ready_packet;
            let here = if came { transport.queued[side] } else { 0 };
            let (there, acknowledged) = transport.queued_behind[1 - side];
            let behind = follows_peer && acknowledged >= self.since;
            let queued = if behind { here.saturating_add(there) } else { here };
            let own_queue = if behind && !is_client { self.queue_of_its_own(1 - side, there, transport) } else { 0 };
            let shown = if follows_peer && !is_client {
                transport.shown_late(1 - side, self.position, at.ready_time)
            } else {
                None
            };
            let arrival = Arrival {
                follows_peer,
                is_client,
                is_doubtful: queues[side].may_be_held || self.is_doubtful(side),
                near_rtt: transport.near_rtt[side],
                near_is_bound: transport.near_is_bound[side],
                shown,
                held: if follows_peer { transport.held_until(1 - side, self.position) } else { None },
                arrived: if follows_peer { transport.arrived(1 - side, self.position) } else { None },
                queued,
                own_queue,
                sends_since: transport.sends_since[side].filter(|since| came || *since < at.time),
            };
            if at.time != at.ready_time || queues[side].is_blocked() || queues[1 - side].resent_after(self.since) {
                self.charge_held(side, &arrival, at, transport);
            } else {
                let start = self.since;
                self.charge_plain(start, &arrival, at.ready_time);
            }
        }
        self.last_side = side as u8;
        self.last_packet = at.packet;
        self.last_time = at.ready_time;
        self.position = queues[side].position;
    }

    /// When the latest bytes of this call, or bytes before them, were last retransmitted.
    pub fn last_resent(&self, transport: &Transport) -> Option<i64> {
        transport.queues[usize::from(self.last_side)].last_resent_before(self.position, self.last_time, i64::MAX)
    }

    /// Accounts the time up to `now` to lost bytes, as far as the latest bytes of this call, or others in front of them, were
    /// retransmitted. A peer that was not heard since may be gone.
    pub fn charge_resent(&mut self, now: i64, transport: &Transport) {
        let Some(time) = self.last_resent(transport) else { return };
        let side = usize::from(self.last_side);
        if transport.unanswered[side].heard.1 < self.last_time {
            return self.charge(time.min(now), Cause::Unexplained);
        }
        self.charge_loss(time.min(now), transport.outages[side]);
    }

    /// Whether all of it that was sent last was acknowledged, whatever else its connection carries.
    pub fn has_arrived(&self, transport: &Transport) -> bool {
        transport.acked[usize::from(self.last_side)] >= self.position
    }

    /// Accounts the time up to `now`, after which nothing of this call is in the capture. A window lets its sender send nothing
    /// since it is used up; before, bytes of others went first, or the side that has to act was waited for.
    pub(super) fn charge_used_up(&mut self, now: i64, client: usize, used_up: &UsedUp, transport: &Transport) {
        let before = now.min(used_up.since);
        if self.is_inside(used_up.side) {
            self.charge(before, Cause::Transmission);
        } else {
            self.charge_open(before, client, transport);
        }
        self.charge(now, used_up.window);
    }

    /// Accounts the time up to `now`, after which nothing of this call is in the capture. A side that is to act was waited for,
    /// if it had received everything.
    pub fn charge_open(&mut self, now: i64, client: usize, transport: &Transport) {
        let side = self.owing_side(client);
        let follows_peer = usize::from(self.last_side) != side;
        if self.is_inside(0) || self.is_inside(1) || follows_peer && !self.has_arrived(transport) {
            return self.charge(now, Cause::Unexplained);
        }
        self.charge_resent(now, transport);
        let (near_rtt, near_is_bound) = (transport.near_rtt[side], transport.near_is_bound[side]);
        let is_client = side == client;
        let (shown, held, arrived) = (None, None, None);
        let is_doubtful = self.is_doubtful(side);
        let arrival = Arrival {
            follows_peer,
            is_client,
            is_doubtful,
            near_rtt,
            near_is_bound,
            shown,
            held,
            arrived,
            queued: 0,
            own_queue: 0,
            sends_since: transport.sends_since[side],
        };
        self.charge_plain(self.since, &arrival, now);
    }

    /// Accounts the time up to `now`, when the peer of `side` gives up a message that is not whole. Nothing was being
    /// transmitted when all that was sent had arrived.
    pub fn charge_unfinished(&mut self, now: i64, side: usize, transport: &Transport) {
        let arrived = transport.is_acknowledged[side] && !transport.queues[side].is_blocked();
        if arrived && self.is_inside(side) {
            let on_the_way = self.last_time + transport.near_rtt[side].max(0);
            self.charge(now.min(on_the_way), Cause::Transmission);
            self.charge(now, Cause::Unexplained);
        }
    }

    /// Accounts the time up to `now` in which a side sent in vain: its peer may have been gone since it was last heard.
    pub fn charge_in_vain(&mut self, now: i64, sent: &Unanswered) {
        self.charge(now.min(sent.first.time), Cause::Unexplained);
        self.charge(now, sent.cause());
    }

    /// Accounts the time up to `now`, since `start`, for bytes that nothing held up.
    #[inline]
    fn charge_plain(&mut self, start: i64, arrival: &Arrival, now: i64) {
        if self.is_inside(0) || self.is_inside(1) {
            return self.charge(now, Cause::Transmission);
        }
        if arrival.follows_peer {
            match arrival.near_rtt {
                rtt if rtt < 0 => self.charge(now, Cause::Unexplained),
                rtt if arrival.near_is_bound => self.charge(now.min(start + rtt), Cause::Unexplained),
                rtt => self.charge(now.min(start + rtt), Cause::Network),
            }
            let way = start + arrival.near_rtt.max(0);
            self.charge(now.min(way.saturating_add(arrival.own_queue)), Cause::Transmission);
            self.charge(now.min(way.saturating_add(arrival.queued)), Cause::NetworkQueue);
            if let Some((until, acknowledged)) = arrival.held.filter(|(until, _)| until.saturating_sub(way) >= TARGET) {
                let soon = acknowledged.saturating_sub(until) <= TARGET;
                self.charge(now.min(if soon { acknowledged } else { until }), Cause::NetworkQueue);
                self.charge(now.min(acknowledged), Cause::Unexplained); // they may have been on their way for longer
            }
            if let Some((shown, _)) = arrival.shown.filter(|(shown, most)| shown - start > *most) {
                self.charge(now.min(shown), Cause::Unexplained); // the request may still have been on the way
            }
            if let Some(arrived) = arrival.arrived {
                self.charge(now.min(arrived), Cause::Transmission);
            }
        } else if arrival.queued >= now - start {
            self.charge(now, Cause::NetworkQueue); // it was on the way already when the bytes before it came
        }
        let own = match arrival.is_client {
            _ if arrival.is_doubtful => Cause::Unexplained,
            true => Cause::Client,
            false => Cause::Server,
        };
        if let Some(since) = arrival.sends_since {
            // its TCP had bytes of others to send all the time: they may have held these back in its socket
            self.charge(now.min(since), own);
            return self.charge(now, Cause::Unexplained);
        }
        self.charge(now, own);
    }

    /// The same when lost bytes or a blocked sender held them up. What was sent before bytes that were lost could not
    /// be read until they were retransmitted. What follows blocked bytes in one burst stood in the queue behind them.
    /// What came while an earlier byte was missing waited for that.
    #[cold]
    fn charge_held(&mut self, side: usize, arrival: &Arrival, at: &At, transport: &Transport) {
        let queues = &transport.queues;
        let came = at.time.min(at.ready_time);
        // an answer that came sooner than a round trip after does not answer retransmitted bytes; clocks jitter
        let answered = came - arrival.near_rtt.max(0) / 8 * 7;
        let asked = arrival.follows_peer && !self.is_inside(side);
        let resent = queues[1 - side].last_resent_before(self.position, self.since, answered).filter(|_| asked);
        let outage = transport.outages[1 - side];
        if let Some(time) = resent {
            self.charge_loss(time, outage);
        }
        let arrival = &self.charge_outage(arrival, outage, came, resent.is_some());
        let start = self.since;
        if arrival.follows_peer && arrival.near_rtt > 0 {
            self.charge_plain(start, arrival, came.min(start + arrival.near_rtt));
        }
        for interval in queues[side].intervals() {
            let own = start.saturating_add(interval.own_ns);
            self.charge_plain(start, arrival, came.min(interval.start.max(own)));
            self.charge_interval(came, interval);
        }
        self.charge_plain(start, arrival, came);
        self.charge(at.ready_time, if queues[side].lost { Cause::LossRecovery } else { Cause::Network });
    }

    /// Accounts an outage up to `came`, and returns what is known of the rest. Before it the side was waited for as ever; in it
    /// nothing of the side could come; what had been lost came within a round trip after. What was `resent` arrived, unless
    /// the outage lasted for longer than an ACK of it may be put off.
    fn charge_outage(&mut self, arrival: &Arrival, (from, to): (i64, i64), came: i64, resent: bool) -> Arrival {
        let arrived = resent && to - self.since <= arrival.near_rtt + RTO_MIN;
        if to <= self.since || arrived || self.is_inside(0) || self.is_inside(1) {
            return *arrival;
        }
        self.charge_plain(self.since, arrival, came.min(from));
        self.charge_loss(came.min(to + arrival.near_rtt.max(0)), (from, to));
        Arrival { follows_peer: false, queued: 0, own_queue: 0, ..*arrival }
    }
}

/// What is known when bytes come.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The bytes before them are the other side's.
    follows_peer: bool,
    is_client: bool,
    /// Bytes of a message may have been moving.
    is_doubtful: bool,
    /// Negative when not measured.
    near_rtt: i64,
    /// It may hold the time that the side's application took to answer.
    near_is_bound: bool,
    /// When the first packet came that shows that what the side answers had arrived, if that may have been late, and how long
    /// it may take.
    shown: Option<(i64, i64)>,
    /// Until when the path is known to have held what the side answers, and when the ACK of it came.
    held: Option<(i64, i64)>,
    /// When what the side answers had arrived, as far as ACKs tell that came late though they may not be delayed.
    arrived: Option<i64>,
    /// How long these packets were queued, nanoseconds, and for how long of it behind bytes of the same request.
    queued: i64,
    own_queue: i64,
    /// Since when the side has had bytes of others to send all the time, if it has.
    sends_since: Option<i64>,
}

#[cfg(test)]
mod tests;
