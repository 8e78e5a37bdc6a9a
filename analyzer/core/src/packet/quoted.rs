//! The TCP segment whose beginning an ICMP error quotes.

use super::bytes::View;
use super::icmp::{Error, FRAGMENTATION_NEEDED, PACKET_TOO_BIG, UNREACHABLE, UNREACHABLE_V6};
use super::ip::protocol;
use super::outcome::{Layer, NotTcp};
use super::outer_layers::{Context, Network};
use super::step::{Step, Stop};
use super::{ipv4, ipv6};

mod field {
    /// The quoted packet follows.
    pub const LENGTH: usize = 8;
    pub const TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const MTU_V6: usize = 4;
    pub const MTU: usize = 6;
}

/// Reads an ICMP message; what is no such error is of no interest.
pub(super) fn dissect<'a>(protocol: u8, view: View<'a>, network: &Network, context: Context) -> Step<'a> {
    Err(read(protocol, view, network, context).map_or(NotTcp::Icmp.into(), Stop::Icmp))
}

fn read(protocol: u8, view: View<'_>, network: &Network, context: Context) -> Option<Error> {
    let (header, quoted) = view.split::<{ field::LENGTH }>(Layer::Ip).ok()?;
    let (kind, code) = (header.byte::<{ field::TYPE }>(), header.byte::<{ field::CODE }>());
    let (found, mtu) = match (protocol, kind) {
        (protocol::ICMP, UNREACHABLE) => {
            let mtu = if code == FRAGMENTATION_NEEDED { header.be16::<{ field::MTU }>() } else { 0 };
            (ipv4::find_tcp(quoted, context)?, mtu.into())
        }
        (protocol::ICMPV6, UNREACHABLE_V6) => (ipv6::find_tcp(quoted, context)?, 0),
        (protocol::ICMPV6, PACKET_TOO_BIG) => (ipv6::find_tcp(quoted, context)?, header.be32::<{ field::MTU_V6 }>()),
        _ => return None,
    };
    let &[s0, s1, d0, d1, q0, q1, q2, q3] = found.view.bytes.first_chunk()?;
    if network.destination != found.network.source {
        return None; // it is for the host that sent the segment (RFC 792)
    }
    Some(Error {
        reporter: network.source,
        kind,
        code,
        mtu,
        source: (found.network.source, u16::from_be_bytes([s0, s1])),
        destination: (found.network.destination, u16::from_be_bytes([d0, d1])),
        seq: u32::from_be_bytes([q0, q1, q2, q3]),
        ip_id: found.network.ip_id.unwrap_or(0),
    })
}
