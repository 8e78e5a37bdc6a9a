//! Packet blocks (draft-ietf-opsawg-pcapng sections 4.3 and 4.4, appendix A): fixed words, the packet, options.

use crate::capture_file::clock::Clock;
use crate::capture_file::info::CaptureInfo;
use crate::capture_file::input::Input;
use crate::capture_file::record::Record;

use super::block::{self, Block};
use super::options::Options;
use super::state::PcapngFile;

/// The fixed words of a packet block.
struct PacketWords<'a> {
    /// Number of the interface in the section.
    interface: usize,
    ticks: Option<u64>,
    captured: u32,
    original: u32,
    /// The packet, padded, and options.
    rest: &'a [[u8; 4]],
}

impl PcapngFile {
    /// The packet of a block of one of the three packet types; None, and damage recorded, if there is none.
    pub(super) fn packet(&mut self, input: &Input, info: &mut CaptureInfo, block: &Block) -> Option<Record> {
        let Some(packet) = self.packet_words(block, block.words(input)) else {
            self.note_short(info, block);
            return None;
        };
        let interface = self.interfaces.get(packet.interface).copied();
        let room = packet.rest.len() * 4;
        let Some(interface) = interface.filter(|_| packet.captured as usize <= room) else {
            self.note_unusable(info, block, &packet);
            return None;
        };
        let captured = packet.captured as usize;
        if let Some(options) = packet.rest.get(captured.div_ceil(4)..)
            && !options.is_empty()
            && packet.ticks.is_some()
        {
            Options::new(options, self.order).keep_comments(info);
        }
        let clock = interface.clock;
        let begin = block.body.end - room;
        Some(Record {
            time_ns: packet.ticks.map(|ticks| self.time(info, block, clock, ticks)),
            link_type: interface.link_type,
            interface: interface.index,
            original_len: packet.original.max(packet.captured),
            data: begin..begin + captured,
        })
    }

    #[cold]
    fn note_unusable(&self, info: &mut CaptureInfo, block: &Block, packet: &PacketWords<'_>) {
        let room = packet.rest.len() * 4;
        info.add_damage(self.file, block.offset, || {
            if packet.captured as usize > room {
                let captured = packet.captured;
                return format!("a packet of {captured} bytes in a block with room for {room} is left out");
            }
            let number = packet.interface;
            format!("a packet of interface {number}, which is not declared, is left out")
        });
    }

    #[inline]
    fn packet_words<'a>(&self, block: &Block, words: &'a [[u8; 4]]) -> Option<PacketWords<'a>> {
        let order = self.order;
        if block.kind == block::SIMPLE_PACKET {
            let (&original, rest) = words.split_first()?;
            return Some(self.simple_packet(order.u32(original), rest));
        }
        let &[interface, high, low, captured, original, ref rest @ ..] = words else {
            return None;
        };
        let interface = if block.kind == block::OBSOLETE_PACKET {
            // The other half is a count of packets lost since the one before.
            let [interface, _drops] = order.u16s(interface);
            usize::from(interface)
        } else {
            order.u32(interface) as usize
        };
        Some(PacketWords {
            interface,
            ticks: Some(order.u64(high, low)),
            captured: order.u32(captured),
            original: order.u32(original),
            rest,
        })
    }

    /// A Simple Packet Block has no interface (it is the first), no time, no options, and its captured length is the original
    /// length up to the snaplen.
    fn simple_packet<'a>(&self, original: u32, rest: &'a [[u8; 4]]) -> PacketWords<'a> {
        let snaplen = self.interfaces.first().map_or(0, |i| i.snaplen);
        let longest = if snaplen == 0 { u32::MAX } else { snaplen };
        let room = u32::try_from(rest.len() * 4).unwrap_or(u32::MAX);
        PacketWords { interface: 0, ticks: None, captured: original.min(longest).min(room), original, rest }
    }

    #[inline]
    fn time(&mut self, info: &mut CaptureInfo, block: &Block, clock: Clock, ticks: u64) -> i64 {
        let (time, fits) = clock.time(ticks);
        if !fits && !self.time_noted {
            self.time_noted = true;
            info.add_damage(self.file, block.offset, || {
                format!("a packet's time of {ticks} ticks is no time between 1970 and 2116; the nearest is used")
            });
        }
        time
    }
}
