//! The events of a TCP connection. The layer above implements the trait that receives them.

use crate::at::At;
use crate::store::context::Context;

use super::connection::Connection;
use super::transport::Transport;

/// Receives the events of a connection. Its functions are compiled into those of TCP, so a call costs nothing.
pub trait Events {
    /// The tables and options of the run.
    fn context(&mut self) -> &mut Context;

    /// The side that is the client, as far as is known.
    fn client(&self) -> usize;

    /// `side` sends `length` bytes that it has not sent before, `payload` among them. TCP has not counted them yet.
    fn sends(&mut self, tcp: &mut Connection, side: usize, length: i64, payload: &[u8], at: At);

    /// TCP has counted new bytes of `side`, and handed up those that are in order.
    fn sent(&mut self, tcp: &mut Connection, side: usize);

    /// The next bytes of `side`, the first of them at `offset`.
    fn deliver(&mut self, transport: &Transport, side: usize, offset: i64, bytes: &[u8], at: At);

    /// The next `length` bytes of `side` are not in the capture.
    fn lacks(&mut self, transport: &Transport, side: usize, length: u64, at: At);

    /// The first FIN of `side` came, or its first RST.
    fn closes(&mut self, side: usize);

    /// Bytes that TCP could neither hand up nor keep.
    fn drops(&mut self, bytes: usize);

    /// `side` paused between `start` and `at`, behind bytes of its peer that the capture lacks: nobody can tell why.
    fn pauses_unjudged(&mut self, tcp: &mut Connection, side: usize, start: i64, at: At);
}
