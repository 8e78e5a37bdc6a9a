//! TCP (RFC 9293): in which order the bytes of a connection were meant, and what its senders could send.

pub mod congestion;
pub mod connection;
pub mod duplicate;
mod encrypted;
pub mod half;
pub mod note;
pub mod reassembly;
mod records;
pub mod roles;
pub mod rtt;
pub mod send_queue;
mod summary;

pub(crate) use encrypted::HANDSHAKE_RECORD;
