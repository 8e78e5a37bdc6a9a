//! What a packet turned out to be.

use std::fmt;

use super::dns::Datagram;
use super::icmp;
use super::segment::Segment;

/// The result of dissecting one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A TCP segment: whole, or cut by the snapshot length behind its fixed header.
    Tcp(Segment<'a>),
    /// A UDP datagram from or to a DNS server.
    Dns(Datagram<'a>),
    /// An ICMP error about a TCP segment.
    Icmp(icmp::Error),
    /// A packet of another protocol.
    NotTcp(NotTcp),
    /// An IP fragment, stored until the rest of its datagram comes. The packet that completes it yields the segment.
    Fragment,
    /// A packet whose headers contradict themselves or end too early.
    Malformed(Malformed),
    /// A link type this crate does not know (its LINKTYPE_ number).
    UnsupportedLink(u32),
}

/// A protocol that carries no TCP, or none that this crate looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotTcp {
    /// Address Resolution Protocol.
    Arp,
    /// UDP, unless it holds a tunnel.
    Udp,
    /// ICMP or ICMPv6, unless it is an error about a TCP segment.
    Icmp,
    /// Another IP protocol number.
    OtherIp(u8),
    /// Another EtherType.
    OtherEtherType(u16),
    /// An IEEE 802.3 frame with a length instead of an EtherType (spanning tree, for example).
    Llc,
    /// Another PPP protocol number.
    OtherPpp(u16),
    /// Another address family on a BSD loopback interface.
    OtherFamily(u32),
}

impl fmt::Display for NotTcp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arp => out.write_str("ARP"),
            Self::Udp => out.write_str("UDP"),
            Self::Icmp => out.write_str("ICMP"),
            Self::OtherIp(protocol) => write!(out, "IP protocol {protocol}"),
            Self::OtherEtherType(number) => write!(out, "EtherType 0x{number:04x}"),
            Self::Llc => out.write_str("IEEE 802.3 LLC"),
            Self::OtherPpp(protocol) => write!(out, "PPP protocol 0x{protocol:04x}"),
            Self::OtherFamily(family) => write!(out, "address family {family}"),
        }
    }
}

/// Why a packet could not be read: the layer, what is wrong with it, and where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Malformed {
    /// The layer that could not be read.
    pub layer: Layer,
    /// What is wrong with it.
    pub problem: Problem,
    /// Byte offset of the layer within the captured packet; within the reassembled IP payload for a datagram that
    /// came in fragments.
    pub offset: u32,
}

impl Malformed {
    /// Whether the packet was sound as far as it was captured: its recording is short, not the packet.
    pub fn is_cut(&self) -> bool {
        self.problem == Problem::Cut
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, problem, offset } = self;
        write!(out, "{layer} at byte {offset}: {problem}")
    }
}

/// A protocol layer, as named in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Ethernet II header.
    Ethernet,
    /// IEEE 802.1Q or 802.1ad tag.
    Vlan,
    /// LINKTYPE_LINUX_SLL header.
    CookedV1,
    /// LINKTYPE_LINUX_SLL2 header.
    CookedV2,
    /// LINKTYPE_NULL or LINKTYPE_LOOP header.
    Loopback,
    /// PPP header.
    Ppp,
    /// PPP over Ethernet session header (RFC 2516).
    Pppoe,
    /// MPLS label stack (RFC 3032).
    Mpls,
    /// The version nibble of a packet known only to be IP.
    Ip,
    /// IPv4 header.
    Ipv4,
    /// IP authentication header (RFC 4302).
    Authentication,
    /// IPv6 header.
    Ipv6,
    /// IPv6 extension header.
    Ipv6Extension,
    /// A fragment of an IP datagram.
    Fragment,
    /// UDP header.
    Udp,
    /// VXLAN header (RFC 7348).
    Vxlan,
    /// Geneve header (RFC 8926).
    Geneve,
    /// GRE header (RFC 2784, RFC 2890).
    Gre,
    /// ERSPAN header (draft-foschiano-erspan).
    Erspan,
    /// TCP header.
    Tcp,
}

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "Ethernet header",
            Self::Vlan => "VLAN tag",
            Self::CookedV1 => "Linux cooked header",
            Self::CookedV2 => "Linux cooked header v2",
            Self::Loopback => "BSD loopback header",
            Self::Ppp => "PPP header",
            Self::Pppoe => "PPPoE header",
            Self::Mpls => "MPLS label stack",
            Self::Ip => "IP header",
            Self::Ipv4 => "IPv4 header",
            Self::Authentication => "IP authentication header",
            Self::Ipv6 => "IPv6 header",
            Self::Ipv6Extension => "IPv6 extension header",
            Self::Fragment => "IP fragment",
            Self::Udp => "UDP header",
            Self::Vxlan => "VXLAN header",
            Self::Geneve => "Geneve header",
            Self::Gre => "GRE header",
            Self::Erspan => "ERSPAN header",
            Self::Tcp => "TCP header",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// What is wrong with a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// The packet was long enough on the wire, but the capture's snapshot length cut it inside this layer.
    Cut,
    /// The packet ended inside this layer on the wire.
    Short,
    /// The version field has another value (given).
    Version(u8),
    /// The header's length field (in bytes, given) is below the minimum or beyond the packet.
    HeaderLength(u16),
    /// The length field (in bytes, given) does not cover the header it is in.
    TotalLength(u16),
    /// More headers of this kind than any real packet has (`limits::MAX_VLAN_TAGS` and its neighbours).
    TooMany,
    /// More tunnels inside one another than `limits::MAX_TUNNELS`.
    TooDeep,
    /// The fragment's end is beyond 65535 bytes, or it is not the last one and its length is no multiple of eight.
    FragmentExtent,
    /// IPv6 fragments overlap: the datagram is dropped (RFC 5722), and so are fragments of it that still come.
    FragmentOverlap,
    /// Fragments disagree about the datagram's length, or leave more gaps than `limits::MAX_FRAGMENT_RANGES`.
    FragmentConflict,
    /// A fragment header inside a datagram that was itself put together from fragments.
    FragmentInFragment,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => {
                out.write_str("the capture cut the packet here; record with a larger snapshot length (tcpdump -s 0)")
            }
            Self::Short => out.write_str("the packet ends inside it"),
            Self::Version(version) => write!(out, "unexpected version {version}"),
            Self::HeaderLength(length) => write!(out, "impossible header length of {length} bytes"),
            Self::TotalLength(length) => {
                write!(out, "length field of {length} bytes does not cover the header")
            }
            Self::TooMany => out.write_str("more of these headers than any real packet has"),
            Self::TooDeep => out.write_str("more tunnels inside one another than are followed"),
            Self::FragmentExtent => out.write_str("impossible fragment offset or length"),
            Self::FragmentOverlap => out.write_str("overlaps another IPv6 fragment; the datagram is dropped"),
            Self::FragmentConflict => out.write_str("contradicts earlier fragments; the datagram is dropped"),
            Self::FragmentInFragment => out.write_str("fragment inside a reassembled datagram"),
        }
    }
}
