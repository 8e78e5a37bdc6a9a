//! What all connections of a run share: dictionaries, tables and totals.

use serde::{Deserialize, Serialize};

use std::sync::Arc;

use crate::limits;

use super::budget::Budget;
use super::disorder::{Disorder, Disordered, Stream};
use super::durations::Durations;
use super::emitted_rpcs::{Due, EmittedRpcs, Rows, Taken, Whole};
use super::largest::Largest;
use super::methods::MethodStats;
use super::options::Options;
use super::row_selection::Selected;
use super::rpc_order::RpcOrder;
use super::spill::Spill;
use super::strings::Strings;
use super::tables::{
    Acts, Closings, Column, ConnectionMethods, Delays, Failures, FrameRow, Frames, Goaways, Idles, Layer, Messages,
    NOBODY, OpenRpcs, OtherRequests, PacketRow, Packets, Pings, ProblemLog, ProblemRow, Queues, Records, Repeats,
    RpcSizes, Rpcs, Stalls, Unanswered, Undelivered, Waits, take_first,
};

/// Counts of frames by type: of the ten types that RFC 9113 defines, and of all others together.
pub const FRAME_COUNTS: usize = 11;

/// Sums over the capture.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Frames by type; the last entry counts types that RFC 9113 does not define.
    pub frames: [u64; FRAME_COUNTS],
    /// gRPC messages of both directions.
    pub messages: u64,
    /// Streams that are HTTP/2 but not gRPC.
    pub other_streams: u64,
    /// RPCs that began before the capture.
    pub begun_before: u64,
    /// gRPC messages with the compressed flag.
    pub compressed_messages: u64,
}

/// The shared state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Context {
    /// What is wanted.
    #[serde(skip)]
    pub options: Options,
    /// Methods and agents.
    pub strings: Strings,
    /// RPCs so far: all that began, or those that serve as examples.
    pub rpcs: Rpcs,
    /// Deadlines of RPCs, nanoseconds, -1 for none; stays empty until the first RPC with a deadline.
    pub deadlines: Vec<i64>,
    /// The order of those rows.
    #[serde(skip)]
    pub rpc_order: RpcOrder,
    /// The rows that were taken out of the tables of RPCs while the run goes on.
    #[serde(skip)]
    pub emitted: EmittedRpcs,
    /// What RPCs carried, when wanted.
    pub rpc_sizes: RpcSizes,
    /// Budgets of RPCs, when wanted.
    pub rpc_budgets: Vec<Budget>,
    /// The same up to the end of the request, when wanted.
    #[serde(skip)]
    pub request_budgets: Vec<Budget>,
    /// The packets at which requests were whole, 0 before, when wanted.
    #[serde(skip)]
    pub request_ends: Vec<u32>,
    /// Messages so far, when wanted.
    #[serde(skip)]
    pub messages: Messages,
    /// Frames so far, when wanted.
    #[serde(skip)]
    pub frames: Frames,
    /// Packets so far, when wanted.
    #[serde(skip)]
    pub packets: Packets,
    /// The packets that are read have rows already, which were written while they were kept.
    #[serde(skip)]
    pub is_shown: bool,
    /// Rows of these three that have no order yet.
    #[serde(skip)]
    pub disorder: Option<Disorder>,
    /// What is kept where only some packets and frames have rows.
    #[serde(skip)]
    pub selected: Selected,
    /// Intervals in which a side had to act, when wanted.
    #[serde(skip)]
    pub acts: Acts,
    /// Intervals that had no room in `acts`.
    #[serde(skip)]
    pub acts_left_out: u64,
    /// Waits so far.
    #[serde(skip)]
    pub waits: Waits,
    /// Waits inside records of TLS that was not decrypted.
    #[serde(skip)]
    pub record_waits: Waits,
    /// Records of such TLS, two rows per connection.
    #[serde(skip)]
    pub records: Records,
    /// Idle intervals of clients, by class of length.
    #[serde(skip)]
    pub idles: Idles,
    /// Silences for which the peer waited, as far as they are kept.
    #[serde(skip)]
    pub stalls: Stalls,
    /// Sides of connections whose last packets got no answer so far.
    #[serde(skip)]
    pub unanswered: Unanswered,
    /// Sides of connections whose first unacknowledged bytes never arrived so far.
    #[serde(skip)]
    pub undelivered: Undelivered,
    /// The first FINs and RSTs of connections so far.
    #[serde(skip)]
    pub closings: Closings,
    /// RPCs that are open at the capture's end, as far as they are kept.
    #[serde(skip)]
    pub open_rpcs: OpenRpcs,
    /// PING frames, as far as they are kept.
    #[serde(skip)]
    pub pings: Pings,
    /// GOAWAY frames so far.
    #[serde(skip)]
    pub goaways: Goaways,
    /// Debug texts of GOAWAY frames.
    #[serde(skip)]
    pub goaway_reasons: Vec<String>,
    /// First DATA that came late so far.
    #[serde(skip)]
    pub delays: Delays,
    /// HTTP/2 requests that are no RPCs so far.
    pub other_requests: OtherRequests,
    /// Intervals in which packets were queued on the way so far.
    #[serde(skip)]
    pub queues: Queues,
    /// RPCs that ended otherwise than OK so far.
    #[serde(skip)]
    pub failures: Failures,
    /// RPCs that a client sends again after a failure so far.
    #[serde(skip)]
    pub repeats: Repeats,
    /// Budgets of `failures`.
    #[serde(skip)]
    pub failure_budgets: Vec<Budget>,
    /// Which methods connections used.
    #[serde(skip)]
    pub connection_methods: ConnectionMethods,
    /// Problems so far.
    #[serde(skip)]
    pub problems: ProblemLog,
    /// Sums.
    #[serde(skip)]
    pub totals: Totals,
    /// By method number plus one; the first entry is for RPCs whose method is not in the capture.
    #[serde(skip)]
    pub methods: Vec<Option<Box<MethodStats>>>,
    /// The longest of all RPCs so far, as many as are wanted.
    #[serde(skip)]
    pub slowest: Largest,
    /// A sample of all RPCs so far, as many as are wanted, each by its number ([`scatter`](super::largest::scatter)).
    #[serde(skip)]
    pub sampled: Largest,
    /// Bytes kept out of order over all connections.
    pub out_of_order_bytes: usize,
    /// Bytes kept of bodies that end RPCs, over all connections.
    pub trailer_bytes: usize,
}

