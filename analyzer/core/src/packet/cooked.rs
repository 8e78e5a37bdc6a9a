//! Linux cooked captures, written by `tcpdump -i any`.
//! Layouts: <https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html> and `..._SLL2.html`.

use super::bytes::View;
use super::ethernet;
use super::outcome::{Layer, Malformed};
use super::outer_layers::Context;
use super::segment::PacketDirection;
use super::step::Step;

mod field_v1 {
    pub const LENGTH: usize = 16;
    pub const PACKET_TYPE: usize = 0;
    pub const PROTOCOL: usize = 14;
}

mod field_v2 {
    pub const LENGTH: usize = 20;
    pub const PROTOCOL: usize = 0;
    pub const INTERFACE: usize = 4;
    pub const PACKET_TYPE: usize = 10;
}

/// The EtherType, what is behind the header, and what that says about the packet.
#[inline]
pub(super) fn header_v1(view: View<'_>) -> Result<(u16, View<'_>, Context), Malformed> {
    let (header, rest) = view.split::<{ field_v1::LENGTH }>(Layer::CookedV1)?;
    let context = Context { direction: direction(header.be16::<{ field_v1::PACKET_TYPE }>()), ..Context::default() };
    Ok((header.be16::<{ field_v1::PROTOCOL }>(), rest, context))
}

/// As [`header_v1`].
#[inline]
pub(super) fn header_v2(view: View<'_>) -> Result<(u16, View<'_>, Context), Malformed> {
    let (header, rest) = view.split::<{ field_v2::LENGTH }>(Layer::CookedV2)?;
    let context = Context {
        direction: direction(header.byte::<{ field_v2::PACKET_TYPE }>().into()),
        interface: header.be32::<{ field_v2::INTERFACE }>(),
        ..Context::default()
    };
    Ok((header.be16::<{ field_v2::PROTOCOL }>(), rest, context))
}

pub(super) fn dissect_v1(view: View<'_>) -> Step<'_> {
    let (ether_type, rest, context) = header_v1(view)?;
    ethernet::payload(ether_type, rest, context)
}

pub(super) fn dissect_v2(view: View<'_>) -> Step<'_> {
    let (ether_type, rest, context) = header_v2(view)?;
    ethernet::payload(ether_type, rest, context)
}

/// From the kernel's packet type (`include/uapi/linux/if_packet.h`).
fn direction(packet_type: u16) -> PacketDirection {
    match packet_type {
        // PACKET_HOST, PACKET_BROADCAST, PACKET_MULTICAST
        0..=2 => PacketDirection::Incoming,
        // PACKET_OUTGOING
        4 => PacketDirection::Outgoing,
        // PACKET_OTHERHOST and what else there may be
        _ => PacketDirection::Unknown,
    }
}
