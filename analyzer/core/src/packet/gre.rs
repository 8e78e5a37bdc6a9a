//! GRE (RFC 2784, RFC 2890) and ERSPAN inside it (draft-foschiano-erspan).

use super::bytes::View;
use super::ethernet::{self, ether_type};
use super::ip::protocol;
use super::outcome::{Layer, NotTcp};
use super::outer_layers::Context;
use super::segment::Tunnel;
use super::step::Step;

mod field {
    pub const LENGTH: usize = 4;
    pub const FLAGS_AND_VERSION: usize = 0;
    pub const PROTOCOL: usize = 2;
    /// Each of checksum (with its reserved half), key and sequence number.
    pub const OPTIONAL_LENGTH: usize = 4;
}

const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const VERSION: u16 = 0x0007;

pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let (header, rest) = view.split::<{ field::LENGTH }>(Layer::Gre)?;
    let flags = header.be16::<{ field::FLAGS_AND_VERSION }>();
    // Version 1 is PPTP's (RFC 2637); source routes were withdrawn by RFC 2784.
    if flags & (VERSION | ROUTING) != 0 {
        return Err(NotTcp::OtherIp(protocol::GRE).into());
    }
    let optional = (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize;
    let rest = rest.skip(optional * field::OPTIONAL_LENGTH, Layer::Gre)?;
    let inside = |tunnel: Tunnel| context.enter(tunnel, Layer::Gre, view);
    match header.be16::<{ field::PROTOCOL }>() {
        ether_type::TRANSPARENT_ETHERNET => ethernet::dissect(rest, inside(Tunnel::Gre)?),
        // Type I has no header of its own, and no sequence number in GRE's.
        ether_type::ERSPAN if flags & SEQUENCE == 0 => ethernet::dissect(rest, inside(Tunnel::Erspan)?),
        ether_type::ERSPAN => erspan_ii(rest, inside(Tunnel::Erspan)?),
        ether_type::ERSPAN_III => erspan_iii(rest, inside(Tunnel::Erspan)?),
        ether_type => ethernet::payload(ether_type, rest, inside(Tunnel::Gre)?),
    }
}

fn erspan_ii(view: View<'_>, context: Context) -> Step<'_> {
    const LENGTH: usize = 8;
    ethernet::dissect(view.skip(LENGTH, Layer::Erspan)?, context)
}

fn erspan_iii(view: View<'_>, context: Context) -> Step<'_> {
    const LENGTH: usize = 12;
    const SUBHEADER_LENGTH: usize = 8;
    /// The O bit: a platform-specific subheader follows.
    const HAS_SUBHEADER: u8 = 1;
    let (header, rest) = view.split::<LENGTH>(Layer::Erspan)?;
    if header.byte::<{ LENGTH - 1 }>() & HAS_SUBHEADER == 0 {
        return ethernet::dissect(rest, context);
    }
    ethernet::dissect(rest.skip(SUBHEADER_LENGTH, Layer::Erspan)?, context)
}