/// The statistics of a method before its first RPC.
#[cold]
fn first_rpc(index: usize, spill: &Option<Arc<Spill>>) -> Box<MethodStats> {
    Box::new(MethodStats::new(index < limits::METHOD_HISTOGRAMS, Durations::new(spill.clone())))
}

/// No method, in an RPC row.
pub const NO_METHOD: u32 = u32::MAX;

impl Context {
    /// A context for one run.
    pub fn new(options: Options) -> Self {
        let (slowest, sampled) = (Largest::new(options.slowest), Largest::new(options.sampled));
        let mut context = Self { options, slowest, sampled, ..Self::default() };
        context.strings.keeps_errors = context.options.errors;
        context
    }

    /// Notes a problem on a connection.
    #[cold]
    pub fn problem(&mut self, layer: Layer, text: &'static str, connection: u32, packet: u32, time_ns: i64) {
        let row = ProblemRow { time_ns, connection, packet, layer: layer as u8, kind: 0, broken_by: NOBODY };
        self.problems.note(text, row);
    }

    /// Corrects the directions of a connection's last rows, written before it showed who is the client. Behind rows that have
    /// no order yet those of other connections may be many: of the capture's last packets they are the same.
    #[cold]
    pub fn turn_rows(&mut self, connection: u32) {
        let oldest = self.rpc_order.packet().saturating_sub(limits::TURNED_ROWS as u32);
        let disordered = self.disorder.as_ref().map(|tables| tables.each_ref().map(|table| table.read.len()));
        let turn = |connections: &[u32], directions: &mut [u8], written: &[u32], more: usize| -> Vec<usize> {
            let rows = connections.iter().zip(directions).enumerate().rev().take(limits::TURNED_ROWS + more);
            let is_late = |row: usize| written.get(row).is_none_or(|&packet| packet >= oldest);
            let mine = rows.filter(|(row, (of, _))| **of == connection && is_late(*row));
            let turned = mine.map(|(row, (_, direction))| {
                *direction ^= 1;
                row
            });
            turned.collect()
        };
        let Self { packets, frames, messages, acts, queues, stalls, .. } = self;
        let [more_packets, more_frames, more_messages] = disordered.unwrap_or_default();
        let turned = turn(&packets.connection, &mut packets.direction, &packets.packet, more_packets);
        turn(&frames.connection, &mut frames.direction, &frames.last_packet, more_frames);
        turn(&messages.connection, &mut messages.direction, &messages.last_packet, more_messages);
        turn(&acts.connection, &mut acts.direction, &[], 0);
        turn(&queues.connection, &mut queues.direction, &[], 0);
        turn(&stalls.connection, &mut stalls.direction, &[], 0);
        self.selected.turn(connection, &turned);
    }

