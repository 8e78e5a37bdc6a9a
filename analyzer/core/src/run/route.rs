//! Where a segment goes: to which connection, and which shard holds that.

use serde::{Deserialize, Serialize};

use crate::packet::Address;

/// An address and a port.
pub type End = (Address, u16);

/// A shard, and the connection's position there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The shard.
    pub shard: u8,
    /// The position in the shard.
    pub local: u32,
}

/// Number of the shard in a thread of its own.
pub const REMOTE: u8 = 1;

/// Where a segment goes.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Row of the connection.
    pub number: u32,
    /// Where it is held.
    pub place: Place,
    /// 0 when the connection's first sender sent it.
    pub side: usize,
    /// The connection is new; the side that its addresses suggest as the client.
    pub opens: Option<usize>,
    /// The connection that this one takes the place of: same addresses and ports, another SYN.
    pub replaces: Option<Place>,
}
