//! What a packet turned out to be.

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

/// A protocol layer.
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
