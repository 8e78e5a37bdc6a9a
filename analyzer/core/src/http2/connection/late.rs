//! Streams that were opened before the capture: their header blocks are not in it. What they carry shows in DATA that
//! is cut as gRPC cuts it (PROTOCOL-HTTP2.md, "Length-Prefixed-Message"); then they are followed like others.

use std::collections::HashMap;

use crate::grpc::headers::{Origin, Summary};
use crate::grpc::message::PREFIX_LEN;
use crate::http2::connection::reading::Reading;
use crate::http2::frame::data::Remaining;
use crate::http2::frame::header::{FrameHeader, flag};
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::Layer;

use super::state::Http2;
use super::streams::NONE;
use super::watch::Watch;

/// Message boundaries that prove gRPC, by sender (client, server). The rest of a unary answer, whose RPC nothing more
/// can be told of, has one of the server's.
const PROOFS: [u8; 2] = [1, 2];

/// What is known of one such stream.
#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    /// By side: payload bytes up to the end of a message that began with a DATA frame; 0 for none.
    to_end: [u64; 2],
    /// By side: message boundaries seen.
    boundaries: [u8; 2],
    /// It is followed, has ended, or is not gRPC.
    settled: bool,
}

/// What one connection took over from before the capture.
#[derive(Debug, Default)]
pub(in crate::http2) struct Before {
    /// Streams that were opened before it.
    streams: HashMap<u32, Probe, foldhash::fast::RandomState>,
    /// Methods whose names were sent before it: the table entries that tell them, and their numbers.
    labels: Vec<([u64; 2], u32)>,
    /// By side: its first octets are HTTP/2's first ones.
    opened: [bool; 2],
}

/// Stops at one level, and of them those at which the stream's window was another one, that prove the connection's to be
/// used up there (own choice: by chance a level is not met again to the byte, let alone so often).
const PROVING_STOPS: [u32; 2] = [4, 3];

/// A sender may not exceed a window (RFC 9113 section 6.9.1), and one that stops for it always stops at the same level of
/// credit granted less DATA sent, whatever was granted before the capture. The stream's window cannot be what stops it
/// where that of the same stream is at another level each time.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::http2) struct UsedUp {
    /// The connection's credit at the latest stops, and how many there were.
    level: i64,
    stops: u32,
    /// The latest stop's stream and its credit, and how many times that differed by a segment or more.
    stream: u32,
    stream_level: i64,
    others: u32,
    /// Gaps of both sides: credit or DATA may have been in them.
    gaps: [u32; 2],
    /// DATA went below the level: whatever stopped the sender there, it was not that.
    refuted: bool,
}

impl UsedUp {
    fn stopped(&mut self, stream: u32, [level, stream_level]: [i64; 2], segment: i64, gaps: [u32; 2]) {
        if self.stops == 0 || self.level != level || self.gaps != gaps {
            let refuted = self.refuted || (self.is_proved() && self.gaps == gaps);
            *self = Self { level, stops: 1, stream, stream_level, others: 0, gaps, refuted };
            return;
        }
        self.stops = self.stops.saturating_add(1);
        if self.stream == stream && self.stream_level.abs_diff(stream_level) >= segment.max(1).unsigned_abs() {
            self.others = self.others.saturating_add(1);
        }
        (self.stream, self.stream_level) = (stream, stream_level);
    }

    /// DATA was sent: the credit after it.
    fn sent(&mut self, credit: i64) {
        self.refuted |= self.stops > 0 && credit < self.level && self.is_proved();
    }

    fn is_proved(&self) -> bool {
        !self.refuted && self.stops >= PROVING_STOPS[0] && self.others >= PROVING_STOPS[1]
    }

    /// The credit at which the window is used up.
    fn zero(&self, gaps: [u32; 2]) -> Option<i64> {
        (self.is_proved() && self.gaps == gaps).then_some(self.level)
    }
}

