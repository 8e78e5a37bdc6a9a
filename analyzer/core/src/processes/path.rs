//! Which way led to a send: back from the thread that sent, over the wake-ups that let it run.
//!
//! The sending thread's own states do not tell cases apart: most of the time it sleeps. What the threads did that woke it does.

use super::record::{Record, Thread, Waker};
use super::threads::{Ready, Segment, Sent, State, Threads};
use crate::limits;

/// What the way consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// A thread of the way ran.
    Running = 0,
    /// It was ready, and its processor ran threads of the same command.
    Runnable = 1,
    /// It was ready, and its processor ran other processes.
    OtherProcesses = 2,
    /// It was ready, and its processor was idle: it took this long to wake up.
    WakeUp = 3,
    /// It was ready, and its cgroup had used up its quota.
    Throttled = 4,
    /// It waited for a lock, as several other threads did.
    Lock = 5,
    /// It waited for packets of another RPC.
    OtherRpc = 6,
    /// It waited for a timer.
    Timer = 7,
    /// It waited for another process, a device, or a connection that is not in the capture.
    Io = 8,
    /// The record does not tell.
    Unknown = 9,
}

/// Names in the order of [`Part`].
pub const PARTS: [&str; 10] =
    ["running", "runnable", "other_processes", "wake_up", "throttled", "lock", "other_rpc", "timer", "io", "unknown"];

/// A call that sends ends this long after its packet at most: 10 ms, in which its thread may lose its processor.
const CALL: i64 = 10_000_000;
/// A packet that came this long before a deferred wake-up at most caused it: 200 µs, the longest that the way
/// from the capture point to the thread takes on an idle host.
const ARRIVAL: i64 = 200_000;
/// Threads that wait for a lock at once, from which it is contended: a condition variable of a library has one waiter.
const LOCK_WAITERS: i32 = 3;
/// Segments of the thread that left a lock in which it must have waited for it itself: who hands work to idle workers
/// never waits among them.
const LOCK_SEGMENTS: usize = 96;

/// Nanoseconds by [`Part`].
pub type Parts = [i64; PARTS.len()];

/// A step of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it consists of.
    pub part: Part,
    /// The thread that did so; 0 if it is not known.
    pub thread: Thread,
    /// When it began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
}

/// Takes the steps of a way, in any order. They do not overlap, and fill the interval; empty ones count nothing.
pub trait Way {
    /// Takes a step.
    fn add(&mut self, step: Step);
}

impl Way for Parts {
    fn add(&mut self, step: Step) {
        if let Some(sum) = self.get_mut(step.part as usize) {
            *sum = sum.saturating_add(step.end.saturating_sub(step.start).max(0));
        }
    }
}

impl Way for Vec<Step> {
    fn add(&mut self, step: Step) {
        if step.end > step.start {
            self.push(step);
        }
    }
}

/// What is known beside the threads.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// When packets of the captured connections came, ascending.
    pub arrivals: Vec<i64>,
    /// When the command's cgroup was throttled, ascending.
    pub throttled: Vec<(i64, i64)>,
}

impl Surroundings {
    /// The times within others in which the cgroup was throttled.
    pub fn list_throttled(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> {
        let first = self.throttled.partition_point(|(_, end)| *end <= from);
        let near = self.throttled.iter().skip(first).take_while(move |(start, _)| *start < to);
        near.take(limits::TRACE_WAKE_UPS).copied()
    }
}

/// Walks back from a thread that sent at `end` to `start`.
pub struct Walk<'a> {
    /// The threads.
    pub threads: &'a Threads,
    /// Which threads are the command's.
    pub record: &'a Record,
    /// What else is known.
    pub surroundings: &'a Surroundings,
}

