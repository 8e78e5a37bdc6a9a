//! Reads frame headers, and the payload of frames other than DATA.

use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Parser;
use crate::http2::connection::side::State;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::{DEFAULT_MAX_FRAME_SIZE, FrameHeader, FrameType, HEADER_LEN};
use crate::limits;
use crate::store::tables::Layer;

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    #[inline]
    pub(super) fn read_header<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let sender = &mut self.h2.sides[self.side];
        if sender.head_have == 0 {
            sender.frame_first = self.at;
            if let Some((octets, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
                self.h2.bytes.decoded += HEADER_LEN as u64;
                return self.begin_frame(FrameHeader::parse(octets), rest);
            }
        }
        let take = bytes.len().min(HEADER_LEN - sender.head_have);
        let (part, rest) = bytes.split_at(take);
        if let Some(room) = sender.head.get_mut(sender.head_have..sender.head_have + take) {
            room.copy_from_slice(part);
        }
        sender.head_have += take;
        self.h2.bytes.decoded += take as u64;
        if sender.head_have < HEADER_LEN {
            return rest;
        }
        sender.head_have = 0;
        self.begin_cut_frame(rest)
    }

    /// A header cut over segments; apart, because the usual one is read in place and inlined.
    #[cold]
    fn begin_cut_frame<'b>(&mut self, rest: &'b [u8]) -> &'b [u8] {
        let header = FrameHeader::parse(&self.sender().head);
        self.begin_frame(header, rest)
    }

    #[inline(always)]
    fn begin_frame<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        self.watch.frame(header, rest.len());
        let sender = self.sender();
        sender.frame = header;
        let usual = header.length() <= DEFAULT_MAX_FRAME_SIZE && sender.block.is_none();
        match header.kind() {
            FrameType::DATA if usual && header.stream != 0 => {
                sender.habits.frame_begins(FrameType::DATA);
                self.begin_data(header, rest)
            }
            FrameType::HEADERS if usual && header.stream != 0 => {
                sender.habits.frame_begins(FrameType::HEADERS);
                self.begin_headers(header, rest)
            }
            FrameType::WINDOW_UPDATE if usual && header.length() == 4 => {
                sender.habits.frame_begins(FrameType::WINDOW_UPDATE);
                self.begin_window_update(header, rest)
            }
            _ => self.begin_any_frame(header, rest),
        }
    }

    /// A frame that is less usual, or wrong.
    #[inline(never)]
    fn begin_any_frame<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        let sender = self.sender();
        sender.habits.frame_begins(header.kind());
        if sender.block.is_some() && header.kind() != FrameType::CONTINUATION {
            self.abandon_block();
        }
        if let Err(error) = header.check() {
            self.breach(error.reason);
            self.sender().doubtful = Some(header);
            return self.begin_wrong_frame(header, rest);
        }
        if header.length() > DEFAULT_MAX_FRAME_SIZE {
            self.check_frame_size(header);
        }
        match header.kind() {
            FrameType::DATA => self.begin_data(header, rest),
            kind if kind.is_known() => self.begin_control(header, rest),
            _ => {
                self.sender().doubtful = Some(header);
                self.begin_skip(header, rest)
            }
        }
    }

    /// HEADERS, which have most often come whole: read without the detour that other frames take.
    #[inline(always)]
    fn begin_headers<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        let Some((payload, rest)) = rest.split_at_checked(header.length() as usize) else {
            return self.begin_control(header, rest);
        };
        self.h2.bytes.decoded += payload.len() as u64;
        self.watch.control(header, payload);
        self.apply_headers(header, payload);
        self.end_frame(FrameType::HEADERS);
        rest
    }

    /// WINDOW_UPDATE, as many as DATA in many captures.
    #[inline(always)]
    fn begin_window_update<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        let Some((payload, rest)) = rest.split_first_chunk::<4>() else {
            return self.begin_control(header, rest);
        };
        self.h2.bytes.decoded += payload.len() as u64;
        self.watch.control(header, payload);
        self.apply_window_update(header, payload);
        self.end_frame(FrameType::WINDOW_UPDATE);
        rest
    }

    /// A frame whose header contradicts its type. After a late begin the boundary was wrong; else its payload is skipped.
    #[cold]
    fn begin_wrong_frame<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        if self.h2.begun_late || self.sender().gaps > 0 {
            let packet = self.at.packet;
            self.sender().lose(u64::MAX, packet);
            return rest;
        }
        self.sender().forget_left_out(header.kind());
        self.begin_skip(header, rest)
    }

    #[cold]
    fn check_frame_size(&mut self, header: FrameHeader) {
        let announced = self.h2.sides[1 - self.side].announced.max_frame_size;
        let allowed = self.h2.binding(self.side).max_frame_size.max(announced);
        if header.length() > allowed && !self.h2.begun_late {
            self.sender().doubtful = Some(header);
            self.problem(Layer::Http2, "frame is longer than the peer's SETTINGS_MAX_FRAME_SIZE");
        }
    }

    fn begin_skip<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        self.sender().state = State::Skip(header.length());
        if header.length() == 0 {
            self.end_frame(header.kind());
        }
        rest
    }

    pub(super) fn read_skip<'b>(&mut self, bytes: &'b [u8], left: u32) -> &'b [u8] {
        let take = bytes.len().min(left as usize);
        self.h2.bytes.decoded += take as u64;
        let left = left - take as u32;
        self.sender().state = State::Skip(left);
        if left == 0 {
            let kind = self.sender().frame.kind();
            self.end_frame(kind);
        }
        bytes.get(take..).unwrap_or_default()
    }

    #[inline]
    fn begin_control<'b>(&mut self, header: FrameHeader, rest: &'b [u8]) -> &'b [u8] {
        if let Some((payload, rest)) = rest.split_at_checked(header.length() as usize) {
            self.h2.bytes.decoded += payload.len() as u64;
            self.read_control_frame(header, payload);
            return rest;
        }
        let most = match header.kind() {
            FrameType::HEADERS | FrameType::CONTINUATION | FrameType::PUSH_PROMISE => limits::HEADER_BLOCK,
            _ => limits::CONTROL_FRAME,
        };
        if header.length() as usize > most {
            self.problem(Layer::Http2, "frame is too long to keep: skipped");
            self.sender().forget_block();
            self.sender().state = State::Skip(header.length());
        } else {
            self.sender().kept.clear();
            self.sender().state = State::Control;
        }
        rest
    }

    pub(super) fn read_control<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let sender = &mut self.h2.sides[self.side];
        let header = sender.frame;
        let take = bytes.len().min((header.length() as usize).saturating_sub(sender.kept.len()));
        let (part, rest) = bytes.split_at(take);
        sender.kept.extend_from_slice(part);
        self.h2.bytes.decoded += take as u64;
        if sender.kept.len() >= header.length() as usize {
            let mut payload = std::mem::take(&mut sender.kept);
            self.read_control_frame(header, &payload);
            payload.clear();
            self.sender().kept = payload;
        }
        rest
    }

    /// A whole frame other than DATA.
    #[inline]
    fn read_control_frame(&mut self, header: FrameHeader, payload: &[u8]) {
        self.watch.control(header, payload);
        self.apply(header, payload);
        self.end_frame(header.kind());
    }
}
