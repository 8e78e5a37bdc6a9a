//! Finds the connection of a segment by addresses, ports and initial sequence numbers.

use serde::{Deserialize, Serialize};

use std::collections::HashSet;

use crate::at::At;
use crate::connection::roles;
use crate::limits;
use crate::packet::{Segment, TcpFlags};
use crate::state_fields;

use super::connection_opening::Opening;
use super::numbers::{Key, Numbers};
use super::route::{End, Place, Route};

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
#[derive(Debug, Serialize, Deserialize)]
pub struct Known {
    /// The end that sent the first packet: side 0.
    pub first_sender: End,
    /// The other end: side 1.
    pub other: End,
    /// Initial sequence numbers by side, as far as SYNs were seen.
    isn: [Option<u32>; 2],
    /// Sides that have sent anything.
    seen: [bool; 2],
    /// Where the connection is held, unless it is an opening.
    place: Place,
    /// Its segments while it has carried no payload.
    opening: Option<Box<Opening>>,
}

impl Known {
    /// Notes that a side sent a segment.
    #[inline]
    fn note(&mut self, side: usize, segment: &Segment<'_>) {
        self.seen[side] = true;
        if segment.flags.contains(TcpFlags::SYN) {
            self.isn[side] = Some(segment.seq);
        }
    }

    /// The side that sent a segment, if it is of this connection.
    #[inline]
    fn side_of(&self, segment: &Segment<'_>) -> Option<usize> {
        if sends(&self.first_sender, segment) && receives(&self.other, segment) {
            Some(0)
        } else {
            (sends(&self.other, segment) && receives(&self.first_sender, segment)).then_some(1)
        }
    }

    fn key(&self) -> Key {
        Key::new(self.first_sender, self.other)
    }

    /// Both ends, the first sender before the other.
    pub fn ends(&self) -> [End; 2] {
        [self.first_sender, self.other]
    }

    /// Where its connection is held, when it has carried payload.
    pub fn local(&self) -> usize {
        self.place.local as usize
    }

    /// Its segments, when it has carried no payload.
    pub fn opening(&self) -> Option<&Opening> {
        self.opening.as_deref()
    }
}

/// What becomes of a segment.
#[derive(Debug)]
pub enum Routed<'a> {
    /// It is to be read.
    Read(Route),
    /// It is to be read after those that were kept.
    Begun(Box<Opening>, Route),
    /// It is kept, behind others of an opening. The row of the connection; `None` when that has none.
    Kept(&'a Opening, Option<u32>),
    /// There are too many connections.
    Ignored,
}

/// Of values in `Router::numbers`, those of connections without a row: the place among `Router::unlisted`.
const UNLISTED: u32 = 1 << 31;

/// What is remembered of the connection with a number.
#[inline]
fn find_known<'a>(known: &'a [Known], unlisted: &'a [Option<Known>], number: u32) -> Option<&'a Known> {
    match number.checked_sub(UNLISTED) {
        Some(slot) => unlisted.get(slot as usize)?.as_ref(),
        None => known.get(number as usize),
    }
}

/// What gives the ends of a connection by its number.
#[inline]
fn key_of(known: &[Known], unlisted: &[Option<Known>]) -> impl Fn(u32) -> Option<Key> {
    |number| find_known(known, unlisted, number).map(Known::key)
}

/// All connections by their ends.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Router {
    numbers: Numbers,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::CONNECTIONS }, _, _>")]
    known: Vec<Known>,
    /// Ends that are known to listen.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::LISTENING_ENDS }, _, _>")]
    servers: HashSet<End, foldhash::fast::RandomState>,
    /// The connection of the last segment: most segments follow one of their own connection.
    last: Option<u32>,
    #[serde(deserialize_with = "state_fields::at_most::<{ 1 }, _, _>")]
    shards: Vec<Load>,
    /// Whether segments of connections without payload are kept.
    keeps_openings: bool,
    /// Rows of connections without payload.
    bare: usize,
    /// Connections without payload beyond those, the last ones of them: a ring.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::BARE_UNLISTED }, _, _>")]
    unlisted: Vec<Option<Known>>,
    #[serde(deserialize_with = "state_fields::below::<{ limits::BARE_UNLISTED }, _, _>")]
    next_unlisted: usize,
    /// Connections that were given to shards.
    pub begun: u64,
    /// Connections without payload that have no row, all of them.
    pub not_listed: u64,
    /// Segments of connections beyond [`limits::CONNECTIONS`].
    pub ignored: u64,
}

