//! Cuts the octets of one direction into frames. DATA is read in place and never kept. Other frames are kept only when
//! they are cut over segments.

use crate::at::At;
use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::State;
use crate::http2::connection::state::{End, Http2};
use crate::http2::connection::watch::Watch;

mod data;
mod end;
mod frames;
mod http1;
mod lost;
mod opening;

use crate::http2::frame::boundary_search;
use data::read_data;
use frames::{read_control, read_header, read_skip};
use http1::read_http1;
use lost::{gap, lose, search};
use opening::{read_http1_body, read_opening};

impl<A: Events> Http2<A> {
    /// Takes the next bytes of `side`'s stream of bytes, all carried by the packet of `at`.
    #[inline]
    pub fn feed<W: Watch<A> + ?Sized>(
        &mut self,
        side: usize,
        bytes: &[u8],
        at: At,
        reading: &mut Reading<'_>,
        watch: &mut W,
    ) {
        feed(self, side, bytes, at, reading, watch);
    }

    /// Bytes of `side` are missing from the capture.
    pub fn gap<W: Watch<A> + ?Sized>(
        &mut self,
        side: usize,
        length: u64,
        at: At,
        reading: &mut Reading<'_>,
        watch: &mut W,
    ) {
        gap(self, side, length, at, reading, watch);
    }

    /// The connection or the capture is over. Open streams end as [`End`] says.
    pub fn finish(&mut self, end: End, at: At, reading: &mut Reading<'_>) {
        http1::finish(self, end, at, reading);
        for side in 0..2 {
            let buffered = self.sides[side].buffered();
            self.bytes.undecoded += buffered;
        }
        for id in self.streams.ids() {
            A::end_open_stream(self, id, end, at, reading);
        }
        self.add_frames(reading.cx);
    }
}

/// Takes the next bytes of `side`.
#[inline]
fn feed<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let is_cut = reading.transport.is_cut[side];
    let sender = &mut h2.sides[side];
    if sender.state == State::Header && sender.head_have == 0 && !is_cut {
        sender.habits.packet_begins_with_frame();
    } else {
        let inside = sender.inside();
        sender.habits.packet_begins(inside, is_cut);
    }
    watch.reads(0);
    if h2.sides[side].doubtful.is_some() {
        doubt(h2, side, bytes, at, reading, watch);
    }
    read(h2, side, bytes, at, reading, watch);
    if h2.sides[side].replay.is_some() {
        replay(h2, side, reading, watch);
    }
    h2.sides[side].habits.packet_ends(at);
}

/// Leaves a frame whose length may be none where a packet begins that is a run of frames: damaged octets ended before it.
#[cold]
fn doubt<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let sender = &mut h2.sides[side];
    let inside = matches!(sender.state, State::Skip(_) | State::Data | State::Control);
    if !inside || sender.doubtful != Some(sender.frame) {
        sender.doubtful = None;
    } else if h2.highest_plausible().is_some_and(|highest| boundary_search::is_run_of_frames(bytes, highest)) {
        h2.sides[side].doubtful = None;
        lose(h2, side, u64::MAX, at, reading, watch);
    }
}

/// Reads bytes; every turn of the loop consumes a byte or leaves its state.
#[inline]
fn read<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &[u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = match h2.sides[side].state {
            State::Header => read_header(h2, side, rest, at, reading, watch),
            State::Data => read_data(h2, side, rest, at, reading, watch),
            State::Control => read_control(h2, side, rest, at, reading, watch),
            State::Skip(left) => read_skip(h2, side, rest, left, at, reading.cx),
            State::Opening => read_opening(h2, side, rest, at, reading, watch),
            State::Http1Body => read_http1_body(h2, side, rest),
            State::Http1 => read_http1(h2, side, rest, at, reading, watch),
            State::Lost => search(h2, side, rest, at, watch),
            State::Foreign => {
                *h2.unread_bytes() += rest.len() as u64;
                &[]
            }
        };
    }
}

/// Reads kept bytes again, from an offset on, in the state they have led to. What they lead to may be lost, kept and
/// found again: one after the other, for recursion would be as deep as the input has it.
#[cold]
fn replay<A: Events, W: Watch<A> + ?Sized>(h2: &mut Http2<A>, side: usize, reading: &mut Reading<'_>, watch: &mut W) {
    let mut left = Vec::new();
    while let Some((kept, from)) = h2.sides[side].replay.take().or_else(|| left.pop()) {
        let Some((piece, at)) = kept.piece(from) else { continue };
        let end = from + piece.len();
        watch.reads(kept.len() - end);
        read(h2, side, piece, at, reading, watch);
        if end < kept.len() {
            left.push((kept, end));
        }
    }
}
