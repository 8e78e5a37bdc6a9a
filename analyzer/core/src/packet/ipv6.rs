//! IPv6 and its extension headers (RFC 8200).

use crate::limits::MAX_EXTENSION_HEADERS;

use super::address::Address;
use super::bytes::View;
use super::datagram::Fragment;
use super::ip::{self, protocol};
use super::outcome::{Layer, Malformed, Problem};
use super::outer_layers::{Context, Network};
use super::step::{Found, Step, Stop};

mod field {
    pub const LENGTH: usize = 40;
    pub const VERSION_AND_CLASS: usize = 0;
    pub const PAYLOAD_LENGTH: usize = 4;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SOURCE: usize = 8;
    pub const DESTINATION: usize = 24;
}

mod fragment_field {
    pub const LENGTH: usize = 8;
    pub const NEXT_HEADER: usize = 0;
    pub const OFFSET_AND_MORE: usize = 2;
    pub const IDENTIFICATION: usize = 4;
}

/// What an IPv6 header says.
struct Packet<'a> {
    payload: View<'a>,
    network: Network,
    next: u8,
}

#[inline]
fn read(view: View<'_>) -> Result<Packet<'_>, Malformed> {
    let (header, rest) = view.split::<{ field::LENGTH }>(Layer::Ipv6)?;
    let version_and_class = header.be16::<{ field::VERSION_AND_CLASS }>();
    let version = header.byte::<{ field::VERSION_AND_CLASS }>() >> 4;
    if version != 6 {
        return Err(view.malformed(Layer::Ipv6, Problem::Version(version)));
    }
    Ok(Packet {
        payload: match header.be16::<{ field::PAYLOAD_LENGTH }>() {
            // A jumbogram (RFC 2675), or BIG TCP with that option left out: the record has the length.
            0 => rest,
            length => rest.limit(length.into()),
        },
        network: Network {
            source: Address::v6(header.array::<{ field::SOURCE }, 16>()),
            destination: Address::v6(header.array::<{ field::DESTINATION }, 16>()),
            ip_id: None,
            ttl: header.byte::<{ field::HOP_LIMIT }>(),
            ecn: (version_and_class >> 4 & 0b11) as u8,
        },
        next: header.byte::<{ field::NEXT_HEADER }>(),
    })
}

/// TCP directly behind the header.
#[inline]
pub(super) fn find_tcp(view: View<'_>, context: Context) -> Option<Found<'_>> {
    let packet = read(view).ok()?;
    if packet.next != protocol::TCP {
        return None;
    }
    Some(Found { view: packet.payload, network: packet.network, context })
}

pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let packet = read(view)?;
    payload(packet.next, packet.payload, &packet.network, context)
}

/// What is behind the IPv6 header, or behind the fragment header of a reassembled datagram.
pub(super) fn payload<'a>(next: u8, view: View<'a>, network: &Network, context: Context) -> Step<'a> {
    match next {
        protocol::HOP_BY_HOP
        | protocol::ROUTING
        | protocol::FRAGMENT
        | protocol::DESTINATION_OPTIONS
        | protocol::AUTHENTICATION => extension_headers(next, view, network, context),
        _ => ip::payload(next, view, network, context),
    }
}

fn extension_headers<'a>(mut next: u8, mut view: View<'a>, network: &Network, context: Context) -> Step<'a> {
    for _ in 0..MAX_EXTENSION_HEADERS {
        (next, view) = match next {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => options(view)?,
            protocol::AUTHENTICATION => ip::authentication(view)?,
            protocol::FRAGMENT => fragment(view, network, context)?,
            _ => return ip::payload(next, view, network, context),
        };
    }
    match next {
        protocol::HOP_BY_HOP
        | protocol::ROUTING
        | protocol::FRAGMENT
        | protocol::DESTINATION_OPTIONS
        | protocol::AUTHENTICATION => Err(view.malformed(Layer::Ipv6Extension, Problem::TooMany).into()),
        _ => ip::payload(next, view, network, context),
    }
}

/// Skips a header whose second byte is its length in units of eight bytes, less one (RFC 8200 section 4.2).
fn options(view: View<'_>) -> Result<(u8, View<'_>), Stop<'_>> {
    let header = view.header::<2>(Layer::Ipv6Extension)?;
    let length = (usize::from(header.byte::<1>()) + 1) * 8;
    let rest = view.skip(length, Layer::Ipv6Extension)?;
    Ok((header.byte::<0>(), rest))
}

/// Skips the fragment header of a datagram that is whole nevertheless (RFC 6946); stops at a true fragment.
fn fragment<'a>(view: View<'a>, network: &Network, context: Context) -> Result<(u8, View<'a>), Stop<'a>> {
    const MORE: u16 = 1;
    /// In bytes: the three bits below it are no part of the field.
    const OFFSET: u16 = 0xfff8;
    let (header, rest) = view.split::<{ fragment_field::LENGTH }>(Layer::Ipv6Extension)?;
    let next = header.byte::<{ fragment_field::NEXT_HEADER }>();
    let offset_and_more = header.be16::<{ fragment_field::OFFSET_AND_MORE }>();
    if offset_and_more & (OFFSET | MORE) == 0 {
        return Ok((next, rest));
    }
    if context.reassembled {
        let problem = Problem::FragmentInFragment;
        return Err(view.malformed(Layer::Ipv6Extension, problem).into());
    }
    Err(Stop::Fragment(Fragment {
        view: rest,
        network: *network,
        context,
        protocol: next,
        id: header.be32::<{ fragment_field::IDENTIFICATION }>(),
        offset: (offset_and_more & OFFSET).into(),
        more: offset_and_more & MORE != 0,
    }))
}