/// What a shard has been given.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Load {
    connections: u32,
    /// Segments, or payload that costs as much.
    segments: u64,
    /// Cost of a segment here, relative to other shards.
    weight: u64,
    /// How much payload costs as much as another segment, as a power of two: a division takes as long as the rest.
    payload_shift: u32,
}

/// Payload that is copied to another thread in the time of a segment of a few frames, as a power of two: 256 bytes;
/// measured.
const COPIED_PER_SEGMENT: u32 = 8;
/// The same where payload costs nothing: no segment has as much.
const NOTHING_PER_SEGMENT: u32 = u32::BITS - 1;

impl Router {
    /// A router that spreads connections over shards by the weights of their segments: a shard with twice the weight
    /// gets half as many. The first shard reads payload in place, to the others it is copied.
    pub fn new(weights: &[u64]) -> Self {
        let payload_shift = |shard| if shard == 0 { NOTHING_PER_SEGMENT } else { COPIED_PER_SEGMENT };
        let load = |(shard, &weight)| Load { weight, payload_shift: payload_shift(shard), ..Load::default() };
        let shards = weights.iter().enumerate().map(load).collect();
        Self { shards, ..Self::default() }
    }

    /// The same, keeping back the segments of connections that have carried no payload.
    pub fn keeping_openings(weights: &[u64]) -> Self {
        Self { keeps_openings: true, ..Self::new(weights) }
    }

    /// Payload is decrypted, which takes so much longer than to copy it that copies do not count; measured.
    pub fn expect_decryption(&mut self) {
        self.shards.iter_mut().for_each(|load| load.payload_shift = NOTHING_PER_SEGMENT);
    }

    /// Finds or makes the connection of a segment whose time does not matter; `None` when it is not to be read (yet).
    #[inline]
    pub fn route(&mut self, segment: &Segment<'_>) -> Option<Route> {
        match self.place(segment, At::default()) {
            Routed::Read(route) => Some(route),
            _ => None,
        }
    }

