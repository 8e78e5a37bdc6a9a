//! What IPv4 and IPv6 have in common: addresses, and the protocol behind the header.

use super::bytes::View;
use super::datagram::Datagram;
use super::ethernet::ether_type;
use super::outcome::{Layer, Malformed, NotTcp, Problem};
use super::outer_layers::{Context, Network};
use super::segment::Tunnel;
use super::step::{Found, Step};
use super::{gre, ipv4, ipv6, quoted, udp};

/// IP protocol numbers (https://www.iana.org/assignments/protocol-numbers).
pub(crate) mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// A packet known only to be IP: the version is in the first four bits.
pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    match view.header::<1>(Layer::Ip)?.byte::<0>() >> 4 {
        4 => ipv4::dissect(view, context),
        6 => ipv6::dissect(view, context),
        other => Err(view.malformed(Layer::Ip, Problem::Version(other)).into()),
    }
}

/// The EtherType that a packet known only to be IP would have.
#[inline]
pub(super) fn ether_type(view: View<'_>) -> Option<u16> {
    match view.bytes.first()? >> 4 {
        4 => Some(ether_type::IPV4),
        6 => Some(ether_type::IPV6),
        _ => None,
    }
}

/// The payload of an IP packet, behind all of IP's own headers.
pub(super) fn payload<'a>(protocol: u8, view: View<'a>, network: &Network, context: Context) -> Step<'a> {
    match protocol {
        protocol::TCP => Ok(Found { view, network: *network, context }),
        protocol::UDP => udp::dissect(view, network, context),
        protocol::GRE => gre::dissect(view, context),
        protocol::IPV4 => ipv4::dissect(view, context.enter(Tunnel::IpInIp, Layer::Ipv4, view)?),
        protocol::IPV6 => ipv6::dissect(view, context.enter(Tunnel::IpInIp, Layer::Ipv6, view)?),
        protocol::ICMP | protocol::ICMPV6 => quoted::dissect(protocol, view, network, context),
        other => Err(NotTcp::OtherIp(other).into()),
    }
}

/// Skips an authentication header and returns the protocol behind it. Its length field counts words of four bytes,
/// less two (RFC 4302 section 2.2).
pub(super) fn authentication(view: View<'_>) -> Result<(u8, View<'_>), Malformed> {
    let header = view.header::<2>(Layer::Authentication)?;
    let length = (usize::from(header.byte::<1>()) + 2) * 4;
    Ok((header.byte::<0>(), view.skip(length, Layer::Authentication)?))
}

/// The payload of a datagram that came in fragments.
pub(super) fn reassembled(datagram: &Datagram) -> Step<'_> {
    let network = datagram.network();
    let (protocol, view) = (datagram.protocol(), datagram.view());
    let context = Context { reassembled: true, ..datagram.context() };
    if network.source.is_ipv4() {
        ipv4::payload(protocol, view, network, context)
    } else {
        ipv6::payload(protocol, view, network, context)
    }
}
