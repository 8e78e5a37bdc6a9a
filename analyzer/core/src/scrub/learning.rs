//! The first pass: notes what stays of the bytes, as the decoder reports what they are.

use std::any::Any;

use crate::connection::tap::Tap;
use crate::grpc::call::Call;
use crate::grpc::connection::Grpc;
use crate::http2::connection::detect::Opening;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::FrameHeader;
use crate::http2::hpack::Representation;
use crate::limits;

use super::shared::Shared;
use super::stream::Conversation;

/// What the first pass finds.
#[derive(Debug)]
pub(super) struct Learner {
    /// By row; `None` while nothing was delivered.
    pub(super) conversations: Vec<Option<Box<Conversation>>>,
    pub(super) shared: Shared,
    /// Whose bytes are being read: row and side.
    now: (usize, usize),
    memory: usize,
    pub(super) full: bool,
}

impl Learner {
    pub(super) fn new(shared: Shared) -> Self {
        Self { conversations: Vec::new(), shared, now: (0, 0), memory: 0, full: false }
    }

    /// Bytes of a side of a connection come next.
    fn turn_to(&mut self, connection: u32, side: usize) {
        if let Some(Some(before)) = self.conversations.get_mut(self.now.0) {
            self.memory += before.grown();
            self.full = self.memory > limits::SCRUB_STRUCTURE_BYTES;
        }
        self.now = (connection as usize, side);
        if self.conversations.len() <= self.now.0 {
            self.conversations.resize_with(self.now.0 + 1, || None);
        }
        if let Some(conversation) = self.conversations.get_mut(self.now.0) {
            conversation.get_or_insert_default();
        }
    }

    /// Tells the conversation whose bytes are being read.
    fn tell(&mut self, what: impl FnOnce(&mut Conversation, usize, &mut Shared)) {
        let (row, side) = self.now;
        if let Some(Some(conversation)) = self.conversations.get_mut(row).filter(|_| !self.full) {
            what(conversation, side, &mut self.shared);
        }
    }
}

impl Tap for Learner {
    fn delivered(&mut self, connection: u32, side: usize, offset: i64, bytes: &[u8], tls: bool) {
        self.turn_to(connection, side);
        self.tell(|conversation, side, _| conversation.delivered(side, offset, bytes, tls));
    }

    fn prologue(&mut self, connection: u32, side: usize, offset: i64, bytes: &[u8]) {
        self.turn_to(connection, side);
        self.tell(|conversation, side, _| conversation.prologue(side, offset, bytes));
    }

    fn missing(&mut self, connection: u32, side: usize, length: u64) {
        self.turn_to(connection, side);
        self.tell(|conversation, side, _| conversation.missing(side, length));
    }

    fn unread(&mut self, connection: u32, side: usize, kept: &[u8]) {
        self.turn_to(connection, side);
        self.undecided(kept);
    }

    fn over(&mut self, connection: u32) {
        if let Some(Some(conversation)) = self.conversations.get_mut(connection as usize) {
            conversation.over(&mut self.shared);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Watch<Grpc> for Learner {
    fn watches(&self) -> bool {
        true
    }

    fn reads(&mut self, behind: usize) {
        self.tell(|conversation, side, _| conversation.reads(side, behind));
    }

    fn opening(&mut self, kept: &[u8], what: Opening) {
        self.tell(|conversation, side, _| conversation.opening(side, kept, what));
    }

    fn http1(&mut self, kept: &[u8], head: usize, upgrade: bool, agreed: bool) {
        self.tell(|conversation, side, shared| conversation.http1(side, kept, head, upgrade, agreed, shared));
    }

    fn undecided(&mut self, kept: &[u8]) {
        self.tell(|conversation, side, _| conversation.undecided(side, kept));
    }

    fn searched(&mut self, left: usize, boundary: Option<usize>) {
        self.tell(|conversation, side, _| conversation.searched(side, left, boundary));
    }

    fn held(&mut self, headers: &[(usize, u32)]) {
        self.tell(|conversation, side, _| conversation.held(side, headers));
    }

    fn foreign(&mut self, left: usize) {
        self.tell(|conversation, side, _| conversation.foreign(side, left));
    }

    fn frame(&mut self, header: FrameHeader, left: usize) {
        self.tell(|conversation, side, shared| conversation.frame(side, header, left, shared));
    }

    fn control(&mut self, header: FrameHeader, payload: &[u8]) {
        self.tell(|conversation, side, shared| conversation.control(side, header, payload, shared));
    }

    fn field(&mut self, name: Option<&[u8]>, value: Option<&[u8]>, representation: Representation) {
        self.tell(|conversation, side, _| conversation.field(side, name, value, representation));
    }

    fn block(&mut self, octets: &[u8], whole: bool) {
        self.tell(|conversation, side, shared| conversation.block(side, octets, whole, shared));
    }

    fn pad_length(&mut self, pad: u8, left: usize) {
        self.tell(|conversation, side, _| conversation.pad_length(side, pad, left));
    }

    fn data(&mut self, left: usize) {
        self.tell(|conversation, side, _| conversation.data(side, left));
    }

    fn beginnings(&mut self, octets: &[u8], header: FrameHeader) {
        self.tell(|conversation, side, _| conversation.beginnings(side, octets, header));
    }

    fn stream_data(&mut self, call: &Call, octets: &[u8], begins: bool) {
        self.tell(|conversation, side, shared| conversation.messages(side, call, octets, begins, shared));
    }

    fn stream_health(&mut self, octets: &[u8]) {
        self.tell(|conversation, side, _| conversation.health(side, octets));
    }

    fn stream_end(&mut self, call: &Call, octets: &[u8]) {
        self.tell(|conversation, side, shared| conversation.end(side, call, octets, shared));
    }
}