    /// Finds or makes the connection of a segment.
    #[inline]
    pub fn place(&mut self, segment: &Segment<'_>, at: At) -> Routed<'_> {
        let same = |number| Some((number, find_known(&self.known, &self.unlisted, number)?.side_of(segment)?));
        let Some((number, side)) = self.last.and_then(same).or_else(|| self.look_up(segment)) else {
            return self.open(segment, None, at);
        };
        if number >= UNLISTED {
            return self.place_unlisted((number - UNLISTED) as usize, side, segment, at);
        }
        let Some(known) = self.known.get_mut(number as usize) else { return Routed::Ignored };
        if segment.flags.contains(TcpFlags::SYN) && is_another(known, side, segment) {
            let replaces = known.opening.is_none().then_some(known.place);
            return self.open(segment, replaces, at);
        }
        known.note(side, segment);
        if known.opening.is_some() {
            return self.place_opening(number, side, segment, at);
        }
        let place = known.place;
        self.give(place, segment);
        Routed::Read(Route { number, place, side, opens: None, replaces: None })
    }

    /// The connection of a segment, and who sent it, when it is not that of the segment before.
    fn look_up(&mut self, segment: &Segment<'_>) -> Option<(u32, usize)> {
        let (source, destination) = ends(segment);
        let number = self.numbers.find(&Key::new(source, destination), key_of(&self.known, &self.unlisted))?;
        let known = find_known(&self.known, &self.unlisted, number)?;
        self.last = Some(number);
        Some((number, usize::from(known.first_sender != source)))
    }

    /// The row of the connection between two ends, and which side the first of them is, if that side may have sent a
    /// segment with this sequence number: not one of an earlier connection (RFC 5927 section 4.1).
    pub fn find(&self, source: End, destination: End, seq: u32) -> Option<(u32, usize)> {
        let number = self.numbers.find(&Key::new(source, destination), key_of(&self.known, &self.unlisted))?;
        let known = self.known.get(number as usize)?;
        let side = usize::from(known.first_sender != source);
        let is_before = known.isn[side].is_some_and(|isn| seq.wrapping_sub(isn) > u32::MAX / 2);
        (!is_before).then_some((number, side))
    }

    fn open(&mut self, segment: &Segment<'_>, replaces: Option<Place>, at: At) -> Routed<'_> {
        let (source, other) = ends(segment);
        let is_bare = self.keeps_openings && segment.payload_len == 0;
        let has_row = self.known.len() < limits::CONNECTIONS && !(is_bare && self.bare >= limits::BARE_CONNECTIONS);
        if !has_row && !is_bare {
            self.ignored += 1;
            return Routed::Ignored;
        }
        let suggested = self.suggest_client(source, other);
        self.learn_server(source, other, segment);
        let isn = segment.flags.contains(TcpFlags::SYN).then_some(segment.seq);
        let mut known = Known {
            first_sender: source,
            other,
            isn: [isn, None],
            seen: [true, false],
            place: Place::default(),
            opening: None,
        };
        let number = if has_row { self.known.len() as u32 } else { self.next_unlisted as u32 | UNLISTED };
        if !has_row {
            self.forget_oldest();
        }
        self.numbers.insert(Key::new(source, other), number, key_of(&self.known, &self.unlisted));
        self.last = Some(number);
        if is_bare {
            let mut opening = Opening::new([source, other], suggested, replaces);
            opening.push(0, segment, at);
            known.opening = Some(Box::new(opening));
            return self.keep(known, has_row);
        }
        known.place = self.least_loaded();
        let place = known.place;
        self.known.push(known);
        Routed::Read(Route { number, place, side: 0, opens: Some(suggested), replaces })
    }

    /// Keeps a new connection without payload, with a row or without.
    fn keep(&mut self, known: Known, has_row: bool) -> Routed<'_> {
        let number = has_row.then_some(self.known.len() as u32);
        let kept = if has_row {
            self.bare += 1;
            self.known.push(known);
            self.known.last()
        } else {
            let slot = self.next_unlisted;
            self.next_unlisted = (slot + 1) % limits::BARE_UNLISTED;
            if self.unlisted.len() <= slot {
                self.unlisted.resize_with(slot + 1, || None);
            }
            self.not_listed += 1;
            self.unlisted.get_mut(slot).and_then(|place| {
                *place = Some(known);
                place.as_ref()
            })
        };
        kept.and_then(Known::opening).map_or(Routed::Ignored, |opening| Routed::Kept(opening, number))
    }

    /// Makes room for another connection without a row: the oldest one is not known any more.
    fn forget_oldest(&mut self) {
        let slot = self.next_unlisted;
        if let Some(old) = self.unlisted.get_mut(slot).and_then(Option::take) {
            self.numbers.remove(&old.key(), slot as u32 | UNLISTED);
            self.last = None;
        }
    }

    /// A segment of a connection that has a row and has carried no payload before.
    fn place_opening(&mut self, number: u32, side: usize, segment: &Segment<'_>, at: At) -> Routed<'_> {
        let keeps = |opening: &Opening| segment.payload_len == 0 && !opening.is_full();
        let is_kept = self.known.get(number as usize).and_then(Known::opening).is_some_and(keeps);
        if is_kept {
            let opening = self.known.get_mut(number as usize).and_then(|known| known.opening.as_deref_mut());
            let Some(opening) = opening else { return Routed::Ignored };
            opening.push(side, segment, at);
            return Routed::Kept(opening, Some(number));
        }
        self.bare -= 1;
        let place = self.least_loaded();
        self.give(place, segment);
        let Some(known) = self.known.get_mut(number as usize) else { return Routed::Ignored };
        known.place = place;
        let route = Route { number, place, side, opens: None, replaces: None };
        known.opening.take().map_or(Routed::Ignored, |opening| Routed::Begun(opening, route))
    }

    /// A segment of a connection without a row: with payload it gets one.
    fn place_unlisted(&mut self, slot: usize, side: usize, segment: &Segment<'_>, at: At) -> Routed<'_> {
        let Some(known) = self.unlisted.get_mut(slot).and_then(Option::as_mut) else { return Routed::Ignored };
        if segment.flags.contains(TcpFlags::SYN) && is_another(known, side, segment) {
            return self.open(segment, None, at);
        }
        known.note(side, segment);
        if segment.payload_len == 0 {
            return match self.unlisted.get_mut(slot).and_then(|known| known.as_mut()?.opening.as_deref_mut()) {
                Some(opening) => {
                    if !opening.is_full() {
                        opening.push(side, segment, at);
                    }
                    Routed::Kept(opening, None)
                }
                None => Routed::Ignored,
            };
        }
        if self.known.len() >= limits::CONNECTIONS {
            self.ignored += 1;
            return Routed::Ignored;
        }
        let place = self.least_loaded();
        self.give(place, segment);
        let Some(mut known) = self.unlisted.get_mut(slot).and_then(Option::take) else { return Routed::Ignored };
        self.not_listed = self.not_listed.saturating_sub(1); // a cut may have reported it
        let number = self.known.len() as u32;
        self.numbers.insert(known.key(), number, key_of(&self.known, &self.unlisted));
        self.last = Some(number);
        known.place = place;
        let opening = known.opening.take();
        self.known.push(known);
        let route = Route { number, place, side, opens: None, replaces: None };
        opening.map_or(Routed::Ignored, |opening| Routed::Begun(opening, route))
    }

    #[inline]
    fn give(&mut self, place: Place, segment: &Segment<'_>) {
        if let Some(load) = self.shards.get_mut(usize::from(place.shard)) {
            load.segments += 1 + u64::from(segment.payload_len.unbounded_shr(load.payload_shift));
        }
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
        if self.servers.len() >= limits::LISTENING_ENDS {
            return;
        }
        match (segment.flags.contains(TcpFlags::SYN), segment.flags.contains(TcpFlags::ACK)) {
            (true, false) => drop(self.servers.insert(other)),
            (true, true) => drop(self.servers.insert(source)),
            _ => {}
        }
    }

    fn least_loaded(&mut self) -> Place {
        let weighted = |load: &Load| load.weight.saturating_mul(load.segments + 1); // a weight may rule a shard out
        let lightest = self.shards.iter_mut().enumerate().min_by_key(|(_, load)| weighted(load));
        let Some((shard, load)) = lightest else { return Place::default() };
        let local = load.connections;
        self.begun += 1;
        load.connections += 1;
        load.segments += 1;
        Place { shard: shard as u8, local }
    }

    /// Forgets connections: `numbers` has the new number of each one that stays, `places` the new place of each in its
    /// shard.
    pub fn renumber(&mut self, numbers: &[Option<u32>], places: &[Option<u32>]) {
        let number = |old: u32| numbers.get(old as usize).copied().flatten();
        self.numbers.renumber(|old| if old >= UNLISTED { Some(old) } else { number(old) });
        let known = std::mem::take(&mut self.known);
        self.known = (0..).zip(known).filter(|&(old, _)| number(old).is_some()).map(|(_, known)| known).collect();
        for known in &mut self.known {
            match &mut known.opening {
                Some(opening) => opening.renumber(places),
                None => {
                    known.place.local = places.get(known.place.local as usize).copied().flatten().unwrap_or(u32::MAX)
                }
            }
        }
        for opening in self.unlisted.iter_mut().flatten().filter_map(|known| known.opening.as_deref_mut()) {
            opening.renumber(places);
        }
        self.last = None;
        self.bare = self.known.iter().filter(|known| known.opening.is_some()).count();
        if self.servers.len() >= limits::LISTENING_ENDS {
            self.servers.clear();
        }
        for load in &mut self.shards {
            load.connections = places.iter().flatten().count() as u32;
        }
        (self.not_listed, self.ignored) = (0, 0);
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
