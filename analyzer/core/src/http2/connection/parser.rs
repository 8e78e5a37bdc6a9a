//! Cuts the octets of one direction into frames. DATA is read in place and never kept. Other frames are kept only when
//! they are cut over segments.

use crate::at::At;
use crate::http2::connection::events::Events;
use crate::http2::connection::http2::{End, Http2};
use crate::http2::connection::reading::{Parser, Reading};
use crate::http2::connection::side::State;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::boundary_search;

mod data;
mod end;
mod first_octets;
mod frames;
mod http1;
mod lost;

impl<A: Events> Http2<A> {
    /// Takes the next bytes of `side`'s stream of bytes, all carried by the packet of `at`.
    #[inline]
    pub fn feed<W>(&mut self, side: usize, bytes: &[u8], at: At, reading: &mut Reading<'_>, watch: &mut W)
    where
        W: Watch<A> + ?Sized,
    {
        Parser { h2: self, side, at, cx: reading.cx, transport: reading.transport, watch }.feed(bytes);
    }

    /// Bytes of `side` are missing from the capture.
    pub fn gap<W>(&mut self, side: usize, length: u64, at: At, reading: &mut Reading<'_>, watch: &mut W)
    where
        W: Watch<A> + ?Sized,
    {
        Parser { h2: self, side, at, cx: reading.cx, transport: reading.transport, watch }.gap(length);
    }

    /// The connection or the capture is over. Open streams end as [`End`] says.
    pub fn finish(&mut self, end: End, at: At, reading: &mut Reading<'_>) {
        let Reading { cx, transport } = reading;
        let mut parser = Parser { side: self.client, h2: self, at, cx, transport, watch: &mut () };
        parser.finish_http1(end);
        for side in 0..2 {
            let buffered = parser.h2.sides[side].buffered();
            parser.h2.bytes.undecoded += buffered;
        }
        for id in parser.h2.streams.ids() {
            A::end_open_stream(&mut parser, id, end);
        }
        self.add_frames(reading.cx);
    }
}

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    #[inline]
    fn feed(&mut self, bytes: &[u8]) {
        let (at, is_cut) = (self.at, self.transport.is_cut[self.side]);
        let sender = self.sender();
        if sender.state == State::Header && sender.head_have == 0 && !is_cut {
            sender.habits.packet_begins_with_frame();
        } else {
            let inside = sender.inside();
            sender.habits.packet_begins(inside, is_cut);
        }
        self.watch.reads(0);
        if self.sender().doubtful.is_some() {
            self.doubt(bytes);
        }
        self.read(bytes);
        if self.sender().replay.is_some() {
            self.replay();
        }
        self.sender().habits.packet_ends(at);
    }

    /// Leaves a frame whose length may be none where a packet begins that is a run of frames: damaged octets ended before it.
    #[cold]
    fn doubt(&mut self, bytes: &[u8]) {
        let sender = self.sender();
        let inside = matches!(sender.state, State::Skip(_) | State::Data | State::Control);
        if !inside || sender.doubtful != Some(sender.frame) {
            sender.doubtful = None;
        } else if let Some(highest) = self.h2.highest_plausible()
            && boundary_search::is_run_of_frames(bytes, highest)
        {
            self.sender().doubtful = None;
            self.lose(u64::MAX);
        }
    }

    /// Reads bytes; every turn of the loop consumes a byte or leaves its state.
    #[inline]
    fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = if self.sender().state == State::Header { self.read_header(rest) } else { self.read_inside(rest) };
        }
    }

    /// Reads bytes before which a frame header was read, or which are no frames.
    #[inline]
    fn read_inside<'b>(&mut self, rest: &'b [u8]) -> &'b [u8] {
        match self.sender().state {
            State::Data => self.read_data(rest),
            State::Control => self.read_control(rest),
            State::Skip(left) => self.read_skip(rest, left),
            State::Opening => self.read_opening(rest),
            State::Http1Body => self.read_http1_body(rest),
            State::Http1 => self.read_http1(rest),
            State::Lost => self.search(rest),
            State::Foreign | State::Header => {
                *self.h2.unread_bytes() += rest.len() as u64;
                &[]
            }
        }
    }

    /// Reads kept bytes again, from an offset on, in the state they have led to. What they lead to may be lost, kept and
    /// found again: one after the other, for recursion would be as deep as the input has it.
    #[cold]
    fn replay(&mut self) {
        let mut left = Vec::new();
        while let Some((kept, from)) = self.sender().replay.take().or_else(|| left.pop()) {
            let Some((piece, at)) = kept.piece(from) else { continue };
            let end = from + piece.len();
            self.watch.reads(kept.len() - end);
            self.at = at;
            self.read(piece);
            if end < kept.len() {
                left.push((kept, end));
            }
        }
    }
}
