//! Reads TLS and gives its plaintext to HTTP/2, as bytes of the packet that completed their record.

use crate::at::At;
use crate::grpc::connection::Http2;
use crate::http2::connection::http2::Protocol;
use crate::http2::connection::reading::Reading;
use crate::store::context::Context;
use crate::store::tables::Layer;
use crate::tls::record::HANDSHAKE_RECORD;
use crate::tls::{Decryptor, Event, Facts, Session};

use super::records::Timing;
use super::set_up::Alert;

/// A gap of unknown length: longer than any frame, so that the next frame boundary is searched.
const UNKNOWN_GAP: u64 = u32::MAX as u64;

/// The alert that ends a connection as intended (RFC 8446 section 6.1).
const CLOSE_NOTIFY: u8 = 0;

/// TLS of one connection.
pub struct Encrypted {
    session: Session<At>,
    /// Bytes of records.
    bytes: u64,
    read: Read,
}

/// What was read of its records.
#[derive(Debug, Default)]
struct Read {
    /// Bytes of plaintext.
    plaintext: u64,
    /// There was some before the last cut.
    is_decrypted: bool,
    timing: Timing,
    alert: Option<Alert>,
}

impl std::fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encrypted").field("bytes", &self.bytes).field("read", &self.read).finish_non_exhaustive()
    }
}

impl Encrypted {
    /// TLS if the connection's first bytes are those of a handshake record.
    pub fn if_begins(bytes: &[u8]) -> Option<Box<Self>> {
        let new = || Box::new(Self { session: Session::new(), bytes: 0, read: Read::default() });
        bytes.starts_with(&HANDSHAKE_RECORD).then(new)
    }

    /// What is known of the TLS connection: its handshake and its records.
    pub fn facts(&self) -> &Facts<At> {
        self.session.facts()
    }

    /// The first readable alert, but for the notice of an end.
    pub fn alert(&self) -> Option<Alert> {
        self.read.alert
    }

    /// Whether application data were decrypted.
    pub fn is_decrypted(&self) -> bool {
        self.read.is_decrypted || self.read.plaintext > 0
    }

    /// Bytes that `side` has begun to send a record of, and not sent.
    pub fn owed(&self, side: usize) -> u64 {
        self.session.owed(side) as u64
    }

    /// Writes the rows of its records if nothing was decrypted.
    pub fn write(&self, connection: u32, client: usize, cx: &mut Context) {
        if !self.is_decrypted() {
            self.read.timing.rows(connection, client).into_iter().for_each(|row| cx.records.push(row));
        }
    }

    /// From the ClientHello to the client's Finished, nanoseconds.
    pub fn handshake_ns(&self) -> Option<i64> {
        let facts = self.facts();
        let (hello, finished) = (facts.client_hello?, facts.client_finished?);
        Some(finished.time.saturating_sub(hello.time).max(0))
    }

    /// Begins to count anew, and gives the bytes that are no plaintext.
    pub fn begin_interval(&mut self) -> u64 {
        self.read.is_decrypted = self.is_decrypted();
        self.read.timing.begin_interval();
        let plaintext = std::mem::take(&mut self.read.plaintext);
        std::mem::take(&mut self.bytes).saturating_sub(plaintext)
    }

    /// The next bytes of a side.
    pub fn feed(
        &mut self,
        http2: &mut Http2,
        side: usize,
        bytes: &[u8],
        at: At,
        decryptor: &mut Decryptor,
        reading: &mut Reading<'_>,
    ) {
        if http2.protocol == Protocol::Undecided {
            http2.protocol = Protocol::Tls;
        }
        self.bytes += bytes.len() as u64;
        let Self { session, read, .. } = self;
        session.feed(side, bytes, at, decryptor, &mut |event, at| read.take(event, at, http2, reading));
    }

    /// Bytes of a side are missing from the capture.
    pub fn gap(
        &mut self,
        http2: &mut Http2,
        side: usize,
        length: u64,
        at: At,
        decryptor: &mut Decryptor,
        reading: &mut Reading<'_>,
    ) {
        let Self { session, read, .. } = self;
        read.timing.doubt();
        session.gap(side, length, at, decryptor, &mut |event, at| read.take(event, at, http2, reading));
    }

    /// The connection is over; what its records hold besides plaintext is counted as encrypted.
    pub fn finish(&mut self, http2: &mut Http2, at: At, decryptor: &mut Decryptor, reading: &mut Reading<'_>) {
        let Self { session, read, .. } = self;
        session.finish(at, decryptor, &mut |event, at| read.take(event, at, http2, reading));
        http2.bytes.encrypted += self.bytes.saturating_sub(self.read.plaintext);
    }
}

impl Read {
    fn take(&mut self, event: Event<'_, At>, at: At, http2: &mut Http2, reading: &mut Reading<'_>) {
        self.timing.take(&event, at);
        match event {
            Event::Data { side, bytes, first } if !bytes.is_empty() => {
                self.plaintext += bytes.len() as u64;
                // what a record begins with was sent with its first packet, though it was readable with its last only
                let (begin, rest) = bytes.split_at(usize::from(first.packet != at.packet));
                if !begin.is_empty() {
                    http2.feed(side, begin, first, reading, &mut ());
                }
                if !rest.is_empty() {
                    http2.feed(side, rest, at, reading, &mut ());
                }
            }
            Event::Gap { side, length } => http2.gap(side, length.unwrap_or(UNKNOWN_GAP), at, reading, &mut ()),
            Event::Undecryptable { reason, .. } => {
                reading.cx.problem(Layer::Tls, reason.text(), http2.connection, at.packet, at.time);
            }
            Event::Alert { side, description, .. } if description != CLOSE_NOTIFY => {
                self.alert.get_or_insert(Alert { side, description, at });
            }
            _ => {}
        }
    }
}
