//! Addresses that map to others: two that share a prefix of n bits still share n and no more (Xu, Fan, Ammar, Moon,
//! "Prefix-preserving IP address anonymization", ICNP 2002), and what kind of address it is stays to be seen.

use std::collections::HashMap;

use crate::limits;

use super::replace::Key;

/// Maps addresses of one run.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    v4: HashMap<u32, u32>,
    v6: HashMap<u128, u128>,
}

/// IPv4 blocks that say what an address is for (IANA's special-purpose registry): prefix and its length. Their bits stay.
const BLOCKS_V4: [(u32, u32); 11] = [
    (0x0000_0000, 8),
    (0x0a00_0000, 8),
    (0x6440_0000, 10),
    (0x7f00_0000, 8),
    (0xa9fe_0000, 16),
    (0xac10_0000, 12),
    (0xc000_0200, 24),
    (0xc0a8_0000, 16),
    (0xc633_6400, 24),
    (0xe000_0000, 4),
    (0xf000_0000, 4),
];

/// The same for IPv6: loopback and unspecified with others of ::/64, NAT64, Teredo, documentation, 6to4, unique local,
/// link-local, multicast.
const BLOCKS_V6: [(u128, u32); 8] = [
    (0, 64),
    (0x0064_ff9b << 96, 96),
    (0x2001_0000 << 96, 32),
    (0x2001_0db8 << 96, 32),
    (0x2002 << 112, 16),
    (0xfc << 120, 7),
    (0xfe80 << 112, 10),
    (0xff << 120, 8),
];

/// `::ffff:0:0/96`: an IPv4 address follows.
const MAPPED: u128 = 0xffff << 32;

impl Addresses {
    /// An IPv4 address's replacement. Loopback, multicast and broadcast addresses name no host, and stay.
    pub fn v4(&mut self, address: u32, key: &Key) -> u32 {
        if matches!(address >> 28, 0xe) || matches!(address, 0 | u32::MAX) || address >> 24 == 0x7f {
            return address;
        }
        if let Some(&known) = self.v4.get(&address) {
            return known;
        }
        let block = |address: u32| BLOCKS_V4.iter().find(|(prefix, length)| (address ^ prefix) >> (32 - length) == 0);
        let kept = block(address).map_or(0, |&(_, length)| length);
        let mut mapped = address;
        // an ordinary address must not become one of a block: further steps of the same permutation lead out of it
        loop {
            mapped = map_bits(u128::from(mapped) << 96, 32, kept, b"4", key)
                .to_be_bytes()
                .first_chunk::<4>()
                .map_or(0, |c| u32::from_be_bytes(*c));
            if kept > 0 || block(mapped).is_none() {
                break;
            }
        }
        if self.v4.len() < limits::SCRUB_REMEMBERED {
            self.v4.insert(address, mapped);
        }
        mapped
    }

    /// An IPv6 address's replacement.
    pub fn v6(&mut self, address: u128, key: &Key) -> u128 {
        if address >> 32 == MAPPED >> 32 {
            return MAPPED | u128::from(self.v4(address as u32, key));
        }
        if address <= 1 {
            return address;
        }
        if let Some(&known) = self.v6.get(&address) {
            return known;
        }
        let block = |address: u128| BLOCKS_V6.iter().find(|(prefix, length)| (address ^ prefix) >> (128 - length) == 0);
        let kept = match address >> 120 {
            // flags and scope of a multicast address say how far it reaches
            0xff => 16,
            _ => block(address).map_or(0, |&(_, length)| length),
        };
        // global unicast is 2000::/3 (RFC 4291 section 2.4)
        let kept = if kept == 0 && address >> 125 == 1 { 3 } else { kept };
        let mut mapped = address;
        loop {
            mapped = map_bits(mapped, 128, kept, b"6", key);
            if kept > 3 || block(mapped).is_none() {
                break;
            }
        }
        if self.v6.len() < limits::SCRUB_REMEMBERED {
            self.v6.insert(address, mapped);
        }
        mapped
    }

