//! Blocks as such: where they begin and end, and whether to believe it.

use std::ops::Range;

use crate::capture_file::info::CaptureInfo;
use crate::capture_file::input::Input;
use crate::capture_file::record::Order;
use crate::capture_file::skip_damage::{end_of_stream, skip_damage};
use crate::limits::{CAPTURE_BLOCK_LENGTH, CAPTURE_RESYNC_RECORD_LENGTH};

use super::state::PcapngFile;

// Block types (draft-ietf-opsawg-pcapng section 11.1). The first is the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
pub(super) const OBSOLETE_PACKET: u32 = 2;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const NAME_RESOLUTION: u32 = 4;
pub(super) const INTERFACE_STATISTICS: u32 = 5;
pub(super) const ENHANCED_PACKET: u32 = 6;
const SYSTEMD_JOURNAL: u32 = 9;
pub(super) const DECRYPTION_SECRETS: u32 = 10;
const CUSTOM: u32 = 0x0bad;
const CUSTOM_NOT_COPIED: u32 = 0x4000_0bad;

/// Type and length before the body, length behind it.
const HEADER: usize = 8;
const TRAILER: usize = 4;
const SMALLEST: usize = HEADER + TRAILER;

/// A whole block that has been taken from the input.
pub(super) struct Block {
    pub kind: u32,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// What is between its lengths: a multiple of four bytes.
    pub body: Range<usize>,
}

impl Block {
    /// The body as 32-bit words in the file's byte order.
    pub fn words<'a>(&self, input: &'a Input) -> &'a [[u8; 4]] {
        input.slice(self.body.clone()).as_chunks().0
    }
}

/// The byte order that a Section Header Block's third word tells.
pub(super) fn byte_order(magic: [u8; 4]) -> Option<Order> {
    match magic {
        [0x1a, 0x2b, 0x3c, 0x4d] => Some(Order::Big),
        [0x4d, 0x3c, 0x2b, 0x1a] => Some(Order::Little),
        _ => None,
    }
}

/// The beginning of a block.
struct Head {
    kind: u32,
    length: usize,
    order: Order,
}

/// Why a block cannot be used.
enum Problem {
    /// What is wrong with its lengths.
    Wrong(String),
    /// The stream ends inside it; its length in bytes.
    Cut(usize),
}

/// Reads it `at` so many bytes ahead, `order` being the current section's.
fn head_at(input: &mut Input, at: usize, order: Order) -> Result<Head, String> {
    input.ensure(at + SMALLEST);
    let bytes = input.waiting().get(at..).unwrap_or_default();
    let &[kind, length, third, ..] = bytes.as_chunks::<4>().0 else {
        return Err("no room for a block".to_owned());
    };
    let kind = order.u32(kind);
    let order = match kind {
        SECTION_HEADER => byte_order(third).ok_or("section header without byte-order magic")?,
        _ => order,
    };
    let length = order.u32(length);
    if length % 4 != 0 || !(SMALLEST..=CAPTURE_BLOCK_LENGTH as usize).contains(&(length as usize)) {
        return Err(format!(
            "impossible length {length} of a block of type {kind} (a multiple of 4 from {SMALLEST} to {CAPTURE_BLOCK_LENGTH})"
        ));
    }
    let length = length as usize;
    Ok(Head { kind, length, order })
}

/// The length behind a block that begins `at` so many bytes ahead; None if the stream ends before.
fn trailing_length(input: &mut Input, at: usize, head: &Head) -> Option<usize> {
    let end = at + head.length;
    if !input.ensure(end) {
        return None;
    }
    let bytes = input.waiting().get(end - TRAILER..end)?;
    Some(head.order.u32(*bytes.first_chunk()?) as usize)
}

/// Whether a block of a known type with equal lengths before and behind begins `at` so many bytes ahead.
fn is_block(input: &mut Input, at: usize, order: Order) -> bool {
    let Ok(head) = head_at(input, at, order) else {
        return false;
    };
    let known = matches!(
        head.kind,
        SECTION_HEADER | INTERFACE_DESCRIPTION
            ..=ENHANCED_PACKET | SYSTEMD_JOURNAL | DECRYPTION_SECRETS | CUSTOM | CUSTOM_NOT_COPIED
    );
    known
        && head.length <= CAPTURE_RESYNC_RECORD_LENGTH as usize
        && trailing_length(input, at, &head) == Some(head.length)
}

impl PcapngFile {
    /// Takes the next block that is whole; None at the end of what can be read.
    pub(super) fn next_block(&mut self, input: &mut Input, info: &mut CaptureInfo) -> Option<Block> {
        loop {
            if !input.ensure(SMALLEST) {
                let certain = None::<fn(&mut Input) -> bool>;
                end_of_stream(input, info, self.file, SMALLEST, certain);
                return None;
            }
            let problem = match head_at(input, 0, self.order) {
                Ok(head) => match trailing_length(input, 0, &head) {
                    Some(length) if length == head.length => {
                        return Some(self.take_block(input, &head));
                    }
                    Some(length) if ends_well(input, &head) => {
                        note_trailer(info, self.file, input.offset(), &head, length);
                        return Some(self.take_block(input, &head));
                    }
                    Some(length) => Problem::Wrong(trailer_problem(&head, length)),
                    None => Problem::Cut(head.length),
                },
                Err(problem) => Problem::Wrong(problem),
            };
            if !self.skip(input, info, &problem) {
                return None;
            }
        }
    }

    /// Skips from a block that cannot be used to the next that can; false if there is none.
    #[cold]
    fn skip(&mut self, input: &mut Input, info: &mut CaptureInfo, problem: &Problem) -> bool {
        let order = self.order;
        let is_next = |input: &mut Input| is_block(input, 0, order);
        self.numbering_lost = true;
        if input.waiting().starts_with(&SECTION_HEADER.to_be_bytes()) {
            // What follows has interfaces of its own.
            self.interfaces.clear();
        }
        match problem {
            Problem::Wrong(why) => skip_damage(input, info, self.file, why, is_next),
            Problem::Cut(length) => end_of_stream(input, info, self.file, *length, Some(is_next)),
        }
    }

    #[inline]
    fn take_block(&mut self, input: &mut Input, head: &Head) -> Block {
        self.order = head.order;
        let offset = input.offset();
        let Range { start, end } = input.take(head.length);
        Block { kind: head.kind, offset, body: start + HEADER..end - TRAILER }
    }
}

/// Whether a block whose trailing length is wrong ends where its leading length says: there another begins, or the stream ends.
fn ends_well(input: &mut Input, head: &Head) -> bool {
    is_block(input, head.length, head.order) || (!input.ensure(head.length + 1) && input.failure().is_none())
}

fn trailer_problem(head: &Head, trailing: usize) -> String {
    format!("a block of type {} has length {} before and {trailing} behind it", head.kind, head.length)
}

fn note_trailer(info: &mut CaptureInfo, file: usize, offset: u64, head: &Head, trailing: usize) {
    info.add_damage(file, offset, || {
        let problem = trailer_problem(head, trailing);
        format!("{problem}; what follows confirms the first, so the block is used")
    });
}
