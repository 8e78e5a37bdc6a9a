//! The Internet checksum (RFC 1071).

/// A sum of 16-bit words that is not folded yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds octets, which begin at an even place.
    pub fn add(mut self, octets: &[u8]) -> Self {
        let (words, rest) = octets.as_chunks::<2>();
        for &word in words {
            self.0 += u64::from(u16::from_be_bytes(word));
        }
        if let [last] = rest {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// Adds a number of 32 bits.
    pub fn add_u32(self, number: u32) -> Self {
        self.add(&number.to_be_bytes())
    }

    /// The checksum: the complement of the folded sum.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(Sum::default().add(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]).finish(), !0xddf2);
        assert_eq!(Sum::default().add(&[1]).finish(), !0x0100);
    }
}
