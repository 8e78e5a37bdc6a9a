//! Follows streams that were opened before the capture. Their header blocks are missing, but their DATA shows that they
//! are gRPC.

use crate::at::At;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::{FrameHeader, flag};
use crate::limits;
use crate::store::context::{Context, NO_METHOD};
use crate::store::tables::Layer;

use super::activity::Activity;
use super::connection::{Grpc, Parser};
use super::headers::{Origin, Summary};
use super::probe::{Before, Probe};
use super::protocol::Kind;
use super::rows::begin_rpc;
use super::status::Source;

/// Message boundaries that prove gRPC, by sender (client, server). The rest of a unary answer, of whose RPC nothing more
/// is known, has one of the server's.
const PROOFS: [u8; 2] = [1, 2];

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// The first octets of a DATA frame on a stream that is not followed. Gives the slot of the stream when they prove
    /// that it is gRPC: it is an RPC that began before the capture.
    #[cold]
    pub(super) fn take_late_data(&mut self, header: FrameHeader, octets: &[u8]) -> u32 {
        let (h2, side, id) = (&mut *self.h2, self.side, header.stream);
        if !h2.opened_before(id) || header.has(flag::PADDED) || h2.sides[h2.client].is_searching() {
            return NONE;
        }
        let at = h2.sides[side].frame_first();
        let streams = &mut h2.application.late.streams;
        if streams.len() >= limits::LATE_STREAMS && !streams.contains_key(&id) {
            h2.problem(Layer::Http2, "too many streams from before the capture: not all are followed", at, self.cx);
            return NONE;
        }
        let needed = PROOFS[usize::from(side != h2.client)];
        let probe = streams.entry(id).or_default();
        if probe.settled {
            return NONE;
        }
        let is_between = probe.to_end[side] == 0;
        if !probe.data(side, octets, header.length(), needed) {
            if is_between {
                self.watch.beginnings(octets, header);
            }
            return NONE;
        }
        probe.settled = true;
        self.resume_stream(id, at)
    }

    /// Follows a stream that was opened before the capture, from a message boundary at `first` on.
    #[cold]
    fn resume_stream(&mut self, id: u32, first: At) -> u32 {
        let activity = Activity::new(self.h2, self.side, &first, self.transport);
        let h2 = &mut *self.h2;
        let gaps = [h2.sides[0].gaps, h2.sides[1].gaps];
        let Some(call) = h2.streams.open(id).map(|stream| &mut stream.state) else {
            h2.problem(Layer::Http2, "too many open streams: further ones are not followed", first, self.cx);
            return NONE;
        };
        call.begin(id, Kind::Grpc, first, gaps);
        call.gaps_seen = activity.gap.count;
        call.begun_before = true;
        call.is_guessed = true;
        call.last_side = activity.side as u8;
        call.method = NO_METHOD;
        call.timeout_ns = -1;
        begin_rpc(&mut h2.application, h2.connection, call, false, self.cx);
        activity.update_turns(call, &mut h2.application.turns);
        h2.raise_highest_stream(id);
        self.cx.totals.begun_before += 1;
        h2.streams.slot(id).unwrap_or(NONE)
    }
}

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// The server ends a stream with header fields that the capture does not hold. An RPC with one request message and no
    /// response message has failed, unless it is a server stream; so it has if none of these fields ended an answered one.
    #[cold]
    pub(super) fn take_hidden_end(&mut self, slot: u32, summary: &Summary) {
        let (client, server) = (self.h2.client, &self.h2.sides[1 - self.h2.client]);
        let Some(call) = self.h2.streams.state_mut(slot).filter(|call| call.kind == Kind::Grpc) else { return };
        let [request, response] = [client, 1 - client].map(|side| &call.directions[side].reader);
        let is_whole = !server.gap_touches(call.directions[1 - client].gaps, call.first.packet) && !response.is_lost();
        let late = &mut self.h2.application.late;
        if !is_whole || call.begun_before || call.touches_gap || request.messages != 1 || response.is_inside() {
            return;
        }
        if response.messages == 0 {
            call.hidden_error = late.find_error(summary);
        } else if response.messages == 1 && summary.hidden_entries().is_some() {
            late.usual_end = (summary.hidden, summary.unknown);
        }
    }
}

/// Numbers of table entries are nearer to each other unless bytes are missing between them.
const NEAR: u64 = 1 << 32;

impl Before {
    /// Compares the fields that end an RPC without a response message with those that ended answered ones.
    fn find_error(&self, summary: &Summary) -> Option<Source> {
        let usual = self.usual_end.0.get(..self.usual_end.1 as usize).unwrap_or_default();
        let Some(entries) = summary.hidden_entries() else { return Some(Source::NoMessage) };
        let comparable = usual.iter().all(|one| entries.iter().all(|other| one.abs_diff(*other) < NEAR));
        let same = usual.iter().filter(|entry| entries.contains(entry)).count();
        match same {
            _ if usual.is_empty() || !comparable => Some(Source::NoMessage),
            0 => Some(Source::OtherTrailers),
            _ if same == usual.len() => None,
            _ => Some(Source::NoMessage),
        }
    }

    /// Gives the method of a request whose `:path` was sent before the capture a number of its own: RPCs with the same
    /// one have the same method. Behind header blocks that are missing, one method would have many numbers: it has none.
    #[cold]
    pub(super) fn label_method(&mut self, connection: u32, summary: &mut Summary, origin: &Origin, cx: &mut Context) {
        let Some(entries) = origin.path_entries() else { return };
        if self.labels.first().is_some_and(|(first, _)| first[0].abs_diff(entries[0]) >= NEAR) {
            return;
        }
        let known = self.labels.iter().find(|(key, _)| *key == entries).map(|&(_, number)| number);
        let number = known.or_else(|| {
            let nth = u32::try_from(self.labels.len()).ok().filter(|_| self.labels.len() < limits::METHOD_LABELS)?;
            let number = cx.strings.unnamed_method(connection, nth)?;
            self.labels.push((entries, number));
            Some(number)
        });
        summary.method = number;
        summary.unnamed = number.is_some();
    }

    /// A stream from before the capture ended, or is no gRPC: nothing more of it is looked at.
    #[cold]
    pub(super) fn settle(&mut self, id: u32) {
        if let Some(probe) = self.streams.get_mut(&id) {
            probe.settled = true;
        } else if self.streams.len() < limits::LATE_STREAMS {
            self.streams.insert(id, Probe::settled());
        }
    }
}
