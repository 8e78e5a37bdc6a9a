//! Buffers segments that are handed to another thread, or read connection by connection.

use crate::at::At;
use crate::packet::{PacketDirection, Segment, TcpFlags};

use super::route::{Place, REMOTE, Route};
use super::shard::Shard;

/// Segments per batch: enough to make a hand-over, which may wake a thread, cheap; few enough to stay in a cache.
const BATCH_SEGMENTS: usize = 3_072;
/// Payload bytes per batch.
const BATCH_BYTES: usize = 256 << 10;
/// Segments that are read together, connection by connection.
pub const WINDOW_SEGMENTS: usize = 40 * BATCH_SEGMENTS;
/// Payload bytes of them.
const WINDOW_BYTES: usize = 40 * BATCH_BYTES;
/// Bytes of memory that are kept for the next ones.
const WINDOW_KEPT: usize = 64 << 20;
/// Connections at once from which on it pays: what is kept of fewer stays in the cache from packet to packet.
const MANY: usize = 192;

/// Segments with their payload copied, in the order of the capture.
#[derive(Debug, Default)]
pub struct Batch {
    items: Vec<Item>,
    payload: Vec<u8>,
    /// Segments that [`Item`] has no room for.
    full: Vec<(Route, Segment<'static>)>,
    /// How often a segment is of another connection than the one before it.
    turns: usize,
}

/// An ordinary segment of a known connection. A third of a [`Segment`], and a line of a cache: what the threads hand over
/// goes through memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Item {
    time: i64,
    packet: u32,
    local: u32,
    seq: u32,
    ack: u32,
    timestamps: (u32, u32),
    payload_len: u32,
    payload_start: u32,
    payload_captured: u32,
    /// Index into `full` of the whole segment, [`NOTHING`] for an ordinary one.
    full: u32,
    cooked_interface: u32,
    flags: TcpFlags,
    window: u16,
    ip_id: u16,
    side: u8,
    ttl: u8,
    packet_direction: PacketDirection,
    /// Which of them it has.
    has_timestamps: bool,
    has_ip_id: bool,
    /// See [`Context::is_shown`](crate::store::context::Context::is_shown).
    is_shown: bool,
}

const _: () = assert!(size_of::<Item>() == 64);

/// No index.
const NOTHING: u32 = u32::MAX;

impl Batch {
    /// Whether it has no segment.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether it should be read.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.items.len() >= BATCH_SEGMENTS || self.payload.len() >= BATCH_BYTES
    }

    /// Adds a segment.
    #[inline]
    pub fn push(&mut self, route: &Route, segment: &Segment<'_>, at: At, is_shown: bool) {
        let payload_start = self.payload.len() as u32; // batches are small
        self.payload.extend_from_slice(segment.payload);
        let ordinary = route.opens.is_none()
            && route.replaces.is_none()
            && segment.sack.is_empty()
            && !segment.flags.intersects(EXTRAORDINARY);
        let full = if ordinary { NOTHING } else { self.full.len() as u32 };
        if !ordinary {
            self.full.push((*route, segment.without_payload()));
        }
        self.turns += usize::from(self.items.last().is_none_or(|last| last.local != route.place.local));
        self.items.push(Item {
            time: at.time,
            packet: at.packet,
            local: route.place.local,
            seq: segment.seq,
            ack: segment.ack,
            timestamps: segment.timestamps.unwrap_or_default(),
            payload_len: segment.payload_len,
            payload_start,
            payload_captured: segment.payload.len() as u32,
            full,
            cooked_interface: segment.cooked_interface,
            flags: segment.flags,
            window: segment.window,
            ip_id: segment.ip_id.unwrap_or_default(),
            side: route.side as u8,
            ttl: segment.ttl,
            packet_direction: segment.packet_direction,
            has_timestamps: segment.timestamps.is_some(),
            has_ip_id: segment.ip_id.is_some(),
            is_shown,
        });
    }

    fn clear(&mut self) {
        self.items.clear();
        self.payload.clear();
        self.full.clear();
        self.turns = 0;
    }

    /// Its connections take turns so often that each is read anew from memory for every segment.
    fn is_mixed(&self) -> bool {
        self.turns * 2 > self.items.len()
    }
}

/// Segments that are buffered and read connection by connection.
///
/// A connection's state is some 10 kB. Thousands of connections that take turns do not fit into a cache, and fetching
/// them takes longer than decoding. So their segments are read connection by connection, in order within each: rows
/// whose order would show it get that of the capture afterwards.
#[derive(Debug, Default)]
pub struct Window {
    /// Positions in the shard, in the order of their first segments.
    connections: Vec<u32>,
    /// The segments of each of them; lanes beyond those are empty.
    lanes: Vec<Lane>,
    /// By position in the shard: which lane, [`NOTHING`] for none.
    places: Vec<u32>,
    /// See [`Batch::full`].
    full: Vec<(Route, Segment<'static>)>,
    segments: usize,
    payload_bytes: usize,
    /// The first and the last packet.
    packets: [u32; 2],
}

/// Segments of one connection.
#[derive(Debug, Default)]
struct Lane {
    items: Vec<Item>,
    payload: Vec<u8>,
}

impl Window {
    /// Whether no segment waits to be read.
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Reads a batch or buffers its segments.
    pub fn take(&mut self, batch: &mut Batch, shard: &mut Shard) {
        let waits = pays(shard) && batch.is_mixed();
        if waits || self.segments > 0 {
            self.add(batch);
            if !waits || self.is_full() {
                self.read(shard);
            }
        } else {
            batch.items.iter().for_each(|item| item.read(&batch.payload, &batch.full, shard));
        }
        batch.clear();
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.segments >= WINDOW_SEGMENTS || self.payload_bytes >= WINDOW_BYTES
    }

