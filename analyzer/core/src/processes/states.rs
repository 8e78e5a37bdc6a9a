//! What each thread did over time, to be drawn.

use super::path::{Part, Parts, Walk};
use super::record::{Thread, Waker};
use super::threads::{Ready, Segment, State, Threads};

/// Names of states, as `Span::state` counts them.
pub const STATES: [&str; 8] =
    ["running", "ready", "throttled", "futex", "waits for a thread", "waits for packets", "waits for a timer", "waits"];

/// A time in which a thread did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The thread.
    pub thread: Thread,
    /// When it began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
    /// A place in [`STATES`].
    pub state: u8,
}

/// Lists what the threads did, without what is shorter than the width that is returned: the smallest power of two, in
/// nanoseconds, with which at most `most` spans are left; 0 if nothing is left out.
pub fn list_spans(walk: &Walk<'_>, most: usize) -> (i64, Vec<Span>) {
    let mut counts = [0_usize; 64];
    for (_, segment, next) in pairs(walk.threads) {
        if let Some(count) = counts.get_mut(log2(segment, next)) {
            *count += 1;
        }
    }
    let (mut left, mut least) = (counts.iter().sum::<usize>(), 0);
    for count in counts {
        if left <= most {
            break;
        }
        (left, least) = (left - count, least + 1);
    }
    let long =
        pairs(walk.threads).filter(|(_, segment, next)| next.time > segment.time && log2(segment, next) >= least);
    let mut spans: Vec<Span> = long
        .map(|(thread, segment, next)| {
            let state = name(segment, next, thread, walk);
            Span { thread, start: segment.time, end: next.time, state }
        })
        .collect();
    spans.sort_unstable();
    (if least == 0 { 0 } else { 1 << least.min(62) }, spans)
}

/// Each segment with the thread's next one; the last has no known end.
fn pairs(threads: &Threads) -> impl Iterator<Item = (Thread, &Segment, &Segment)> {
    threads.segments.iter().flat_map(|(&thread, segments)| {
        segments.iter().zip(segments.iter().skip(1)).map(move |(segment, next)| (thread, segment, next))
    })
}

fn log2(segment: &Segment, next: &Segment) -> usize {
    next.time.saturating_sub(segment.time).max(1).ilog2() as usize
}

/// Names what a thread did; what it waited for is known by what woke it.
fn name(segment: &Segment, next: &Segment, thread: Thread, walk: &Walk<'_>) -> u8 {
    match (segment.state, next.state) {
        (State::Running(_), _) => 0,
        (State::Ready(_), _) => {
            let mut parts = Parts::default();
            if walk.surroundings.list_throttled(segment.time, next.time).next().is_some() {
                walk.divide_ready(&mut parts, thread, Some(next), (segment.time, next.time));
            }
            let throttled = parts.get(Part::Throttled as usize).is_some_and(|ns| *ns > (next.time - segment.time) / 2);
            if throttled { 2 } else { 1 }
        }
        (State::Blocked(1..), _) => 3,
        (State::Blocked(_), State::Ready(Ready::Woken(by))) => match by {
            Waker::Thread(_) => 4,
            Waker::Deferred => 5,
            Waker::Hardware => 6,
        },
        (State::Blocked(_), _) => 7,
    }
}
