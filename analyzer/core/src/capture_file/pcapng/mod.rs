//! pcapng (draft-ietf-opsawg-pcapng): a sequence of blocks, each with its length before and behind, in sections that have a byte
//! order and interfaces of their own.

mod block;
mod content;
mod copy;
mod options;
mod packet;
mod state;

pub(super) use copy::{BlockWriter, Copied};
pub(super) use state::PcapngFile;

use super::error::OpenErrorKind;
use super::header_errors::{header_cut, not_a_capture, unsupported_version};
use super::info::CaptureInfo;
use super::input::Input;
use super::record::Record;
use block::Block;
use state::MAJOR_VERSION;

/// Length of a Section Header Block without options.
const SECTION_HEADER: usize = 28;
impl PcapngFile {
    /// Checks the first Section Header Block, taking nothing.
    pub fn open(file: usize, input: &mut Input) -> Result<PcapngFile, OpenErrorKind> {
        if !input.ensure(SECTION_HEADER) {
            return Err(header_cut(input, "pcapng"));
        }
        let (words, _) = input.waiting().as_chunks::<4>();
        let &[_, _, magic, version, ..] = words else {
            return Err(header_cut(input, "pcapng"));
        };
        let Some(order) = block::byte_order(magic) else {
            return Err(not_a_capture(input.waiting()));
        };
        let [major, minor] = order.u16s(version);
        if major != MAJOR_VERSION {
            return Err(unsupported_version("pcapng", major, minor));
        }
        Ok(PcapngFile {
            file,
            order,
            interfaces: Vec::new(),
            numbering_lost: false,
            time_noted: false,
            secrets_noted: false,
        })
    }

    /// The next packet's record; None at the end of what can be read.
    pub fn next_record(&mut self, input: &mut Input, info: &mut CaptureInfo) -> Option<Record> {
        loop {
            let block = self.next_block(input, info)?;
            match block.kind {
                block::ENHANCED_PACKET | block::OBSOLETE_PACKET | block::SIMPLE_PACKET => {
                    if let Some(record) = self.packet(input, info, &block) {
                        return Some(record);
                    }
                }
                block::SECTION_HEADER => {
                    if !self.begin_section(input, info, &block) {
                        return None;
                    }
                }
                _ => self.read_other(input, info, &block),
            }
        }
    }

    fn read_other(&mut self, input: &Input, info: &mut CaptureInfo, block: &Block) {
        match block.kind {
            block::INTERFACE_DESCRIPTION => self.add_interface(input, info, block),
            block::INTERFACE_STATISTICS => self.read_statistics(input, info, block),
            block::DECRYPTION_SECRETS => self.read_secrets(input, info, block),
            block::NAME_RESOLUTION => self.read_names(input, info, block),
            _ => {}
        }
    }
}
