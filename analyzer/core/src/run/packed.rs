//! Packs connections that have been silent for long: thousands of open ones take a fraction of the memory.

use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};

use serde::{Deserialize, Serialize};

use crate::connection::{Connection, Ended};

/// A connection that is over. Most of the 2 kB of its rows are zero.
#[derive(Debug, Serialize, Deserialize)]
pub struct PutAway {
    /// Its row in the connections table.
    pub number: u32,
    late: u32,
    octets: Box<[u8]>,
}

impl PutAway {
    /// Serializes what is left of a connection.
    pub fn new(number: u32, ended: &Ended) -> Option<Self> {
        Some(Self { number, late: 0, octets: postcard::to_stdvec(ended).ok()?.into_boxed_slice() })
    }

    /// The same with so many packets after it was over.
    pub fn with_late(self, late: u32) -> Self {
        Self { late, ..self }
    }

    /// What is left of it.
    pub fn ended(&self) -> Option<Ended> {
        let mut ended: Ended = postcard::from_bytes(&self.octets).ok()?;
        ended.row.late_packets = self.late;
        Some(ended)
    }
}

/// A connection as it is saved, compressed.
#[derive(Debug)]
pub struct Packed {
    octets: Box<[u8]>,
    last_packet: u32,
}

impl Packed {
    /// The number of its last packet.
    pub fn last_packet(&self) -> u32 {
        self.last_packet
    }
}

/// Packs and unpacks the connections of a thread.
#[derive(Debug, Default)]
pub struct Packer {
    /// The first connection that was packed: others have much in common with it.
    dictionary: Vec<u8>,
    room: Vec<u8>,
}

impl Packer {
    /// Packs a connection; `None` if it holds what cannot be saved.
    pub fn pack(&mut self, connection: &Connection) -> Option<Packed> {
        if !connection.can_be_packed() {
            return None;
        }
        self.room.clear();
        self.room = postcard::to_extend(connection, std::mem::take(&mut self.room)).ok()?;
        if self.dictionary.is_empty() {
            self.dictionary = self.room.clone();
        }
        let octets = compress_prepend_size_with_dict(&self.room, &self.dictionary).into_boxed_slice();
        Some(Packed { octets, last_packet: connection.last_packet() })
    }

    /// Unpacks a connection; `None` never happens, because it was packed here.
    pub fn unpack(&self, packed: &Packed) -> Option<Box<Connection>> {
        let octets = decompress_size_prepended_with_dict(&packed.octets, &self.dictionary).ok()?;
        postcard::from_bytes(&octets).ok()
    }
}
