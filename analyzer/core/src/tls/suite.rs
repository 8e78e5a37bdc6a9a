//! The cipher suites that can be decrypted: AEAD suites of TLS 1.3 and 1.2.

/// An authenticated cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-GCM with a key of 128 bits.
    Aes128Gcm,
    /// AES-GCM with a key of 256 bits.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305,
}

impl Cipher {
    /// Bytes of the key.
    pub fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// The hash of a suite's key derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256, also the TLS 1.2 PRF's where the suite names no other (RFC 5246 section 5).
    Sha256,
    /// SHA-384.
    Sha384,
}

impl Hash {
    /// Bytes of the hash and of a TLS 1.3 traffic secret.
    pub fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }
}

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Its number in IANA's registry of TLS cipher suites.
    pub id: u16,
    /// How records are protected.
    pub cipher: Cipher,
    /// How keys are derived.
    pub hash: Hash,
}

const fn suite(id: u16, cipher: Cipher, hash: Hash) -> Suite {
    Suite { id, cipher, hash }
}

use Cipher::{Aes128Gcm, Aes256Gcm, ChaCha20Poly1305};
use Hash::{Sha256, Sha384};

/// Sources: RFC 8446 appendix B.4 (0x13..), RFC 5288 (0x00..), RFC 5289 (0xc0..), RFC 7905 (0xcc..).
const SUITES: [Suite; 14] = [
    suite(0x1301, Aes128Gcm, Sha256),        // TLS_AES_128_GCM_SHA256
    suite(0x1302, Aes256Gcm, Sha384),        // TLS_AES_256_GCM_SHA384
    suite(0x1303, ChaCha20Poly1305, Sha256), // TLS_CHACHA20_POLY1305_SHA256
    suite(0xc02b, Aes128Gcm, Sha256),        // TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    suite(0xc02c, Aes256Gcm, Sha384),        // TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
    suite(0xc02f, Aes128Gcm, Sha256),        // TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    suite(0xc030, Aes256Gcm, Sha384),        // TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
    suite(0xcca8, ChaCha20Poly1305, Sha256), // TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    suite(0xcca9, ChaCha20Poly1305, Sha256), // TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
    suite(0xccaa, ChaCha20Poly1305, Sha256), // TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    suite(0x009c, Aes128Gcm, Sha256),        // TLS_RSA_WITH_AES_128_GCM_SHA256
    suite(0x009d, Aes256Gcm, Sha384),        // TLS_RSA_WITH_AES_256_GCM_SHA384
    suite(0x009e, Aes128Gcm, Sha256),        // TLS_DHE_RSA_WITH_AES_128_GCM_SHA256
    suite(0x009f, Aes256Gcm, Sha384),        // TLS_DHE_RSA_WITH_AES_256_GCM_SHA384
];

impl Suite {
    /// The suite with this number; `None` when it cannot be decrypted.
    pub fn find(id: u16) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.id == id)
    }

    /// Whether it is a suite of TLS 1.3, whose suites no other version has (RFC 8446 appendix B.4).
    pub fn is_tls13(&self) -> bool {
        self.id >> 8 == 0x13
    }
}
