//! The state of one direction of a TLS connection.

use super::buffered::Held;
use super::crypto::Opener;
use super::handshake::MessageReader;
use super::keylog::Secret;
use super::record::{Framer, Header, kind};
use super::record_search::Search;
use super::{Decryptor, Reason};

/// How far a direction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its records are not encrypted.
    Plain,
    /// TLS 1.3: under handshake keys.
    Handshake,
    /// Under the keys of application data.
    Application,
}

/// A sequence number to be found by attempts.
#[derive(Clone, Copy, Debug)]
pub struct Seek {
    /// The lowest possible.
    pub from: u64,
    /// How many above it are possible, too.
    pub width: u64,
    /// Records on which to try.
    pub records: u32,
    /// Bytes of records passed since `from` was due.
    pub skipped: Option<u64>,
}

/// One direction.
pub struct Direction<A> {
    pub framer: Framer<A>,
    /// A search for a record boundary.
    pub search: Option<Box<Search<A>>>,
    /// There was no memory for that search: nothing more is read.
    pub deaf: bool,
    /// What waits for the other side's hello.
    pub held: Option<Box<Held<A>>>,
    /// Nothing waits for the other side's hello any more: more bytes waited than the limit allows.
    pub waived: bool,
    /// Hellos of this side read: two where the server asks for another ClientHello.
    pub hellos: u8,
    pub reader: MessageReader,
    /// First byte of the record in which the current handshake message begins.
    pub message_first: Option<A>,
    pub stage: Stage,
    pub opener: Option<Opener>,
    /// Sequence number of the next record under these keys.
    pub sequence: u64,
    /// TLS 1.3: the secret that the keys after a key update follow from.
    pub secret: Option<Secret>,
    pub seek: Option<Seek>,
    /// Consecutive records that did not authenticate.
    pub failures: u32,
    pub lost: Option<Reason>,
    /// This side's Finished has come, or is taken to have.
    pub finished: bool,
}

impl<A: Copy> Direction<A> {
    pub fn new() -> Self {
        Self {
            framer: Framer::new(),
            search: None,
            deaf: false,
            held: None,
            waived: false,
            hellos: 0,
            reader: MessageReader::default(),
            message_first: None,
            stage: Stage::Plain,
            opener: None,
            sequence: 0,
            secret: None,
            seek: None,
            failures: 0,
            lost: None,
            finished: false,
        }
    }

    /// Goes on with new keys.
    pub fn rekey(&mut self, stage: Stage, opener: Option<Opener>) {
        self.stage = stage;
        self.opener = opener;
        self.sequence = 0;
        self.seek = None;
        self.failures = 0;
    }

    /// Goes on without keys.
    pub fn lose(&mut self, reason: Reason) {
        self.lost = Some(reason);
        self.opener = None;
        self.secret = None;
        self.seek = None;
    }

    /// Whether the body of a record with this header can be of use.
    pub fn wants(opener: Option<&Opener>, header: Header) -> bool {
        opener.is_some() || header.kind() != kind::APPLICATION_DATA
    }

    /// Returns all buffers.
    pub fn release(&mut self, decryptor: &mut Decryptor) {
        self.framer.reset(decryptor);
        if let Some(search) = self.search.take() {
            decryptor.give_buffer(search.held.into_buffer());
        }
        if let Some(held) = self.held.take() {
            decryptor.give_buffer(held.into_buffer());
        }
    }
}