    /// Addresses with their replacements, as text.
    pub fn texts(&self) -> Vec<(String, String)> {
        let v4 = self.v4.iter().map(|(&a, &b)| [a, b].map(|a| std::net::Ipv4Addr::from(a).to_string()));
        let v6 = self.v6.iter().map(|(&a, &b)| [a, b].map(|a| std::net::Ipv6Addr::from(a).to_string()));
        v4.chain(v6).map(|[a, b]| (a, b)).collect()
    }
}

/// Flips each bit behind the first `kept` by what the key says of all bits before it.
fn map_bits(address: u128, length: u32, kept: u32, family: &[u8], key: &Key) -> u128 {
    let mut flips = 0;
    for bit in kept..length {
        let before = if bit == 0 { 0 } else { address & (u128::MAX << (128 - bit)) };
        let flip = key.number(&[b"address", family, &bit.to_be_bytes(), &before.to_be_bytes()]) & 1;
        flips |= u128::from(flip) << (127 - bit);
    }
    address ^ flips
}

/// A link-layer address's replacement: locally administered (IEEE 802, section 8), and a group's if it was. Broadcast
/// and nothing stay.
pub(super) fn link_layer(address: [u8; 6], key: &Key) -> [u8; 6] {
    if address == [0; 6] || address == [0xff; 6] {
        return address;
    }
    let [_, _, a, b, c, d, e, f] = key.number(&[b"mac", &address]).to_be_bytes();
    [(a & 0xfc) | 2 | (address[0] & 1), b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefixes_are_preserved(a in any::<u32>(), shared in 0..32_u32, key in any::<u64>()) {
            let (key, mut addresses) = (Key::new(&key.to_be_bytes()), Addresses::default());
            let a = 0x0a00_0000 | a & 0xff_ffff;
            let b = a ^ (1 << (31 - shared.max(8)));
            let common = |a: u32, b: u32| (a ^ b).leading_zeros();
            let mapped = [a, b].map(|x| addresses.v4(x, &key));
            prop_assert_eq!(common(mapped[0], mapped[1]), common(a, b));
            prop_assert_eq!(mapped[0] >> 24, 10);
        }

        #[test]
        fn what_an_address_is_for_stays(a in any::<u32>(), b in any::<u128>(), key in any::<u64>()) {
            let (key, mut addresses) = (Key::new(&key.to_be_bytes()), Addresses::default());
            let kind4 = |a: u32| BLOCKS_V4.iter().position(|(prefix, length)| (a ^ prefix) >> (32 - length) == 0);
            prop_assert_eq!(kind4(addresses.v4(a, &key)), kind4(a));
            let kind6 = |a: u128| BLOCKS_V6.iter().position(|(prefix, length)| (a ^ prefix) >> (128 - length) == 0);
            prop_assert_eq!(kind6(addresses.v6(b, &key)), kind6(b));
            let global = 1 << 125 | b >> 3;
            prop_assert_eq!(addresses.v6(global, &key) >> 125, 1);
        }
    }

    #[test]
    fn hosts_without_a_name_stay() {
        let (key, mut addresses) = (Key::new(b"key"), Addresses::default());
        for address in [0x7f00_0001, u32::MAX, 0, 0xe000_0001] {
            assert_eq!(addresses.v4(address, &key), address);
        }
        assert_eq!((addresses.v6(1, &key), addresses.v6(0, &key)), (1, 0));
        assert_eq!(addresses.v6(MAPPED | 0x7f00_0001, &key), MAPPED | 0x7f00_0001);
        assert_eq!(link_layer([0xff; 6], &key), [0xff; 6]);
        let mapped = link_layer([0, 0x16, 0x3e, 1, 2, 3], &key);
        assert!(mapped[0] & 3 == 2 && mapped != [0, 0x16, 0x3e, 1, 2, 3]);
    }
}