/// What a DATA frame says about message boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// It holds whole messages from its first octet to its last.
    Whole,
    /// It begins like a message that needs this many bytes more.
    Begins(u64),
    /// Neither can be told.
    Unknown,
}

/// Walks over the messages in a DATA frame of `length` octets as far as `octets`, its first ones, go.
fn cut_of(octets: &[u8], length: u32) -> Cut {
    let (mut at, length) = (0_u64, u64::from(length));
    while at < length {
        let prefix = usize::try_from(at).ok().and_then(|at| octets.get(at..)).and_then(|rest| rest.first_chunk::<5>());
        let Some(&[flag, a, b, c, d]) = prefix else { return Cut::Unknown };
        let message = u32::from_be_bytes([a, b, c, d]);
        // a run of zeros is more often a payload's than a run of empty messages
        if flag > 1 || (message == 0 && length > u64::from(PREFIX_LEN)) {
            return Cut::Unknown;
        }
        at += u64::from(PREFIX_LEN) + u64::from(message);
    }
    if at == length { Cut::Whole } else { Cut::Begins(at - length) }
}

impl Probe {
    /// Takes a DATA frame in; whether its first octet is proved to begin a message, by itself or by what came before.
    fn data(&mut self, side: usize, octets: &[u8], length: u32, limit: u8) -> bool {
        let known = self.boundaries[side] > 0 && self.to_end[side] == 0;
        let left = std::mem::take(&mut self.to_end[side]);
        if left > u64::from(length) {
            self.to_end[side] = left - u64::from(length);
            return false;
        }
        if left == u64::from(length) {
            self.boundaries[side] = self.boundaries[side].saturating_add(1);
            return false;
        }
        let cut = if left == 0 { cut_of(octets, length) } else { Cut::Unknown };
        match cut {
            Cut::Whole => self.boundaries[side] = self.boundaries[side].saturating_add(1),
            Cut::Begins(more) => self.to_end[side] = more,
            Cut::Unknown => self.boundaries[side] = 0,
        }
        let enough = self.boundaries[side] >= limit;
        enough && (cut == Cut::Whole || (known && cut != Cut::Unknown))
    }
}

impl Http2 {
    /// The first octets of a DATA frame on a stream that is not followed. Gives the slot of the stream when they prove
    /// that it is gRPC: it is an RPC that began before the capture.
    #[cold]
    pub(in crate::http2) fn late_data<W: Watch + ?Sized>(
        &mut self,
        side: usize,
        header: FrameHeader,
        octets: &[u8],
        reading: &mut Reading<'_, W>,
    ) -> u32 {
        let id = header.stream;
        if !self.opened_before(id) || header.has(flag::PADDED) || self.sides[self.client].is_searching() {
            return NONE;
        }
        let at = self.sides[side].frame_first();
        let full = self.late.streams.len() >= limits::LATE_STREAMS && !self.late.streams.contains_key(&id);
        if full {
            self.problem(
                Layer::Http2,
                "too many streams from before the capture: not all are followed",
                at,
                reading.cx,
            );
            return NONE;
        }
        let needed = PROOFS[usize::from(side != self.client)];
        let probe = self.late.streams.entry(id).or_default();
        if probe.settled {
            return NONE;
        }
        let is_between = probe.to_end[side] == 0;
        if !probe.data(side, octets, header.length(), needed) {
            if is_between {
                reading.watch.beginnings(octets, header);
            }
            return NONE;
        }
        probe.settled = true;
        self.resume_stream(side, id, at, reading)
    }

