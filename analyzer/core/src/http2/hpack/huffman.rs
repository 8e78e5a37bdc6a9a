//! The Huffman code of string literals (RFC 7541 5.2 and Appendix B).
//!
//! The code is canonical: within a length, codes ascend with their symbols, and shorter codes come
//! first. So the lengths define it, and all tables here are derived from them at compile time.
//! Twelve bits of input look up one or two symbols at once; the rare longer codes are found length
//! by length.

use super::error::HpackErrorKind;

/// The end-of-string symbol, after the 256 octets.
const END_OF_STRING: u16 = 256;

const SYMBOLS: usize = 257;

/// Longest code, in bits.
const MAX_CODE_BITS: usize = 30;

/// Bits of input that index `FAST`: two of the common symbols, which have 5 to 7 bits.
const FAST_BITS: u32 = 12;

/// Length of each symbol's code, in bits (RFC 7541 Appendix B).
const CODE_BITS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];

/// The canonical code by length: what it takes to find the symbol of a code of any length.
struct Canonical {
    /// First code of each length.
    first: [u32; MAX_CODE_BITS + 1],
    /// Number of codes of each length.
    count: [u32; MAX_CODE_BITS + 1],
    /// Where the symbols of each length begin in `symbols`.
    offset: [u32; MAX_CODE_BITS + 1],
    /// The symbols by length, then by value.
    symbols: [u16; SYMBOLS],
}

static CANONICAL: Canonical = canonical();

const fn canonical() -> Canonical {
    let mut table = Canonical {
        first: [0; MAX_CODE_BITS + 1],
        count: [0; MAX_CODE_BITS + 1],
        offset: [0; MAX_CODE_BITS + 1],
        symbols: [0; SYMBOLS],
    };
    let mut bits = 1;
    let mut placed = 0;
    let mut code = 0;
    while bits <= MAX_CODE_BITS {
        table.first[bits] = code;
        table.offset[bits] = placed as u32;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if CODE_BITS[symbol] as usize == bits {
                table.symbols[placed] = symbol as u16;
                placed += 1;
                code += 1;
            }
            symbol += 1;
        }
        table.count[bits] = code - table.first[bits];
        code <<= 1;
        bits += 1;
    }
    table
}

/// One or two symbols that begin with the same `FAST_BITS` bits.
#[derive(Clone, Copy)]
struct Fast {
    symbols: [u8; 2],
    /// Bits of the symbols' codes together.
    bits: u8,
    /// 0 if the first symbol's code is longer than `FAST_BITS`.
    count: u8,
}

const FAST_ENTRIES: usize = 1 << FAST_BITS;

static FAST: [Fast; FAST_ENTRIES] = fast();

const fn fast() -> [Fast; FAST_ENTRIES] {
    let single = fast_single();
    let mut table = single;
    let mut index = 0;
    while index < FAST_ENTRIES {
        let first = single[index];
        if first.count == 1 {
            let second = single[(index << first.bits) & (FAST_ENTRIES - 1)];
            if second.count == 1 && first.bits + second.bits <= FAST_BITS as u8 {
                table[index] =
                    Fast { symbols: [first.symbols[0], second.symbols[0]], bits: first.bits + second.bits, count: 2 };
            }
        }
        index += 1;
    }
    table
}

const fn fast_single() -> [Fast; FAST_ENTRIES] {
    let mut table = [Fast { symbols: [0; 2], bits: 0, count: 0 }; FAST_ENTRIES];
    let canonical = canonical();
    let mut bits = 1;
    while bits <= FAST_BITS as usize {
        let mut nth = 0;
        while nth < canonical.count[bits] {
            let symbol = canonical.symbols[(canonical.offset[bits] + nth) as usize] as u8;
            let mut index = ((canonical.first[bits] + nth) as usize) << (FAST_BITS as usize - bits);
            let end = index + (1 << (FAST_BITS as usize - bits));
            while index < end {
                table[index] = Fast { symbols: [symbol, 0], bits: bits as u8, count: 1 };
                index += 1;
            }
            nth += 1;
        }
        bits += 1;
    }
    table
}

/// Bits of an octet's code.
pub(crate) fn code_bits(octet: u8) -> usize {
    usize::from(CODE_BITS[usize::from(octet)])
}

/// Encodes octets, with padding of ones (RFC 7541 5.2).
pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
    let (mut out, mut window, mut have) = (Vec::with_capacity(text.len()), 0_u64, 0);
    for &octet in text {
        let bits = code_bits(octet);
        let place = CANONICAL.offset[bits] as usize..;
        let nth = CANONICAL.symbols.get(place).unwrap_or_default().iter().position(|&s| s == u16::from(octet));
        let code = CANONICAL.first[bits] + nth.unwrap_or(0) as u32;
        window = window << bits | u64::from(code);
        have += bits;
        while have >= 8 {
            have -= 8;
            out.push((window >> have) as u8);
        }
    }
    if have > 0 {
        out.push((window << (8 - have)) as u8 | (0xff >> have) as u8);
    }
    out
}

