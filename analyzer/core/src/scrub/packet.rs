//! One packet written anew: a packet of zeros into which known header fields are copied, addresses mapped, the structure of
//! its payload put, and checksums computed. It goes through the layers as `packet` does; what is not known there stays
//! zero.

use crate::limits::{MAX_EXTENSION_HEADERS, MAX_VLAN_TAGS};
use crate::packet::dns::PORT;
use crate::packet::{ether_type, protocol};

use super::addresses::{Addresses, link_layer};
use super::checksum::Sum;
use super::edits::Edits;
use super::replace::Key;

mod dns;
mod icmp;
mod tunnels;

/// The payload of the packet's TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload<'a> {
    /// Where it begins in the captured bytes; `None` in a datagram that came in fragments.
    pub at: Option<usize>,
    /// Captured bytes.
    pub length: usize,
    /// What stays of it; none when its connection is not followed.
    pub edits: Option<&'a Edits>,
    /// Its offset in the sender's bytes.
    pub offset: i64,
}

/// Writes packets anew.
#[derive(Debug, Default)]
pub(super) struct Rewriter {
    pub addresses: Addresses,
    out: Vec<u8>,
}

/// One packet, or one datagram that came in fragments, while it is written anew.
struct Walk<'a> {
    addresses: &'a mut Addresses,
    key: &'a Key,
    payload: Option<Payload<'a>>,
    input: &'a [u8],
    out: &'a mut Vec<u8>,
    depth: u8,
    /// The fragment that the packet is.
    fragment: Option<Fragment>,
}

/// What a packet carries of a datagram that came in fragments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// What its fragments have in common: addresses as they were, protocol and identification.
    pub datagram: (u128, u128, u8, u32),
    /// Where its part begins and ends in the packet.
    pub at: usize,
    pub end: usize,
    /// Where that belongs in the datagram.
    pub offset: usize,
    /// Sum of the addresses as they are now.
    sum: Sum,
}

/// What a transport's checksum also covers: addresses and length.
#[derive(Clone, Copy, Debug)]
struct Around {
    sum: Sum,
    /// Length on the wire of what is behind the IP header.
    wire: u32,
}

impl Rewriter {
    /// The packet with everything replaced that says more than it should, and what it is a fragment of; `payload` is that
    /// of its TCP segment.
    pub fn rewrite(
        &mut self,
        link_type: u32,
        captured: &[u8],
        original_len: u32,
        payload: Option<Payload<'_>>,
        key: &Key,
    ) -> (&[u8], Option<Fragment>) {
        let mut walk = self.begin(captured, payload, key);
        // where a layer cannot be read, everything behind is zero
        let _ = walk.link(link_type, original_len.max(captured.len() as u32));
        let fragment = walk.fragment;
        (&self.out, fragment)
    }

    /// A datagram that came in fragments, behind its IP header, of which `fragment` is one.
    pub fn datagram(&mut self, octets: &[u8], fragment: &Fragment, payload: Payload<'_>, key: &Key) -> &[u8] {
        let around = Around { sum: fragment.sum, wire: octets.len() as u32 };
        let _ = self.begin(octets, Some(payload), key).transport(fragment.datagram.2, 0, around);
        &self.out
    }

    fn begin<'a>(&'a mut self, input: &'a [u8], payload: Option<Payload<'a>>, key: &'a Key) -> Walk<'a> {
        self.out.clear();
        self.out.resize(input.len(), 0);
        Walk { addresses: &mut self.addresses, key, payload, input, out: &mut self.out, depth: 0, fragment: None }
    }
}