impl Walk<'_> {
    /// Follows the way to a send that ended an interval, as its packet shows: the packet left within the call. Without a
    /// send in the interval, or shortly after it, the thread is not known (0).
    pub fn explain(&self, sent: Option<Sent>, start: i64, end: i64, way: &mut impl Way) -> Thread {
        let fits = |sent: &Sent| sent.time >= start && sent.time.saturating_sub(end) <= CALL;
        let Some(Sent { by, time, .. }) = sent.filter(fits) else {
            way.add(Step { part: Part::Unknown, thread: 0, start, end });
            return 0;
        };
        let until = end.min(time);
        self.follow(by, start, until, way);
        way.add(Step { part: Part::Io, thread: by, start: until, end }); // the kernel sent it later than the thread
        by
    }

    /// Follows the way back from `sender`, which sent at `end`, until `start`. Its steps fill that time.
    pub fn follow(&self, sender: Thread, start: i64, end: i64, way: &mut impl Way) {
        let (mut thread, mut now, mut rest) = (sender, end, Part::Unknown);
        for _ in 0..limits::TRACE_WAKE_UPS {
            let Some((place, segments)) = self.find(thread, now).filter(|_| now > start) else { break };
            let Some(segment) = segments.get(place) else { break };
            let from = segment.time.max(start);
            match segment.state {
                State::Running(_) => way.add(Step { part: Part::Running, thread, start: from, end: now }),
                State::Ready(_) => self.divide_ready(way, thread, segments.get(place + 1), (from, now)),
                State::Blocked(_) => break,
            }
            now = from;
            match segment.state {
                State::Ready(Ready::Woken(Waker::Hardware)) if now > start => {
                    rest = Part::Timer;
                    break;
                }
                State::Ready(Ready::Woken(Waker::Deferred)) if now > start => {
                    rest = self.explain_deferred(now);
                    break;
                }
                State::Ready(Ready::Woken(Waker::Thread(by))) if now > start => {
                    if let Some(since) = self.find_lock(segments, place, by) {
                        let since = since.max(start);
                        way.add(Step { part: Part::Lock, thread, start: since, end: now });
                        now = since;
                    } else if self.record.tasks.contains_key(&by) {
                        thread = by;
                    } else {
                        rest = Part::Io;
                        break;
                    }
                }
                _ => {}
            }
        }
        self.divide_rest(way, rest, sender, (start, now));
    }

    /// Divides the time before a way's end. The sender may have waited for a lock then. If it is not known what it
    /// waited for, what could have led to the send sooner did not run while the cgroup was throttled; a timer runs on.
    fn divide_rest(&self, way: &mut impl Way, rest: Part, sender: Thread, (start, end): (i64, i64)) {
        let locked = self.list_locked(sender, start, end);
        if !locked.is_empty() {
            fill(way, sender, (start, end), locked.into_iter(), [Part::Lock, rest]);
        } else if rest == Part::Unknown {
            fill(way, sender, (start, end), self.list_throttled(start, end), [Part::Throttled, rest]);
        } else {
            way.add(Step { part: rest, thread: sender, start, end });
        }
    }

    /// When a thread waited for contended locks, ascending.
    fn list_locked(&self, thread: Thread, start: i64, end: i64) -> Vec<(i64, i64)> {
        let mut locked = Vec::new();
        let Some((last, segments)) = self.find(thread, end) else { return locked };
        for place in (0..=last.saturating_add(1)).rev().take(limits::TRACE_WAKE_UPS) {
            let Some(&Segment { time, state }) = segments.get(place) else { continue };
            if time <= start {
                break;
            }
            if let State::Ready(Ready::Woken(Waker::Thread(by))) = state
                && let Some(since) = self.find_lock(segments, place, by)
                && since.max(start) < time.min(end)
            {
                locked.push((since, time));
            }
        }
        locked.reverse();
        locked
    }

    /// The segment of a thread right before `time`.
    fn find(&self, thread: Thread, time: i64) -> Option<(usize, &[Segment])> {
        let segments = self.threads.segments.get(&thread)?;
        let place = segments.partition_point(|segment| segment.time < time).checked_sub(1)?;
        Some((place, segments))
    }

    /// Divides the time in which a thread was ready by what the processor did that ran it next.
    pub(super) fn divide_ready(
        &self,
        way: &mut impl Way,
        thread: Thread,
        next: Option<&Segment>,
        (from, to): (i64, i64),
    ) {
        let Some(&Segment { state: State::Running(cpu), .. }) = next else {
            return way.add(Step { part: Part::WakeUp, thread, start: from, end: to });
        };
        let ran = self.threads.processors.get(&cpu).map_or(&[][..], Vec::as_slice);
        let first = ran.partition_point(|(time, _)| *time <= from).saturating_sub(1);
        let mut at = from;
        for (place, &(_, other)) in ran.iter().enumerate().skip(first).take(limits::TRACE_WAKE_UPS) {
            let until = ran.get(place + 1).map_or(to, |(time, _)| (*time).min(to));
            if until > at {
                let is_own = self.record.tasks.contains_key(&other);
                let part = match other {
                    0 => Part::WakeUp,
                    _ if is_own => Part::Runnable,
                    _ => Part::OtherProcesses,
                };
                let throttled = self.list_throttled(at, until).filter(|_| !is_own);
                fill(way, thread, (at, until), throttled, [Part::Throttled, part]);
                at = until;
            }
            if at >= to {
                return;
            }
        }
        way.add(Step { part: Part::Unknown, thread, start: at, end: to });
    }

    fn list_throttled(&self, from: i64, to: i64) -> impl Iterator<Item = (i64, i64)> {
        self.surroundings.list_throttled(from, to)
    }

    /// What a thread waited for that the deferred part of an interrupt woke at `time`.
    fn explain_deferred(&self, time: i64) -> Part {
        let arrivals = &self.surroundings.arrivals;
        let place = arrivals.partition_point(|arrival| *arrival <= time);
        let last = place.checked_sub(1).and_then(|place| arrivals.get(place));
        if last.is_some_and(|arrival| time.saturating_sub(*arrival) <= ARRIVAL) { Part::OtherRpc } else { Part::Io }
    }

    /// Since when the thread has waited for a contended lock that `by` left; `segments[place]` is the wake-up.
    fn find_lock(&self, segments: &[Segment], place: usize, by: Thread) -> Option<i64> {
        let &Segment { time, state: State::Blocked(word) } = segments.get(place.checked_sub(1)?)? else { return None };
        let woken = segments.get(place)?.time;
        if word == 0 || self.threads.waiting(word, woken) < LOCK_WAITERS {
            return None;
        }
        let (last, others) = self.find(by, woken)?;
        let recent = others.get(last.saturating_sub(LOCK_SEGMENTS)..last)?;
        recent.iter().any(|segment| segment.state == State::Blocked(word)).then_some(time)
    }
}

/// Divides a time of a thread into what is inside of `pieces`, which ascend, and what is outside.
fn fill(
    way: &mut impl Way,
    thread: Thread,
    (start, end): (i64, i64),
    pieces: impl Iterator<Item = (i64, i64)>,
    [inside, outside]: [Part; 2],
) {
    let mut at = start;
    for (from, to) in pieces {
        let from = from.max(at).min(end);
        let to = to.max(from).min(end);
        way.add(Step { part: outside, thread, start: at, end: from });
        way.add(Step { part: inside, thread, start: from, end: to });
        at = to;
    }
    way.add(Step { part: outside, thread, start: at, end });
}
