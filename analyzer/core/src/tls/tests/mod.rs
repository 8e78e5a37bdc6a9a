//! Recorded sessions, decrypted: OpenSSL's with the plaintext that was written, grpc-go's with tshark's.

mod damage;
mod decryption;
mod order;
mod properties;
pub mod support;

/// Every recording that can be decrypted whole.
const DECRYPTABLE: [&str; 14] = [
    "tls12-client-certificate",
    "tls12-ecdhe-ecdsa-aes128",
    "tls12-ecdhe-ecdsa-chacha20",
    "tls12-ecdhe-rsa-aes256",
    "tls12-renegotiated",
    "tls12-resumed",
    "tls12-rsa-aes128",
    "tls13-aes128",
    "tls13-aes256",
    "tls13-chacha20",
    "tls13-client-certificate",
    "tls13-hello-retry",
    "tls13-key-update",
    "tls13-resumed",
];