    fn add(&mut self, batch: &Batch) {
        for item in &batch.items {
            let local = item.local as usize;
            if self.places.len() <= local {
                self.places.resize(local + 1, NOTHING);
            }
            let Some(place) = self.places.get_mut(local) else { continue };
            if *place == NOTHING {
                *place = self.connections.len() as u32; // a window has some 120,000 segments at the most
                self.connections.push(item.local);
                if self.lanes.len() < self.connections.len() {
                    self.lanes.push(Lane::default());
                }
            }
            let Some(lane) = self.lanes.get_mut(*place as usize) else { continue };
            let payload_start = lane.payload.len() as u32; // as long as that of a window at the most
            lane.payload.extend_from_slice(item.payload(&batch.payload));
            // a line of the cache that another one's segments have taken: few wide stores wait for it, not one for each field
            lane.items.extend_from_slice(std::slice::from_ref(item));
            let Some(copied) = lane.items.last_mut() else { continue };
            copied.payload_start = payload_start;
            if item.full != NOTHING {
                copied.full = item.full + self.full.len() as u32;
            }
        }
        if let (Some(first), Some(last)) = (batch.items.first(), batch.items.last()) {
            self.packets = [if self.segments == 0 { first.packet } else { self.packets[0] }, last.packet];
        }
        self.full.extend_from_slice(&batch.full);
        self.segments += batch.items.len();
        self.payload_bytes += batch.payload.len();
    }

    /// Reads the segments of one connection after the other; what comes next is fetched meanwhile.
    pub fn read(&mut self, shard: &mut Shard) {
        if self.segments == 0 {
            return;
        }
        shard.begin_window(self.packets);
        for (number, &local) in self.connections.iter().enumerate() {
            if let Some((&after, lane)) = self.connections.get(number + 1).zip(self.lanes.get(number + 1)) {
                shard.touch(after);
                std::hint::black_box(lane.touch());
            }
            let Some(lane) = self.lanes.get_mut(number) else { continue };
            for item in &lane.items {
                item.read(&lane.payload, &self.full, shard);
            }
            lane.items.clear();
            lane.payload.clear();
            shard.end_lane(local);
            if let Some(place) = self.places.get_mut(local as usize) {
                *place = NOTHING;
            }
        }
        shard.end_window();
        if self.lanes.iter().map(Lane::room).sum::<usize>() > WINDOW_KEPT {
            self.lanes = Vec::new();
        }
        self.connections.clear();
        self.full.clear();
        (self.segments, self.payload_bytes) = (0, 0);
    }
}

impl Lane {
    /// Fetches its beginning.
    #[inline]
    fn touch(&self) -> i64 {
        let first = self.items.first().map_or(0, |item| item.time) ^ self.items.get(1).map_or(0, |item| item.time);
        first
            ^ i64::from(self.payload.first().copied().unwrap_or(0))
            ^ i64::from(self.payload.get(64).copied().unwrap_or(0))
    }

    /// Bytes that it takes.
    fn room(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.payload.capacity()
    }
}

/// Whether so many connections are open that their state does not fit into a cache.
#[inline]
pub fn pays(shard: &Shard) -> bool {
    shard.live() >= MANY
}

/// SYN brings options, URG a pointer: those segments are handed over whole.
const EXTRAORDINARY: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::URG.0);

impl Item {
    /// Its part of the payload of several.
    #[inline]
    fn payload<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        let start = self.payload_start as usize;
        payload.get(start..start + self.payload_captured as usize).unwrap_or_default()
    }

    #[inline]
    fn read(&self, payload: &[u8], full: &[(Route, Segment<'static>)], shard: &mut Shard) {
        let payload = self.payload(payload);
        let at = At::new(self.packet, self.time);
        let is_shown = std::mem::replace(&mut shard.cx.is_shown, self.is_shown);
        match full.get(self.full as usize) {
            Some((route, segment)) => shard.segment(route, &segment.with_payload(payload), at),
            None => shard.segment(&self.route(), &self.segment(payload), at),
        }
        shard.cx.is_shown = is_shown;
    }

    #[inline]
    fn route(&self) -> Route {
        // the shard matters only where one connection replaces another
        let place = Place { shard: REMOTE, local: self.local };
        // nor does its row where it is known
        Route { number: 0, place, side: usize::from(self.side), opens: None, replaces: None }
    }

    /// The segment without its addresses, which the router alone needs.
    #[inline]
    fn segment<'a>(&self, payload: &'a [u8]) -> Segment<'a> {
        Segment {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            timestamps: self.has_timestamps.then_some(self.timestamps),
            payload,
            payload_len: self.payload_len,
            ip_id: self.has_ip_id.then_some(self.ip_id),
            ttl: self.ttl,
            packet_direction: self.packet_direction,
            cooked_interface: self.cooked_interface,
            ..Segment::nowhere()
        }
    }
}
