//! Finishes a frame when its last byte is in.

use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Parser;
use crate::http2::connection::side::State;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::{FrameHeader, FrameType, flag};
use crate::store::tables::FrameRow;

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    /// Between two parts of a DATA frame its stream may have been reset, and another one may have its slot.
    #[inline]
    pub(super) fn forget_ended_stream(&mut self) {
        let sender = &mut self.h2.sides[self.side];
        let id = sender.frame.stream;
        if sender.slot != NONE && self.h2.streams.get_mut(sender.slot).is_none_or(|stream| stream.id != id) {
            sender.slot = NONE;
        }
    }

    #[inline]
    pub(super) fn end_data(&mut self, header: FrameHeader) {
        if header.has(flag::END_STREAM) {
            let slot = match self.sender().slot {
                NONE => self.h2.streams.slot(header.stream).unwrap_or(NONE),
                slot => slot,
            };
            A::end_stream(self, header.stream, slot);
        }
        self.end_frame(FrameType::DATA);
    }

    /// The frame's last byte is in.
    #[inline(always)]
    pub(super) fn end_frame(&mut self, kind: FrameType) {
        let sender = self.sender();
        sender.state = State::Header;
        sender.habits.frame_ends(kind);
        if self.cx.options.frames {
            self.push_row();
        }
    }

    #[inline(never)]
    fn push_row(&mut self) {
        let sender = self.sender();
        let (frame, first) = (sender.frame, sender.frame_first);
        let (last_packet, last_time_ns) = self.at.completes(&first);
        self.cx.push_frame(FrameRow {
            connection: self.h2.connection,
            direction: self.h2.direction(self.side),
            stream: frame.stream,
            kind: frame.kind().0,
            flags: frame.flags(),
            length: frame.length(),
            first_packet: first.packet,
            first_time_ns: first.time,
            last_packet,
            last_time_ns,
        });
    }
}
