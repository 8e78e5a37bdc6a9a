//! Holds the connections that one thread reads.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::at::At;
use crate::connection::shared::Shared;
use crate::connection::tap::Tap;
use crate::connection::{CaptureEnd, Connection, Ended};
use crate::limits;
use crate::packet::Segment;
use crate::state_fields;
use crate::store::context::Context;
use crate::store::interval_parts::{OpenTime, Parts};
use crate::store::options::{Options, Packing};
use crate::store::strings::UsedNames;
use crate::store::tables::{Layer, NO_CONNECTION};
use crate::tls::KeyLog;

use super::packed::{Packed, Packer, PutAway};
use super::route::Route;

/// Packets after which a connection that is over is put away: late packets may still come, and the capture point may
/// have mixed the order.
pub(super) const LINGER_PACKETS: u32 = 256;

/// Packets after which it is looked again whether connections are silent.
const LOOK_PACKETS: u32 = 256;

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    number: u32,
    live: Option<Box<Connection>>,
    /// The same while it is packed, which no connection of a run that is cut is.
    #[serde(skip)]
    packed: Option<Packed>,
    /// It is over, and put away at this packet; the highest number before.
    due: u32,
    /// Packets after the connection was over.
    late: u32,
    finished: Option<PutAway>,
    /// After a cut and before the next packet: what `due` is. `due` is 0 then.
    resumes: Option<u32>,
    /// A cut has reported how it ended.
    is_reported: bool,
}

impl Entry {
    /// The last packet of a connection that goes on, 0 if it has carried nothing.
    fn last_packet(&self) -> Option<u32> {
        let packed = || self.packed.as_ref().map(Packed::last_packet);
        let of = |connection: &Connection| if connection.is_empty() { 0 } else { connection.last_packet() };
        self.live.as_deref().map(of).or_else(packed)
    }

    /// Whether a packet at or behind `due` is the first one after a cut, and not late.
    #[cold]
    fn resume(&mut self, at: At) -> bool {
        let Some(due) = self.resumes.take() else { return false };
        self.due = due;
        if let Some(connection) = &mut self.live {
            connection.goes_on(at);
        }
        at.packet < due
    }
}

/// A cut of a run that goes on.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The end of what is reported.
    pub end: CaptureEnd,
    /// The time by which connections are silent: that of the last packet, or one up to which no packet is missing. A packet
    /// in between may have any time.
    pub now: i64,
    /// The stream is over.
    pub is_last: bool,
}

/// What there is to report of a connection at a cut, and whether it goes on.
pub type Divided = (Option<(Ended, OpenTime)>, bool);

/// Connections and what they share.
#[derive(Debug, Serialize, Deserialize)]
pub struct Shard {
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::CONNECTIONS }, _, _>")]
    entries: Vec<Entry>,
    /// Connections that are over, with the packet at which they may be put away.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::CONNECTIONS }, _, _>")]
    lingering: VecDeque<(u32, u32)>,
    /// Connections that receive packets, and some that no longer do, those looked at longest ago first.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::CONNECTIONS }, _, _>")]
    open: VecDeque<u32>,
    /// How many receive packets.
    live: usize,
    /// Connections that are not packed, and some that no longer receive packets, those looked at longest ago first.
    #[serde(skip)]
    awake: VecDeque<u32>,
    #[serde(skip)]
    packer: Packer,
    /// How many there have been, also for who feeds this shard from another thread.
    #[serde(skip)]
    begun: Arc<AtomicU64>,
    /// Segments come connection by connection, from this packet to that one.
    window: Option<[u32; 2]>,
    /// Tables and dictionaries.
    pub cx: Context,
    /// What its connections share besides.
    #[serde(skip)]
    pub shared: Shared,
    /// Where the capture ends, once it is known.
    #[serde(skip)]
    end: CaptureEnd,
}

impl Shard {
    /// A shard without connections.
    pub fn new(options: Options) -> Self {
        Self::with_keys(options, Arc::default())
    }

    /// The same, which decrypts TLS with the secrets in `keys`.
    pub fn with_keys(options: Options, keys: Arc<KeyLog>) -> Self {
        Self {
            entries: Vec::new(),
            lingering: VecDeque::new(),
            open: VecDeque::new(),
            live: 0,
            awake: VecDeque::new(),
            packer: Packer::default(),
            begun: Arc::default(),
            window: None,
            cx: Context::new(options),
            shared: Shared::new(keys),
            end: CaptureEnd::default(),
        }
    }