impl Walk<'_> {
    fn link(&mut self, link_type: u32, wire: u32) -> Option<()> {
        match link_type {
            1 => self.ethernet(0, wire),
            113 => {
                self.keep(0, 6)?;
                self.cooked_address(6, self.be16(4)?);
                let kind = self.keep16(14)?;
                self.behind(kind, 16, wire.saturating_sub(16))
            }
            276 => {
                self.keep(0, 2)?;
                self.keep(4, 8)?;
                self.cooked_address(12, u16::from(self.byte(11)?));
                self.behind(self.be16(0)?, 20, wire.saturating_sub(20))
            }
            0 | 108 => {
                self.keep(0, 4)?;
                let family = u32::from_be_bytes(self.array(0)?);
                match family.min(family.swap_bytes()) {
                    2 => self.ipv4(4, wire.saturating_sub(4)),
                    10 | 23 | 24 | 28 | 30 => self.ipv6(4, wire.saturating_sub(4)),
                    _ => None,
                }
            }
            12 | 14 | 101 => self.ip(0, wire),
            228 => self.ipv4(0, wire),
            229 => self.ipv6(0, wire),
            9 => self.ppp(0, wire),
            _ => None,
        }
    }

    fn ethernet(&mut self, at: usize, wire: u32) -> Option<()> {
        for at in [at, at + 6] {
            let address = self.array(at)?;
            self.put(at, &link_layer(address, self.key));
        }
        let kind = self.keep16(at + 12)?;
        self.behind(kind, at + 14, wire.saturating_sub(14))
    }

    /// A link-layer address of `length` octets in a field of eight.
    fn cooked_address(&mut self, at: usize, length: u16) {
        if let (6, Some(address)) = (length, self.array(at)) {
            self.put(at, &link_layer(address, self.key));
        }
    }

    /// What is behind an EtherType.
    fn behind(&mut self, kind: u16, at: usize, wire: u32) -> Option<()> {
        let (mut kind, mut at, mut wire) = (kind, at, wire);
        for _ in 0..MAX_VLAN_TAGS {
            if !matches!(kind, ether_type::VLAN | ether_type::PROVIDER_VLAN | ether_type::OLD_PROVIDER_VLAN) {
                break;
            }
            self.keep(at, 4)?;
            kind = self.be16(at + 2)?;
            (at, wire) = (at + 4, wire.saturating_sub(4));
        }
        match kind {
            ether_type::IPV4 => self.ipv4(at, wire),
            ether_type::IPV6 => self.ipv6(at, wire),
            ether_type::MPLS | ether_type::MPLS_MULTICAST => self.mpls(at, wire),
            ether_type::PPPOE_SESSION => {
                self.keep(at, 6)?;
                self.ppp(at + 6, wire.saturating_sub(6))
            }
            ether_type::ARP => self.arp(at),
            _ => None,
        }
    }

    /// ARP (RFC 826) for IPv4 over Ethernet.
    fn arp(&mut self, at: usize) -> Option<()> {
        self.keep(at, 8)?;
        if self.array(at)? != [0, 1, 8, 0, 6, 4] {
            return None;
        }
        for at in [at + 8, at + 18] {
            let address = self.array(at)?;
            self.put(at, &link_layer(address, self.key));
            self.address_v4(at + 6)?;
        }
        Some(())
    }

    fn ip(&mut self, at: usize, wire: u32) -> Option<()> {
        match self.byte(at)? >> 4 {
            4 => self.ipv4(at, wire),
            6 => self.ipv6(at, wire),
            _ => self.keep(at, 1),
        }
    }

    fn ipv4(&mut self, at: usize, wire: u32) -> Option<()> {
        // what tells that it is no IPv4 header, or not all of it
        self.keep(at, 1)?;
        self.keep(at + 2, 2)?;
        let first = self.byte(at)?;
        let header = usize::from(first & 15) * 4;
        let total = match self.be16(at + 2)? {
            0 => wire,
            total => u32::from(total),
        };
        let rest = total.checked_sub(header as u32)?;
        if first >> 4 != 4 || header < 20 || at + header > self.input.len() {
            return None;
        }
        self.header_v4(at, header)?;
        let sum = Sum::default().add(self.out.get(at + 12..at + 20)?);
        let kind = self.byte(at + 9)?;
        let fragment = self.be16(at + 6)?;
        let done = if fragment & 0x3fff == 0 {
            self.transport(kind, at + header, Around { sum, wire: rest })
        } else {
            let ends = [at + 12, at + 16].map(|at| self.array(at).map_or(0, |a| u128::from(u32::from_be_bytes(a))));
            let end = (at + header).saturating_add(rest as usize).min(self.input.len());
            let (datagram, offset) =
                ((ends[0], ends[1], kind, self.be16(at + 4)?.into()), usize::from(fragment & 0x1fff) * 8);
            self.fragment = Some(Fragment { datagram, at: at + header, end, offset, sum });
            None
        };
        self.checksum(at + 10, at, at + header, Sum::default(), false)?;
        done
    }

    fn ipv6(&mut self, at: usize, wire: u32) -> Option<()> {
        self.keep(at, 1)?;
        if self.byte(at)? >> 4 != 6 || at + 40 > self.input.len() {
            return None;
        }
        self.header_v6(at)?;
        let sum = Sum::default().add(self.out.get(at + 8..at + 40)?);
        let mut left = match self.be16(at + 4)? {
            0 => wire.saturating_sub(40),
            length => u32::from(length),
        };
        let (mut kind, mut from) = (self.byte(at + 6)?, at + 40);
        for _ in 0..=MAX_EXTENSION_HEADERS {
            let length = match kind {
                protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                    self.extension(kind, from)?
                }
                protocol::FRAGMENT => {
                    self.keep(from, 8)?;
                    let place = self.be16(from + 2)?;
                    if place & 0xfff9 != 0 {
                        let ends = [at + 8, at + 24].map(|at| self.array(at).map_or(0, u128::from_be_bytes));
                        let id = u32::from_be_bytes(self.array(from + 4)?);
                        let end = from.saturating_add(left as usize).min(self.input.len());
                        let datagram = (ends[0], ends[1], self.byte(from)?, id);
                        let (at, offset) = (from + 8, usize::from(place & 0xfff8));
                        self.fragment = Some(Fragment { datagram, at, end: end.max(at), offset, sum });
                        return None;
                    }
                    8
                }
                _ => return self.transport(kind, from, Around { sum, wire: left }),
            };
            kind = self.byte(from)?;
            (from, left) = (from + length, left.saturating_sub(length as u32));
        }
        None
    }

    /// An extension header whose content is padding from now on (RFC 8200 section 4.2); a routing header loses its
    /// addresses.
    fn extension(&mut self, kind: u8, at: usize) -> Option<usize> {
        const PAD_N: u8 = 1;
        self.keep(at, 2)?;
        let length = (usize::from(self.byte(at + 1)?) + 1) * 8;
        if kind == protocol::ROUTING {
            self.keep(at + 2, 2)?;
        } else {
            let (mut from, end) = (at + 2, at + length);
            while from + 1 < end {
                let padding = (end - from - 2).min(255);
                self.put(from, &[PAD_N, padding as u8]);
                from += 2 + padding;
            }
        }
        Some(length)
    }

    /// What is behind IP's own headers.
    fn transport(&mut self, kind: u8, at: usize, around: Around) -> Option<()> {
        let end = at.saturating_add(around.wire as usize).min(self.input.len());
        let sum = around.sum.add_u32(around.wire).add_u32(u32::from(kind));
        match kind {
            protocol::TCP => {
                let done = self.tcp(at, end, around.wire);
                self.dns_segment(at, end);
                self.checksum(at + 16, at, end, sum, false)?;
                done
            }
            protocol::UDP => self.udp(at, end, Around { sum, ..around }),
            protocol::GRE => self.gre(at, end, around.wire),
            protocol::IPV4 | protocol::IPV6 => {
                self.enter()?;
                if kind == protocol::IPV4 { self.ipv4(at, around.wire) } else { self.ipv6(at, around.wire) }
            }
            protocol::ICMP | protocol::ICMPV6 => {
                self.icmp(kind, at, end)?;
                let sum = if kind == protocol::ICMP { Sum::default() } else { sum };
                self.checksum(at + 2, at, end, sum, false)
            }
            protocol::AUTHENTICATION => {
                self.keep(at, 2)?;
                self.keep(at + 4, 8)?;
                let length = (usize::from(self.byte(at + 1)?) + 2) * 4;
                let wire = around.wire.checked_sub(length as u32)?;
                self.transport(self.byte(at)?, at + length, Around { wire, ..around })
            }
            _ => None,
        }
    }

    fn tcp(&mut self, at: usize, end: usize, wire: u32) -> Option<()> {
        self.keep(at + 12, 1)?;
        let header = usize::from(self.byte(at + 12)? >> 4) * 4;
        if header < 20 || header as u32 > wire {
            return None;
        }
        self.keep(at, 16)?;
        self.keep(at + 18, 2)?;
        self.tcp_options(at + 20, (at + header).min(end));
        let from = at + header;
        let payload = self.payload.filter(|payload| payload.length > 0 && payload.at.is_none_or(|at| at == from))?;
        let out = self.out.get_mut(from..(from + payload.length).min(end))?;
        payload.edits?.apply(payload.offset, out);
        Some(())
    }

    /// Options that TCP itself needs stay (RFC 9293, 2018, 7323); others become no-operations.
    fn tcp_options(&mut self, at: usize, end: usize) {
        let mut at = at;
        while at < end {
            let (Some(kind), length) = (self.byte(at), self.byte(at + 1).filter(|_| at + 1 < end)) else { return };
            let whole = match (kind, length) {
                (0, _) => return,
                (1, _) => 1,
                (_, Some(length)) if length >= 2 => usize::from(length),
                // an impossible length is what is to be seen
                _ => {
                    let _ = self.keep(at, 2.min(end - at));
                    return;
                }
            };
            if matches!((kind, whole), (1, _) | (2, 4) | (3, 3) | (4, 2) | (5, 10 | 18 | 26 | 34) | (8, 10)) {
                let _ = self.keep(at, whole.min(end - at));
            } else if at + whole > end || matches!(kind, 2..=5 | 8) {
                let _ = self.keep(at, 2.min(end - at)); // a length that is not its kind's, or leads too far
            } else if let Some(room) = self.out.get_mut(at..at + whole) {
                room.fill(1);
            }
            at += whole;
        }
    }

    fn udp(&mut self, at: usize, end: usize, around: Around) -> Option<()> {
        self.keep(at, 6)?;
        let unchecked = self.be16(at + 6)? == 0;
        let inside = around.wire.saturating_sub(8);
        // in a tunnel that cannot be read, everything behind is zero
        let done = match self.be16(at + 2)? {
            4789 | 4790 | 8472 => self.vxlan(at + 8, inside),
            6081 => self.geneve(at + 8, inside),
            to if to == PORT || self.be16(at)? == PORT => {
                let done = self.dns(at + 8, end);
                self.out.get_mut(end..)?.fill(0); // a message may claim to go on behind its end
                done
            }
            _ => None,
        };
        if !unchecked {
            self.checksum(at + 6, at, end, around.sum, true)?;
        }
        done
    }

    /// Puts the checksum of what is written of `from..end` to `at`.
    fn checksum(&mut self, at: usize, from: usize, end: usize, sum: Sum, udp: bool) -> Option<()> {
        self.out.get_mut(at..at + 2)?.fill(0);
        let checksum = match sum.add(self.out.get(from..end)?).finish() {
            0 if udp => 0xffff,
            checksum => checksum,
        };
        self.put(at, &checksum.to_be_bytes());
        Some(())
    }

    fn address_v4(&mut self, at: usize) -> Option<()> {
        let mapped = self.addresses.v4(u32::from_be_bytes(self.array(at)?), self.key);
        self.put(at, &mapped.to_be_bytes());
        Some(())
    }

    fn address_v6(&mut self, at: usize) -> Option<()> {
        let mapped = self.addresses.v6(u128::from_be_bytes(self.array(at)?), self.key);
        self.put(at, &mapped.to_be_bytes());
        Some(())
    }

    /// An IPv4 header of this length but for its checksum: addresses mapped, options no-operations.
    fn header_v4(&mut self, at: usize, length: usize) -> Option<()> {
        const NO_OPERATION: u8 = 1;
        self.keep(at, 10)?;
        self.address_v4(at + 12)?;
        self.address_v4(at + 16)?;
        self.out.get_mut(at + 20..at + length)?.fill(NO_OPERATION);
        Some(())
    }

    fn header_v6(&mut self, at: usize) -> Option<()> {
        self.keep(at, 8)?;
        self.address_v6(at + 8)?;
        self.address_v6(at + 24)
    }

    /// Copies octets as they are; `None` when they are not all there.
    fn keep(&mut self, at: usize, length: usize) -> Option<()> {
        let end = (at + length).min(self.input.len());
        if let (Some(out), Some(input)) = (self.out.get_mut(at..end), self.input.get(at..end)) {
            out.copy_from_slice(input);
        }
        (end == at + length).then_some(())
    }

    fn keep16(&mut self, at: usize) -> Option<u16> {
        self.keep(at, 2)?;
        self.be16(at)
    }

    fn put(&mut self, at: usize, octets: &[u8]) {
        let end = (at + octets.len()).min(self.out.len());
        if let Some(out) = self.out.get_mut(at..end) {
            let length = out.len();
            out.copy_from_slice(octets.get(..length).unwrap_or_default());
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.input.get(at).copied()
    }

    fn be16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.input.get(at..)?.first_chunk::<N>().copied()
    }
}
