//! A tap sees all bytes of all connections.

use crate::grpc::connection::Grpc;
use crate::http2::connection::watch::Watch;

/// Sees all bytes of all connections, and what they are as they are read.
pub trait Tap: Watch<Grpc> + std::fmt::Debug + Send {
    /// The next bytes of a side, the first of them at `offset`; what they are follows, unless they are `tls`.
    /// Side 0 sent the connection's first packet.
    fn delivered(&mut self, connection: u32, side: usize, offset: i64, bytes: &[u8], tls: bool);
    /// The first bytes of a side, at `offset`, stand before the protocol.
    fn prologue(&mut self, connection: u32, side: usize, offset: i64, bytes: &[u8]);
    /// `length` bytes of a side, which come next, are not in the capture.
    fn missing(&mut self, connection: u32, side: usize, length: u64);
    /// The connection is over, and it was not decided what a side's first bytes are.
    fn unread(&mut self, connection: u32, side: usize, kept: &[u8]);
    /// The connection is over.
    fn over(&mut self, connection: u32);
    /// Itself, to be taken back when the run is over.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}
