//! What blocks without packets say (draft-ietf-opsawg-pcapng section 4). Each begins with fixed words, options follow.

use crate::capture_file::clock::Clock;
use crate::capture_file::info::{CaptureInfo, Interface, text_of};
use crate::capture_file::input::Input;
use crate::limits::{CAPTURE_INTERFACE_NAME, CAPTURE_INTERFACES, CAPTURE_SECRETS_LENGTH};

use super::block::Block;
use super::options::{Options, keep_if_comment};
use super::state::{MAJOR_VERSION, PcapngFile, SectionInterface};

// Options of an Interface Description Block.
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

// Options of an Interface Statistics Block.
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_OSDROP: u16 = 7;

impl PcapngFile {
    pub(super) fn note_short(&self, info: &mut CaptureInfo, block: &Block) {
        info.add_damage(self.file, block.offset, || {
            let length = block.body.len();
            format!("a block of type {} with {length} bytes is too short to be read, and is left out", block.kind)
        });
    }

    /// Begins a section; false if its version is unknown, which makes the rest of the file unreadable.
    pub(super) fn begin_section(&mut self, input: &Input, info: &mut CaptureInfo, block: &Block) -> bool {
        self.interfaces.clear();
        self.numbering_lost = false;
        let &[_, version, _, _, ref options @ ..] = block.words(input) else {
            self.note_short(info, block);
            return false;
        };
        let [major, minor] = self.order.u16s(version);
        if major != MAJOR_VERSION {
            info.add_damage(self.file, block.offset, || {
                format!("a section of the unknown version {major}.{minor}; the rest of the file is not read")
            });
            return false;
        }
        Options::new(options, self.order).keep_comments(info);
        true
    }

    pub(super) fn add_interface(&mut self, input: &Input, info: &mut CaptureInfo, block: &Block) {
        let &[link_type, snaplen, ref options @ ..] = block.words(input) else {
            self.note_short(info, block);
            // A later interface would be taken for this one.
            self.numbering_lost = true;
            return;
        };
        if self.numbering_lost {
            info.add_damage(self.file, block.offset, || {
                "an interface behind damage, whose number is not known, is left out".to_owned()
            });
            return;
        }
        let [link_type, _reserved] = self.order.u16s(link_type);
        let mut interface = Interface {
            file: self.file,
            link_type: u32::from(link_type),
            fcs_bytes: 0,
            snaplen: self.order.u32(snaplen),
            name: None,
            ticks_per_second: None,
            dropped_packets: None,
            received_packets: None,
        };
        let clock = self.read_interface_options(options, &mut interface, info);
        interface.ticks_per_second = clock.ticks_per_second();
        self.register(info, block, interface, clock);
    }

    fn read_interface_options(&self, words: &[[u8; 4]], interface: &mut Interface, info: &mut CaptureInfo) -> Clock {
        let (mut resolution, mut offset) = (Clock::DEFAULT_RESOLUTION, 0);
        for (code, value) in Options::new(words, self.order) {
            match (code, value) {
                (IF_NAME, name) => interface.name = Some(text_of(name, CAPTURE_INTERFACE_NAME)),
                (IF_TSRESOL, &[exponent]) => resolution = exponent,
                (IF_TSOFFSET, value) => {
                    offset = self.order.option_u64(value).map_or(offset, u64::cast_signed);
                }
                _ => keep_if_comment(code, value, info),
            }
        }
        Clock::new(resolution, offset)
    }

    fn register(&mut self, info: &mut CaptureInfo, block: &Block, interface: Interface, clock: Clock) {
        let (link_type, snaplen) = (interface.link_type, interface.snaplen);
        if clock.ticks_per_second().is_none() {
            info.add_damage(self.file, block.offset, || {
                "an interface whose clock has more than 2^64 ticks a second: its times are not to be used".to_owned()
            });
        }
        match info.add_interface(interface) {
            Some(index) => self.interfaces.push(SectionInterface { index, link_type, snaplen, clock }),
            None => {
                self.numbering_lost = true;
                info.add_damage(self.file, block.offset, || {
                    format!("more than {CAPTURE_INTERFACES} interfaces: this one and its packets are left out")
                });
            }
        }
    }

    pub(super) fn read_statistics(&mut self, input: &Input, info: &mut CaptureInfo, block: &Block) {
        let &[number, _high, _low, ref options @ ..] = block.words(input) else {
            return self.note_short(info, block);
        };
        let (mut dropped, mut received) = (None::<u64>, None);
        for (code, value) in Options::new(options, self.order) {
            match (code, self.order.option_u64(value)) {
                (ISB_IFDROP | ISB_OSDROP, Some(count)) => {
                    dropped = Some(dropped.unwrap_or(0).saturating_add(count));
                }
                (ISB_IFRECV, Some(count)) => received = Some(count),
                _ => keep_if_comment(code, value, info),
            }
        }
        let number = self.order.u32(number) as usize;
        let index = self.interfaces.get(number).map(|i| i.index as usize);
        let interface = index.and_then(|index| info.interfaces.get_mut(index));
        if let Some(interface) = interface {
            // The counts are totals: later ones replace earlier ones.
            interface.dropped_packets = dropped.or(interface.dropped_packets);
            interface.received_packets = received.or(interface.received_packets);
        }
    }

    pub(super) fn read_secrets(&mut self, input: &Input, info: &mut CaptureInfo, block: &Block) {
        let &[kind, length, ref rest @ ..] = block.words(input) else {
            return self.note_short(info, block);
        };
        let length = self.order.u32(length) as usize;
        let Some(secrets) = rest.as_flattened().get(..length) else {
            return self.note_short(info, block);
        };
        if !info.add_secrets(self.order.u32(kind), secrets) && !self.secrets_noted {
            self.secrets_noted = true;
            info.add_damage(self.file, block.offset, || {
                format!("more than {CAPTURE_SECRETS_LENGTH} bytes of decryption secrets: the rest is left out")
            });
        }
        let options = rest.get(length.div_ceil(4)..).unwrap_or_default();
        Options::new(options, self.order).keep_comments(info);
    }

    /// Names are not used; comments stand behind them.
    pub(super) fn read_names(&mut self, input: &Input, info: &mut CaptureInfo, block: &Block) {
        let names = Options::new(block.words(input), self.order);
        names.behind_this_list().keep_comments(info);
    }
}
