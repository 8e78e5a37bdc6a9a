//! Remembers the meaning of header blocks that came before.

/// Longest block that is remembered: a gRPC client's steady requests are some ten octets of indices.
const REMEMBERED: usize = 24;

/// The meaning of header blocks that came before. RPCs of one method repeat the same few octets; while the HPACK
/// table stays, so does their meaning.
#[derive(Clone, Debug, Default)]
pub(in crate::http2) struct SeenBlocks<S>([Option<Box<SeenBlock<S>>>; 4]);

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::http2) struct SeenBlock<S> {
    octets: Octets,
    table_changes: u64,
    pub(in crate::http2) summary: S,
}

/// At most [`REMEMBERED`] octets as words, which are compared without a call, and their number.
type Octets = ([u64; REMEMBERED / 8], usize);

/// The octets as words that overlap where the length is no multiple of theirs; `None` when they are too many or none.
#[inline(always)]
fn octets(block: &[u8]) -> Option<Octets> {
    let eight =
        |from: usize| block.get(from..).and_then(|rest| rest.first_chunk()).map(|&word| u64::from_le_bytes(word));
    let words = match block.len() {
        8..=16 => [eight(0)?, eight(block.len() - 8)?, 0],
        17..=REMEMBERED => [eight(0)?, eight(8)?, eight(block.len() - 8)?],
        4..=7 => {
            let (first, last) = (block.first_chunk::<4>()?, block.last_chunk::<4>()?);
            [u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)), 0]
        }
        1..=3 => {
            let (first, middle, last) = (block.first()?, block.get(block.len() / 2)?, block.last()?);
            [u64::from(*first), u64::from(*middle), u64::from(*last)]
        }
        _ => return None,
    };
    Some((words, block.len()))
}

impl<S: Copy> SeenBlocks<S> {
    /// Reads all kept blocks, to bring them into the processor's cache.
    #[inline]
    pub(in crate::http2) fn touch(&self) -> u64 {
        let words = |seen: &SeenBlock<S>| seen.table_changes ^ seen.octets.1 as u64;
        self.0.iter().flatten().fold(0, |all, seen| all ^ words(seen))
    }

    /// A slot per kind of block: request, response and trailers differ in length or last octet.
    #[inline]
    fn slot(&mut self, block: &[u8]) -> Option<&mut Option<Box<SeenBlock<S>>>> {
        let last = *block.last()?;
        let slots = self.0.len();
        self.0.get_mut((block.len() ^ usize::from(last)) % slots)
    }

    /// Takes out what is known of a block, for [`put_back`](Self::put_back): it is too large to be copied.
    #[inline]
    pub(in crate::http2) fn take(&mut self, block: &[u8], table_changes: u64) -> Option<Box<SeenBlock<S>>> {
        let ([first, second, third], length) = octets(block)?;
        // word by word: compared at once, they would be written to memory in other sizes than they are read
        self.slot(block)?.take_if(|seen| {
            let (words, of) = &seen.octets;
            seen.table_changes == table_changes
                && *of == length
                && words[0] == first
                && words[1] == second
                && words[2] == third
        })
    }

    #[inline]
    pub(in crate::http2) fn put_back(&mut self, block: &[u8], seen: Box<SeenBlock<S>>) {
        if let Some(slot) = self.slot(block) {
            *slot = Some(seen);
        }
    }

    pub(in crate::http2) fn remember(&mut self, block: &[u8], table_changes: u64, summary: S) {
        if let Some(octets) = octets(block) {
            self.put_back(block, Box::new(SeenBlock { octets, table_changes, summary }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Blocks that differ in any octet, or in length, have other words: one is never taken for another.
        #[test]
        fn words_tell_blocks_apart(block in prop::collection::vec(any::<u8>(), 1..=REMEMBERED), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let mut other = block.clone();
            other[at.index(block.len())] ^= 1 << bit;
            let words = octets(&block);
            prop_assert!(words.is_some());
            prop_assert_eq!(octets(&block), words);
            prop_assert_ne!(octets(&other), words);
            prop_assert_ne!(octets(&[&block[..], &[0]].concat()), words);
        }
    }

    #[test]
    fn no_words_for_none_and_for_too_many() {
        assert_eq!(octets(&[]), None);
        assert_eq!(octets(&[0; REMEMBERED + 1]), None);
    }
}
