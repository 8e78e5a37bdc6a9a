//! Finds the ACK that released a sender.

use crate::at::At;
use crate::tcp::half::{self, Ack};

use super::layers::{Layers, reaction};

/// The ACK that reached the sender right before it resumed, if one did: the newest captured no later than the way to
/// the sender and back allows.
pub(super) fn release(layers: &Layers<'_>, side: usize, at: At) -> Option<Ack> {
    let half = &layers.tcp.halves[side];
    // beside the sender the smallest round trip so far is its host's reaction, which may be twice as quick the next time
    let near = match layers.tcp.transport.near_rtt[side].max(0) {
        near if near <= half::NEAR => near / 2,
        near => near,
    };
    let reaction = reaction(layers);
    // farther off it is a bound: the one this ACK took may be longer, never shorter, but clocks jitter
    let ack = half.acks.at(at.time.saturating_sub(near).saturating_add(reaction.min(near / 8)))?;
    let after = at.time.saturating_sub(ack.time).saturating_sub(near);
    (after <= reaction && ack.time.saturating_add(near) > half.last_data_time).then_some(ack)
}
