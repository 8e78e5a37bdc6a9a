//! UDP (RFC 768), of interest only for the tunnels inside it.

use super::around::Context;
use super::bytes::View;
use super::outcome::{Layer, NotTcp};
use super::step::Step;
use super::{geneve, vxlan};

mod field {
    pub const LENGTH: usize = 8;
    pub const DESTINATION_PORT: usize = 2;
}

const VXLAN: u16 = 4789;
/// The generic protocol extension.
const VXLAN_GPE: u16 = 4790;
/// What Linux chose before RFC 7348, still the default of its vxlan device (`drivers/net/vxlan`) and of Flannel.
const VXLAN_LINUX: u16 = 8472;
const GENEVE: u16 = 6081;

/// Ports are a hint, not a promise: what does not look like the tunnel is ordinary UDP.
pub(super) fn dissect(view: View<'_>, context: Context) -> Step<'_> {
    let (header, rest) = view.split::<{ field::LENGTH }>(Layer::Udp)?;
    match header.be16::<{ field::DESTINATION_PORT }>() {
        VXLAN | VXLAN_GPE | VXLAN_LINUX => vxlan::dissect(rest, context),
        GENEVE => geneve::dissect(rest, context),
        _ => Err(NotTcp::Udp.into()),
    }
}
