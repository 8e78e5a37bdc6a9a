//! HTTP/2 (RFC 9113) as a passive observer sees it: both directions of one connection, frame by frame.
//!
//! `frame` reads single frames, `hpack` reads header blocks, `connection` follows both directions, and `observe` notes what
//! a sender does with its packets and PINGs.

pub mod connection;
pub mod frame;
pub mod hpack;
pub mod observe;
#[cfg(test)]
mod tests;
