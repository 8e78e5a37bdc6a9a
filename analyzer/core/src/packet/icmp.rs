//! Errors of ICMP (RFC 792, RFC 1191) and ICMPv6 (RFC 4443) about a TCP segment.

use super::address::Address;

/// Type "destination unreachable" of ICMP.
pub const UNREACHABLE: u8 = 3;
/// Its code "fragmentation needed and DF set".
pub const FRAGMENTATION_NEEDED: u8 = 4;
/// Type "destination unreachable" of ICMPv6.
pub const UNREACHABLE_V6: u8 = 1;
/// Type "packet too big" of ICMPv6.
pub const PACKET_TOO_BIG: u8 = 2;

/// A packet with this segment did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Who says so.
    pub reporter: Address,
    /// Type; those of ICMP and ICMPv6 differ.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// MTU of the next hop, 0 for none.
    pub mtu: u32,
    /// Sender's address and port.
    pub source: (Address, u16),
    /// Receiver's address and port.
    pub destination: (Address, u16),
    /// Sequence number.
    pub seq: u32,
    /// Identification of the packet that did not arrive, 0 without one.
    pub ip_id: u16,
}
