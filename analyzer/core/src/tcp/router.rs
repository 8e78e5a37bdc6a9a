//! Which connection a segment belongs to, by addresses, ports and initial sequence numbers.

use std::collections::{HashMap, HashSet};

use crate::limits;
use crate::packet::{Address, Segment, TcpFlags};

use super::roles;

/// An address and a port.
pub type End = (Address, u16);

/// Both ends of a connection, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    low: End,
    high: End,
}

fn key(a: End, b: End) -> Key {
    if a <= b { Key { low: a, high: b } } else { Key { low: b, high: a } }
}

fn ends(segment: &Segment<'_>) -> (End, End) {
    ((segment.source, segment.source_port), (segment.destination, segment.destination_port))
}

/// Ports first, which tell the two directions apart.
#[inline]
fn sends(end: &End, segment: &Segment<'_>) -> bool {
    end.1 == segment.source_port && end.0 == segment.source
}

#[inline]
fn receives(end: &End, segment: &Segment<'_>) -> bool {
    end.1 == segment.destination_port && end.0 == segment.destination
}

/// What is remembered of a connection to recognise its segments.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The end that sent the first packet: side 0.
    pub first_sender: End,
    /// The other end: side 1.
    pub other: End,
    /// Initial sequence numbers by side, as far as SYNs were seen.
    isn: [Option<u32>; 2],
    /// Sides that have sent anything.
    seen: [bool; 2],
    /// Where the connection is held.
    pub place: Place,
}

/// A shard, and the connection's position there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The shard.
    pub shard: u8,
    /// The position in the shard.
    pub local: u32,
}

/// Where a segment goes.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Row of the connection.
    pub number: u32,
    /// Where it is held.
    pub place: Place,
    /// 0 when the connection's first sender sent it.
    pub side: usize,
    /// The connection is new; the side that its addresses suggest as the client.
    pub opens: Option<usize>,
    /// The connection that this one takes the place of: same addresses and ports, another SYN.
    pub replaces: Option<Place>,
}

/// All connections by their ends.
#[derive(Debug, Default)]
pub struct Router {
    numbers: HashMap<Key, u32, foldhash::fast::RandomState>,
    known: Vec<Known>,
    /// Ends that are known to listen.
    servers: HashSet<End, foldhash::fast::RandomState>,
    /// The connection of the last segment and its ends, its first sender before the other: most segments follow one of
    /// their own connection.
    last: Option<(End, End, u32)>,
    shards: Vec<Load>,
    /// Segments of connections beyond [`limits::CONNECTIONS`].
    pub ignored: u64,
}

/// What a shard has been given.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    connections: u32,
    /// Segments, or payload that costs as much.
    segments: u64,
    /// Cost of a segment here, relative to other shards.
    weight: u64,
    /// Payload that costs as much as another segment.
    bytes_per_segment: u32,
}

/// Payload that is copied to another thread in the time of a segment of a few frames; measured.
const COPIED_PER_SEGMENT: u32 = 256;

impl Router {
    /// A router that spreads connections over shards by the weights of their segments: a shard with twice the weight
    /// gets half as many. The first shard reads payload in place, to the others it is copied.
    pub fn new(weights: &[u64]) -> Self {
        let bytes_per_segment = |shard| if shard == 0 { u32::MAX } else { COPIED_PER_SEGMENT };
        let load = |(shard, &weight)| Load { weight, bytes_per_segment: bytes_per_segment(shard), ..Load::default() };
        let shards = weights.iter().enumerate().map(load).collect();
        Self { shards, ..Self::default() }
    }

    /// Finds or makes the connection of a segment; `None` when there are too many.
    #[inline]
    pub fn route(&mut self, segment: &Segment<'_>) -> Option<Route> {
        let (number, side) = match &self.last {
            Some((first, other, number)) if sends(first, segment) && receives(other, segment) => (*number, 0),
            Some((first, other, number)) if sends(other, segment) && receives(first, segment) => (*number, 1),
            _ => match self.look_up(segment) {
                Some(found) => found,
                None => return self.open(segment, None),
            },
        };
        let known = self.known.get_mut(number as usize)?;
        if segment.flags.contains(TcpFlags::SYN) {
            if is_another(known, side, segment) {
                let replaces = Some(known.place);
                return self.open(segment, replaces);
            }
            known.isn[side] = Some(segment.seq);
        }
        known.seen[side] = true;
        let place = known.place;
        if let Some(load) = self.shards.get_mut(usize::from(place.shard)) {
            load.segments += 1 + u64::from(segment.payload_len / load.bytes_per_segment);
        }
        Some(Route { number, place, side, opens: None, replaces: None })
    }

    /// The connection of a segment, and who sent it, when it is not that of the segment before.
    fn look_up(&mut self, segment: &Segment<'_>) -> Option<(u32, usize)> {
        let (source, destination) = ends(segment);
        let number = *self.numbers.get(&key(source, destination))?;
        let known = self.known.get(number as usize)?;
        self.last = Some((known.first_sender, known.other, number));
        Some((number, usize::from(known.first_sender != source)))
    }

    fn open(&mut self, segment: &Segment<'_>, replaces: Option<Place>) -> Option<Route> {
        let (source, other) = ends(segment);
        if self.known.len() >= limits::CONNECTIONS {
            self.ignored += 1;
            return None;
        }
        let number = u32::try_from(self.known.len()).ok()?;
        let suggested = self.suggest_client(source, other);
        self.learn_server(source, other, segment);
        let isn = segment.flags.contains(TcpFlags::SYN).then_some(segment.seq);
        let place = self.least_loaded();
        self.known.push(Known { first_sender: source, other, isn: [isn, None], seen: [true, false], place });
        self.numbers.insert(key(source, other), number);
        self.last = Some((source, other, number));
        Some(Route { number, place, side: 0, opens: Some(suggested), replaces })
    }

    /// The side a listening end, or else the port numbers, suggest as the client.
    fn suggest_client(&self, source: End, other: End) -> usize {
        match (self.servers.contains(&source), self.servers.contains(&other)) {
            (true, false) => 1,
            (false, true) => 0,
            _ => roles::from_ports(source.1, other.1),
        }
    }

    fn learn_server(&mut self, source: End, other: End, segment: &Segment<'_>) {
        match (segment.flags.contains(TcpFlags::SYN), segment.flags.contains(TcpFlags::ACK)) {
            (true, false) => drop(self.servers.insert(other)),
            (true, true) => drop(self.servers.insert(source)),
            _ => {}
        }
    }

    fn least_loaded(&mut self) -> Place {
        let lightest = self.shards.iter_mut().enumerate().min_by_key(|(_, load)| (load.segments + 1) * load.weight);
        let Some((shard, load)) = lightest else { return Place::default() };
        let local = load.connections;
        load.connections += 1;
        load.segments += 1;
        Place { shard: shard as u8, local }
    }

    /// All connections by row.
    pub fn known(&self) -> &[Known] {
        &self.known
    }
}

/// Whether a SYN of `side` opens another connection on the same addresses and ports: its initial sequence number is
/// not the one that is known, or the connection has been running without one.
fn is_another(known: &Known, side: usize, segment: &Segment<'_>) -> bool {
    match known.isn[side] {
        Some(isn) => isn != segment.seq,
        None => known.isn[1 - side].is_none() && known.seen[side],
    }
}
