//! TCP (RFC 9293): which packets belong together, and in which order their bytes were meant.
//!
//! The [`Router`] tells which connection a segment belongs to; a [`Shard`] holds connections and takes their
//! segments. One shard, or several in threads of their own, give the same result.

pub mod congestion;
pub mod connection;
pub mod duplicate;
mod encrypted;
pub mod half;
pub mod note;
pub mod opening;
pub mod reassembly;
mod records;
pub mod roles;
pub mod router;
pub mod rtt;
pub mod shard;
mod summary;
#[cfg(test)]
mod tests;

pub use connection::CaptureEnd;
pub(crate) use encrypted::HANDSHAKE_RECORD;
pub use opening::{Opening, Replay};
pub use router::{Place, Route, Routed, Router};
pub use shard::{Finished, Shard};
