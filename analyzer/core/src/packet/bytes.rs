//! Checked reading: what was captured of a layer, and how long that layer was on the wire.

use super::outcome::{Layer, Malformed, Problem};

/// One layer's bytes as captured, with their length on the wire. The two differ when the capture's snapshot length
/// cut the packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire, at least `bytes.len()`.
    pub wire_len: u32,
    /// Where `bytes` starts within the captured packet, for error messages.
    pub offset: u32,
}

impl<'a> View<'a> {
    /// A whole packet. A recorded original length below the captured one is a writer's mistake: the bytes are there.
    #[inline]
    pub fn new(captured: &'a [u8], original_len: u32) -> Self {
        let captured_len = u32::try_from(captured.len()).unwrap_or(u32::MAX);
        Self { bytes: captured, wire_len: original_len.max(captured_len), offset: 0 }
    }

    /// The first `N` bytes and the view behind them.
    #[inline]
    pub fn split<const N: usize>(self, layer: Layer) -> Result<(Header<'a, N>, View<'a>), Malformed> {
        match self.bytes.split_first_chunk::<N>() {
            Some((header, rest)) => Ok((Header(header), self.behind(rest, N))),
            None => Err(self.ends_before(N, layer)),
        }
    }

    /// The first `N` bytes.
    #[inline]
    pub fn header<const N: usize>(self, layer: Layer) -> Result<Header<'a, N>, Malformed> {
        Ok(self.split::<N>(layer)?.0)
    }

    /// The view behind the first `count` bytes, which belong to `layer`.
    #[inline]
    pub fn skip(self, count: usize, layer: Layer) -> Result<View<'a>, Malformed> {
        match self.bytes.get(count..) {
            Some(rest) => Ok(self.behind(rest, count)),
            None => Err(self.ends_before(count, layer)),
        }
    }

    /// The same bytes when a length field says that they are `wire_len` long: a trailer (Ethernet padding, checksum)
    /// is taken off. The field is believed even when it exceeds the recorded length, because tools that cut packets
    /// sometimes rewrite the recorded length while the header keeps the true one.
    #[inline]
    pub fn limit(self, wire_len: u32) -> View<'a> {
        let kept = usize::try_from(wire_len).unwrap_or(usize::MAX);
        View { bytes: self.bytes.get(..kept).unwrap_or(self.bytes), wire_len, offset: self.offset }
    }

    /// What is wrong with `layer`, which starts here.
    #[inline]
    pub fn malformed(self, layer: Layer, problem: Problem) -> Malformed {
        Malformed { layer, problem, offset: self.offset }
    }

    #[inline]
    fn behind(self, rest: &'a [u8], count: usize) -> View<'a> {
        // At most 2^32 - 1 because `count` bytes were there; saturating only to say that it cannot wrap.
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        View { bytes: rest, wire_len: self.wire_len.saturating_sub(count), offset: self.offset.saturating_add(count) }
    }

    #[inline]
    fn ends_before(self, count: usize, layer: Layer) -> Malformed {
        let on_the_wire = usize::try_from(self.wire_len).unwrap_or(usize::MAX);
        let problem = if on_the_wire >= count { Problem::Cut } else { Problem::Short };
        self.malformed(layer, problem)
    }
}

/// A header of fixed size. Fields are read at constant offsets that the compiler checks against that size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a, const N: usize>(&'a [u8; N]);

impl<const N: usize> Header<'_, N> {
    /// The byte at `AT`.
    #[inline]
    pub fn byte<const AT: usize>(self) -> u8 {
        const { assert!(AT < N) };
        self.0[AT]
    }

    /// The `LEN` bytes from `AT`.
    #[inline]
    pub fn array<const AT: usize, const LEN: usize>(self) -> [u8; LEN] {
        const { assert!(AT + LEN <= N) };
        let mut bytes = [0; LEN];
        bytes.copy_from_slice(&self.0[AT..AT + LEN]);
        bytes
    }

    /// Two bytes from `AT`, big-endian.
    #[inline]
    pub fn be16<const AT: usize>(self) -> u16 {
        u16::from_be_bytes(self.array::<AT, 2>())
    }

    /// Four bytes from `AT`, big-endian.
    #[inline]
    pub fn be32<const AT: usize>(self) -> u32 {
        u32::from_be_bytes(self.array::<AT, 4>())
    }
}
