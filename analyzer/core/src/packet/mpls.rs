//! MPLS label stacks (RFC 3032).

use crate::limits::MAX_MPLS_LABELS;

use super::bytes::View;
use super::outcome::{Layer, NotTcp, Problem};
use super::outer_layers::Context;
use super::step::Step;
use super::{ipv4, ipv6};

const LABEL_LENGTH: usize = 4;
const BOTTOM_OF_STACK: u32 = 0x100;

/// Labels do not say what is below them. IP is told by its version; anything else (pseudowires) is left alone.
pub(super) fn dissect(ether_type: u16, mut view: View<'_>, context: Context) -> Step<'_> {
    for _ in 0..MAX_MPLS_LABELS {
        let (label, rest) = view.split::<LABEL_LENGTH>(Layer::Mpls)?;
        view = rest;
        if label.be32::<0>() & BOTTOM_OF_STACK == 0 {
            continue;
        }
        return match view.header::<1>(Layer::Mpls)?.byte::<0>() >> 4 {
            4 => ipv4::dissect(view, context),
            6 => ipv6::dissect(view, context),
            _ => Err(NotTcp::OtherEtherType(ether_type).into()),
        };
    }
    Err(view.malformed(Layer::Mpls, Problem::TooMany).into())
}
