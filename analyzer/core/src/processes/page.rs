//! Pages of the kernel's ring buffer, as `trace_pipe_raw` gives them on little-endian 64-bit machines.
//!
//! A page begins with the time of its first event and its number of bytes (`header_page` of tracefs). A record begins with five
//! bits of type or length and 27 bits of time since the record before (include/linux/ring_buffer.h).

use std::ops::Range;

/// Bytes before a page's first record.
pub const HEADER: usize = 16;
/// Flags above the number of bytes: events before the page were lost.
const MISSED: u64 = 1 << 31;
const LENGTH: u64 = (1 << 30) - 1;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// The records of a page, in order. Damage ends them.
pub struct Records<'a> {
    page: &'a [u8],
    at: usize,
    end: usize,
    time: u64,
}

/// The bytes that a page's header and records take; `None` for what is no page.
pub fn used(page: &[u8]) -> Option<usize> {
    let commit = u64::from_le_bytes(*page.get(8..HEADER)?.first_chunk()?) & LENGTH;
    Some(usize::try_from(commit).ok()?.checked_add(HEADER)?.min(page.len()))
}

/// Whether the kernel lost events before this page.
pub fn follows_loss(page: &[u8]) -> bool {
    page.get(8..HEADER)
        .and_then(|bytes| bytes.first_chunk())
        .is_some_and(|bytes| u64::from_le_bytes(*bytes) & MISSED != 0)
}

impl<'a> Records<'a> {
    /// The records of `page`.
    pub fn new(page: &'a [u8]) -> Self {
        let time = page.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Self { page, at: HEADER, end: used(page).unwrap_or(0), time }
    }

    fn word(&mut self) -> Option<u32> {
        let next = self.at + 4;
        let bytes = if next <= self.end { self.page.get(self.at..next)? } else { return None };
        self.at = next;
        bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

impl Iterator for Records<'_> {
    /// The time in nanoseconds, and where the event is in the page.
    type Item = (u64, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let head = self.word()?;
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let length = match kind {
                PADDING if delta == 0 => return None, // the rest of the page is empty
                TIME_EXTEND | TIME_STAMP => {
                    let long = u64::from(self.word()?) << 27 | delta;
                    // a time stamp lacks the five highest bits of the time
                    let high = self.time & !((1 << 59) - 1);
                    self.time = if kind == TIME_STAMP { high | long } else { self.time.wrapping_add(long) };
                    continue;
                }
                // the length counts its own word
                0 | PADDING => (self.word()? as usize).checked_sub(4)?,
                words => words as usize * 4,
            };
            self.time = self.time.wrapping_add(delta);
            let start = self.at;
            self.at = start.checked_add(length.next_multiple_of(4))?;
            if self.at > self.end {
                return None;
            }
            if kind != PADDING {
                return Some((self.time, start..start + length));
            }
        }
    }
}
