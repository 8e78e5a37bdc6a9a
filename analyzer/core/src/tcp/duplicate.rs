//! Recognises a packet that was recorded twice: on two interfaces (`-i any`), or at both ends of a veth pair.

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::packet::{PacketDirection, Segment};
use crate::state_fields;

/// How long apart two sightings without an IPv4 identification may be, nanoseconds: without one, only closeness
/// tells a second sighting from a second packet.
const WITHOUT_IDENTIFICATION: i64 = 1_000_000;

const KEPT: usize = limits::RECENT_PACKETS;

/// A packet as it was seen.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    print: u64,
    time: i64,
    place: u32,
}

/// Fingerprints of the last packets of a sender. Their upper halves lie together, so that one glance tells that a
/// packet is new.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recent {
    upper: [u32; KEPT],
    lower: [u32; KEPT],
    #[serde(with = "state_fields::steps")]
    times: [i64; KEPT],
    /// Of cooked captures alone.
    places: Option<Box<[u32; KEPT]>>,
    next: usize,
}

impl Default for Recent {
    fn default() -> Self {
        Self { upper: [0; KEPT], lower: [0; KEPT], times: [0; KEPT], places: None, next: 0 }
    }
}

impl Recent {
    /// Whether the segment was seen before, and remembers it. `suspect` is false for segments that carry data never
    /// seen before, which need no comparison.
    #[inline]
    pub fn is_duplicate(&mut self, segment: &Segment<'_>, time: i64, suspect: bool) -> bool {
        let sighting = Sighting { print: print(segment), time, place: place(segment) };
        let upper = (sighting.print >> 32) as u32;
        // all of them, which the compiler does many at a time
        if suspect
            && self.upper.iter().fold(false, |seen, &old| seen | (old == upper))
            && self.compare(segment, &sighting)
        {
            return true;
        }
        let place = self.next % KEPT;
        self.upper[place] = upper;
        self.lower[place] = sighting.print as u32;
        self.times[place] = time;
        if sighting.place != 0 || self.places.is_some() {
            self.places.get_or_insert_default()[place] = sighting.place;
        }
        self.next += 1;
        false
    }

    /// Reads what the next packets will; see [`Connection::touch`](super::connection::Connection::touch).
    #[inline]
    pub fn touch(&self) -> u64 {
        let next = self.next % KEPT;
        let [.., last] = self.upper;
        let upper = u64::from(self.upper[0] ^ self.upper[KEPT / 2] ^ last);
        upper ^ u64::from(self.lower[next]) ^ self.times[next] as u64 ^ self.times[(next + 8) % KEPT] as u64
    }

    #[cold]
    fn compare(&self, segment: &Segment<'_>, new: &Sighting) -> bool {
        (0..KEPT).any(|place| {
            let print = u64::from(self.upper[place]) << 32 | u64::from(self.lower[place]);
            let seen_at = self.places.as_ref().map_or(0, |places| places[place]);
            let old = Sighting { print, time: self.times[place], place: seen_at };
            old.print == new.print && same(segment, &old, new)
        })
    }
}

/// Retransmissions and repeated ACKs of Linux have an IPv4 identification of their own. Without one (IPv6, or 0) a
/// second sighting must be close in time and, for a segment without data, from another place.
fn same(segment: &Segment<'_>, old: &Sighting, new: &Sighting) -> bool {
    if segment.ip_id.is_some_and(|id| id != 0) {
        return true;
    }
    let close = new.time.abs_diff(old.time) <= WITHOUT_IDENTIFICATION as u64;
    close && (new.place != old.place || (segment.payload_len > 0 && segment.timestamps.is_some()))
}

/// Where a cooked capture saw the packet.
fn place(segment: &Segment<'_>) -> u32 {
    let direction = match segment.packet_direction {
        PacketDirection::Incoming => 1,
        PacketDirection::Outgoing => 2,
        PacketDirection::Unknown => 0,
    };
    segment.cooked_interface << 2 | direction
}

/// Everything that stays the same from sighting to sighting; the checksum (offload) and the hop limit do not.
#[inline]
fn print(segment: &Segment<'_>) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let (value, echo) = segment.timestamps.unwrap_or_default();
    let words = [
        u64::from(segment.seq) << 32 | u64::from(segment.ack),
        u64::from(value) << 32 | u64::from(echo),
        u64::from(segment.payload_len) << 32
            ^ u64::from(segment.ip_id.unwrap_or(0)) << 48
            ^ u64::from(segment.window) << 16
            ^ u64::from(segment.flags.0),
    ];
    let hash = words.iter().fold(K, |hash, word| (hash ^ word).wrapping_mul(K).rotate_left(29));
    segment.sack.as_slice().iter().fold(hash, |hash, &(left, right)| {
        (hash ^ (u64::from(left) << 32 | u64::from(right))).wrapping_mul(K).rotate_left(29)
    })
}