    /// Adds the row of a packet, if it is wanted.
    #[inline]
    pub fn push_packet(&mut self, row: PacketRow) {
        if self.options.selection.as_ref().is_none_or(|selection| self.selected.take(selection, &row)) {
            self.packets.push(row);
            self.note_row(Stream::Packets);
        }
    }

    /// Adds the row of a frame, if it is wanted.
    #[inline]
    pub fn push_frame(&mut self, row: FrameRow) {
        if let Some(selection) = &self.options.selection {
            let times = [row.first_time_ns, row.last_time_ns];
            let packets = [row.first_packet, row.last_packet];
            let is_full = self.frames.len() >= selection.most_frames.saturating_add(limits::ROWS_AHEAD);
            if is_full || !selection.holds(row.connection, packets, times, Some(row.stream)) {
                return;
            }
            self.selected.frames_read_at.push(self.rpc_order.packet());
        }
        self.frames.push(row);
        self.note_row(Stream::Frames);
    }

    /// The rows that follow have no order until [`Self::restore_order`].
    pub fn begin_disorder(&mut self) {
        let rows = [self.packets.len(), self.frames.len(), self.messages.len()];
        self.disorder = Some(rows.map(|first| Disordered { first, read: Vec::new() }));
    }

    /// A row is written while a packet is read.
    #[inline]
    pub fn note_row(&mut self, table: Stream) {
        if let Some(disorder) = &mut self.disorder {
            disorder[table as usize].read.push(self.rpc_order.now());
        }
    }

    /// Puts the rows in order that have come since [`Self::begin_disorder`].
    pub fn restore_order(&mut self) {
        let Some([packets, frames, messages]) = self.disorder.take() else { return };
        packets.order().iter().for_each(|order| self.packets.arrange(order));
        frames.order().iter().for_each(|order| self.frames.arrange(order));
        messages.order().iter().for_each(|order| self.messages.arrange(order));
    }

    /// Takes the rows that are in order. What is still to be read in its order may turn the last of them.
    pub fn take_stream(&mut self, table: Stream) -> Vec<(&'static str, Column)> {
        let rows = match self.disorder.as_mut().map(|disorder| &mut disorder[table as usize].first) {
            Some(first) => {
                let rows = first.saturating_sub(limits::TURNED_ROWS);
                *first -= rows;
                rows
            }
            None => usize::MAX,
        };
        match table {
            Stream::Packets => self.packets.take_first(rows, None),
            Stream::Frames => self.frames.take_first(rows, None),
            Stream::Messages => self.messages.take_first(rows, None),
        }
    }

    /// The number of a GOAWAY's debug text; 0 is the empty one, and every one beyond the limit.
    pub fn goaway_reason(&mut self, text: &str) -> u32 {
        if self.goaway_reasons.is_empty() {
            self.goaway_reasons.push(String::new());
        }
        let known = self.goaway_reasons.iter().position(|known| known == text);
        let number = known.unwrap_or_else(|| {
            if self.goaway_reasons.len() >= limits::GOAWAY_REASONS {
                return 0;
            }
            self.goaway_reasons.push(text.to_owned());
            self.goaway_reasons.len() - 1
        });
        number as u32
    }

    /// The running statistics of a method.
    #[inline(always)]
    pub fn method(&mut self, method: u32) -> &mut MethodStats {
        let index = method.wrapping_add(1) as usize; // 0 for NO_METHOD
        if self.methods.len() <= index {
            self.make_room_for_method(index);
        }
        let spill = &self.options.spill;
        self.methods[index].get_or_insert_with(|| first_rpc(index, spill))
    }

    #[cold]
    fn make_room_for_method(&mut self, index: usize) {
        self.methods.resize_with(index + 1, || None);
    }

