//! What the layers around a TCP segment say about it: IP, tunnels, the interface.

use crate::limits::MAX_TUNNELS;

use super::address::Address;
use super::bytes::View;
use super::outcome::{Layer, Malformed, Problem};
use super::segment::{PacketDirection, Tunnel};

/// What the IP header says about a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    pub source: Address,
    pub destination: Address,
    pub ip_id: Option<u16>,
    pub ttl: u8,
    pub ecn: u8,
}

/// What outer layers said about a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    pub direction: PacketDirection,
    pub interface: u32,
    pub tunnel: Option<Tunnel>,
    pub tunnels: u8,
    /// The innermost IP payload was put together from fragments.
    pub reassembled: bool,
}

impl Context {
    /// The context inside a tunnel whose payload is `view`.
    pub fn enter(self, tunnel: Tunnel, layer: Layer, view: View<'_>) -> Result<Self, Malformed> {
        if self.tunnels >= MAX_TUNNELS {
            return Err(view.malformed(layer, Problem::TooDeep));
        }
        Ok(Self { tunnel: Some(tunnel), tunnels: self.tunnels + 1, reassembled: false, ..self })
    }
}
