//! From one captured packet to its TCP segment: link layers, VLAN tags, tunnels, IPv4 and IPv6 with fragments.
//!
//! One file per protocol layer. Each reads its own header and hands the rest on; nothing is copied, except fragments,
//! which wait in bounded memory for the rest of their datagram. Any bytes are acceptable input: what cannot be read is
//! reported as [`Malformed`], what is of no interest as [`NotTcp`].
//!
//! Dissectors of tunnels call each other, because a tunnel may hold any packet, another tunnel among them. A packet may be
//! in at most [`MAX_TUNNELS`](crate::limits::MAX_TUNNELS) of them.

mod address;
mod bytes;
mod cooked;
mod datagram;
pub mod dns;
mod ethernet;
mod fragment;
mod geneve;
mod gre;
pub mod icmp;
mod ip;
mod ipv4;
mod ipv6;
mod link;
mod mpls;
mod outcome;
mod outer_layers;
mod ppp;
mod quoted;
mod segment;
mod step;
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
pub use outcome::{Layer, Malformed, NotTcp, Outcome, Problem};
pub(crate) use vxlan::is_header as is_vxlan_header;

pub use segment::{PacketDirection, SackBlocks, Segment, TcpFlags, Tunnel};

use bytes::View;
use datagram::{Datagram, Fragment};
use fragment::Fragments;
use step::Stop;

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
