//! A complete response whose client may reach its deadline before it arrives.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::tcp::half::NEAR;
use crate::tcp::rtt::RTO_MIN;
use crate::tcp::transport::Transport;

use super::call::Call;
use super::status::{self, Ending, Source};

/// A complete response that its client may not have read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Unread {
    /// Its stream.
    pub(super) stream: u32,
    /// How the response ends the RPC.
    pub(super) ending: Ending,
    /// Where it ends.
    pub(super) at: At,
    /// Offset of the first byte of the packet that ends it.
    begins: i64,
}

impl Unread {
    /// Takes a response that ended at `at`, if its client may have reached its deadline before it arrives: the packets of
    /// a client as near as [`NEAR`] come in the order in which it sees them.
    #[inline]
    pub(super) fn of(call: &Call, client: usize, ending: Ending, at: At, transport: &Transport) -> Option<Self> {
        if call.timeout_ns < 0 || call.reset.is_some() {
            return None;
        }
        let near = transport.near_rtt[client];
        let is_far = !(0..=NEAR).contains(&near);
        let answered = matches!(ending.source, Source::Trailers | Source::HttpStatus);
        let arrives = at.time - call.first.time + near.max(0) + RTO_MIN; // at the latest, unless it is lost repeatedly
        let may_miss = is_far && answered && arrives >= status::earliest(call.timeout_ns);
        let begins = transport.delivered_from[1 - client];
        (may_miss && call.directions[client].ended).then_some(Self { stream: call.id, ending, at, begins })
    }

    /// Whether some of the packet that ends it had arrived when the client last sent an ACK.
    pub(super) fn has_arrived(&self, client: usize, transport: &Transport) -> bool {
        transport.acked[1 - client] > self.begins
    }
}