    /// Gives the method of a request whose `:path` was sent before the capture a number of its own: RPCs with the same
    /// one have the same method.
    #[cold]
    pub(in crate::http2) fn label_method(&mut self, summary: &mut Summary, origin: &Origin, cx: &mut Context) {
        let Some(entries) = origin.path_entries() else { return };
        let labels = &mut self.late.labels;
        let known = labels.iter().find(|(key, _)| *key == entries).map(|&(_, number)| number);
        let number = known.or_else(|| {
            let nth = u32::try_from(labels.len()).ok()?;
            let number = (labels.len() < limits::METHOD_LABELS)
                .then(|| cx.strings.unnamed_method(self.connection, nth))
                .flatten()?;
            labels.push((entries, number));
            Some(number)
        });
        summary.method = number;
        summary.unnamed = number.is_some();
    }

    /// `side` begins as HTTP/2 does. When both do, the capture holds all of it, though not TCP's opening: a client's
    /// preface is its first octets, and SETTINGS are the first frame of either side (RFC 9113 section 3.4).
    #[cold]
    pub(in crate::http2) fn opens(&mut self, side: usize) {
        self.late.opened[side] = true;
        if self.begun_late && self.late.opened == [true; 2] {
            self.begun_late = false;
            for side in &mut self.sides {
                side.hpack = side.hpack.new_like();
            }
        }
    }

    /// DATA of `side` was within its windows: they were at least as large.
    #[cold]
    pub(in crate::http2) fn note_least_credit(&mut self, side: usize, slot: u32) {
        let sender = &mut self.sides[side];
        sender.least_connection_credit = sender.least_connection_credit.min(sender.connection_credit);
        sender.used_up.sent(sender.connection_credit);
        if let Some(stream) = self.streams.get_mut(slot).filter(|stream| !stream.begun_before) {
            sender.least_stream_credit = sender.least_stream_credit.min(stream.directions[side].credit);
        }
    }

    /// What both windows of a stream for DATA of `side` allow at least, when their openings are not in the capture:
    /// as much as was used of them before and given back since. `not_there` is credit for the connection and for the
    /// stream that has not reached the sender. `None` for a stream from before the capture.
    pub fn least_window(&mut self, side: usize, id: u32, not_there: [i64; 2]) -> Option<i64> {
        let sender = &mut self.sides[side];
        let connection = sender.connection_credit.saturating_sub(not_there[0]);
        sender.least_connection_credit = sender.least_connection_credit.min(connection);
        let stream = self.streams.find_mut(id).filter(|stream| !stream.begun_before)?;
        let stream = stream.directions[side].credit.saturating_sub(not_there[1]);
        sender.least_stream_credit = sender.least_stream_credit.min(stream);
        let left = connection.saturating_sub(sender.least_connection_credit);
        Some(left.min(stream.saturating_sub(sender.least_stream_credit)))
    }

    /// What is granted of both windows beyond what was used, from an unknown beginning on; `None` without the stream.
    pub fn credits(&mut self, side: usize, id: u32) -> Option<[i64; 2]> {
        let stream = self.streams.find_mut(id)?.directions[side].credit;
        Some([self.sides[side].connection_credit, stream])
    }

    /// The connection's window for DATA of `side` when stops have proved where it is used up.
    pub(in crate::http2) fn late_window(&self, side: usize) -> Option<i64> {
        let sender = &self.sides[side];
        let zero = sender.used_up.zero(self.gaps())?;
        Some(sender.connection_credit.saturating_sub(zero))
    }

    /// `side` stopped inside a message of stream `id`, behind a whole DATA frame, with these credits of connection and
    /// stream, and went on right when the connection had more. `segment` is the size of a full segment.
    #[cold]
    pub fn note_stop_for_credit(&mut self, side: usize, id: u32, credits: [i64; 2], segment: i64) {
        let gaps = self.gaps();
        if self.sides[side].connection_credit > credits[0] {
            self.sides[side].used_up.stopped(id, credits, segment, gaps);
        }
    }

    fn gaps(&self) -> [u32; 2] {
        [self.sides[0].gaps, self.sides[1].gaps]
    }

