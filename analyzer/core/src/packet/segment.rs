//! A TCP segment as found in one packet.

use serde::{Deserialize, Serialize};

use super::address::Address;

/// A TCP segment with what its IP header and capture record say about it. Fields are as sent: nothing is scaled,
/// made relative or checked against the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sender's address (innermost IP header).
    pub source: Address,
    /// Receiver's address (innermost IP header).
    pub destination: Address,
    /// Sender's port.
    pub source_port: u16,
    /// Receiver's port.
    pub destination_port: u16,
    /// Sequence number of the first payload byte (of the SYN if there is one).
    pub seq: u32,
    /// Acknowledgement number; meaningful with the ACK flag.
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Receive window as sent, before scaling.
    pub window: u16,
    /// Urgent pointer as sent; meaningful with the URG flag.
    pub urgent: u16,
    /// Maximum segment size option in bytes (RFC 9293 section 3.7.1).
    pub mss: Option<u16>,
    /// Window scale option as sent (RFC 7323 section 2); values above 14 count as 14 for the reader.
    pub window_scale: Option<u8>,
    /// SACK-permitted option (RFC 2018 section 2).
    pub sack_permitted: bool,
    /// SACK blocks (RFC 2018 section 3), empty without the option.
    pub sack: SackBlocks,
    /// Timestamps option: TSval and TSecr (RFC 7323 section 3).
    pub timestamps: Option<(u32, u32)>,
    /// An option's length was impossible: those before it were read, it and those behind it were not.
    pub options_malformed: bool,
    /// The capture cut the packet inside the options: those not captured are missing above.
    pub options_cut: bool,
    /// Payload bytes as captured.
    pub payload: &'a [u8],
    /// Payload length on the wire in bytes, by the IP header; above `payload.len()` when the capture cut the packet.
    pub payload_len: u32,
    /// IPv4 identification; none for IPv6.
    pub ip_id: Option<u16>,
    /// Time to live (IPv4) or hop limit (IPv6).
    pub ttl: u8,
    /// Explicit congestion notification bits, 0 to 3 (RFC 3168 section 5).
    pub ecn: u8,
    /// The innermost tunnel the segment was found in.
    pub tunnel: Option<Tunnel>,
    /// Which way the packet passed the capturing host, where the link type says so.
    pub packet_direction: PacketDirection,
    /// Interface index (LINKTYPE_LINUX_SLL2), else 0.
    pub cooked_interface: u32,
}

impl Segment<'static> {
    /// An empty segment of no host, to be filled in.
    pub fn nowhere() -> Self {
        Self {
            source: Address::v4([0; 4]),
            destination: Address::v4([0; 4]),
            source_port: 0,
            destination_port: 0,
            seq: 0,
            ack: 0,
            flags: TcpFlags(0),
            window: 0,
            urgent: 0,
            mss: None,
            window_scale: None,
            sack_permitted: false,
            sack: SackBlocks::default(),
            timestamps: None,
            options_malformed: false,
            options_cut: false,
            payload: &[],
            payload_len: 0,
            ip_id: None,
            ttl: 0,
            ecn: 0,
            tunnel: None,
            packet_direction: PacketDirection::Unknown,
            cooked_interface: 0,
        }
    }
}

impl Segment<'_> {
    /// The same segment without its payload bytes, free of what it borrowed.
    pub fn without_payload(&self) -> Segment<'static> {
        Segment { payload: &[], ..*self }
    }

    /// The same segment with these payload bytes.
    pub fn with_payload<'a>(&self, payload: &'a [u8]) -> Segment<'a> {
        Segment { payload, ..*self }
    }
}

/// The control bits of a TCP header: the low twelve bits of its thirteenth and fourteenth byte (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TcpFlags(pub u16);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset the connection.
    pub const RST: Self = Self(0x004);
    /// Push.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// ECN-Echo (RFC 3168).
    pub const ECE: Self = Self(0x040);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x080);
    /// Nonce sum (RFC 3540), now accurate ECN's AE bit.
    pub const NS: Self = Self(0x100);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Up to four SACK blocks, all that fit into the forty bytes of options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SackBlocks {
    blocks: [(u32, u32); 4],
    count: u8,
}

impl SackBlocks {
    /// Left and right edges in the order sent: the first sequence number of each block, and the one behind its last.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        self.blocks.get(..usize::from(self.count)).unwrap_or(&self.blocks)
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a block; a fifth is ignored.
    pub(crate) fn push(&mut self, left: u32, right: u32) {
        if let Some(free) = self.blocks.get_mut(usize::from(self.count)) {
            *free = (left, right);
            self.count += 1;
        }
    }
}

/// An encapsulation of IP in IP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tunnel {
    /// IP in IP: 4in4, 6in4, 4in6, 6in6 (RFC 2003, RFC 4213, RFC 2473).
    IpInIp,
    /// GRE (RFC 2784).
    Gre,
    /// ERSPAN: mirrored packets in GRE.
    Erspan,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// Geneve (RFC 8926).
    Geneve,
}

/// Which way a packet passed the capturing host. Linux cooked captures say so, others do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PacketDirection {
    /// The link type does not tell, or the packet was between two other hosts.
    #[default]
    Unknown,
    /// Sent to the capturing host, to everyone or to a group.
    Incoming,
    /// Sent by the capturing host.
    Outgoing,
}
