//! Holds packets back until it is known what stays of a fragment, and keeps their order.

use std::collections::VecDeque;

use crate::capture_file::Packet;
use crate::limits;

use super::file::Writer;
use super::packet::{Fragment, Payload, Rewriter};
use super::replace::Key;

/// A packet that is not written yet.
#[derive(Debug)]
struct Held {
    time_ns: i64,
    interface: u32,
    original_len: u32,
    /// As it will be written.
    bytes: Vec<u8>,
    /// Of a fragment, until its datagram is whole: what it is, and what it carried.
    waits: Option<(Fragment, Vec<u8>)>,
}

/// Packets from the first fragment on whose datagram is not whole.
#[derive(Debug, Default)]
pub(super) struct Queue {
    held: VecDeque<Held>,
    bytes: usize,
    /// Fragments that were written with nothing behind their IP headers.
    pub emptied: u64,
}

impl Queue {
    /// Takes a packet that is to be written as `bytes`, and `original` if it is a fragment.
    pub fn push(&mut self, packet: &Packet<'_>, bytes: &[u8], fragment: Option<Fragment>, writer: &mut Writer) {
        if fragment.is_none() && self.held.is_empty() {
            return writer.packet(packet.time_ns, packet.interface, packet.original_len, bytes);
        }
        let part = |f: Fragment| (f, packet.captured.get(f.at..f.end).unwrap_or_default().to_vec());
        let &Packet { time_ns, interface, original_len, .. } = packet;
        self.bytes += bytes.len();
        self.held.push_back(Held {
            time_ns,
            interface,
            original_len,
            bytes: bytes.to_vec(),
            waits: fragment.map(part),
        });
        while self.held.len() > limits::SCRUB_HELD_PACKETS || self.bytes > limits::SCRUB_HELD_BYTES {
            self.write_first(writer);
        }
    }

    /// The datagram of `fragment` is whole: its fragments are written anew, with this payload of its TCP segment.
    pub fn complete(&mut self, fragment: &Fragment, payload: Payload<'_>, rewriter: &mut Rewriter, key: &Key) {
        let mut datagram = Vec::new();
        for (part, octets) in self.held.iter().filter_map(|held| held.waits.as_ref()) {
            if part.datagram != fragment.datagram {
                continue;
            }
            let end = part.offset + octets.len();
            datagram.resize(datagram.len().max(end), 0);
            if let Some(room) = datagram.get_mut(part.offset..end) {
                room.copy_from_slice(octets);
            }
        }
        let scrubbed = rewriter.datagram(&datagram, fragment, payload, key);
        for held in &mut self.held {
            let Some((part, octets)) = held.waits.take_if(|(part, _)| part.datagram == fragment.datagram) else {
                continue;
            };
            let (source, room) =
                (scrubbed.get(part.offset..part.offset + octets.len()), held.bytes.get_mut(part.at..part.end));
            if let (Some(source), Some(room)) = (source, room) {
                room.copy_from_slice(source);
            }
        }
    }

    /// Writes the packets that wait for nothing.
    pub fn write_ready(&mut self, writer: &mut Writer) {
        while self.held.front().is_some_and(|held| held.waits.is_none()) {
            self.write_first(writer);
        }
    }

    /// Writes all packets: nothing more comes.
    pub fn write_all(&mut self, writer: &mut Writer) {
        while !self.held.is_empty() {
            self.write_first(writer);
        }
    }

    fn write_first(&mut self, writer: &mut Writer) {
        let Some(held) = self.held.pop_front() else { return };
        self.bytes -= held.bytes.len();
        self.emptied += u64::from(held.waits.is_some());
        writer.packet(held.time_ns, held.interface, held.original_len, &held.bytes);
    }
}
