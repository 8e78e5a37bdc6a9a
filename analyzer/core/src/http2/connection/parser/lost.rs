//! Handles octets that are missing, and searches for the next frame boundary.

use crate::http2::connection::events::Events;
use crate::http2::connection::http2::Protocol;
use crate::http2::connection::reading::Parser;
use crate::http2::connection::side::State;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::{FrameType, flag};
use crate::store::tables::Layer;

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    /// Looks for the next frame boundary; when it is found, what follows it is read again as frames.
    pub(super) fn search<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut search = self.sender().search.take().unwrap_or_default();
        self.h2.bytes.undecoded += search.add(bytes, self.at);
        let found = search.find(self.h2.highest_plausible());
        self.watch.searched(bytes.len(), found.map(|found| search.len() - found));
        let Some(found) = found else {
            if self.watch.watches() {
                self.watch.held(&search.held());
            }
            if search.given_up() && self.h2.protocol != Protocol::Http2 {
                self.h2.protocol = Protocol::Other;
                self.h2.bytes.not_http2 += search.len() as u64;
                self.sender().state = State::Foreign;
                self.watch.foreign(0);
            } else {
                self.sender().search = Some(search);
            }
            return &[];
        };
        self.h2.bytes.undecoded += found as u64;
        self.h2.protocol = Protocol::Http2;
        let until = found.checked_sub(1).and_then(|last| search.piece(last)).map_or(0, |(_, at)| at.packet);
        self.sender().found_boundary(found, until);
        self.sender().replay = Some((search, found));
        &[]
    }

    /// `length` bytes are not in the capture. Inside a frame that is read past, decoding goes on; else the boundary is lost.
    pub(super) fn gap(&mut self, length: u64) {
        if self.h2.http1.is_some() {
            return self.gap_in_http1(length);
        }
        let Ok(short) = u32::try_from(length) else { return self.lose(length) };
        let (sender, protocol) = (&mut self.h2.sides[self.side], self.h2.protocol);
        match sender.state {
            State::Data if !sender.data.pad_length_due && short <= sender.data.total() => self.gap_in_data(short),
            State::Skip(left) if short <= left => {
                sender.state = State::Skip(left - short);
                if left == short {
                    let kind = sender.frame.kind();
                    self.end_frame(kind);
                }
            }
            State::Control => self.gap_in_control(short),
            State::Foreign => {}
            State::Opening if matches!(protocol, Protocol::Other | Protocol::Tls) => {}
            _ => self.lose(length),
        }
    }

    fn gap_in_data(&mut self, length: u32) {
        self.forget_ended_stream();
        let sender = self.sender();
        let in_data = length.min(sender.data.data);
        sender.data.data -= in_data;
        sender.data.padding -= length - in_data;
        let (slot, whole, header) = (sender.slot, sender.data.total() == 0, sender.frame);
        A::data_lacks(self, slot, in_data);
        if whole {
            self.end_data(header);
        }
    }

    /// The frame's length is known, so is its end; a header block gives the fields that came before the gap.
    fn gap_in_control(&mut self, length: u32) {
        let sender = self.sender();
        let header = sender.frame;
        let kept = std::mem::take(&mut sender.kept);
        let left = (header.length() as usize).checked_sub(kept.len() + length as usize);
        if header.kind() == FrameType::HEADERS {
            self.read_cut_headers(header, &kept);
        }
        let sender = self.sender();
        if header.kind() == FrameType::PING && header.has(flag::ACK) {
            sender.pinged = None;
        }
        sender.lack_block(header.kind(), kept.len() as u64 + u64::from(length));
        match left {
            Some(0) => self.end_frame(header.kind()),
            Some(left) => sender.state = State::Skip(left as u32),
            None => self.lose(u64::from(length)),
        }
    }

    #[cold]
    pub(super) fn lose(&mut self, missing: u64) {
        let (sender, packet) = (&mut self.h2.sides[self.side], self.at.packet);
        if let Some(search) = sender.search.take() {
            if sender.state == State::Opening {
                self.watch.undecided(search.bytes());
            }
            self.h2.bytes.undecoded += search.len() as u64;
        }
        sender.lose(missing, packet);
        A::doubt(self.h2, self.at);
        self.problem(Layer::Http2, "bytes are missing: frames are unknown up to the next boundary");
    }
}
