//! Decides what the first octets of a direction are, and which state reads them.

use crate::http1::head::Body;
use crate::http1::reader::{Piece, Reader};
use crate::http2::connection::detect::{self, Opening};
use crate::http2::connection::events::Events;
use crate::http2::connection::http2::Protocol;
use crate::http2::connection::reading::Parser;
use crate::http2::connection::side::State;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::boundary_search::Search;
use crate::http2::frame::settings;
use crate::limits;

impl<A: Events, W: Watch<A> + ?Sized> Parser<'_, A, W> {
    pub(super) fn read_opening<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut kept = self.sender().search.take().unwrap_or_default();
        self.h2.bytes.undecoded += kept.add(bytes, self.at);
        match self.judge_opening(&kept) {
            Some(used) => self.sender().replay = Some((kept, used)),
            None => self.sender().search = Some(kept),
        }
        &[]
    }

    /// Decides what a direction's first bytes are and sets the state that reads them; gives how many of them need no
    /// further reading, or `None` to wait for more.
    fn judge_opening(&mut self, kept: &Search) -> Option<usize> {
        let bytes = kept.bytes();
        let what = detect::opening(bytes);
        let (state, used) = match what {
            Opening::Undecided => return None,
            Opening::Preface => {
                self.h2.protocol = Protocol::Http2;
                self.h2.set_client(self.side, self.at, self.cx);
                self.h2.opens(self.side);
                self.h2.bytes.decoded += detect::PREFACE.len() as u64;
                self.sender().habits.other_content();
                (State::Header, detect::PREFACE.len())
            }
            Opening::Settings => {
                self.h2.protocol = Protocol::Http2;
                self.h2.opens(self.side);
                (State::Header, 0)
            }
            Opening::Http1Request | Opening::Http1Response => {
                return self.judge_http1(what == Opening::Http1Request, kept);
            }
            Opening::Tls => {
                self.h2.protocol = Protocol::Tls;
                (State::Foreign, 0)
            }
            Opening::Other if self.h2.begun_late || self.h2.forced || self.h2.protocol == Protocol::Http2 => {
                self.sender().hpack.mark_begun_late();
                (State::Lost, 0)
            }
            Opening::Other => {
                self.watch.foreign(bytes.len());
                if self.h2.protocol == Protocol::Undecided {
                    self.h2.protocol = Protocol::Other;
                }
                (State::Foreign, 0)
            }
        };
        self.watch.opening(bytes, what);
        self.sender().state = state;
        Some(used)
    }

    /// HTTP/1.1: an upgrade to h2c is followed (RFC 7540 section 3.2), all else is another protocol as long as no request
    /// of the protocol on top comes. A watcher is told of HTTP/2 alone.
    fn judge_http1(&mut self, is_request: bool, kept: &Search) -> Option<usize> {
        let head = match detect::http1_head(kept.bytes()) {
            Some(head) => head,
            None if kept.len() < limits::HTTP1_HEAD => return None,
            None => detect::Http1Head::default(),
        };
        let used = head.length;
        let agreed = head.switching && head.upgrade_h2c && self.h2.upgrade.is_some();
        let asked = head.body.filter(|_| head.upgrade_h2c && is_request && self.h2.http1.is_none());
        self.watch.http1(kept.bytes(), used, asked.is_some() || agreed, agreed);
        if agreed {
            self.h2.protocol = Protocol::Http2;
            self.sender().state = State::Header;
            self.accept_upgrade();
        } else if let Some(body) = asked {
            self.h2.set_client(self.side, self.at, self.cx);
            self.h2.upgrade_body = Reader::default();
            self.h2.upgrade_body.begin_body(body);
            self.h2.upgrade = Some(Box::new(head));
            let sender = self.sender();
            sender.frame_first = kept.first();
            sender.state = if body == Body::Length(0) { State::Opening } else { State::Http1Body };
        } else {
            let may_follow = used > 0 && self.h2.follows_http1 && !self.watch.watches();
            let follows = may_follow && self.begin_http1(is_request);
            if self.h2.protocol != Protocol::Http1 {
                self.h2.protocol = Protocol::Other;
            }
            self.sender().state = if follows { State::Http1 } else { State::Foreign };
            return Some(0);
        }
        self.h2.bytes.decoded += used as u64;
        Some(used)
    }

    pub(super) fn read_http1_body<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        self.sender().state = loop {
            match self.h2.upgrade_body.next(&mut rest) {
                Piece::Body(_) => {}
                Piece::Open => break State::Http1Body,
                Piece::End => break State::Opening,
                Piece::Head(_) | Piece::Broken => break State::Foreign,
            }
        };
        self.h2.bytes.decoded += (bytes.len() - rest.len()) as u64;
        rest
    }

    /// The server accepted an upgrade to h2c: the client's `HTTP2-Settings` are in force (RFC 7540 section 3.2).
    fn accept_upgrade(&mut self) {
        let Some(head) = self.h2.upgrade.take() else { return };
        let client = &mut self.h2.sides[1 - self.side];
        client.in_force = client.in_force.with(settings::pairs(&head.settings)).0;
        let (table_size, first) = (client.in_force.header_table_size, client.frame_first());
        self.sender().allow_table_size(table_size);
        A::upgraded(self, &head, first);
    }
}
