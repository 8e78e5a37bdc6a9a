//! Reading a header block: octets, integers (RFC 7541 5.1) and lengths.

use crate::limits::HPACK_MAX_INTEGER_OCTETS;

use super::error::{HpackError, HpackErrorKind};

/// A position in a header block.
pub(crate) struct Reader<'a> {
    block: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub fn new(block: &'a [u8]) -> Self {
        Self { block, position: 0 }
    }

    /// Octets from the start of the block.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The next octet, which stays to be read; `None` at the end of the block.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.block.get(self.position).copied()
    }

    /// The integer in the low `prefix_bits` (4 to 7) of the next octet and what continues it.
    #[inline]
    pub fn integer(&mut self, prefix_bits: u32) -> Result<u32, HpackError> {
        let Some(octet) = self.peek() else {
            return Err(HpackError::new(HpackErrorKind::Truncated, self.position));
        };
        self.position += 1;
        let full = (1 << prefix_bits) - 1;
        let prefix = u32::from(octet) & full;
        if prefix < full { Ok(prefix) } else { self.continue_integer(full) }
    }

    fn continue_integer(&mut self, prefix: u32) -> Result<u32, HpackError> {
        let start = self.position - 1;
        let mut value = u64::from(prefix);
        for nth in 0..HPACK_MAX_INTEGER_OCTETS {
            let Some(octet) = self.peek() else {
                return Err(HpackError::new(HpackErrorKind::Truncated, start));
            };
            self.position += 1;
            value += u64::from(octet & 0x7f) << (7 * nth);
            if octet & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| HpackError::new(HpackErrorKind::IntegerOverflow, start));
            }
        }
        Err(HpackError::new(HpackErrorKind::IntegerOverflow, start))
    }

    /// The next `len` octets; `start` is where their string begins, for the error.
    pub fn octets(&mut self, len: usize, start: usize) -> Result<&'a [u8], HpackError> {
        let octets = self.block.get(self.position..).and_then(|rest| rest.get(..len));
        let octets = octets.ok_or(HpackError::new(HpackErrorKind::Truncated, start))?;
        self.position += len;
        Ok(octets)
    }
}
