//! Finds the ACK that released a sender.

use crate::at::At;
use crate::tcp::connection::MIXED;
use crate::tcp::half::{self, Ack};

use super::layers::{Layers, reaction};

/// The ACK that reached the sender right before it resumed, if one did: the newest captured no later than the way to
/// the sender and back allows.
pub(super) fn release(layers: &Layers<'_>, side: usize, at: At) -> Option<Ack> {
    // beside the sender the smallest round trip so far is its host's reaction, which may be twice as quick the next time
    let near = match layers.tcp.transport.near_rtt[side].max(0) {
        near if near <= half::NEAR => near / 2,
        near => near,
    };
    released(layers, side, near, at)
}

/// The same for a sender so near that a capture point that mixes packets may have measured the way to it too long: the newest ACK
/// right before its bytes.
pub(super) fn release_of_near(layers: &Layers<'_>, side: usize, at: At) -> Option<Ack> {
    if layers.tcp.transport.near_rtt[side] < MIXED { released(layers, side, 0, at) } else { None }
}

fn released(layers: &Layers<'_>, side: usize, near: i64, at: At) -> Option<Ack> {
    let (half, reaction) = (&layers.tcp.halves[side], reaction(layers));
    // farther off it is a bound: the one this ACK took may be longer, never shorter, but clocks jitter
    let latest = at.time.saturating_sub(near).saturating_add(reaction.min(near / 8));
    let ack = half.acks.up_to(half.highest, latest)?;
    let after = at.time.saturating_sub(ack.time).saturating_sub(near);
    (after <= reaction && ack.time.saturating_add(near) > half.last_data_time).then_some(ack)
}
