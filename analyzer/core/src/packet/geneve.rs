//! Geneve (RFC 8926).

use super::bytes::View;
use super::ethernet::{self, ether_type};
use super::outcome::{Layer, NotTcp, Problem};
use super::outer_layers::Context;
use super::segment::Tunnel;
use super::step::{Step, Stop};
use super::{ipv4, ipv6};

mod field {
    pub const LENGTH: usize = 8;
    pub const VERSION_AND_OPTIONS: usize = 0;
    pub const FLAGS: usize = 1;
    pub const PROTOCOL: usize = 2;
    pub const RESERVED: usize = 7;
}

/// All bits of the second byte but "control packet" and "critical options".
const RESERVED_FLAGS: u8 = 0x3f;

pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let (header, rest) =
        view.split::<{ field::LENGTH }>(Layer::Geneve).map_err(|error| udp_if_short(error.problem, error.into()))?;
    let version_and_options = header.byte::<{ field::VERSION_AND_OPTIONS }>();
    let reserved = header.byte::<{ field::FLAGS }>() & RESERVED_FLAGS | header.byte::<{ field::RESERVED }>();
    if version_and_options >> 6 != 0 || reserved != 0 {
        return Err(NotTcp::Udp.into());
    }
    // In units of four bytes.
    let options_len = usize::from(version_and_options & 0x3f) * 4;
    let rest = rest.skip(options_len, Layer::Geneve).map_err(|error| udp_if_short(error.problem, error.into()))?;
    let inside = |context: Context| context.enter(Tunnel::Geneve, Layer::Geneve, view);
    match header.be16::<{ field::PROTOCOL }>() {
        ether_type::TRANSPARENT_ETHERNET => ethernet::dissect(rest, inside(context)?),
        ether_type::IPV4 => ipv4::dissect(rest, inside(context)?),
        ether_type::IPV6 => ipv6::dissect(rest, inside(context)?),
        _ => Err(NotTcp::Udp.into()),
    }
}

/// A packet too short for Geneve is ordinary UDP; one that was cut may have been Geneve.
fn udp_if_short<'a>(problem: Problem, error: Stop<'a>) -> Stop<'a> {
    if problem == Problem::Short { NotTcp::Udp.into() } else { error }
}
