//! Writes a file's blocks again as they are, with comments on packets.

use crate::capture_file::info::CaptureInfo;
use crate::capture_file::input::Input;
use crate::capture_file::record::Order;

use super::block::{self, Block};
use super::options::COMMENT;
use super::state::PcapngFile;

/// Bytes of the fixed words of a packet block that has options.
const PACKET_WORDS: usize = 20;
/// Bytes of a Section Header Block's body before the section's length, and of that.
const SECTION_LENGTH: std::ops::Range<usize> = 8..16;

impl PcapngFile {
    /// Writes the next block; whether it is a packet, None at the end. `comments` are those of the next packet.
    pub fn copy_block(
        &mut self,
        input: &mut Input,
        info: &mut CaptureInfo,
        comments: &[String],
        out: &mut Vec<u8>,
    ) -> Option<Copied> {
        let block = self.next_block(input, info)?;
        let record = match block.kind {
            block::ENHANCED_PACKET | block::OBSOLETE_PACKET | block::SIMPLE_PACKET => self.packet(input, info, &block),
            block::SECTION_HEADER => self.begin_section(input, info, &block).then_some(None)?,
            _ => {
                self.read_other(input, info, &block);
                None
            }
        };
        let body = input.slice(block.body.clone());
        let mut writer = BlockWriter::begin(self.order, block.kind, out);
        if let Some(record) = record {
            let has_room = block.kind != block::SIMPLE_PACKET;
            let packet = if has_room { (PACKET_WORDS + record.data.len()).next_multiple_of(4) } else { body.len() };
            let (packet, options) = body.split_at_checked(packet).unwrap_or((body, &[]));
            writer.bytes(packet);
            if has_room {
                writer.comments(comments, !options.is_empty());
            }
            writer.bytes(options);
            writer.end();
            return Some(Copied::Packet { commented: has_room && !comments.is_empty() });
        }
        if !is_whole(&block) {
            writer.forget();
            return Some(Copied::Other);
        }
        match body.split_at_checked(SECTION_LENGTH.end).filter(|_| block.kind == block::SECTION_HEADER) {
            Some((begin, rest)) => {
                writer.bytes(begin.get(..SECTION_LENGTH.start).unwrap_or_default());
                writer.bytes(&[0xff; SECTION_LENGTH.end - SECTION_LENGTH.start]); // not known: comments make it longer
                writer.bytes(rest);
            }
            None => writer.bytes(body),
        }
        writer.end();
        Some(Copied::Other)
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::capture_file) enum Copied {
    Packet { commented: bool },
    Other,
}

/// Whether other readers can read a block without a packet: its fixed words are there.
fn is_whole(block: &Block) -> bool {
    let least = match block.kind {
        block::ENHANCED_PACKET | block::OBSOLETE_PACKET | block::SIMPLE_PACKET => return false,
        block::INTERFACE_DESCRIPTION | block::DECRYPTION_SECRETS => 8,
        block::INTERFACE_STATISTICS => 12,
        _ => 0,
    };
    block.body.len() >= least
}

/// Writes one block.
pub(in crate::capture_file) struct BlockWriter<'a> {
    order: Order,
    begin: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> BlockWriter<'a> {
    pub fn begin(order: Order, kind: u32, out: &'a mut Vec<u8>) -> BlockWriter<'a> {
        let begin = out.len();
        let mut writer = BlockWriter { order, begin, out };
        writer.words(&[kind, 0]);
        writer
    }

    pub fn words(&mut self, words: &[u32]) {
        for &word in words {
            self.out.extend_from_slice(&self.order.word(word));
        }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Pads what was written to 32 bits.
    pub fn pad(&mut self) {
        let length = (self.out.len() - self.begin).next_multiple_of(4);
        self.out.resize(self.begin + length, 0);
    }

    /// Writes comments as options; unless more options follow, their end too.
    pub fn comments(&mut self, comments: &[String], more: bool) {
        for comment in comments {
            let length = u16::try_from(comment.len()).unwrap_or(u16::MAX);
            self.out.extend_from_slice(&self.order.halves([COMMENT, length]));
            self.bytes(comment.as_bytes().get(..usize::from(length)).unwrap_or_default());
            self.pad();
        }
        if !comments.is_empty() && !more {
            self.words(&[0]);
        }
    }

    /// Writes the length before and behind.
    pub fn end(mut self) {
        let length = (self.out.len() - self.begin + 4) as u32;
        let place = self.begin + 4..self.begin + 8;
        if let Some(before) = self.out.get_mut(place) {
            before.copy_from_slice(&self.order.word(length));
        }
        self.words(&[length]);
    }

    /// Leaves the block out.
    fn forget(self) {
        self.out.truncate(self.begin);
    }
}
