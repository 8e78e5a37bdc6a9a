//! A shard in a thread of its own, fed with batches of segments.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::at::At;
use crate::context::{Context, Options};
use crate::packet::Segment;
use crate::tcp::{Finished, Route, Shard};

/// Segments per batch: enough to make a hand-over cheap, few enough to stay in a core's cache.
const BATCH_SEGMENTS: usize = 1_024;
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
}

#[derive(Clone, Debug)]
struct Item {
    route: Route,
    at: At,
    segment: Segment<'static>,
    payload: Range<usize>,
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
        let start = self.filling.payload.len();
        self.filling.payload.extend_from_slice(segment.payload);
        let payload = start..self.filling.payload.len();
        self.filling.items.push(Item { route: *route, at, segment: segment.without_payload(), payload });
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
    fn apply(&mut self, shard: &mut Shard) {
        for item in &self.items {
            let payload = self.payload.get(item.payload.clone()).unwrap_or_default();
            shard.segment(&item.route, &item.segment.with_payload(payload), item.at);
        }
        self.items.clear();
        self.payload.clear();
    }
}
