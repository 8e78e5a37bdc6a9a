//! What reading the bytes of a connection needs besides its own state.

use crate::store::context::Context;
use crate::tcp::transport::Transport;

/// The tables to write to, and TCP's state of both senders.
#[derive(Debug)]
pub struct Reading<'a> {
    /// Tables and options of the run.
    pub cx: &'a mut Context,
    /// TCP's state of both senders.
    pub transport: &'a Transport,
}
