//! Runs a shard in a thread of its own, and feeds it with batches of segments.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::at::At;
use crate::connection::CaptureEnd;
use crate::packet::Segment;
use crate::store::context::{Context, Options};
use crate::tls::KeyLog;

use super::batch::{Batch, Batches};
use super::route::Route;
use super::shard::{Finished, Shard};

/// Batches on their way; the reader waits when all are. Deep enough (about 20 MB) that one thread has work left while
/// the packets that come next are for the other.
const BATCHES: usize = 48;

/// What the thread has to do.
enum Job {
    Batch(Batch),
    /// End the connection at a place of this shard, replaced by one on another shard.
    Replace(u32),
    /// Work on the tables.
    Work(Box<dyn FnOnce(&mut Context) + Send>),
    /// The capture ends here.
    End(CaptureEnd),
}

/// The sending half: a shard elsewhere.
#[derive(Debug)]
pub struct Remote {
    jobs: SyncSender<Job>,
    spent: Receiver<Batch>,
    filling: Batch,
    #[expect(clippy::vec_box, reason = "rows of 1 kB each are not copied while the list grows")]
    thread: JoinHandle<(Vec<Box<Finished>>, Context)>,
    /// Connections that the thread has begun to read.
    pub begun: Arc<AtomicU64>,
}

impl Remote {
    /// Starts the thread; the error is the operating system's.
    pub fn start(options: Options, keys: Arc<KeyLog>) -> std::io::Result<Self> {
        let (jobs, receive) = sync_channel::<Job>(BATCHES);
        let (give_back, spent) = sync_channel::<Batch>(BATCHES + 2);
        let mut shard = Shard::with_keys(options, keys);
        let begun = shard.begun();
        let run = move || {
            let (mut waiting, mut end) = (Batches::default(), CaptureEnd::default());
            // the reader may be gone at the end; then nobody needs a batch
            let mut spend = |batch| drop(give_back.try_send(batch));
            for job in receive {
                match job {
                    Job::Replace(local) => {
                        waiting.apply(&mut shard, &mut spend);
                        shard.finish(local, true);
                    }
                    Job::Work(work) => work(&mut shard.cx),
                    Job::End(at) => end = at,
                    Job::Batch(batch) => {
                        waiting.push(batch);
                        if !waiting.may_wait(&shard) {
                            waiting.apply(&mut shard, &mut spend);
                        }
                    }
                }
            }
            waiting.apply(&mut shard, &mut spend);
            let (rows, cx, _) = shard.into_finished(end);
            (rows, cx)
        };
        let thread = std::thread::Builder::new().name("grpcdiag-decode".into()).spawn(run)?;
        Ok(Self { jobs, spent, filling: Batch::default(), thread, begun })
    }

    /// Takes a segment that was routed there.
    #[inline]
    pub fn segment(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        self.filling.push(route, segment, at);
        if self.filling.is_full() {
            self.send();
        }
    }

    /// Ends a connection there that another shard replaces.
    pub fn replace(&mut self, local: u32) {
        self.send();
        // an error means the thread has ended by a panic, which `join` reports
        let _ = self.jobs.send(Job::Replace(local));
    }

    /// Lets the thread work on its tables behind all segments; gives the result, nothing after a panic there.
    pub fn work<T: Default + Send + 'static>(&mut self, work: impl FnOnce(&mut Context) -> T + Send + 'static) -> T {
        if !self.filling.is_empty() {
            self.send(); // the next packets may come much later
        }
        let (give, result) = sync_channel(1);
        let _ = self.jobs.send(Job::Work(Box::new(move |cx| drop(give.send(work(cx))))));
        result.recv().unwrap_or_default()
    }

    fn send(&mut self) {
        let next = self.spent.try_recv().unwrap_or_default();
        let full = std::mem::replace(&mut self.filling, next);
        let _ = self.jobs.send(Job::Batch(full));
    }

    /// The capture is over, at `end`: the thread ends its connections.
    pub fn end(&mut self, end: CaptureEnd) {
        self.send();
        let _ = self.jobs.send(Job::End(end));
    }

    /// Waits for the thread to finish everything; a panic there goes on here.
    pub fn join(self) -> (Vec<Box<Finished>>, Context) {
        drop(self.jobs);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
