//! Brings packets into the order of their times where a capture has another one: interfaces that were joined, and queues of an
//! adapter, come one after the other.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::capture_file::Packet;
use crate::limits;

mod acknowledged;
mod numbers;
#[cfg(test)]
mod tests;

pub use numbers::Numbers;

use acknowledged::Acknowledged;

/// Packets that were too late of which numbers are kept.
const SHOWN: usize = 3;

/// Buffers packets until none with an earlier time can come. Equal times stay in the order of the file.
///
/// A packet that is earlier than the window before the latest one ends what is sorted: the clock was set back, or another
/// capture begins. So does one that acknowledges data of a packet before it with a later time: there the times are wrong, not the
/// order. Packets before it stay before it.
#[derive(Debug, Default)]
pub struct Sorter {
    /// Packets that came in order.
    queue: VecDeque<Waiting>,
    /// Packets that came late.
    late: BinaryHeap<Reverse<Waiting>>,
    /// The data of packets that wait, while there are late ones.
    data: Option<Box<Acknowledged>>,
    /// The latest time since `stretch` began.
    latest: i64,
    stretch: u32,
    bytes: usize,
    /// What was given last.
    given: Waiting,
    is_over: bool,
    /// Packets of the captures before this one.
    before: u32,
    /// Numbers in a file are not kept: there is no file.
    is_stream: bool,
    /// Packets that came late, and were put before others.
    pub moved: u64,
    /// Packets that acknowledge data of a later time.
    pub contradicted: u64,
    /// The first packets that were too late: numbers and times.
    pub too_late: Vec<(u32, i64)>,
    /// The numbers in the file of the packets that were given.
    pub numbers: Numbers,
}

/// A packet with its own bytes.
#[derive(Debug, Default)]
struct Waiting {
    stretch: u32,
    time_ns: i64,
    number: u32,
    link_type: u32,
    interface: u32,
    original_len: u32,
    captured: Box<[u8]>,
}

impl Waiting {
    fn place(&self) -> (u32, i64, u32) {
        (self.stretch, self.time_ns, self.number)
    }

    fn packet(&self) -> Packet<'_> {
        let &Self { time_ns, number, link_type, interface, original_len, ref captured, .. } = self;
        Packet { number, time_ns, link_type, interface, captured, original_len }
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Waiting {}

impl Sorter {
    /// Sorts what comes behind so many packets of other captures.
    pub fn behind(before: u32) -> Self {
        Self { before, numbers: Numbers::behind(before), ..Self::default() }
    }

    /// Sorts a stream that nobody keeps.
    pub fn of_stream() -> Self {
        Self { is_stream: true, ..Self::default() }
    }

    /// Takes the next packet of the file.
    pub fn push(&mut self, packet: &Packet<'_>) {
        if packet.time_ns < self.latest {
            self.push_late(packet);
        } else {
            self.add(packet);
        }
    }

    #[cold]
    fn push_late(&mut self, packet: &Packet<'_>) {
        let is_too_late = packet.time_ns < self.latest.saturating_sub(limits::SORTED_NS) || self.numbers.is_full();
        if is_too_late && self.too_late.len() < SHOWN {
            self.too_late.push((packet.number.saturating_add(self.before), packet.time_ns));
        }
        let is_contradicted = !is_too_late && self.data().are_acknowledged_by(packet);
        self.contradicted += u64::from(is_contradicted);
        if is_too_late || is_contradicted {
            self.stretch = self.stretch.saturating_add(1);
            self.latest = packet.time_ns;
            self.data = None;
        }
        self.add(packet);
    }

    /// The data of the packets that wait.
    fn data(&mut self) -> &mut Acknowledged {
        self.data.get_or_insert_with(|| {
            let mut data = Box::<Acknowledged>::default();
            let late = self.late.iter().map(|late| &late.0);
            late.chain(&self.queue).for_each(|waiting| data.add(&waiting.packet()));
            data
        })
    }

    fn add(&mut self, packet: &Packet<'_>) {
        if let Some(data) = &mut self.data {
            data.add(packet);
        }
        self.data.take_if(|data| data.is_full()); // of most packets, which do not wait any more
        let &Packet { time_ns, link_type, interface, captured, original_len, .. } = packet;
        let number = packet.number.saturating_add(self.before);
        self.bytes += captured.len();
        let (stretch, captured) = (self.stretch, captured.into());
        let waiting = Waiting { stretch, time_ns, number, link_type, interface, original_len, captured };
        if time_ns >= self.latest {
            self.latest = time_ns;
            self.queue.push_back(waiting);
        } else {
            self.moved += 1;
            self.late.push(Reverse(waiting));
        }
    }

    /// No more packets come, for now: all are due.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether no more packets come.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The time of the packet that is given next, if one is due.
    pub fn due(&self) -> Option<i64> {
        let next = self.next()?;
        let is_due = self.is_over
            || next.stretch < self.stretch
            || self.latest.saturating_sub(next.time_ns) >= limits::SORTED_NS
            || self.queue.len() + self.late.len() > limits::SORTED_PACKETS
            || self.bytes > limits::SORTED_BYTES;
        is_due.then_some(next.time_ns)
    }

    /// The time of the packet that is given next, due or not.
    pub fn first(&self) -> Option<i64> {
        self.next().map(|next| next.time_ns)
    }

    /// The earliest packet, due or not. Its number is its place in the order of times.
    pub fn give(&mut self) -> Option<Packet<'_>> {
        let first = if self.is_late_next() { self.late.pop().map(|late| late.0) } else { self.queue.pop_front() };
        self.given = first?;
        self.bytes -= self.given.captured.len();
        if self.late.is_empty() {
            self.data = None;
        }
        let packet = self.given.packet();
        let number = if self.is_stream { packet.number } else { self.numbers.add(packet.number) };
        Some(Packet { number, ..packet })
    }

    fn next(&self) -> Option<&Waiting> {
        if self.is_late_next() { self.late.peek().map(|late| &late.0) } else { self.queue.front() }
    }

    fn is_late_next(&self) -> bool {
        match (self.queue.front(), self.late.peek()) {
            (Some(first), Some(late)) => late.0 < *first,
            (None, late) => late.is_some(),
            _ => false,
        }
    }
}