    /// Takes a segment that was routed here.
    #[inline]
    pub fn segment(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        if !self.lingering.is_empty() && self.window.is_none() {
            self.put_away(at.packet);
        }
        if let Some(place) = route.replaces
            && place.shard == route.place.shard
        {
            self.finish(place.local, true, at.packet);
        }
        let mut is_awakened = route.opens.is_some();
        if let Some(client) = route.opens {
            self.open(route, client, segment, at);
        }
        self.cx.rpc_order.read(at.packet);
        let Some(entry) = self.entries.get_mut(route.place.local as usize) else { return };
        if at.packet >= entry.due && !entry.resume(at) {
            // decided by its own packets, so that it does not matter which connections share this shard
            entry.late += 1;
            return self.finish(route.place.local, false, at.packet);
        }
        if entry.packed.is_some() {
            is_awakened = true;
            self.unpack(route.place.local);
        }
        let Some(entry) = self.entries.get_mut(route.place.local as usize) else { return };
        match &mut entry.live {
            Some(connection) => {
                connection.segment(route.side, segment, at, &mut self.cx, &mut self.shared);
                if connection.is_finished() && entry.due == u32::MAX {
                    entry.due = at.packet.saturating_add(LINGER_PACKETS).min(u32::MAX - 1);
                    self.lingering.push_back((entry.due, route.place.local));
                }
            }
            None => entry.late += 1,
        }
        if is_awakened || at.packet.is_multiple_of(LOOK_PACKETS) {
            self.pack_silent(is_awakened.then_some(route.place.local), at);
        }
    }

    /// Unpacks a connection.
    #[cold]
    fn unpack(&mut self, local: u32) {
        let Some(entry) = self.entries.get_mut(local as usize) else { return };
        let Some(packed) = entry.packed.take() else { return };
        entry.live = self.packer.unpack(&packed);
        debug_assert!(entry.live.is_some(), "what was packed here is unpacked here");
        if let Some(connection) = &mut entry.live {
            connection.share_again(&mut self.shared, &mut self.cx.strings);
        }
    }

    /// Counts a connection among those that are not packed; of the others, two may be packed.
    #[cold]
    fn pack_silent(&mut self, awakened: Option<u32>, at: At) {
        let Packing { awake, silence } = self.cx.options.packing;
        if self.cx.options.resumes {
            return;
        }
        self.awake.extend(awakened);
        // connections whose segments have not come yet are not silent
        let now = self.window.map_or(at.packet, |[first, _]| first);
        for _ in 0..2 {
            if self.awake.len() <= awake {
                return;
            }
            let Some(local) = self.awake.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(local as usize) else { continue };
            let Some(connection) = &entry.live else { continue };
            if now.saturating_sub(connection.last_packet()) >= silence {
                entry.packed = self.packer.pack(connection);
            }
            if entry.packed.is_some() {
                entry.live = None;
            } else {
                self.awake.push_back(local);
            }
        }
    }

    /// Fetches what the next packets of a connection will need.
    #[inline]
    pub fn touch(&self, local: u32) {
        if let Some(connection) = self.entries.get(local as usize).and_then(|entry| entry.live.as_ref()) {
            connection.touch();
        }
    }

