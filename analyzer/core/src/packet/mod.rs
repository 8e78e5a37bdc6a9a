//! From one captured packet to its TCP segment: link layers, VLAN tags, tunnels, IPv4 and IPv6 with fragments.
//!
//! One file per protocol layer. Each reads its own header and hands the rest on; nothing is copied, except fragments,
//! which wait in bounded memory for the rest of their datagram. Any bytes are acceptable input: what cannot be read is
//! reported as [`Malformed`], what is of no interest as [`NotTcp`].

mod address;
mod bytes;
mod cooked;
mod datagram;
mod ethernet;
mod fragment;
mod geneve;
mod gre;
mod ip;
mod ipv4;
mod ipv6;
mod link;
mod mpls;
mod outcome;
mod ppp;
mod segment;
mod tcp_header;
mod tcp_options;
mod udp;
mod vxlan;

#[cfg(test)]
mod tests;

pub use address::Address;
pub(crate) use ethernet::ether_type;
pub use fragment::FragmentStats;
pub(crate) use ip::protocol;
pub use link::is_supported;
pub use outcome::{Layer, Malformed, NotTcp, Outcome, Problem};
pub(crate) use vxlan::is_header as is_vxlan_header;

pub use segment::{PacketDirection, SackBlocks, Segment, TcpFlags, Tunnel};

use crate::limits::MAX_TUNNELS;

use bytes::View;
use datagram::Datagram;
use fragment::{Fragment, Fragments};
use ip::Network;

/// Takes packets apart. It keeps state only for IP reassembly.
#[derive(Debug, Default)]
pub struct Dissector {
    fragments: Fragments,
    // The datagram that the last packet completed: its segment borrows from here.
    reassembled: Option<Datagram>,
}

impl Dissector {
    /// A dissector with no fragments waiting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Finds the TCP segment in a packet.
    ///
    /// `link_type` is the interface's LINKTYPE_ number, `captured` the bytes recorded, `original_len` the packet's
    /// length on the wire in bytes, `time_ns` its capture time in nanoseconds since any fixed moment (it ages waiting
    /// fragments).
    #[inline]
    pub fn dissect<'a>(
        &'a mut self,
        link_type: u32,
        captured: &'a [u8],
        original_len: u32,
        time_ns: i64,
    ) -> Outcome<'a> {
        match link::find_tcp(link_type, View::new(captured, original_len)) {
            Some(found) => tcp_header::read(found),
            None => self.walk(link_type, captured, original_len, time_ns),
        }
    }

    /// Counts about IP fragments so far.
    pub fn fragment_stats(&self) -> FragmentStats {
        self.fragments.stats()
    }

    /// Goes through the layers one by one.
    #[inline(never)]
    fn walk<'a>(&'a mut self, link_type: u32, captured: &'a [u8], original_len: u32, time_ns: i64) -> Outcome<'a> {
        match link::dissect(link_type, View::new(captured, original_len)) {
            Ok(found) => tcp_header::dissect(found),
            Err(Stop::Fragment(fragment)) => self.reassemble(&fragment, time_ns),
            Err(stop) => stop.into_outcome(),
        }
    }

    /// Stores a fragment and, when it completes its datagram, goes on with that.
    #[cold]
    fn reassemble(&mut self, fragment: &Fragment<'_>, time_ns: i64) -> Outcome<'_> {
        let mut completed = match self.fragments.add(fragment, time_ns) {
            Ok(Some(datagram)) => datagram,
            Ok(None) => return Outcome::Fragment,
            Err(malformed) => return Outcome::Malformed(malformed),
        };
        // A reassembled tunnel packet may hold a fragment again. Each turn enters one more tunnel, so it ends.
        while let Err(Stop::Fragment(inner)) = ip::reassembled(&completed) {
            completed = match self.fragments.add(&inner, time_ns) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return Outcome::Fragment,
                Err(malformed) => return Outcome::Malformed(malformed),
            };
        }
        match ip::reassembled(self.reassembled.insert(completed)) {
            Ok(found) => tcp_header::dissect(found),
            Err(stop) => stop.into_outcome(),
        }
    }
}

/// Where the TCP header is, or why the way to it ended. The segment itself is large; it is written once, at the end.
type Step<'a> = Result<Found<'a>, Stop<'a>>;

/// A TCP header and its payload, not yet read, with what the layers around it said.
#[derive(Clone, Copy, Debug)]
struct Found<'a> {
    view: View<'a>,
    network: Network,
    context: Context,
}

/// Why dissecting ended before a TCP segment.
#[derive(Debug)]
enum Stop<'a> {
    NotTcp(NotTcp),
    Malformed(Malformed),
    UnsupportedLink(u32),
    Fragment(Fragment<'a>),
}

impl Stop<'_> {
    fn into_outcome(self) -> Outcome<'static> {
        match self {
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

/// What outer layers said about a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    direction: PacketDirection,
    interface: u32,
    tunnel: Option<Tunnel>,
    tunnels: u8,
    /// The innermost IP payload was put together from fragments.
    reassembled: bool,
}

impl Context {
    /// The context inside a tunnel whose payload is `view`.
    fn enter(self, tunnel: Tunnel, layer: Layer, view: View<'_>) -> Result<Self, Malformed> {
        if self.tunnels >= MAX_TUNNELS {
            return Err(view.malformed(layer, Problem::TooDeep));
        }
        Ok(Self { tunnel: Some(tunnel), tunnels: self.tunnels + 1, reassembled: false, ..self })
    }
}
