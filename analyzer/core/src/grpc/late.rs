//! Streams that were opened before the capture: their header blocks are not in it. What they carry shows in DATA that
//! is cut as gRPC cuts it (PROTOCOL-HTTP2.md, "Length-Prefixed-Message"); then they are followed like others.

use std::collections::HashMap;

use crate::at::At;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::{FrameHeader, flag};
use crate::limits;
use crate::store::context::{Context, NO_METHOD};
use crate::store::tables::Layer;

use super::call::Kind;
use super::headers::{Origin, Summary};
use super::message::PREFIX_LEN;
use super::rows::push_rpc;
use super::state::{Grpc, Http2};

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
pub(super) struct Before {
    /// Streams that were opened before it.
    streams: HashMap<u32, Probe, foldhash::fast::RandomState>,
    /// Methods whose names were sent before it: the table entries that tell them, and their numbers.
    labels: Vec<([u64; 2], u32)>,
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

/// Follows a stream that was opened before the capture, from a message boundary of `side` at `first` on.
#[cold]
pub(super) fn resume_stream(h2: &mut Http2, side: usize, id: u32, first: At, reading: &mut Reading<'_>) -> u32 {
    let gaps = [h2.sides[0].gaps, h2.sides[1].gaps];
    let Some(call) = h2.streams.open(id).map(|stream| &mut stream.state) else {
        h2.problem(Layer::Http2, "too many open streams: further ones are not followed", first, reading.cx);
        return NONE;
    };
    call.begin(id, Kind::Grpc, first, gaps);
    call.begun_before = true;
    call.last_side = side as u8;
    call.method = NO_METHOD;
    call.timeout_ns = -1;
    if h2.application.rpcs < limits::FIRST_RPCS || reading.cx.options.rpc_rows {
        push_rpc(h2.connection, call, reading.cx);
    }
    call.counted = true;
    h2.application.turns.update(call, h2.client, side == h2.client, first, reading.transport.near_rtt[h2.client]);
    h2.raise_highest_stream(id);
    h2.application.rpcs += 1;
    h2.application.open_rpcs += 1;
    h2.application.methods.note(NO_METHOD);
    reading.cx.totals.begun_before += 1;
    h2.application.max_open_rpcs = h2.application.max_open_rpcs.max(h2.application.open_rpcs);
    h2.streams.slot(id).unwrap_or(NONE)
}

/// The first octets of a DATA frame on a stream that is not followed. Gives the slot of the stream when they prove
/// that it is gRPC: it is an RPC that began before the capture.
#[cold]
pub(super) fn late_data<W: Watch<Grpc> + ?Sized>(
    h2: &mut Http2,
    side: usize,
    header: FrameHeader,
    octets: &[u8],
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> u32 {
    let id = header.stream;
    if !h2.opened_before(id) || header.has(flag::PADDED) || h2.sides[h2.client].is_searching() {
        return NONE;
    }
    let at = h2.sides[side].frame_first();
    let full =
        h2.application.late.streams.len() >= limits::LATE_STREAMS && !h2.application.late.streams.contains_key(&id);
    if full {
        h2.problem(Layer::Http2, "too many streams from before the capture: not all are followed", at, reading.cx);
        return NONE;
    }
    let needed = PROOFS[usize::from(side != h2.client)];
    let probe = h2.application.late.streams.entry(id).or_default();
    if probe.settled {
        return NONE;
    }
    let is_between = probe.to_end[side] == 0;
    if !probe.data(side, octets, header.length(), needed) {
        if is_between {
            watch.beginnings(octets, header);
        }
        return NONE;
    }
    probe.settled = true;
    resume_stream(h2, side, id, at, reading)
}

/// Gives the method of a request whose `:path` was sent before the capture a number of its own: RPCs with the same
/// one have the same method.
#[cold]
pub(super) fn label_method(h2: &mut Http2, summary: &mut Summary, origin: &Origin, cx: &mut Context) {
    let Some(entries) = origin.path_entries() else { return };
    let labels = &mut h2.application.late.labels;
    let known = labels.iter().find(|(key, _)| *key == entries).map(|&(_, number)| number);
    let number = known.or_else(|| {
        let nth = u32::try_from(labels.len()).ok()?;
        let number =
            (labels.len() < limits::METHOD_LABELS).then(|| cx.strings.unnamed_method(h2.connection, nth)).flatten()?;
        labels.push((entries, number));
        Some(number)
    });
    summary.method = number;
    summary.unnamed = number.is_some();
}

/// A stream from before the capture ended, or is no gRPC: nothing more of it is looked at.
#[cold]
pub(super) fn settle_late_stream(h2: &mut Http2, id: u32) {
    if let Some(probe) = h2.application.late.streams.get_mut(&id) {
        probe.settled = true;
    } else if h2.application.late.streams.len() < limits::LATE_STREAMS {
        h2.application.late.streams.insert(id, Probe { settled: true, ..Probe::default() });
    }
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
    fn a_false_beginning_is_found_out() {
        let mut probe = Probe::default();
        assert!(!probe.data(1, &[0, 0, 0, 100, 0, 9, 9], 7, 2), "looks like a message of 25,600 bytes");
        assert!(!probe.data(1, &message(30_000)[..16_384], 16_384, 2));
        assert!(!probe.data(1, &[9; 16_000], 16_000, 2), "which would have ended in the middle of this frame");
        assert!(!probe.data(1, &message(3), 8, 2));
        assert!(probe.data(1, &message(5), 10, 2));
    }
}
