//! What each thread of the recorded command did when, and what each processor ran.

use foldhash::HashMap;

use super::record::{Event, Kind, Record, Thread, Waker};

/// A thread that blocks within this time after it entered futex(2) waits for its word: 50 µs, some times what the call takes.
const FUTEX_ENTRY: i64 = 50_000;

/// Why a thread became ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It ran, and its processor ran another thread instead.
    Preempted,
    /// It was woken.
    Woken(Waker),
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs on a processor.
    Running(u16),
    /// It waits for a processor.
    Ready(Ready),
    /// It waits for something else; for the word of a futex if that is not 0.
    Blocked(u64),
}

/// From `time` until the thread's next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// When it begins.
    pub time: i64,
    /// What the thread does from then on.
    pub state: State,
}

/// A send on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes sent on the socket up to its end.
    pub end: u64,
    /// When the call returned.
    pub time: i64,
    /// The thread.
    pub by: Thread,
}

/// The events of a record by thread, processor, socket and futex.
#[derive(Debug, Default)]
pub struct Threads {
    /// Segments of each thread of the recorded command, in order.
    pub segments: HashMap<Thread, Vec<Segment>>,
    /// When each processor began to run which thread.
    pub processors: HashMap<u16, Vec<(i64, Thread)>>,
    /// Sends by socket, in order.
    pub sends: Vec<Vec<Sent>>,
    /// For each futex word when its number of waiting threads changed, and the number.
    waiters: HashMap<u64, Vec<(i64, i32)>>,
}

/// What is known of threads until their next events.
#[derive(Debug, Default)]
struct Open {
    /// When they entered futex(2), and for which word.
    words: HashMap<Thread, (i64, u64)>,
    /// When they were woken before they had stopped, and by whom.
    wakings: HashMap<Thread, (i64, Waker)>,
}

impl Threads {
    /// Sorts the events of a finished record.
    pub fn new(record: &Record) -> Self {
        let mut threads = Self { sends: vec![Vec::new(); record.sockets.len()], ..Self::default() };
        let mut open = Open::default();
        for event in &record.events {
            threads.add(record, event, &mut open);
        }
        threads.count_waiters();
        threads
    }

    fn add(&mut self, record: &Record, event: &Event, open: &mut Open) {
        let Event { time, cpu, kind } = *event;
        match kind {
            Kind::Switch { from, blocked, to } => {
                if record.tasks.contains_key(&from) {
                    let entered = open.words.remove(&from).filter(|(entry, _)| time - entry <= FUTEX_ENTRY);
                    let word = entered.map_or(0, |(_, word)| word);
                    let state = if blocked { State::Blocked(word) } else { State::Ready(Ready::Preempted) };
                    self.push(from, time, state);
                }
                if record.tasks.contains_key(&to) {
                    self.mend_wake_up(to, open.wakings.remove(&to));
                    self.push(to, time, State::Running(cpu));
                }
                self.processors.entry(cpu).or_default().push((time, to));
            }
            Kind::Waking { by, woken } => {
                let last = self.segments.get(&woken).and_then(|segments| segments.last());
                let is_blocked = last.is_none_or(|segment| matches!(segment.state, State::Blocked(_)));
                if is_blocked && record.tasks.contains_key(&woken) {
                    self.push(woken, time, State::Ready(Ready::Woken(by)));
                } else if record.tasks.contains_key(&woken) {
                    open.wakings.insert(woken, (time, by));
                }
            }
            Kind::Send { by, socket, bytes } => {
                if let Some(sends) = self.sends.get_mut(socket as usize) {
                    let end = sends.last().map_or(0, |sent| sent.end).saturating_add(u64::from(bytes));
                    sends.push(Sent { end, time, by });
                }
            }
            Kind::Futex { by, word } => _ = open.words.insert(by, (time, word)),
        }
    }

    /// A thread may be woken after it left its processor's queue and before the switch is recorded: it is ready then.
    fn mend_wake_up(&mut self, thread: Thread, waking: Option<(i64, Waker)>) {
        let Some(segments) = self.segments.get_mut(&thread) else { return };
        let Some(((time, by), [.., before, last])) = waking.zip(Some(segments.as_mut_slice())) else { return };
        if matches!(last.state, State::Blocked(_)) && before.time <= time {
            last.state = State::Ready(Ready::Woken(by));
        }
    }

    fn push(&mut self, thread: Thread, time: i64, state: State) {
        self.segments.entry(thread).or_default().push(Segment { time, state });
    }

    fn count_waiters(&mut self) {
        for segments in self.segments.values() {
            for (place, segment) in segments.iter().enumerate() {
                if let Segment { time, state: State::Blocked(word @ 1..) } = *segment {
                    let end = segments.get(place + 1).map_or(i64::MAX, |after| after.time);
                    self.waiters.entry(word).or_default().extend([(time, 1), (end, -1)]);
                }
            }
        }
        for changes in self.waiters.values_mut() {
            changes.sort_unstable();
            let mut waiting = 0;
            for (_, change) in changes {
                waiting += *change;
                *change = waiting;
            }
        }
    }

    /// How many threads wait for a futex word right before `time`.
    pub fn waiting(&self, word: u64, time: i64) -> i32 {
        let Some(changes) = self.waiters.get(&word) else { return 0 };
        let place = changes.partition_point(|(change, _)| *change < time);
        place.checked_sub(1).and_then(|place| changes.get(place)).map_or(0, |(_, waiting)| *waiting)
    }

    /// The send that the byte at `offset` of a socket was in.
    pub fn sender(&self, socket: usize, offset: u64) -> Option<Sent> {
        let sends = self.sends.get(socket)?;
        sends.get(sends.partition_point(|sent| sent.end <= offset)).copied()
    }
}
