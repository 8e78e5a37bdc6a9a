//! TCP (RFC 9293): in which order the bytes of a connection were meant, and what its senders could send.

pub mod congestion;
pub mod connection;
pub mod duplicate;
pub mod events;
pub mod half;
pub mod note;
pub mod reassembly;
pub mod rtt;
pub mod send_queue;
pub mod transport;