/// The most octets that `encoded` octets can decode to, the shortest code having 5 bits.
pub(crate) fn decoded_bound(encoded: usize) -> usize {
    encoded / 5 * 8 + (encoded % 5) * 8 / 5
}

/// Decodes `input` to the front of `output` and gives the number of octets written. `output` must
/// have room for [`decoded_bound`] and one octet more, as symbols are written in pairs.
///
/// # Errors
/// Padding other than at most 7 ones, or the end-of-string symbol (RFC 7541 5.2).
pub(crate) fn decode(input: &[u8], output: &mut [u8]) -> Result<usize, HpackErrorKind> {
    let mut bits = Bits::new(input);
    let mut written = 0;
    loop {
        bits.refill();
        while bits.left >= FAST_BITS {
            let fast = FAST[(bits.window >> (u64::BITS - FAST_BITS)) as usize];
            let Some(room) = output.get_mut(written..written + 2) else {
                break;
            };
            if fast.count == 0 {
                break;
            }
            room.copy_from_slice(&fast.symbols);
            written += usize::from(fast.count);
            bits.skip(u32::from(fast.bits));
        }
        if bits.left >= FAST_BITS || bits.rest.is_empty() {
            let Some(octet) = bits.symbol()? else {
                return Ok(written);
            };
            if let Some(room) = output.get_mut(written) {
                *room = octet;
            }
            written += 1;
        }
    }
}

/// The number of octets that `input` decodes to, for strings too long to be kept.
///
/// # Errors
/// As [`decode`].
pub(crate) fn decoded_len(input: &[u8]) -> Result<usize, HpackErrorKind> {
    let mut bits = Bits::new(input);
    let mut len = 0;
    while bits.symbol()?.is_some() {
        len += 1;
    }
    Ok(len)
}

/// Reads bits from the most significant on.
struct Bits<'a> {
    rest: &'a [u8],
    /// The next bits, left-aligned. Below the `left` valid ones may stand bits of `rest`, which the
    /// next refill repeats.
    window: u64,
    left: u32,
}

impl<'a> Bits<'a> {
    fn new(input: &'a [u8]) -> Self {
        Self { rest: input, window: 0, left: 0 }
    }

    /// Fills the window to 56 bits or more, or with all there is.
    #[inline]
    fn refill(&mut self) {
        if let Some((octets, _)) = self.rest.split_first_chunk::<8>() {
            self.window |= u64::from_be_bytes(*octets) >> self.left;
            let taken = (63 - self.left) / 8;
            self.rest = &self.rest[taken as usize..];
            self.left += taken * 8;
            return;
        }
        while self.left < 56 {
            let Some((octet, rest)) = self.rest.split_first() else {
                return;
            };
            self.window |= (u64::from(*octet) << 56) >> self.left;
            self.rest = rest;
            self.left += 8;
        }
    }

    #[inline]
    fn skip(&mut self, bits: u32) {
        self.window <<= bits;
        self.left -= bits;
    }

    /// The next symbol, or `None` after the last.
    fn symbol(&mut self) -> Result<Option<u8>, HpackErrorKind> {
        self.refill();
        // Ones after the end continue the padding, which is the beginning of the end-of-string
        // code.
        let padded = self.window | (u64::MAX >> self.left);
        let (symbol, bits) = first_symbol((padded >> 32) as u32);
        if bits > self.left {
            let valid = self.left < 8 && padded == u64::MAX;
            return if valid { Ok(None) } else { Err(HpackErrorKind::HuffmanPadding) };
        }
        if symbol == END_OF_STRING {
            return Err(HpackErrorKind::HuffmanEndOfString);
        }
        self.skip(bits);
        Ok(Some(symbol as u8))
    }
}

/// The symbol whose code begins `window`, and the bits of that code.
fn first_symbol(window: u32) -> (u16, u32) {
    for bits in 5..=MAX_CODE_BITS {
        let nth = (window >> (32 - bits)).wrapping_sub(CANONICAL.first[bits]);
        if nth < CANONICAL.count[bits] {
            return (CANONICAL.symbols[(CANONICAL.offset[bits] + nth) as usize], bits as u32);
        }
    }
    (END_OF_STRING, MAX_CODE_BITS as u32)
}

#[cfg(test)]
/// The code of each symbol as derived from the lengths, for comparison with the one printed in RFC
/// 7541.
pub(super) fn derived_codes() -> Vec<(u32, u8)> {
    let mut codes = vec![(0, 0); SYMBOLS];
    for bits in 1..=MAX_CODE_BITS {
        for nth in 0..CANONICAL.count[bits] {
            let symbol = CANONICAL.symbols[(CANONICAL.offset[bits] + nth) as usize];
            codes[usize::from(symbol)] = (CANONICAL.first[bits] + nth, bits as u8);
        }
    }
    codes
}
