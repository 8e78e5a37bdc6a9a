//! What is known of a pcapng file while it is read.

use crate::capture_file::clock::Clock;
use crate::capture_file::record::Order;

/// The only major version there is.
pub(super) const MAJOR_VERSION: u16 = 1;

/// A pcapng file.
pub(in crate::capture_file) struct PcapngFile {
    pub(super) file: usize,
    pub(super) order: Order,
    /// The current section's interfaces, by their number in it.
    pub(super) interfaces: Vec<SectionInterface>,
    /// Blocks were skipped in this section: an interface declared from here on has a number that is not known.
    pub(super) numbering_lost: bool,
    /// Kinds of damage that are recorded once, not for every block.
    pub(super) time_noted: bool,
    pub(super) secrets_noted: bool,
}

#[derive(Clone, Copy)]
pub(super) struct SectionInterface {
    /// Index into [`CaptureInfo::interfaces`].
    pub(super) index: u32,
    pub(super) link_type: u32,
    pub(super) snaplen: u32,
    pub(super) clock: Clock,
}
