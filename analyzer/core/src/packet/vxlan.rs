//! VXLAN (RFC 7348), with group policy (draft-smith-vxlan-group-policy) and as generic protocol extension
//! (draft-ietf-nvo3-vxlan-gpe).

use super::bytes::View;
use super::outcome::{Layer, Malformed, NotTcp, Problem};
use super::outer_layers::Context;
use super::segment::Tunnel;
use super::step::Step;
use super::{ethernet, ipv4, ipv6};

const LENGTH: usize = 8;
/// "The network identifier is valid": always set.
const VALID: u32 = 0x0800_0000;
/// "Group policy", and the fields that go with it: don't-learn, policy-applied and the group.
const GROUP_POLICY: u32 = 0x8000_0000;
const GROUP_POLICY_FIELDS: u32 = 0x0048_ffff;
/// Generic protocol extension, and its field: what the payload is.
const NEXT_PROTOCOL: u32 = 0x0400_0000;
const NEXT_PROTOCOL_FIELD: u32 = 0x0000_00ff;

enum Payload {
    Ethernet,
    Ipv4,
    Ipv6,
}

pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let (header, rest) = match view.split::<LENGTH>(Layer::Vxlan) {
        Ok(split) => split,
        Err(Malformed { problem: Problem::Short, .. }) => return Err(NotTcp::Udp.into()),
        Err(cut) => return Err(cut.into()),
    };
    let payload = match payload(header.be32::<0>()) {
        Some(payload) if header.byte::<7>() == 0 => payload,
        _ => return Err(NotTcp::Udp.into()),
    };
    let context = context.enter(Tunnel::Vxlan, Layer::Vxlan, view)?;
    match payload {
        Payload::Ethernet => ethernet::dissect(rest, context),
        Payload::Ipv4 => ipv4::dissect(rest, context),
        Payload::Ipv6 => ipv6::dissect(rest, context),
    }
}

/// Whether these octets are a VXLAN header.
pub(crate) fn is_header(octets: [u8; LENGTH]) -> bool {
    let [a, b, c, d, .., reserved] = octets;
    reserved == 0 && payload(u32::from_be_bytes([a, b, c, d])).is_some()
}

/// What the flags say is inside; none if these are no flags of VXLAN's. Its reserved bits are sent as zero, which tells
/// it from other users of its port.
fn payload(flags: u32) -> Option<Payload> {
    let expected = if flags & GROUP_POLICY != 0 {
        VALID | GROUP_POLICY | flags & GROUP_POLICY_FIELDS
    } else if flags & NEXT_PROTOCOL != 0 {
        VALID | NEXT_PROTOCOL | flags & NEXT_PROTOCOL_FIELD
    } else {
        VALID
    };
    if flags != expected {
        return None;
    }
    if flags & NEXT_PROTOCOL == 0 {
        return Some(Payload::Ethernet);
    }
    match flags & NEXT_PROTOCOL_FIELD {
        1 => Some(Payload::Ipv4),
        2 => Some(Payload::Ipv6),
        3 => Some(Payload::Ethernet),
        _ => None,
    }
}
