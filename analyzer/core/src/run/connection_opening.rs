//! Keeps the segments of a connection that has carried no payload yet, some 100 bytes for a SYN. They are read when
//! payload comes or the capture ends. Floods of SYNs, port scans and idle connections cost no more than that.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::limits;
use crate::packet::{PacketDirection, SackBlocks, Segment, TcpFlags};

use crate::state_fields;

use super::route::{End, Place, Route};

/// A segment without payload, ends and what nobody reads.
#[derive(Debug, Serialize, Deserialize)]
struct Early {
    time: i64,
    packet: u32,
    seq: u32,
    ack: u32,
    timestamps: Option<(u32, u32)>,
    cooked_interface: u32,
    sack: Option<Box<SackBlocks>>,
    ip_id: Option<u16>,
    mss: Option<u16>,
    window: u16,
    flags: TcpFlags,
    window_scale: Option<u8>,
    packet_direction: PacketDirection,
    #[serde(deserialize_with = "state_fields::side")]
    side: u8,
    ttl: u8,
}

/// The segments of a connection without payload.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    /// Both ends, the first sender first.
    ends: [End; 2],
    /// The side that its addresses suggest as the client.
    #[serde(deserialize_with = "state_fields::side")]
    client: u8,
    /// The connection whose place it takes.
    replaces: Option<Place>,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::OPENING_SEGMENTS }, _, _>")]
    segments: Vec<Early>,
}

impl Opening {
    /// The opening of a connection whose first segment is not kept yet.
    pub fn new(ends: [End; 2], client: usize, replaces: Option<Place>) -> Self {
        Self { ends, client: client as u8, replaces, segments: Vec::new() }
    }

    /// Whether it takes the place of another connection.
    pub fn replaces_another(&self) -> bool {
        self.replaces.is_some()
    }

    /// The packet of the segment that was kept last.
    pub fn last_packet(&self) -> Option<u32> {
        self.segments.last().map(|early| early.packet)
    }

    /// The packet and the time of the first segment that was kept.
    pub fn first(&self) -> At {
        self.segments.first().map_or(At::default(), |early| At::new(early.packet, early.time))
    }

    /// The time of the segment that was kept last.
    pub fn last_time(&self) -> i64 {
        self.segments.last().map_or(0, |early| early.time)
    }

    /// Whether it was closed: by a RST, or by FINs of both sides.
    pub fn is_over(&self) -> bool {
        let sent = |side: u8, flag| self.segments.iter().any(|early| early.side == side && early.flags.contains(flag));
        [0, 1].iter().any(|&side| sent(side, TcpFlags::RST)) || [0, 1].iter().all(|&side| sent(side, TcpFlags::FIN))
    }

    /// Gives places of a shard the numbers that `places` has for them; a connection that is gone is not replaced.
    pub fn renumber(&mut self, places: &[Option<u32>]) {
        let local = |place: Place| places.get(place.local as usize).copied().flatten();
        self.replaces = self.replaces.and_then(|place| Some(Place { local: local(place)?, ..place }));
    }

    /// Whether no more segments are kept.
    pub fn is_full(&self) -> bool {
        self.segments.len() >= limits::OPENING_SEGMENTS
    }

    /// Keeps a segment without payload.
    pub fn push(&mut self, side: usize, segment: &Segment<'_>, at: At) {
        self.segments.reserve_exact(1);
        self.segments.push(Early {
            time: at.time,
            packet: at.packet,
            seq: segment.seq,
            ack: segment.ack,
            timestamps: segment.timestamps,
            cooked_interface: segment.cooked_interface,
            sack: (!segment.sack.is_empty()).then(|| Box::new(segment.sack)),
            ip_id: segment.ip_id,
            mss: segment.mss,
            window: segment.window,
            flags: segment.flags,
            window_scale: segment.window_scale,
            packet_direction: segment.packet_direction,
            side: side as u8,
            ttl: segment.ttl,
        });
    }

    /// The segments with their routes, the first of which opens connection `number` at `place`.
    pub fn routed(&self, number: u32, place: Place) -> impl Iterator<Item = (Route, Segment<'static>, At)> {
        self.segments.iter().enumerate().map(move |(nth, early)| {
            let first = nth == 0;
            let route = Route {
                number,
                place,
                side: usize::from(early.side),
                opens: first.then_some(usize::from(self.client)),
                replaces: self.replaces.filter(|_| first),
            };
            (route, early.segment(&self.ends), At::new(early.packet, early.time))
        })
    }
}

impl Early {
    fn segment(&self, ends: &[End; 2]) -> Segment<'static> {
        let [mut source, mut destination] = *ends;
        if self.side > 0 {
            std::mem::swap(&mut source, &mut destination);
        }
        Segment {
            source: source.0,
            source_port: source.1,
            destination: destination.0,
            destination_port: destination.1,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            mss: self.mss,
            window_scale: self.window_scale,
            sack: self.sack.as_deref().copied().unwrap_or_default(),
            timestamps: self.timestamps,
            ip_id: self.ip_id,
            ttl: self.ttl,
            packet_direction: self.packet_direction,
            cooked_interface: self.cooked_interface,
            ..Segment::nowhere()
        }
    }
}