    /// How many rows at the beginning of the tables of RPCs stay as they are.
    pub fn settled_rpcs(&self) -> usize {
        let settled = &self.rpc_sizes.settled;
        settled.iter().position(|&settled| settled == 0).unwrap_or(settled.len())
    }

    /// Takes the rows of RPCs that are complete, and what else was not told before.
    pub fn take_complete(&mut self, Due { least, most }: Due) -> Taken {
        let settled = self.settled_rpcs();
        let rows = if self.rpcs.len() - settled > most { self.rpcs.len() - most / 2 } else { settled };
        let rows = if rows < least { 0 } else { self.rpc_order.cut(rows) };
        let [methods, errors] = self.emitted.emitted_names;
        let taken = Taken {
            rows: self.take_rpcs(rows),
            settled: self.emitted.take_settled(),
            methods: self.strings.methods_from(methods),
            errors: self.strings.errors.texts_from(errors),
        };
        self.emitted.emitted_names = [methods + taken.methods.len(), errors + taken.errors.len()];
        taken
    }

    /// Takes the first rows out of the tables of RPCs.
    pub fn take_rpcs(&mut self, rows: usize) -> Rows {
        let rows = rows.min(self.rpcs.len());
        let places = self.rpc_order.take_first(rows);
        let places = places.as_deref();
        if let Some(places) = places {
            self.make_ready(places);
        }
        for position in 0..rows {
            let place = places.and_then(|places| places.get(position)).map_or(position, |&place| place as usize);
            if self.rpc_sizes.settled.get(place) == Some(&0)
                && let Some(whole) = self.whole(place)
            {
                self.emitted.keep_open(place, position, whole);
            }
        }
        self.emitted.advance(rows);
        let mut columns = self.rpcs.take_first(rows, places);
        columns.extend(self.rpc_sizes.take_first(rows, places));
        take_first(&mut self.request_budgets, rows, None);
        take_first(&mut self.request_ends, rows, None);
        let deadlines = take_first(&mut self.deadlines, rows, places);
        Rows { columns, deadlines, budgets: take_first(&mut self.rpc_budgets, rows, places) }
    }

    /// Brings the rows of RPCs into order.
    pub fn order_rpcs(&mut self) {
        let rows = self.rpcs.len();
        let Some(places) = self.rpc_order.take_first(rows) else { return };
        self.make_ready(&places);
        self.deadlines = take_first(&mut self.deadlines, rows, Some(&places));
        self.rpc_budgets = take_first(&mut self.rpc_budgets, rows, Some(&places));
        self.request_budgets = take_first(&mut self.request_budgets, rows, Some(&places));
        self.request_ends = take_first(&mut self.request_ends, rows, Some(&places));
        self.rpcs.arrange(&places);
        self.rpc_sizes.arrange(&places);
    }

    /// The first rows of RPCs get these places.
    fn make_ready(&mut self, places: &[u32]) {
        if !self.deadlines.is_empty() {
            self.deadlines.resize(self.rpcs.len(), -1);
        }
        self.renumber_failures(places);
    }

    /// Lets failures refer to the first rows of RPCs at the places that they have now.
    fn renumber_failures(&mut self, places: &[u32]) {
        if self.failures.is_empty() {
            return;
        }
        let mut now = vec![0; places.len()];
        for (place, &before) in places.iter().enumerate() {
            now[before as usize] = place;
        }
        for rpc in &mut self.failures.rpc {
            if let Some(&place) = self.emitted.place(*rpc).and_then(|before| now.get(before)) {
                *rpc = self.emitted.number(place);
            }
        }
    }

    fn whole(&self, place: usize) -> Option<Whole> {
        Some(Whole {
            row: self.rpcs.get(place)?,
            sizes: self.rpc_sizes.get(place)?,
            deadline: self.deadlines.get(place).copied().unwrap_or(-1),
            budget: *self.rpc_budgets.get(place)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::{QueueRow, StallRow};
    use super::*;

    #[test]
    fn rows_of_a_connection_whose_client_was_mistaken_are_turned() {
        let mut cx = Context::default();
        for connection in [3, 4] {
            cx.stalls.push(StallRow { connection, direction: 1, ..StallRow::default() });
            cx.queues.push(QueueRow { connection, ..QueueRow::default() });
        }
        cx.turn_rows(4);
        assert_eq!((cx.stalls.direction, cx.queues.direction), (vec![1, 0], vec![0, 1]));
    }
}
