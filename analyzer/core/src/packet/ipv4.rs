//! IPv4 (RFC 791).

use super::address::Address;
use super::bytes::View;
use super::datagram::Fragment;
use super::ip::{self, protocol};
use super::outcome::{Layer, Malformed, Problem};
use super::outer_layers::{Context, Network};
use super::step::{Found, Step, Stop};

mod field {
    pub const LENGTH: usize = 20;
    pub const VERSION_AND_LENGTH: usize = 0;
    pub const TYPE_OF_SERVICE: usize = 1;
    pub const TOTAL_LENGTH: usize = 2;
    pub const IDENTIFICATION: usize = 4;
    pub const FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const SOURCE: usize = 12;
    pub const DESTINATION: usize = 16;
}

const MORE_FRAGMENTS: u16 = 0x2000;
/// In units of eight bytes.
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// What an IPv4 header says.
struct Packet<'a> {
    payload: View<'a>,
    network: Network,
    protocol: u8,
    /// Flags and fragment offset as sent.
    fragment: u16,
}

impl Packet<'_> {
    #[inline]
    fn is_fragment(&self) -> bool {
        self.fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }
}

#[inline]
fn read(view: View<'_>) -> Result<Packet<'_>, Malformed> {
    let header = view.header::<{ field::LENGTH }>(Layer::Ipv4)?;
    let header_len = header_len(view, header.byte::<{ field::VERSION_AND_LENGTH }>())?;
    let datagram = match header.be16::<{ field::TOTAL_LENGTH }>() {
        // Segmentation offload: the kernel had not filled in the length when the packet was recorded, or it does not
        // fit into the field (BIG TCP). The record has it.
        0 => view,
        length if length < header_len => {
            return Err(view.malformed(Layer::Ipv4, Problem::TotalLength(length)));
        }
        length => view.limit(length.into()),
    };
    Ok(Packet {
        payload: datagram.skip(header_len.into(), Layer::Ipv4)?,
        network: Network {
            source: Address::v4(header.array::<{ field::SOURCE }, 4>()),
            destination: Address::v4(header.array::<{ field::DESTINATION }, 4>()),
            ip_id: Some(header.be16::<{ field::IDENTIFICATION }>()),
            ttl: header.byte::<{ field::TTL }>(),
            ecn: header.byte::<{ field::TYPE_OF_SERVICE }>() & 0b11,
        },
        protocol: header.byte::<{ field::PROTOCOL }>(),
        fragment: header.be16::<{ field::FRAGMENT }>(),
    })
}

/// The header's length in bytes, out of its first byte.
#[inline]
fn header_len(view: View<'_>, version_and_length: u8) -> Result<u16, Malformed> {
    if version_and_length >> 4 != 4 {
        let problem = Problem::Version(version_and_length >> 4);
        return Err(view.malformed(Layer::Ipv4, problem));
    }
    let header_len = u16::from(version_and_length & 0x0f) * 4;
    if usize::from(header_len) < field::LENGTH {
        return Err(view.malformed(Layer::Ipv4, Problem::HeaderLength(header_len)));
    }
    Ok(header_len)
}

/// TCP directly behind the header of an unfragmented packet.
#[inline]
pub(super) fn find_tcp(view: View<'_>, context: Context) -> Option<Found<'_>> {
    let packet = read(view).ok()?;
    if packet.protocol != protocol::TCP || packet.is_fragment() {
        return None;
    }
    Some(Found { view: packet.payload, network: packet.network, context })
}

pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let packet = read(view)?;
    if packet.is_fragment() {
        return Err(Stop::Fragment(Fragment {
            view: packet.payload,
            network: packet.network,
            context,
            protocol: packet.protocol,
            id: packet.network.ip_id.unwrap_or(0).into(),
            offset: u32::from(packet.fragment & FRAGMENT_OFFSET) * 8,
            more: packet.fragment & MORE_FRAGMENTS != 0,
        }));
    }
    payload(packet.protocol, packet.payload, &packet.network, context)
}

/// What is behind the IPv4 header. An authentication header may come first.
pub(super) fn payload<'a>(protocol: u8, view: View<'a>, network: &Network, context: Context) -> Step<'a> {
    if protocol != protocol::AUTHENTICATION {
        return ip::payload(protocol, view, network, context);
    }
    let (protocol, rest) = ip::authentication(view)?;
    ip::payload(protocol, rest, network, context)
}
