//! A shard in a thread of its own, fed with batches of segments.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::at::At;
use crate::context::{Context, Options};
use crate::packet::{PacketDirection, Segment, TcpFlags};
use crate::tcp::{Finished, Place, Route, Shard};

/// Number of the shard here, as the router gives it.
pub const REMOTE: u8 = 1;

/// Segments per batch: enough to make a hand-over, which may wake a thread, cheap; few enough to stay in a cache.
const BATCH_SEGMENTS: usize = 3_072;
/// Payload bytes per batch.
const BATCH_BYTES: usize = 256 << 10;
/// Batches on their way; the reader waits when all are. Deep enough (about 20 MB) that one thread has work left while
/// the packets that come next are for the other.
const BATCHES: usize = 48;

/// What the thread is told.
#[derive(Debug)]
enum Job {
    Batch(Batch),
    /// End the connection at a place of this shard, replaced by one on another shard.
    Replace(u32),
}

/// Segments with their payload copied, in the order of the capture.
#[derive(Debug, Default)]
struct Batch {
    items: Vec<Item>,
    payload: Vec<u8>,
    /// Segments that [`Item`] has no room for.
    full: Vec<(Route, Segment<'static>)>,
}

/// An ordinary segment of a known connection. A third of a [`Segment`]: what the threads hand over goes through memory.
#[derive(Clone, Copy, Debug)]
struct Item {
    time: i64,
    packet: u32,
    local: u32,
    number: u32,
    seq: u32,
    ack: u32,
    timestamps: Option<(u32, u32)>,
    payload_len: u32,
    payload_start: u32,
    payload_captured: u32,
    cooked_interface: u32,
    ip_id: Option<u16>,
    flags: TcpFlags,
    window: u16,
    side: u8,
    packet_direction: PacketDirection,
    /// Index into `Batch::full` of the whole segment.
    full: Option<u32>,
}

/// The sending half: a shard elsewhere.
#[derive(Debug)]
pub struct Remote {
    jobs: SyncSender<Job>,
    spent: Receiver<Batch>,
    filling: Batch,
    thread: JoinHandle<Shard>,
}

impl Remote {
    /// Starts the thread; the error is the operating system's.
    pub fn start(options: Options) -> std::io::Result<Self> {
        let (jobs, receive) = sync_channel::<Job>(BATCHES);
        let (give_back, spent) = sync_channel::<Batch>(BATCHES + 2);
        let run = move || {
            let mut shard = Shard::new(options);
            for job in receive {
                match job {
                    Job::Replace(local) => shard.finish(local, true),
                    Job::Batch(mut batch) => {
                        batch.apply(&mut shard);
                        // the reader may be gone at the end; then nobody needs the batch
                        let _ = give_back.try_send(batch);
                    }
                }
            }
            shard
        };
        let thread = std::thread::Builder::new().name("grpcdiag-decode".into()).spawn(run)?;
        Ok(Self { jobs, spent, filling: Batch::default(), thread })
    }

    /// Takes a segment that was routed there.
    #[inline]
    pub fn segment(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        self.filling.push(route, segment, at);
        if self.filling.items.len() >= BATCH_SEGMENTS || self.filling.payload.len() >= BATCH_BYTES {
            self.send();
        }
    }

    /// Ends a connection there that another shard replaces.
    pub fn replace(&mut self, local: u32) {
        self.send();
        // an error means the thread has ended by a panic, which `join` reports
        let _ = self.jobs.send(Job::Replace(local));
    }

    fn send(&mut self) {
        let next = self.spent.try_recv().unwrap_or_default();
        let full = std::mem::replace(&mut self.filling, next);
        let _ = self.jobs.send(Job::Batch(full));
    }

    /// Waits for the thread to finish everything; a panic there goes on here.
    pub fn join(mut self, end: At) -> (Vec<Finished>, Context) {
        self.send();
        drop(self.jobs);
        match self.thread.join() {
            Ok(shard) => shard.into_finished(end),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Batch {
    #[inline]
    fn push(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        let payload_start = self.payload.len() as u32; // batches are small
        self.payload.extend_from_slice(segment.payload);
        let ordinary = route.opens.is_none()
            && route.replaces.is_none()
            && segment.sack.is_empty()
            && !segment.flags.intersects(EXTRAORDINARY);
        let full = (!ordinary).then(|| {
            self.full.push((*route, segment.without_payload()));
            (self.full.len() - 1) as u32
        });
        self.items.push(Item {
            time: at.time,
            packet: at.packet,
            local: route.place.local,
            number: route.number,
            seq: segment.seq,
            ack: segment.ack,
            timestamps: segment.timestamps,
            payload_len: segment.payload_len,
            payload_start,
            payload_captured: segment.payload.len() as u32,
            cooked_interface: segment.cooked_interface,
            ip_id: segment.ip_id,
            flags: segment.flags,
            window: segment.window,
            side: route.side as u8,
            packet_direction: segment.packet_direction,
            full,
        });
    }

    fn apply(&mut self, shard: &mut Shard) {
        for item in &self.items {
            let start = item.payload_start as usize;
            let payload = self.payload.get(start..start + item.payload_captured as usize).unwrap_or_default();
            let at = At::new(item.packet, item.time);
            match item.full.and_then(|index| self.full.get(index as usize)) {
                Some((route, segment)) => shard.segment(route, &segment.with_payload(payload), at),
                None => shard.segment(&item.route(), &item.segment(payload), at),
            }
        }
        self.items.clear();
        self.payload.clear();
        self.full.clear();
    }
}

/// SYN brings options, URG a pointer: those segments are handed over whole.
const EXTRAORDINARY: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::URG.0);

impl Item {
    #[inline]
    fn route(&self) -> Route {
        let place = Place { shard: REMOTE, local: self.local };
        Route { number: self.number, place, side: usize::from(self.side), opens: None, replaces: None }
    }

    /// The segment without its addresses, which the router alone needs.
    #[inline]
    fn segment<'a>(&self, payload: &'a [u8]) -> Segment<'a> {
        Segment {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            timestamps: self.timestamps,
            payload,
            payload_len: self.payload_len,
            ip_id: self.ip_id,
            packet_direction: self.packet_direction,
            cooked_interface: self.cooked_interface,
            ..Segment::nowhere()
        }
    }
}
