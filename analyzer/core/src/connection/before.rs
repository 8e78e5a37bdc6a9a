//! Remembers how a connection was at a cut of a run that goes on.

use serde::{Deserialize, Serialize};

use crate::tcp::connection::Counters;

/// What was known of a connection at the last cut.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Before {
    /// The connection's first packet.
    pub first_packet: u32,
    /// Its counters.
    pub counters: Counters,
    /// The capture's last packet.
    pub cut: u32,
}
