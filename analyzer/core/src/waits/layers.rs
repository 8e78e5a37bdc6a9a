//! The layers of a connection by which waits are judged.

use crate::grpc::connection::Http2;
use crate::http2::connection::http2::Protocol;
use crate::tcp::connection::Connection;

/// Shorter silences are a sender's own pace: 1 ms.
pub(super) const SHORTEST: i64 = 1_000_000;
/// A sender resumes within this of what released it, or a quarter of the round trip if that is less: 2 ms.
const LONGEST_REACTION: i64 = 2_000_000;
/// The least reaction time a host is given: 200 microseconds.
const SHORTEST_REACTION: i64 = 200_000;

/// TCP and HTTP/2 of one connection.
#[derive(Debug)]
pub struct Layers<'a> {
    /// TCP.
    pub tcp: &'a mut Connection,
    /// HTTP/2, with its streams.
    pub http2: &'a mut Http2,
    /// Bytes of a TLS record that the side in question has begun to send and not sent.
    pub record_rest: u64,
}

impl Layers<'_> {
    /// Whether `side` has begun a message, a frame, or a record of TLS that is not decrypted, and not sent all of it.
    #[inline]
    pub fn owes(&self, side: usize) -> bool {
        self.http2.owes(side) || self.record_rest > 0
    }

    /// Bytes that `side` owes as far as is known: of `stream`'s message, of a frame, or of a record.
    pub(super) fn owed(&mut self, side: usize, stream: u32) -> u64 {
        self.http2.owed(side, stream).max(self.record_rest)
    }

    /// Whether it is TLS of which nothing was decrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.http2.protocol == Protocol::Tls
    }
}

/// How soon after its release a sender is seen to resume.
pub(super) fn reaction(layers: &Layers<'_>) -> i64 {
    layers.tcp.transport.round_trip().map_or(SHORTEST, |rtt| rtt / 4).clamp(SHORTEST_REACTION, LONGEST_REACTION)
}