    /// How many connections there have been.
    pub fn begun(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.begun)
    }

    /// How many connections receive packets.
    #[inline]
    pub fn live(&self) -> usize {
        self.live
    }

    /// The segments that follow come connection by connection, from one packet to another.
    pub fn begin_window(&mut self, packets: [u32; 2]) {
        self.window = Some(packets);
    }

    /// The segments that follow come in the order of the capture.
    pub fn end_window(&mut self) {
        self.put_away_of_window();
        self.window = None;
    }

    /// All segments of the window of a connection were read: it is put away if it is over.
    pub fn end_lane(&mut self, local: u32) {
        let Some([_, last]) = self.window else { return };
        if self.entries.get(local as usize).is_some_and(|entry| entry.due <= last && entry.resumes.is_none()) {
            self.finish(local, false, last);
        }
    }

    /// Puts connections away that are over, and of which no segment of the window is missing: one that is not read now is
    /// read completely.
    fn put_away_of_window(&mut self) {
        let Some([_, last]) = self.window else { return };
        self.lingering.make_contiguous().sort_unstable();
        self.put_away(last);
    }

    /// Whether a connection is not read: see [`RowSelection`](crate::store::row_selection::RowSelection).
    #[inline]
    pub fn leaves_out(&self, number: u32) -> bool {
        self.cx.options.selection.as_ref().is_some_and(|selection| selection.leaves_out(number))
    }

    fn open(&mut self, route: &Route, client: usize, segment: &Segment<'_>, at: At) {
        let is_read = !self.leaves_out(route.number);
        if is_read && self.live >= limits::OPEN_CONNECTIONS {
            self.put_away_of_window();
        }
        if is_read && self.live >= limits::OPEN_CONNECTIONS {
            self.make_room(at);
        }
        let number = route.number;
        let begun = is_read.then(|| Connection::new(number, segment, client, at, &mut self.cx, &mut self.shared));
        let live = begun.map(Box::new);
        self.entries.push(Entry {
            number,
            live,
            packed: None,
            due: u32::MAX,
            late: 0,
            finished: None,
            resumes: None,
            is_reported: false,
        });
        if is_read {
            self.open.push_back(route.place.local);
            self.live += 1;
        }
        self.begun.store(self.entries.len() as u64, Ordering::Relaxed);
    }

    /// Puts a connection away that has carried nothing so far, else of some the one whose last packet is oldest: floods
    /// of handshakes cost no connection that is in use.
    #[cold]
    fn make_room(&mut self, at: At) {
        let mut tried: Vec<(u32, u32)> = Vec::new();
        while tried.len() < limits::OPEN_CONNECTIONS_TRIED {
            let Some(local) = self.open.pop_front() else { break };
            let Some(last_packet) = self.entries.get(local as usize).and_then(Entry::last_packet) else { continue };
            tried.push((last_packet, local));
            if last_packet == 0 {
                break;
            }
        }
        let oldest = tried.iter().min().copied();
        self.open.extend(tried.iter().filter(|&&one| Some(one) != oldest).map(|&(_, local)| local));
        if let Some((_, local)) = oldest {
            self.give_up(local, at);
        }
    }

    fn give_up(&mut self, local: u32, at: At) {
        let text = "too many open connections: those idle longest are not followed further";
        let number = self.entries.get(local as usize).map_or(NO_CONNECTION, |entry| entry.number);
        self.cx.problem(Layer::Tcp, text, number, at.packet, at.time);
        self.finish_at(local, false, CaptureEnd { last: at, damage: 0 }, at.packet); // as if the capture ended here
    }

    fn put_away(&mut self, packet: u32) {
        while let Some(&(due, local)) = self.lingering.front() {
            if due > packet {
                return;
            }
            self.lingering.pop_front();
            self.finish(local, false, packet);
        }
    }

    /// Ends the connection at a place of this shard, before a packet.
    pub fn finish(&mut self, local: u32, replaced: bool, before: u32) {
        self.finish_at(local, replaced, self.end, before);
    }

    fn finish_at(&mut self, local: u32, replaced: bool, end: CaptureEnd, before: u32) {
        self.unpack(local);
        let Some(entry) = self.entries.get_mut(local as usize) else { return };
        let Some(connection) = entry.live.take() else { return };
        self.live -= 1;
        // whichever connections share this shard, and were read before
        self.cx.rpc_order.end_before(before.min(entry.due));
        let ended = connection.finish(replaced, end, &mut self.cx, &mut self.shared);
        entry.finished = PutAway::new(entry.number, &ended);
        debug_assert!(entry.finished.is_some(), "rows are numbers, which can be written");
    }

    /// What there is to report at a cut of the connection at a place, which `is_named` elsewhere, and whether it goes on.
    pub fn divide(&mut self, local: usize, cut: Cut, is_named: bool, parts: &mut Parts) -> Divided {
        let Cut { end, now, is_last } = cut;
        let Some(entry) = self.entries.get_mut(local) else { return (None, false) };
        if let Some(finished) = entry.finished.take()
            && let Some(ended) = finished.with_late(entry.late).ended()
        {
            entry.is_reported = true;
            return (Some((ended, OpenTime::default())), true);
        }
        let Some(connection) = &mut entry.live else { return (None, !std::mem::replace(&mut entry.is_reported, true)) };
        let idle = now.saturating_sub(connection.last_time());
        let is_closed = connection.is_finished();
        let is_over = is_last || idle >= if is_closed { limits::LIVE_LINGER } else { limits::LIVE_IDLE };
        let is_quiet = connection.is_quiet() && !is_named;
        if !is_over {
            if entry.resumes.is_none() {
                entry.resumes = Some(std::mem::replace(&mut entry.due, 0));
            }
            return ((!is_quiet).then(|| connection.divide(end, parts)), true);
        }
        let Some(connection) = entry.live.take() else { return (None, false) };
        self.live -= 1;
        entry.is_reported = true;
        // late packets of a closed connection are counted; those of a silent one show that it goes on, as another one
        let is_kept = is_closed || is_last;
        if is_quiet {
            // all was reported; only what it keeps is given back
            let Parts { done, rest, .. } = parts;
            let rest = rest.get_or_insert_with(|| Box::new(done.new_like()));
            (rest.out_of_order_bytes, rest.trailer_bytes) = (done.out_of_order_bytes, done.trailer_bytes);
            connection.finish(false, end, rest, &mut self.shared);
            (done.out_of_order_bytes, done.trailer_bytes) = (rest.out_of_order_bytes, rest.trailer_bytes);
            return (None, is_kept);
        }
        if !is_kept && connection.has_open_calls() {
            let text = "no packet for more than two hours: the connection and its open calls are not followed further";
            parts.done.problem(Layer::Tcp, text, entry.number, end.last.packet, end.last.time);
        }
        let mut ended = connection.finish(false, end, &mut parts.done, &mut self.shared);
        ended.row.late_packets = entry.late;
        (Some((ended, OpenTime::default())), is_kept)
    }

    /// The connection at a place counts anew behind packet `cut`.
    #[cold]
    pub fn begin_interval(&mut self, local: u32, cut: u32) {
        let Some(entry) = self.entries.get_mut(local as usize) else { return };
        if let Some(connection) = &mut entry.live {
            let mut counted = Context::default(); // by an earlier interval
            connection.begin_interval(cut, &mut counted);
            entry.resumes = Some(std::mem::replace(&mut entry.due, 0));
        }
    }

    /// Forgets connections, and gives the others the `numbers` that stand in the place of their old ones. Gives the new
    /// places by the old ones.
    pub fn renumber(&mut self, numbers: &[Option<u32>]) -> Vec<Option<u32>> {
        let number = |entry: &Entry| numbers.get(entry.number as usize).copied().flatten();
        let mut free = 0_u32..;
        let places: Vec<Option<u32>> =
            self.entries.iter().map(|entry| number(entry).and_then(|_| free.next())).collect();
        self.entries.retain_mut(|entry| {
            let Some(new) = number(entry) else { return false };
            entry.number = new;
            entry.live.iter_mut().for_each(|connection| connection.renumber(new));
            true
        });
        let place = |old: u32| places.get(old as usize).copied().flatten();
        self.lingering = self.lingering.iter().filter_map(|&(due, local)| Some((due, place(local)?))).collect();
        self.open = self.open.iter().filter_map(|&local| place(local)).collect();
        self.begun.store(self.entries.len() as u64, Ordering::Relaxed);
        places
    }

    /// Forgets names and trace contexts to which nothing refers.
    pub fn forget_names(&mut self) {
        let mut used = UsedNames::default();
        used.methods.extend(&self.cx.rpcs.method);
        used.methods.extend(&self.cx.other_requests.path);
        for connection in self.entries.iter_mut().filter_map(|entry| entry.live.as_mut()) {
            connection.note_names(&mut used);
        }
        self.shared.forget_names();
        self.cx.strings.forget_unused(&used);
    }

    /// Makes connections fit to be saved; gives the numbers of those that cannot be.
    pub fn prepare_saving(&mut self) -> Vec<u32> {
        let is_fit = |entry: &mut Entry| entry.live.as_mut().is_none_or(|connection| connection.prepare_saving());
        self.entries.iter_mut().filter_map(|entry| (!is_fit(entry)).then_some(entry.number)).collect()
    }

    /// Goes on after it was saved.
    pub fn resume(&mut self, options: Options, keys: Arc<KeyLog>) {
        self.cx.strings.keeps_errors = options.errors;
        self.cx.options = options;
        self.shared = Shared::new(keys);
        self.begun.store(self.entries.len() as u64, Ordering::Relaxed);
    }

    /// Connections that receive packets, and streams that are open on them.
    pub fn counts(&self) -> (usize, usize) {
        let live = self.entries.iter().filter_map(|entry| entry.live.as_ref());
        (self.live, live.map(|connection| connection.streams()).sum())
    }

    /// The capture is over, at `end`: all connections end. Returns them by their numbers, the tables, and the tap.
    pub fn into_finished(mut self, end: CaptureEnd) -> (Vec<PutAway>, Context, Option<Box<dyn Tap>>) {
        self.end = end;
        for local in 0..self.entries.len() as u32 {
            self.finish(local, false, end.last.packet.saturating_add(1));
        }
        let late = |entry: Entry| Some(entry.finished?.with_late(entry.late));
        let mut rows: Vec<_> = self.entries.into_iter().filter_map(late).collect();
        rows.sort_unstable_by_key(|finished| finished.number);
        (rows, self.cx, self.shared.tap)
    }
}
