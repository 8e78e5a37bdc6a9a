//! IP addresses in a form that is cheap to copy, compare and hash.

use serde::{Deserialize, Serialize};

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// As large as the words of an address: a copy of fewer octets and their padding is made of pieces that overlap, which the
/// processor waits for when it reads them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u64)]
enum Version {
    V4,
    V6,
}

/// An IPv4 or IPv6 address. `10.0.0.1` and `::ffff:10.0.0.1` are different addresses, as they are on the wire.
/// IPv4 addresses sort before IPv6 ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    version: Version,
    // Two words rather than sixteen bytes: addresses are compared twice per packet. An IPv4 address is in `low`.
    high: u64,
    low: u64,
}

impl Address {
    /// An IPv4 address from its four bytes in network order.
    #[inline]
    pub const fn v4(octets: [u8; 4]) -> Self {
        Self { version: Version::V4, high: 0, low: u32::from_be_bytes(octets) as u64 }
    }

    /// An IPv6 address from its sixteen bytes in network order.
    #[inline]
    pub const fn v6(octets: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(octets);
        Self { version: Version::V6, high: (bits >> 64) as u64, low: bits as u64 }
    }

    /// Whether this is an IPv4 address (not an IPv4-mapped IPv6 one).
    #[inline]
    pub const fn is_ipv4(&self) -> bool {
        matches!(self.version, Version::V4)
    }

    /// The address as the standard library's type.
    pub fn ip(&self) -> IpAddr {
        match self.version {
            Version::V4 => IpAddr::V4(Ipv4Addr::from(self.low as u32)),
            Version::V6 => IpAddr::V6(Ipv6Addr::from(u128::from(self.high) << 64 | u128::from(self.low))),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::v4(ip.octets()),
            IpAddr::V6(ip) => Self::v6(ip.octets()),
        }
    }
}

/// Fewer and wider writes than the derived form, because connections are looked up once per packet.
impl Hash for Address {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.high);
        state.write_u64(self.low);
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(out)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_people_write_them() {
        assert_eq!(Address::v4([10, 0, 0, 1]).to_string(), "10.0.0.1");
        let mut octets = [0; 16];
        (octets[0], octets[15]) = (0xfd, 1);
        assert_eq!(Address::v6(octets).to_string(), "fd00::1");
    }

    #[test]
    fn a_mapped_address_is_not_the_ipv4_address() {
        let mapped: Address = "::ffff:10.0.0.1".parse::<IpAddr>().unwrap().into();
        let plain: Address = "10.0.0.1".parse::<IpAddr>().unwrap().into();
        let same_bytes: Address = "a00:1::".parse::<IpAddr>().unwrap().into();
        assert_eq!(mapped.to_string(), "::ffff:10.0.0.1");
        assert_ne!(mapped, plain);
        assert_ne!(same_bytes, plain);
        assert!(plain.is_ipv4() && !mapped.is_ipv4());
        assert!(plain < same_bytes, "IPv4 sorts first");
    }
}
