//! Ethernet II (RFC 894) and VLAN tags (IEEE 802.1Q, 802.1ad).

use crate::limits::MAX_VLAN_TAGS;

use super::bytes::View;
use super::outcome::{Layer, Malformed, NotTcp, Problem};
use super::outer_layers::Context;
use super::step::Step;
use super::{ipv4, ipv6, mpls, ppp};

mod field {
    pub const LENGTH: usize = 14;
    pub const ETHER_TYPE: usize = 12;
    pub const TAG_LENGTH: usize = 4;
    pub const TAG_ETHER_TYPE: usize = 2;
}

/// EtherTypes (https://www.iana.org/assignments/ieee-802-numbers).
pub(crate) mod ether_type {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const IPV6: u16 = 0x86dd;
    pub const VLAN: u16 = 0x8100;
    pub const PROVIDER_VLAN: u16 = 0x88a8;
    /// Stacked tags before 802.1ad gave them a number.
    pub const OLD_PROVIDER_VLAN: u16 = 0x9100;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MULTICAST: u16 = 0x8848;
    pub const PPPOE_SESSION: u16 = 0x8864;
    /// Transparent Ethernet bridging: an Ethernet frame follows (RFC 1701, RFC 7637).
    pub const TRANSPARENT_ETHERNET: u16 = 0x6558;
    /// ERSPAN types I and II.
    pub const ERSPAN: u16 = 0x88be;
    pub const ERSPAN_III: u16 = 0x22eb;
    /// Smaller values are an IEEE 802.3 frame's length.
    pub const FIRST: u16 = 0x0600;
}

/// The EtherType and what is behind the header.
#[inline]
pub(super) fn header(view: View<'_>) -> Result<(u16, View<'_>), Malformed> {
    let (header, rest) = view.split::<{ field::LENGTH }>(Layer::Ethernet)?;
    Ok((header.be16::<{ field::ETHER_TYPE }>(), rest))
}

pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let (ether_type, rest) = header(view)?;
    payload(ether_type, rest, context)
}

/// The packet behind an EtherType, whatever header that was in.
pub(super) fn payload(ether_type: u16, view: View<'_>, context: Context) -> Step<'_> {
    match ether_type {
        ether_type::IPV4 => ipv4::dissect(view, context),
        ether_type::IPV6 => ipv6::dissect(view, context),
        ether_type::VLAN | ether_type::PROVIDER_VLAN | ether_type::OLD_PROVIDER_VLAN => tagged(view, context),
        other => untagged(other, view, context),
    }
}

/// Skips the tags; `view` starts behind the first tag's EtherType.
fn tagged(mut view: View<'_>, context: Context) -> Step<'_> {
    for _ in 0..MAX_VLAN_TAGS {
        let (tag, rest) = view.split::<{ field::TAG_LENGTH }>(Layer::Vlan)?;
        view = rest;
        match tag.be16::<{ field::TAG_ETHER_TYPE }>() {
            ether_type::VLAN | ether_type::PROVIDER_VLAN | ether_type::OLD_PROVIDER_VLAN => {}
            other => return untagged(other, view, context),
        }
    }
    Err(view.malformed(Layer::Vlan, Problem::TooMany).into())
}

fn untagged(ether_type: u16, view: View<'_>, context: Context) -> Step<'_> {
    match ether_type {
        ether_type::IPV4 => ipv4::dissect(view, context),
        ether_type::IPV6 => ipv6::dissect(view, context),
        ether_type::MPLS | ether_type::MPLS_MULTICAST => mpls::dissect(ether_type, view, context),
        ether_type::PPPOE_SESSION => ppp::dissect_pppoe(view, context),
        ether_type::ARP => Err(NotTcp::Arp.into()),
        0..ether_type::FIRST => Err(NotTcp::Llc.into()),
        other => Err(NotTcp::OtherEtherType(other).into()),
    }
}
