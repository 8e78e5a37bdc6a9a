//! Reads DATA frames in place.

use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Parser;
use crate::http2::connection::side::State;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::data::Remaining;
use crate::http2::frame::header::{FrameHeader, flag};

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    #[inline]
    pub(super) fn begin_data<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        let slot = self.h2.streams.slot(header.stream).unwrap_or(NONE);
        let sender = &mut self.h2.sides[self.side];
        sender.connection_credit -= i64::from(header.length());
        if header.length() > 0 {
            sender.data_sent = self.at.time;
        }
        sender.last_stream = header.stream;
        sender.slot = slot;
        if let Some(stream) = self.h2.streams.get_mut(slot) {
            stream.credit[self.side] -= i64::from(header.length());
        }
        if self.h2.begun_late {
            self.h2.note_least_credit(self.side, slot);
        } else if (1..=rest.len()).contains(&(header.length() as usize)) && !header.has(flag::PADDED) {
            return self.read_whole_data(header, rest);
        }
        let sender = self.sender();
        sender.data = Remaining::new(header.length(), header.has(flag::PADDED));
        sender.state = State::Data;
        if header.length() == 0 {
            self.end_data(header);
        }
        rest
    }

    /// All of a DATA frame without padding, which `rest` begins with: what [`read_data`](Self::read_data) does with the
    /// pieces of others.
    #[inline(always)]
    fn read_whole_data<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        let (data, behind) = rest.split_at(rest.len().min(header.length() as usize));
        let sender = self.sender();
        let slot = sender.slot;
        sender.data = Remaining::default();
        self.h2.bytes.decoded += data.len() as u64;
        self.watch.data(rest.len());
        if slot != NONE {
            A::data(self, slot, data);
        }
        self.end_data(header);
        behind
    }

    #[inline]
    pub(super) fn read_data<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut bytes = bytes;
        if self.sender().data.pad_length_due
            && let Some((&pad, rest)) = bytes.split_first()
        {
            self.h2.bytes.decoded += 1;
            self.watch.pad_length(pad, rest.len());
            if let Err(error) = self.sender().data.set_pad_length(pad) {
                self.breach(error.reason);
            }
            bytes = rest;
        }
        self.forget_ended_stream();
        let sender = &mut self.h2.sides[self.side];
        // no octet of the frame was read yet, and its stream is not followed
        let at_start = sender.data.data == sender.frame.length() && !sender.data.pad_length_due;
        let unread = sender.slot == NONE && at_start;
        let take = bytes.len().min(sender.data.data as usize);
        self.watch.data(bytes.len());
        let (chunk, rest) = bytes.split_at(take);
        sender.data.data -= take as u32;
        let pad = rest.len().min(if sender.data.data == 0 { sender.data.padding as usize } else { 0 });
        sender.data.padding -= pad as u32;
        let (whole, header, mut slot) = (sender.data.total() == 0, sender.frame, sender.slot);
        self.h2.bytes.decoded += (take + pad) as u64;
        if unread && self.h2.begun_late {
            slot = A::late_data(self, header, chunk);
            self.sender().slot = slot;
        }
        if !chunk.is_empty() && slot != NONE {
            A::data(self, slot, chunk);
        }
        if whole {
            self.end_data(header);
        }
        rest.get(pad..).unwrap_or_default()
    }
}
