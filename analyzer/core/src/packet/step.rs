//! What a dissector returns: where the TCP header is, or why dissecting ended.

use super::bytes::View;
use super::datagram::Fragment;
use super::dns::Datagram;
use super::icmp;
use super::outcome::{Malformed, NotTcp, Outcome};
use super::outer_layers::{Context, Network};

/// Where the TCP header is, or why the way to it ended. The segment itself is large; it is written once, at the end.
pub(super) type Step<'a> = Result<Found<'a>, Stop<'a>>;

/// A TCP header and its payload, not yet read, with what the layers around it said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub view: View<'a>,
    pub network: Network,
    pub context: Context,
}

/// Why dissecting ended before a TCP segment.
#[derive(Debug)]
pub(super) enum Stop<'a> {
    NotTcp(NotTcp),
    Dns(Datagram<'a>),
    Icmp(icmp::Error),
    Malformed(Malformed),
    UnsupportedLink(u32),
    Fragment(Fragment<'a>),
}

impl<'a> Stop<'a> {
    pub fn into_outcome(self) -> Outcome<'a> {
        match self {
            Self::Dns(datagram) => Outcome::Dns(datagram),
            Self::Icmp(error) => Outcome::Icmp(error),
            Self::NotTcp(protocol) => Outcome::NotTcp(protocol),
            Self::Malformed(malformed) => Outcome::Malformed(malformed),
            Self::UnsupportedLink(link_type) => Outcome::UnsupportedLink(link_type),
            Self::Fragment(_) => Outcome::Fragment,
        }
    }
}

impl From<Malformed> for Stop<'_> {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<NotTcp> for Stop<'_> {
    fn from(protocol: NotTcp) -> Self {
        Self::NotTcp(protocol)
    }
}
