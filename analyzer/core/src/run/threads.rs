//! Runs a shard in a thread of its own, and feeds it with batches of segments.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::at::At;
use crate::connection::CaptureEnd;
use crate::packet::Segment;
use crate::store::context::Context;
use crate::store::emitted_rpcs::{Due, Taken};
use crate::store::options::Options;
use crate::tls::KeyLog;

use super::batch::{Batch, Window};
use super::packed::PutAway;
use super::route::Route;
use super::shard::Shard;

/// Batches on their way; the reader waits when all are. Deep enough (about 20 MB) that one thread has work left while
/// the packets that come next are for the other.
const BATCHES: usize = 48;

/// How long rows that were asked for are waited for: a thread without work gives them at once.
const SOON: Duration = Duration::from_millis(2);

/// What the thread has to do.
enum Job {
    Batch(Batch),
    /// End the connection at a place of this shard, replaced with a packet by one on another shard.
    Replace(u32, u32),
    /// Take the rows of RPCs that are complete, as far as they are so many, and give them.
    Take(Due, SyncSender<Taken>),
    /// The capture ends here.
    End(CaptureEnd),
}

/// The sending half: a shard elsewhere.
#[derive(Debug)]
pub struct Remote {
    jobs: SyncSender<Job>,
    spent: Receiver<Batch>,
    filling: Batch,
    /// Rows of RPCs that were asked for.
    taking: VecDeque<Receiver<Taken>>,
    thread: JoinHandle<(Vec<PutAway>, Context)>,
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
            let (mut window, mut end) = (Window::default(), None);
            for job in receive {
                match job {
                    Job::Replace(local, packet) => {
                        window.read(&mut shard);
                        shard.finish(local, true, packet);
                    }
                    // the reader may be gone
                    Job::Take(due, give) => drop(give.try_send(shard.cx.take_complete(due))),
                    Job::End(at) => end = Some(at),
                    Job::Batch(mut batch) => {
                        window.take(&mut batch, &mut shard);
                        // the reader may be gone at the end; then nobody needs a batch
                        drop(give_back.try_send(batch));
                    }
                }
            }
            let Some(end) = end else { return (Vec::new(), shard.cx) }; // nobody waits for the rest
            window.read(&mut shard);
            let (rows, cx, _) = shard.into_finished(end);
            (rows, cx)
        };
        let thread = std::thread::Builder::new().name("grpcdiag-decode".into()).spawn(run)?;
        Ok(Self { jobs, spent, filling: Batch::default(), taking: VecDeque::new(), thread, begun })
    }

    /// Takes a segment that was routed there.
    #[inline]
    pub fn segment(&mut self, route: &Route, segment: &Segment<'_>, at: At) {
        self.filling.push(route, segment, at, false);
        if self.filling.is_full() {
            self.send();
        }
    }

    /// Ends a connection there that another shard replaces with a packet.
    pub fn replace(&mut self, local: u32, packet: u32) {
        self.send();
        // an error means the thread has ended by a panic, which `join` reports
        let _ = self.jobs.send(Job::Replace(local, packet));
    }

    /// Lets the thread take the rows of RPCs that are complete, and goes on meanwhile.
    pub fn take_rpcs(&mut self, due: Due) {
        if !self.filling.is_empty() {
            self.send(); // the next packets may come much later
        }
        let (give, taken) = sync_channel(1);
        let _ = self.jobs.send(Job::Take(due, give));
        self.taking.push_back(taken);
    }

    /// What the thread has taken, in order, but for what is `late` at the most, and not there soon.
    pub fn taken(&mut self, late: usize) -> Vec<Taken> {
        let mut found = Vec::new();
        let until = Instant::now() + SOON;
        while let Some(next) = self.taking.front() {
            let soon = if self.taking.len() > late { Duration::MAX } else { until.duration_since(Instant::now()) };
            match next.recv_timeout(soon) {
                Ok(taken) => found.push(taken),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {} // the thread has ended by a panic, which `join` reports
            }
            self.taking.pop_front();
        }
        found
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
    pub fn join(self) -> (Vec<PutAway>, Context) {
        drop(self.jobs);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
