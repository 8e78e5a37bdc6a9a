//! Divides a connection at a cut of a run that goes on: its rows up to there, and its state, which stays.

use crate::at::At;
use crate::grpc::open_rpcs::{awaits_repeats, begin_interval, is_open, note_names, report_open};
use crate::store::context::Context;
use crate::store::interval_parts::{OpenTime, Parts};
use crate::store::strings::UsedNames;
use crate::tcp::connection::Counters;
use crate::tcp::sent_again::Recovery;
use crate::tcp::unanswered::Outage;

use super::before::Before;
use super::end_rows::{push_closings, push_unanswered, push_undelivered};
use super::{CaptureEnd, Connection, Ended, summary};

impl Connection {
    /// The number of its first packet, which tells it from all others.
    pub fn id(&self) -> u32 {
        self.before.as_ref().map_or(self.tcp.first.packet, |before| before.first_packet)
    }

    /// The capture's last packet at the last cut, 0 before.
    pub(super) fn last_cut(&self) -> u32 {
        self.before.as_ref().map_or(0, |before| before.cut)
    }

    /// What was counted since the last cut.
    pub(super) fn counters(&self) -> Counters {
        self.before.as_ref().map_or(self.tcp.counters, |before| self.tcp.counters.since(&before.counters))
    }

    /// Whether there is nothing to report: no packet since the last cut, no open call, and no failed one
    /// that may be repeated. The packet with the latest time
    /// is not always the last one.
    pub fn is_quiet(&self) -> bool {
        let Counters { packets, duplicates, .. } = self.counters();
        let is_silent = self.before.as_ref().is_some_and(|before| self.tcp.last.packet <= before.cut);
        is_silent
            && packets == [0; 2]
            && duplicates == 0
            && !self.has_open_calls()
            && !awaits_repeats(&self.content.http2)
    }

    /// Whether calls are open.
    pub fn has_open_calls(&self) -> bool {
        is_open(&self.content.http2)
    }

    /// The time of its last packet.
    pub fn last_time(&self) -> i64 {
        self.tcp.last.time
    }

    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.content.http2.streams.len()
    }

    /// Gives the connection another row.
    pub fn renumber(&mut self, row: u32) {
        self.tcp.row = row;
        self.content.http2.connection = row;
    }

    /// A packet is the first one since the last cut.
    pub fn goes_on(&mut self, at: At) {
        self.tcp.first = at;
    }

    /// Reports what came since the last cut, and what is open, as if the capture ended at `end`; then counts anew.
    pub fn divide(&mut self, end: CaptureEnd, parts: &mut Parts) -> (Ended, OpenTime) {
        let (tcp, content) = (&mut self.tcp, &mut self.content);
        let (acknowledged, acked) = (tcp.transport.is_acknowledged, tcp.transport.acked);
        tcp.note_acknowledged();
        let at_end = if tcp.is_finished() { &mut parts.done } else { &mut parts.open };
        push_undelivered(tcp, content, at_end);
        push_unanswered(tcp, content, at_end);
        let open = report_open(&mut content.http2, end.last, &tcp.transport, parts);
        (tcp.transport.is_acknowledged, tcp.transport.acked) = (acknowledged, acked);
        let (row, client) = (tcp.row, content.http2.client);
        content.http2.application.methods.write(row, &mut parts.done);
        if let Some(tls) = &mut content.tls {
            tls.write(row, client, &mut parts.done);
            content.http2.bytes.encrypted += tls.begin_interval();
        }
        push_closings(&self.tcp, &self.content, self.last_cut(), &mut parts.done);
        let is_at_limit = self.content.http2.application.turns.is_at_limit();
        let ended = self.rows(end.last, &mut parts.done);
        self.content.http2.application.turns.begin_interval(end.last.time, is_at_limit);
        self.begin_interval(end.last.packet, &mut parts.done);
        (ended, open)
    }

    /// Counts anew behind packet `cut`.
    pub fn begin_interval(&mut self, cut: u32, cx: &mut Context) {
        let http2 = &mut self.content.http2;
        http2.begin_interval(cx);
        begin_interval(http2);
        self.tcp.counters.recovery = Recovery::default();
        self.tcp.counters.outage = Outage::default();
        let first_packet = self.id();
        self.before = Some(Box::new(Before { first_packet, counters: self.tcp.counters, cut }));
    }

    /// Notes the names that it refers to.
    pub fn note_names(&mut self, used: &mut UsedNames) {
        note_names(&mut self.content.http2, used);
    }

    /// The rows of the tables that have a fixed number of rows for each connection.
    pub(super) fn rows(&mut self, at: At, cx: &mut Context) -> Ended {
        let (counters, id, row) = (self.counters(), self.id(), self.tcp.row);
        let client = self.content.http2.client;
        let content = &mut self.content;
        Ended {
            id,
            row: summary::row(&self.tcp, &counters, content, self.roles_from),
            budget: content.http2.application.budget,
            directions: [client, 1 - client].map(|side| content.http2.sides[side].habits.row()),
            turns: {
                let application = &mut content.http2.application;
                application.turns.write_stall(client, &mut cx.stalls);
                application.turns.finish(row, at.time, application.max_open_rpcs, &mut cx.idles)
            },
            setup: summary::setup_row(&self.tcp, content),
        }
    }
}
