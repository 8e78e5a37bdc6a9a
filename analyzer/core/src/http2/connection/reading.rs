//! What reading the bytes of a connection needs besides its own state.

use crate::store::context::Context;
use crate::tcp::transport::Transport;

/// What is read by, while bytes are read.
#[derive(Debug)]
pub struct Reading<'a, W: ?Sized> {
    /// Tables and options of the run.
    pub cx: &'a mut Context,
    /// TCP's state of both senders.
    pub transport: &'a Transport,
    /// Who is told what the bytes are.
    pub watch: &'a mut W,
}
