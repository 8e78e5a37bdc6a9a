//! PPP (RFC 1661) and PPP over Ethernet (RFC 2516).

use super::bytes::View;
use super::outcome::{Layer, NotTcp, Problem};
use super::outer_layers::Context;
use super::step::Step;
use super::{ipv4, ipv6};

/// First of the two bytes, address and control, of HDLC-like framing (RFC 1662 section 3.1), which may be left out. It
/// is no protocol number (RFC 1661 section 2).
const ALL_STATIONS: u8 = 0xff;

/// PPP protocol numbers (RFC 1332, RFC 5072).
const IPV4: u16 = 0x0021;
const IPV6: u16 = 0x0057;

mod pppoe_field {
    pub const LENGTH: usize = 6;
    pub const VERSION_AND_TYPE: usize = 0;
    pub const CODE: usize = 1;
}

pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let framed = view.bytes.first() == Some(&ALL_STATIONS);
    let view = view.skip(if framed { 2 } else { 0 }, Layer::Ppp)?;
    // Protocol numbers end in an odd byte and start with an even one: an odd first byte is a number whose leading
    // zero was left out (RFC 1661 section 6.5).
    let (first, rest) = view.split::<1>(Layer::Ppp)?;
    let (protocol, rest) = if first.byte::<0>() & 1 == 1 {
        (u16::from(first.byte::<0>()), rest)
    } else {
        let (header, rest) = view.split::<2>(Layer::Ppp)?;
        (header.be16::<0>(), rest)
    };
    match protocol {
        IPV4 => ipv4::dissect(rest, context),
        IPV6 => ipv6::dissect(rest, context),
        other => Err(NotTcp::OtherPpp(other).into()),
    }
}

pub(super) fn dissect_pppoe(view: View<'_>, context: Context) -> Step<'_> {
    let (header, rest) = view.split::<{ pppoe_field::LENGTH }>(Layer::Pppoe)?;
    let version_and_type = header.byte::<{ pppoe_field::VERSION_AND_TYPE }>();
    let code = header.byte::<{ pppoe_field::CODE }>();
    if (version_and_type, code) != (0x11, 0) {
        return Err(view.malformed(Layer::Pppoe, Problem::Version(version_and_type)).into());
    }
    // Its length is not needed: IP has its own, which is also true when segmentation offload left this one behind.
    dissect(rest, context)
}
