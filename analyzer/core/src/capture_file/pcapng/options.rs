//! Options: code, length and value, padded to 32 bits (draft-ietf-opsawg-pcapng section 3.5).

use crate::capture_file::info::CaptureInfo;
use crate::capture_file::record::Order;

/// Ends a list of options, or of name records.
const END: u16 = 0;
/// `opt_comment`, in any block.
pub(super) const COMMENT: u16 = 1;

/// The options in `rest`, up to their end or the first that is cut.
pub(super) struct Options<'a> {
    rest: &'a [u8],
    order: Order,
}

impl<'a> Options<'a> {
    pub fn new(words: &'a [[u8; 4]], order: Order) -> Options<'a> {
        Options { rest: words.as_flattened(), order }
    }

    /// Skips a list of another kind with the same layout.
    pub fn behind_this_list(mut self) -> Options<'a> {
        while self.next().is_some() {}
        self
    }

    /// Keeps the comments among them.
    pub fn keep_comments(self, info: &mut CaptureInfo) {
        for (code, value) in self {
            keep_if_comment(code, value, info);
        }
    }
}

/// Keeps an option's value if it is a comment.
pub(super) fn keep_if_comment(code: u16, value: &[u8], info: &mut CaptureInfo) {
    if code == COMMENT {
        info.add_comment(value);
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        let [code, length] = self.order.u16s(*head);
        let length = usize::from(length);
        let value = rest.get(..length)?;
        self.rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        (code != END).then_some((code, value))
    }
}
