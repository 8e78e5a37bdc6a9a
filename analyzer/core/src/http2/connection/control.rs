//! Applies frames other than DATA once they are whole.

use std::collections::VecDeque;

use crate::http2::frame::header::{FrameError, FrameHeader, FrameType, flag};
use crate::http2::frame::{goaway, ping, rst_stream, settings, window_update};
use crate::http2::observe::implementation::Implementation;
use crate::store::tables::Layer;

use super::events::Events;
use super::reading::Parser;
use super::side::Credit;
use super::watch::Watch;

/// A side farther than this from the capture point, nanoseconds there and back, sends before it has what was captured.
const FAR: i64 = 200_000;

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    /// Applies a frame to the connection; a defect is noted and the frame left out.
    #[inline]
    pub(in crate::http2) fn apply(&mut self, header: FrameHeader, payload: &[u8]) {
        let done = match header.kind() {
            FrameType::HEADERS => return self.apply_headers(header, payload),
            FrameType::CONTINUATION => {
                self.sender().habits.header_block(payload.len());
                self.read_continuation(header, payload)
            }
            FrameType::PUSH_PROMISE => self.read_push_promise(header, payload),
            FrameType::WINDOW_UPDATE => window_update::parse(&header, payload).map(|n| self.credit(header.stream, n)),
            FrameType::PING => ping::parse(&header, payload).map(|payload| self.note_ping(header, payload)),
            FrameType::SETTINGS if header.has(flag::ACK) => {
                self.acknowledge();
                Ok(())
            }
            FrameType::SETTINGS => settings::parse(&header, payload).and_then(|pairs| self.announce(pairs)),
            FrameType::RST_STREAM => {
                rst_stream::parse(&header, payload).map(|code| A::reset(self, header.stream, code))
            }
            FrameType::GOAWAY => goaway::parse(&header, payload).map(|frame| self.note_goaway(&frame)),
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.leave_out(header, error);
        }
    }

    /// A HEADERS frame.
    #[inline(always)]
    pub(in crate::http2) fn apply_headers(&mut self, header: FrameHeader, payload: &[u8]) {
        self.sender().habits.header_block(payload.len());
        if let Err(error) = self.read_headers(header, payload) {
            self.leave_out(header, error);
        }
    }

    #[cold]
    fn leave_out(&mut self, header: FrameHeader, error: FrameError) {
        self.sender().forget_left_out(header.kind());
        self.breach(error.reason);
    }

    /// A WINDOW_UPDATE frame; an increment of 0 is noted and left out.
    #[inline]
    pub(in crate::http2) fn apply_window_update(&mut self, header: FrameHeader, payload: &[u8; 4]) {
        match window_update::parse(&header, payload) {
            Ok(increment) => self.credit(header.stream, increment),
            Err(error) => self.breach(error.reason),
        }
    }

    /// A WINDOW_UPDATE lets the peer send `increment` bytes more; above 2^31-1 is FLOW_CONTROL_ERROR
    /// (RFC 9113 section 6.9.1), which is left to the peers.
    #[inline(always)]
    fn credit(&mut self, id: u32, increment: u32) {
        let peer = 1 - self.side;
        let receiver = &mut self.h2.sides[peer];
        receiver.credited_at = Some(self.at);
        let near = self.transport.near_rtt[peer];
        if near > FAR {
            receiver.remember_credit(Credit { time: self.at.time, stream: id, increment }, near);
        }
        if id == 0 {
            receiver.connection_credit = receiver.connection_credit.saturating_add(i64::from(increment));
            receiver.most_connection_credit = receiver.most_connection_credit.max(receiver.connection_credit);
            receiver.connection_credited = self.at.time;
        } else if let Some(stream) = self.h2.streams.find_mut(id) {
            let credit = &mut stream.credit[peer];
            *credit = credit.saturating_add(i64::from(increment));
        }
    }

    /// SETTINGS: in force for the peer once acknowledged (RFC 9113 section 6.5.3).
    fn announce(&mut self, pairs: settings::Pairs<'_>) -> Result<(), FrameError> {
        let is_server = self.side != self.h2.client;
        let sender = &mut self.h2.sides[self.side];
        if sender.settings_at.is_none() && sender.implementation == Implementation::Unknown {
            sender.implementation = Implementation::from_settings(pairs, is_server);
        }
        let (announced, wrong) = sender.newest().with(pairs);
        if !sender.announce(announced, self.at) {
            self.problem(Layer::Http2, "too many SETTINGS frames without an acknowledgement");
        }
        self.h2.sides[1 - self.side].announce_table_size(announced.header_table_size);
        wrong.map_or(Ok(()), Err)
    }

    /// The sender acknowledges its peer's oldest SETTINGS: the values bind its frames from here on. Stream windows follow a
    /// new initial window at once, because they are kept relative to it (section 6.9.2).
    fn acknowledge(&mut self) {
        let peer = &mut self.h2.sides[1 - self.side];
        let Some(values) = peer.pending.pop_front() else {
            if !self.h2.begun_late && peer.gaps == 0 {
                self.problem(Layer::Http2, "SETTINGS acknowledgement without SETTINGS");
            }
            return;
        };
        if peer.pending.is_empty() {
            peer.pending = VecDeque::new(); // most connections announce settings once
        }
        let before = std::mem::replace(&mut peer.in_force, values);
        if values.initial_window_size > before.initial_window_size {
            self.h2.sides[self.side].credited_at = Some(self.at);
        }
        if values.header_table_size != before.header_table_size {
            self.sender().allow_table_size(values.header_table_size);
        }
    }
}
