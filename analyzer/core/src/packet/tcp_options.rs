//! TCP options (RFC 9293 section 3.1, RFC 7323, RFC 2018).

use super::segment::SackBlocks;

mod kind {
    pub const END: u8 = 0;
    pub const NO_OPERATION: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMPS: u8 = 8;
}

/// The options of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    pub sack: SackBlocks,
    pub timestamps: Option<(u32, u32)>,
    pub malformed: bool,
}

impl Options {
    /// The timestamps, if the bytes are what nearly every segment behind the handshake has: nothing, or two paddings
    /// and timestamps (RFC 7323 appendix A).
    #[inline]
    pub fn usual(bytes: &[u8]) -> Option<Option<(u32, u32)>> {
        match *bytes {
            [] => Some(None),
            [1, 1, kind::TIMESTAMPS, 10, a, b, c, d, e, f, g, h] => Some(Some(pair([a, b, c, d, e, f, g, h]))),
            _ => None,
        }
    }

    /// Reads the options' bytes. With `cut`, the capture ends before they do, and an option that is not whole is no
    /// fault of the sender's.
    pub fn any(bytes: &[u8], cut: bool) -> Self {
        let mut options = Self::default();
        options.malformed = options.walk(bytes, cut).is_none();
        options
    }

    /// Reads option after option; none when one has an impossible length.
    fn walk(&mut self, mut bytes: &[u8], cut: bool) -> Option<()> {
        loop {
            bytes = match bytes {
                [] | [kind::END, ..] => return Some(()),
                [kind::NO_OPERATION, rest @ ..] => rest,
                [_] if cut => return Some(()),
                [_] => return None,
                [kind, length, rest @ ..] => {
                    let data_len = usize::from(*length).checked_sub(2)?;
                    match rest.split_at_checked(data_len) {
                        Some((data, rest)) => {
                            self.option(*kind, data)?;
                            rest
                        }
                        None if cut => return Some(()),
                        None => return None,
                    }
                }
            };
        }
    }

    /// One option; none when its length is not that of its kind. A repeated option replaces the earlier one, as in
    /// Linux (`tcp_parse_options`).
    fn option(&mut self, kind: u8, data: &[u8]) -> Option<()> {
        match (kind, data) {
            (kind::MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (kind::WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (kind::SACK_PERMITTED, []) => self.sack_permitted = true,
            (kind::TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                self.timestamps = Some(pair([a, b, c, d, e, f, g, h]));
            }
            (kind::SACK, data) => return self.sack_blocks(data),
            (kind::MSS | kind::WINDOW_SCALE | kind::SACK_PERMITTED | kind::TIMESTAMPS, _) => {
                return None;
            }
            _ => {}
        }
        Some(())
    }

    fn sack_blocks(&mut self, data: &[u8]) -> Option<()> {
        let (blocks, []) = data.as_chunks::<8>() else {
            return None;
        };
        if blocks.is_empty() {
            return None;
        }
        self.sack = SackBlocks::default();
        for block in blocks {
            let (left, right) = pair(*block);
            self.sack.push(left, right);
        }
        Some(())
    }
}

/// Two big-endian numbers.
#[inline]
fn pair([a, b, c, d, e, f, g, h]: [u8; 8]) -> (u32, u32) {
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}
