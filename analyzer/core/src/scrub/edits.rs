//! What stays of one side's bytes: structure at its offsets. Everything between is zero, or a filler where nothing is known.

use crate::http2::frame::header::HEADER_LEN;

/// Consecutive octets of structure.
#[derive(Clone, Copy, Debug)]
struct Run {
    offset: i64,
    length: u32,
    /// Where they begin in the store.
    at: usize,
}

impl Run {
    fn end(&self) -> i64 {
        self.offset + i64::from(self.length)
    }
}

/// The structure of one side.
#[derive(Debug, Default)]
pub(super) struct Edits {
    runs: Vec<Run>,
    octets: Vec<u8>,
    sorted: bool,
    /// Where a frame boundary was searched: from one offset to another.
    fills: Vec<(i64, i64)>,
    /// Headers in there that may have been some, in the order of their places.
    held: Vec<(i64, [u8; HEADER_LEN])>,
}

/// What stands where no frame boundary was found: no frame header has it, while zeros and the first octets behind them
/// would make one.
const NO_HEADER: u8 = 0xff;

impl Edits {
    /// Keeps `octets` at `offset`.
    pub fn put(&mut self, offset: i64, octets: &[u8]) {
        let Ok(length) = u32::try_from(octets.len()) else { return };
        if length == 0 {
            return;
        }
        let at = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.sorted = false;
        match self.runs.last_mut() {
            Some(last) if last.end() == offset && last.length < u32::MAX / 2 => last.length += length,
            _ => self.runs.push(Run { offset, length, at }),
        }
    }

    /// No frame boundary is in the bytes from one offset to another, as far as is known.
    pub fn fill(&mut self, from: i64, to: i64) {
        match self.fills.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => self.fills.push((from, to)),
        }
    }

    /// What is searched was held back by what may be a header. One that begins before the end of the last is left out.
    pub fn hold(&mut self, offset: i64, header: [u8; HEADER_LEN]) {
        if self.held.last().is_none_or(|last| last.0 + HEADER_LEN as i64 <= offset) {
            self.held.push((offset, header));
        }
    }

    /// A frame boundary was found at an offset.
    pub fn unfill(&mut self, from: i64) {
        if let Some(last) = self.fills.last_mut() {
            last.1 = last.1.min(from).max(last.0);
        }
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.octets.len()
            + self.runs.len() * size_of::<Run>()
            + self.fills.len() * size_of::<(i64, i64)>()
            + self.held.len() * size_of::<(i64, [u8; HEADER_LEN])>()
    }

    /// All has been put.
    pub fn finish(&mut self) {
        self.runs.sort_by_key(|run| run.offset);
        self.runs.shrink_to_fit();
        self.octets.shrink_to_fit();
        self.sorted = true;
    }

    /// Writes what stays of the bytes from `offset` on over zeros.
    pub fn apply(&self, offset: i64, out: &mut [u8]) {
        debug_assert!(self.sorted || self.runs.is_empty());
        let end = offset.saturating_add_unsigned(out.len() as u64);
        let first = self.fills.partition_point(|fill| fill.1 <= offset);
        for &(from, to) in self.fills.get(first..).unwrap_or_default().iter().take_while(|fill| fill.0 < end) {
            let range = (from.max(offset) - offset) as usize..(to.min(end) - offset) as usize;
            if let Some(room) = out.get_mut(range) {
                room.fill(NO_HEADER);
            }
        }
        let first = self.held.partition_point(|held| held.0 + HEADER_LEN as i64 <= offset);
        for &(from, header) in self.held.get(first..).unwrap_or_default().iter().take_while(|held| held.0 < end) {
            overlay(from, &header, offset, out);
        }
        let first = self.runs.partition_point(|run| run.end() <= offset);
        for run in self.runs.get(first..).unwrap_or_default() {
            if run.offset >= end {
                return;
            }
            overlay(run.offset, self.octets.get(run.at..run.at + run.length as usize).unwrap_or_default(), offset, out);
        }
    }
}

/// Writes octets that begin at `from` over `out`, which begins at `offset`, as far as they meet.
fn overlay(from: i64, octets: &[u8], offset: i64, out: &mut [u8]) {
    let (first, last) = (from.max(offset), (from + octets.len() as i64).min(offset + out.len() as i64));
    if first >= last {
        return;
    }
    let source = octets.get((first - from) as usize..(last - from) as usize);
    let target = out.get_mut((first - offset) as usize..(last - offset) as usize);
    if let (Some(source), Some(target)) = (source, target) {
        target.copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_offset_in_any_order_of_putting() {
        let mut edits = Edits::default();
        edits.put(10, b"abc");
        edits.put(13, b"d");
        edits.put(30, b"xyz");
        edits.put(20, b"m");
        edits.finish();
        let part = |offset: i64, length: usize| {
            let mut out = vec![b'.'; length];
            edits.apply(offset, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(part(0, 40), "..........abcd......m.........xyz.......");
        assert_eq!(part(12, 2), "cd");
        assert_eq!(part(14, 6), "......");
        assert_eq!(part(31, 1), "y");
        assert_eq!(part(-5, 16), "...............a");
        assert_eq!(part(100, 3), "...");
    }

    #[test]
    fn what_was_searched_is_filled_up_to_the_boundary() {
        let mut edits = Edits::default();
        edits.fill(2, 5);
        edits.fill(5, 9);
        edits.unfill(7);
        edits.put(7, b"head");
        edits.fill(20, 22);
        edits.finish();
        let mut out = [0; 24];
        edits.apply(0, &mut out);
        assert_eq!(&out, b"\0\0\xff\xff\xff\xff\xffhead\0\0\0\0\0\0\0\0\0\xff\xff\0\0");
    }
}
