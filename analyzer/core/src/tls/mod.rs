//! TLS 1.2 and 1.3 of recorded connections: the handshake's facts always, the application data with a key log.
//!
//! A [`Session`] takes both directions' bytes in order and tells [`Event`]s. It decrypts records of AES-GCM and
//! ChaCha20-Poly1305 with the secrets of a [`KeyLog`]; it never guesses keys and verifies nothing but records.
//!
//! Early data (RFC 8446 section 2.3) are told and passed over: whether the server took them shows only later. Sessions
//! begun before the capture cannot be decrypted, for a key log names connections by their ClientHello.

mod buffered;
mod crypto;
mod direction;
mod facts;
pub(crate) mod handshake;
pub(crate) mod hello;
mod key_file;
mod keylog;
mod negotiation;
mod protected;
pub(crate) mod record;
pub(crate) mod record_search;
mod session;
mod suite;
#[cfg(test)]
mod tests;

pub use facts::{Counts, Facts};
pub use key_file::KeyFile;
pub use keylog::{KeyLog, Random, Secret, Secrets};
pub use protected::ALERT_LENGTH;
pub use session::Session;
pub use suite::{Cipher, Hash, Suite};

use std::sync::Arc;

use crate::limits::{TLS_ATTEMPT_BYTES, TLS_ATTEMPT_COST, TLS_BUFFERS, TLS_HELD_BYTES, TLS_SPARE_BUFFERS};

/// What a piece of a connection led to; `A` is a place in the capture. Events come with the place of the last byte of
/// the record that led to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a, A> {
    /// Application data of one record.
    Data {
        /// The side that sent them.
        side: usize,
        /// The plaintext; a record may be empty.
        bytes: &'a [u8],
        /// Place of the first byte of the record's header.
        first: A,
    },
    /// Application data are missing: the capture lacks them or they did not authenticate.
    Gap {
        /// The side that sent them.
        side: usize,
        /// Bytes of plaintext. TLS 1.3 hides padding and session tickets among lost records, so that it may be less.
        /// `None` when nothing is known of it.
        length: Option<u64>,
    },
    /// An encrypted record that is not decrypted.
    Record {
        /// The side that sent it.
        side: usize,
        /// Bytes after its header.
        length: usize,
        /// Place of the first byte of its header.
        first: A,
    },
    /// Both sides are through with the handshake; [`Facts::is_exact`] tells how well it is known.
    HandshakeComplete,
    /// An alert (RFC 8446 section 6) that was readable.
    Alert {
        /// The side that sent it.
        side: usize,
        /// 1 is a warning, 2 fatal.
        level: u8,
        /// What it says: 0 is close_notify.
        description: u8,
    },
    /// A side goes on with new keys.
    KeyUpdate {
        /// The side.
        side: usize,
    },
    /// From here on nothing of this side is decrypted; told once per side.
    Undecryptable {
        /// The side.
        side: usize,
        /// Why.
        reason: Reason,
    },
}

/// Why a direction is not decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The key log has no secrets of this connection, or not all.
    NoKeys,
    /// The capture lacks a part of the handshake that decryption needs.
    HandshakeMissing,
    /// A handshake message does not follow its format.
    HandshakeMalformed,
    /// The cipher suite is none of AES-GCM or ChaCha20-Poly1305.
    SuiteUnsupported,
    /// The version is neither TLS 1.2 nor TLS 1.3.
    VersionUnsupported,
    /// The session is compressed.
    Compressed,
    /// Records do not authenticate with the key log's secrets.
    WrongKeys,
    /// After a gap in the capture no sequence number fits.
    SequenceLost,
    /// The bytes are not TLS.
    NotTls,
}

impl Reason {
    /// The reason in words, and what helps.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoKeys => {
                "the TLS secrets of this connection are not known; set SSLKEYLOGFILE (or the library's key log) before the \
                 connection is opened, and give the file with --keylog"
            }
            Self::HandshakeMissing => {
                "the capture lacks a part of the TLS handshake; start the capture before the connection is opened"
            }
            Self::HandshakeMalformed => "a TLS handshake message does not follow its format",
            Self::SuiteUnsupported => "the cipher suite is not supported; AES-GCM and ChaCha20-Poly1305 are",
            Self::VersionUnsupported => "the TLS version is not supported; 1.2 and 1.3 are",
            Self::Compressed => "TLS compression is not supported",
            Self::WrongKeys => "records do not authenticate with the key log's secrets; is it of the same run?",
            Self::SequenceLost => "too many records are missing from the capture to go on decrypting",
            Self::NotTls => "the bytes are not TLS records",
        }
    }
}

/// The key log and the memory that the sessions of one worker share.
#[derive(Debug)]
pub struct Decryptor {
    keys: Arc<KeyLog>,
    spare: Vec<Vec<u8>>,
    in_use: usize,
    /// Bytes that attempts at sequence numbers may still authenticate over.
    attempts: u64,
}

impl Default for Decryptor {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Decryptor {
    /// Decrypts with the secrets of `keys`, which must be complete before the first packet, or grow.
    pub fn new(keys: Arc<KeyLog>) -> Self {
        Self { keys, spare: Vec::new(), in_use: 0, attempts: TLS_ATTEMPT_BYTES }
    }

    /// The secrets of the connection whose ClientHello has `random`. A key log that grows is read on, unless it has those of
    /// application data.
    fn secrets(&mut self, random: &Random) -> Option<Secrets> {
        let is_there = |keys: &KeyLog| keys.get(random).is_some_and(Secrets::has_application);
        if self.keys.grows() && !is_there(&self.keys) {
            let keys = Arc::make_mut(&mut self.keys);
            while keys.read_on() && !is_there(keys) {}
        }
        self.keys.get(random).copied()
    }

    /// Buffers that sessions use at present; a session that is dropped without [`Session::finish`] never returns its own.
    pub fn buffers_in_use(&self) -> usize {
        self.in_use
    }

    /// An empty buffer; `None` when [`TLS_BUFFERS`] are in use.
    fn take_buffer(&mut self) -> Option<Vec<u8>> {
        if self.in_use >= TLS_BUFFERS {
            return None;
        }
        self.in_use += 1;
        Some(self.spare.pop().unwrap_or_default())
    }

    fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        self.in_use = self.in_use.saturating_sub(1);
        if self.spare.len() < TLS_SPARE_BUFFERS && buffer.capacity() <= TLS_HELD_BYTES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Takes the cost of one attempt; whether it may be made.
    fn may_attempt(&mut self, length: usize) -> bool {
        let left = self.attempts.checked_sub(length as u64 + TLS_ATTEMPT_COST);
        self.attempts = left.unwrap_or(self.attempts);
        left.is_some()
    }
}
