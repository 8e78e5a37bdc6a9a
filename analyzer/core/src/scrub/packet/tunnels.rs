//! What stands between link and IP headers, and packets in packets: MPLS, PPP, VXLAN, Geneve, GRE with ERSPAN.

use crate::limits::{MAX_MPLS_LABELS, MAX_TUNNELS};
use crate::packet::{ether_type, is_vxlan_header};

use super::super::checksum::Sum;
use super::Walk;

impl Walk<'_> {
    pub(super) fn mpls(&mut self, at: usize, wire: u32) -> Option<()> {
        let bottom = |label: &usize| self.byte(at + label * 4 + 2).is_some_and(|octet| octet & 1 == 1);
        // without a bottom they are no labels; as zeros they have none either
        let labels = (0..MAX_MPLS_LABELS).find(bottom)? + 1;
        self.keep(at, labels * 4)?;
        self.ip(at + labels * 4, wire.saturating_sub(labels as u32 * 4))
    }

    pub(super) fn ppp(&mut self, at: usize, wire: u32) -> Option<()> {
        let mut from = at;
        if self.byte(from)? == 0xff {
            self.keep(from, 2)?;
            from += 2;
        }
        let length = if self.byte(from)? & 1 == 1 { 1 } else { 2 };
        self.keep(from, length)?;
        let kind = if length == 1 { u16::from(self.byte(from)?) } else { self.be16(from)? };
        from += length;
        let wire = wire.saturating_sub((from - at) as u32);
        match kind {
            0x21 => self.ipv4(from, wire),
            0x57 => self.ipv6(from, wire),
            _ => None,
        }
    }

    pub(super) fn vxlan(&mut self, at: usize, wire: u32) -> Option<()> {
        let header = self.array(at)?;
        if !is_vxlan_header(header) {
            return None;
        }
        let [flags, _, _, next, ..] = header;
        self.enter()?;
        self.keep(at, 8)?;
        let (at, wire) = (at + 8, wire.saturating_sub(8));
        match (flags & 0x04 != 0, next) {
            (false, _) | (true, 3) => self.ethernet(at, wire),
            (true, 1) => self.ipv4(at, wire),
            (true, 2) => self.ipv6(at, wire),
            _ => None,
        }
    }

    pub(super) fn geneve(&mut self, at: usize, wire: u32) -> Option<()> {
        let [first, flags, _, _, _, _, _, reserved] = self.array(at)?;
        if first >> 6 != 0 || flags & 0x3f != 0 || reserved != 0 {
            return None;
        }
        let kind = self.be16(at + 2)?;
        if !matches!(kind, ether_type::TRANSPARENT_ETHERNET | ether_type::IPV4 | ether_type::IPV6) {
            return None;
        }
        self.enter()?;
        self.keep(at, 8)?;
        // options of zeros: of no class and empty
        let length = 8 + usize::from(first & 0x3f) * 4;
        let (at, wire) = (at + length, wire.saturating_sub(length as u32));
        match kind {
            ether_type::TRANSPARENT_ETHERNET => self.ethernet(at, wire),
            ether_type::IPV4 => self.ipv4(at, wire),
            ether_type::IPV6 => self.ipv6(at, wire),
            _ => None,
        }
    }

    pub(super) fn gre(&mut self, at: usize, end: usize, wire: u32) -> Option<()> {
        self.keep(at, 4)?;
        let flags = self.be16(at)?;
        if flags & 0x4007 != 0 {
            return None;
        }
        self.enter()?;
        let checked = flags & 0x8000 != 0;
        let length = 4 + (flags & 0xb000).count_ones() as usize * 4;
        if !checked {
            self.keep(at + 4, length - 4)?;
        } else {
            self.keep(at + 8, length - 8)?;
        }
        let (from, wire) = (at + length, wire.saturating_sub(length as u32));
        let done = match self.be16(at + 2)? {
            ether_type::TRANSPARENT_ETHERNET => self.ethernet(from, wire),
            ether_type::ERSPAN if flags & 0x1000 == 0 => self.ethernet(from, wire),
            ether_type::ERSPAN => {
                self.keep(from, 8)?;
                self.ethernet(from + 8, wire.saturating_sub(8))
            }
            ether_type::ERSPAN_III => {
                self.keep(from, 12)?;
                let length = if self.byte(from + 11)? & 1 == 1 { 20 } else { 12 };
                self.ethernet(from + length, wire.saturating_sub(length as u32))
            }
            kind => self.behind(kind, from, wire),
        };
        if checked {
            self.checksum(at + 4, at, end, Sum::default(), false)?;
        }
        done
    }

    /// One tunnel more.
    pub(super) fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= MAX_TUNNELS).then_some(())
    }
}
