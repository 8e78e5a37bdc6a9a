//! UDP (RFC 768), of interest for the tunnels inside it, and for DNS.

use super::bytes::View;
use super::dns;
use super::outcome::{Layer, NotTcp};
use super::outer_layers::{Context, Network};
use super::step::{Step, Stop};
use super::{geneve, vxlan};

mod field {
    pub const LENGTH: usize = 8;
    pub const SOURCE_PORT: usize = 0;
    pub const DESTINATION_PORT: usize = 2;
}

const VXLAN: u16 = 4789;
/// The generic protocol extension.
const VXLAN_GPE: u16 = 4790;
/// What Linux chose before RFC 7348, still the default of its vxlan device (`drivers/net/vxlan`) and of Flannel.
const VXLAN_LINUX: u16 = 8472;
const GENEVE: u16 = 6081;

/// Ports are a hint, not a promise: what does not look like the tunnel is ordinary UDP.
pub(super) fn dissect<'a>(view: View<'a>, network: &Network, context: Context) -> Step<'a> {
    let (header, rest) = view.split::<{ field::LENGTH }>(Layer::Udp)?;
    let (source, destination) = (header.be16::<{ field::SOURCE_PORT }>(), header.be16::<{ field::DESTINATION_PORT }>());
    match destination {
        VXLAN | VXLAN_GPE | VXLAN_LINUX => vxlan::dissect(rest, context),
        GENEVE => geneve::dissect(rest, context),
        _ if source == dns::PORT || destination == dns::PORT => Err(Stop::Dns(dns::Datagram {
            source: (network.source, source),
            destination: (network.destination, destination),
            message: rest.bytes,
        })),
        _ => Err(NotTcp::Udp.into()),
    }
}
