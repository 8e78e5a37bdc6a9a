//! What is known of a TLS connection.

use super::hello::protocols;

/// Facts of one TLS connection; `A` is a place in the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<A> {
    /// The side that sent the ClientHello or did not send the ServerHello.
    pub client: Option<usize>,
    /// The version: 0x0303 is TLS 1.2, 0x0304 TLS 1.3.
    pub version: Option<u16>,
    /// The number of the cipher suite.
    pub suite: Option<u16>,
    /// The protocols that the client offered by ALPN, each after its length.
    pub alpn_offers: Vec<u8>,
    /// The protocol that the server chose by ALPN: empty when it chose none. `None` when it is not known, as in TLS 1.3
    /// without keys.
    pub alpn: Option<Vec<u8>>,
    /// Whether an earlier session is resumed, which saves certificates and, in TLS 1.2, a round trip.
    pub resumed: Option<bool>,
    /// The server asked for another ClientHello, which costs a round trip (RFC 8446 section 4.1.4).
    pub retried: bool,
    /// The client offered early data (0-RTT).
    pub early_data_offered: bool,
    /// The server accepted early data; `None` when that is not known.
    pub early_data_accepted: Option<bool>,
    /// The key log has secrets of this connection.
    pub keys_found: bool,
    /// First byte of the first ClientHello.
    pub client_hello: Option<A>,
    /// Last byte of the ServerHello (not of a HelloRetryRequest).
    pub server_hello: Option<A>,
    /// Last byte of the server's Finished. `None` in TLS 1.3 without keys.
    pub server_finished: Option<A>,
    /// Last byte of the client's Finished; when [`Facts::is_exact`] is not set, of its first encrypted record.
    pub client_finished: Option<A>,
    /// Both sides' Finished are known and not estimated.
    pub is_exact: bool,
    /// What each side sent.
    pub sides: [Counts; 2],
}

/// What one side sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records.
    pub records: u64,
    /// Their bytes, with headers.
    pub bytes: u64,
    /// Records decrypted.
    pub opened: u64,
    /// Bytes of application data decrypted.
    pub plaintext: u64,
    /// Encrypted records that were not decrypted.
    pub closed: u64,
    /// Records that the capture lacks a part of.
    pub damaged: u64,
    /// Records of early data.
    pub early: u64,
    /// Key updates.
    pub key_updates: u64,
    /// TLS 1.3 session tickets, known with keys only.
    pub tickets: u64,
    /// Searches for a record boundary.
    pub resyncs: u64,
}

impl<A> Facts<A> {
    /// Nothing is known.
    pub(super) fn new() -> Self {
        Self {
            client: None,
            version: None,
            suite: None,
            alpn_offers: Vec::new(),
            alpn: None,
            resumed: None,
            retried: false,
            early_data_offered: false,
            early_data_accepted: None,
            keys_found: false,
            client_hello: None,
            server_hello: None,
            server_finished: None,
            client_finished: None,
            is_exact: false,
            sides: [Counts::default(); 2],
        }
    }

    /// What `side` sent.
    pub(super) fn counts(&mut self, side: usize) -> &mut Counts {
        let [first, second] = &mut self.sides;
        if side == 0 { first } else { second }
    }

    /// The protocols that the client offered by ALPN.
    pub fn offers(&self) -> impl Iterator<Item = &[u8]> {
        protocols(&self.alpn_offers)
    }
}