    /// A stream from before the capture ended, or is no gRPC: nothing more of it is looked at.
    #[cold]
    pub(crate) fn settle_late_stream(&mut self, id: u32) {
        if let Some(probe) = self.late.streams.get_mut(&id) {
            probe.settled = true;
        } else if self.late.streams.len() < limits::LATE_STREAMS {
            self.late.streams.insert(id, Probe { settled: true, ..Probe::default() });
        }
    }
}

/// Whether no octet of a DATA frame was read yet.
pub(in crate::http2) fn at_start(data: &Remaining, header: FrameHeader) -> bool {
    data.data == header.length() && !data.pad_length_due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32) -> Vec<u8> {
        [&[0_u8][..], &length.to_be_bytes(), &vec![7; length as usize]].concat()
    }

    #[test]
    fn frames_of_whole_messages_prove_boundaries() {
        let three = [message(3), message(1), message(20)].concat();
        assert_eq!(cut_of(&three, three.len() as u32), Cut::Whole);
        assert_eq!(cut_of(&message(0), 5), Cut::Whole, "an empty message alone");
        assert_eq!(cut_of(&message(100)[..50], 50), Cut::Begins(55));
        assert_eq!(cut_of(&message(100)[..20], 105), Cut::Whole, "its prefix suffices");
        assert_eq!(cut_of(&three[..9], three.len() as u32), Cut::Unknown, "the second prefix is not there yet");
        assert_eq!(cut_of(&[0; 50], 50), Cut::Unknown, "zeros are no messages");
        assert_eq!(cut_of(&[7; 50], 50), Cut::Unknown);
    }

    #[test]
    fn a_message_over_frames_proves_the_boundary_behind_it() {
        let (mut probe, long) = (Probe::default(), message(40_000));
        assert!(!probe.data(0, &long[..16_384], 16_384, 1));
        assert!(!probe.data(0, &long[16_384..32_768], 16_384, 1));
        assert!(!probe.data(0, &long[32_768..], 7_237, 1), "its beginning is over, the next one is not there");
        assert!(probe.data(0, &long[..16_384], 16_384, 1));
    }

    #[test]
    fn stops_at_one_level_prove_that_the_window_is_used_up_there() {
        let mut window = UsedUp::default();
        for stop in 0..4 {
            assert_eq!(window.zero([0, 0]), None);
            window.stopped(5, [-70_000, 1_000_000 - stop * 65_535], 1_408, [0, 0]);
            window.sent(-70_000);
        }
        assert_eq!(window.zero([0, 0]), Some(-70_000));
        assert_eq!(window.zero([0, 1]), None, "credit may have been in a gap");
        window.sent(-70_001);
        assert_eq!(window.zero([0, 0]), None, "a sender may not exceed a window");
    }

    #[test]
    fn stops_that_the_streams_window_may_explain_prove_nothing() {
        let (mut same, mut elsewhere, mut other_streams) = (UsedUp::default(), UsedUp::default(), UsedUp::default());
        for stop in 0..20_i64 {
            same.stopped(5, [-70_000, -65_535], 1_408, [0, 0]);
            elsewhere.stopped(5, [-70_000 - stop, -9_999 * stop], 1_408, [0, 0]);
            other_streams.stopped(5 + 2 * stop as u32, [-70_000, -9_999 * stop], 1_408, [0, 0]);
        }
        assert_eq!([same, elsewhere, other_streams].map(|window| window.zero([0, 0])), [None; 3]);
    }

    #[test]
    fn a_false_beginning_is_found_out() {
        let mut probe = Probe::default();
        assert!(!probe.data(1, &[0, 0, 0, 100, 0, 9, 9], 7, 2), "looks like a message of 25,600 bytes");
        assert!(!probe.data(1, &message(30_000)[..16_384], 16_384, 2));
        assert!(!probe.data(1, &[9; 16_000], 16_000, 2), "which would have ended in the middle of this frame");
        assert!(!probe.data(1, &message(3), 8, 2));
        assert!(probe.data(1, &message(5), 10, 2));
    }
}
