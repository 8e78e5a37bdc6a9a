//! Forward steps of the capture's clock, which the TCP timestamps of both hosts disprove (RFC 7323 section 3).
//!
//! A long pause in a capture is either silence or a step of the recording host's clock. A host that pauses and a clock
//! that steps look alike in the packets of one side: only both sides' timestamps tell them apart. So after a pause
//! packets are kept until both, or one that went on, are known.

use serde::{Deserialize, Serialize};

use crate::capture_file::Packet;
use crate::limits;
use crate::packet::{Address, Dissector, Outcome, Segment};
use crate::state_fields;

/// Pauses that are looked at, nanoseconds: 100 ms (heuristic: NTP daemons slew smaller offsets, ntpd(8) up to 128 ms).
const LEAST: i64 = 100_000_000;
/// The slowest timestamp clock that RFC 7323 section 5.4 allows, nanoseconds a tick.
const SLOWEST_TICK: i64 = 1_000_000_000;
/// The quickest timestamp clock in use, nanoseconds a tick (Linux 6.7 and later, `tcp_usec_ts`).
const QUICKEST_TICK: i64 = 1_000;
/// Ticks that a clock must have been seen to make: with one more or less on either end, they bound its rate.
const LEAST_TICKS: u32 = 3;
/// How much longer one packet may have taken than another from its timestamp to the capture point, nanoseconds: a rate that
/// was seen over less time has wide bounds (heuristic: macOS counts three milliseconds in two).
const LATER: i64 = 50_000_000;
/// Age of the first timestamp of a flow at which it is taken anew, so that a clock of microseconds does not wrap: 10 min.
const OLD: i64 = 600_000_000_000;
/// Flows that are remembered.
const FLOWS: usize = 1024;

/// A step of the capture's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The first packet after it.
    pub packet: u32,
    /// How far the clock went ahead of time, nanoseconds.
    pub ns: i64,
}

/// What is known of the clock so far.
#[derive(Debug, Serialize, Deserialize)]
pub struct Clock {
    #[serde(deserialize_with = "state_fields::at_most::<{ FLOWS }, _, _>")]
    flows: Vec<Flow>,
    /// Time of the packet before, as recorded.
    last: i64,
    /// How far the clock is ahead by all steps, nanoseconds.
    ahead: i64,
    /// The first steps.
    pub steps: Vec<Step>,
    /// Steps beyond those.
    pub steps_not_listed: u64,
    pause: Option<Box<Pause>>,
}

/// One direction of a connection, by its packets with timestamps; times are corrected.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Flow {
    ends: Option<Ends>,
    first: (u32, i64),
    last: (u32, i64),
}

type Ends = [(Address, u16); 2];

/// Packets after a pause whose length is in doubt.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Pause {
    kept: Vec<Kept>,
    /// The flows that went on, a connection's one direction each.
    sides: Vec<Side>,
}

/// What a flow shows after a pause.
#[derive(Debug, Serialize, Deserialize)]
struct Side {
    ends: Ends,
    /// Its timestamp before the pause.
    before: u32,
    /// Sequence number behind its first data after the pause.
    data_end: Option<u32>,
    /// The length of the step by its timestamps, from a packet that was sent after the pause for certain.
    still: Option<i64>,
}

impl Side {
    /// Whether a packet of the peer was sent after one of this side had passed the capture point behind the pause: only
    /// then it was not sent before the pause and late on its way.
    fn is_answered_by(&self, ack: u32, echo: u32) -> bool {
        let acknowledged = self.data_end.is_some_and(|end| ack.wrapping_sub(end) as i32 >= 0);
        acknowledged || echo.wrapping_sub(self.before) as i32 > 0
    }
}

/// A packet with its own bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    number: u32,
    time_ns: i64,
    link_type: u32,
    interface: u32,
    captured: Vec<u8>,
    original_len: u32,
}

impl Kept {
    fn new(packet: &Packet<'_>) -> Self {
        let &Packet { number, time_ns, link_type, interface, captured, original_len } = packet;
        Self { number, time_ns, link_type, interface, captured: captured.to_vec(), original_len }
    }

    /// The packet as it was read.
    pub fn packet(&self) -> Packet<'_> {
        let &Self { number, time_ns, link_type, interface, ref captured, original_len } = self;
        Packet { number, time_ns, link_type, interface, captured, original_len }
    }
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is read.
    Read,
    /// It is kept.
    Nothing,
    /// It is kept, and what is kept can be read now, see [`Clock::take`].
    ReadKept,
    /// What is kept is read before it is asked again what to do with this one.
    ReadKeptFirst,
}

/// What a flow's timestamps say of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// The host's clock went on.
    WentOn,
    /// It did not advance: the capture's clock is ahead by so much.
    StoodStill(i64),
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            flows: vec![Flow::default(); FLOWS],
            last: i64::MAX,
            ahead: 0,
            steps: Vec::new(),
            steps_not_listed: 0,
            pause: None,
        }
    }
}

impl Clock {
    /// The packet's time without the steps before it, as far as times go.
    #[inline]
    pub fn corrected(&self, time: i64) -> i64 {
        time.saturating_sub(self.ahead).clamp(0, limits::LATEST_TIME)
    }

    /// Remembers a segment's timestamp; `time` is corrected.
    #[inline]
    pub fn note(&mut self, segment: &Segment<'_>, time: i64) {
        let Some((value, _)) = segment.timestamps else { return };
        let ends = ends(segment);
        let Some(flow) = self.flows.get_mut(place(&ends)) else { return };
        if flow.ends != Some(ends) {
            *flow = Flow { ends: Some(ends), first: (value, time), last: (value, time) };
        } else if time - flow.first.1 > OLD {
            flow.first = flow.last;
        }
        flow.last = (value, time);
    }

    /// Keeps the packet if it comes after a pause, or among the packets that tell how long that was; says what is to be
    /// done.
    #[inline]
    pub fn keeps(&mut self, packet: &Packet<'_>) -> Then {
        let paused = packet.time_ns.saturating_sub(self.last) >= LEAST;
        if self.pause.is_none() && !paused {
            self.last = packet.time_ns;
            return Then::Read;
        }
        self.keep(packet)
    }

    #[cold]
    fn keep(&mut self, packet: &Packet<'_>) -> Then {
        let mut pause = self.pause.take().unwrap_or_default();
        let paused = pause.kept.last().is_some_and(|last| packet.time_ns.saturating_sub(last.time_ns) >= LEAST);
        let then = if paused && pause.sides.is_empty() {
            Then::ReadKeptFirst // it may tell more of this pause; else an answer may be that long on its way
        } else {
            pause.kept.push(Kept::new(packet));
            let over = self.ask(packet, &mut pause.sides);
            if over || pause.kept.len() >= limits::PACKETS_AFTER_PAUSE {
                self.conclude(&pause);
                Then::ReadKept
            } else {
                Then::Nothing
            }
        };
        self.pause = Some(pause);
        then
    }

    /// The times of the first and the last packet that are kept, as recorded.
    pub fn kept_times(&self) -> Option<(i64, i64)> {
        let kept = &self.pause.as_ref()?.kept;
        Some((kept.first()?.time_ns, kept.last()?.time_ns))
    }

    /// The packets that were kept, to be read now.
    pub fn take(&mut self) -> Vec<Kept> {
        let kept = self.pause.take().map(|pause| pause.kept).unwrap_or_default();
        self.last = kept.last().map_or(self.last, |packet| packet.time_ns);
        kept
    }

    /// Asks the packet's timestamp how much time passed since its flow's last one; `true` when that is decided.
    fn ask(&self, packet: &Packet<'_>, sides: &mut Vec<Side>) -> bool {
        let mut dissector = Dissector::new();
        let outcome = dissector.dissect(packet.link_type, packet.captured, packet.original_len, packet.time_ns);
        let Outcome::Tcp(segment) = outcome else { return false };
        let (ends, Some((value, echo))) = (ends(&segment), segment.timestamps) else { return false };
        let Some(flow) = self.flows.get(place(&ends)).filter(|flow| flow.ends == Some(ends)) else { return false };
        let Some(said) = flow.said(value, self.corrected(packet.time_ns)) else { return false };
        let Said::StoodStill(ns) = said else {
            sides.clear();
            return true;
        };
        let peer = sides.iter().find(|side| side.ends == [ends[1], ends[0]]);
        let answers = peer.is_some_and(|peer| peer.is_answered_by(segment.ack, echo));
        let peer_still = peer.is_some_and(|peer| peer.still.is_some());
        let side = match sides.iter().position(|side| side.ends == ends) {
            Some(place) => sides.get_mut(place),
            None => {
                sides.push(Side { ends, before: flow.last.0, data_end: None, still: None });
                sides.last_mut()
            }
        };
        let Some(side) = side else { return false };
        if segment.payload_len > 0 {
            side.data_end.get_or_insert(segment.seq.wrapping_add(segment.payload_len));
        }
        if answers {
            side.still.get_or_insert(ns);
        }
        side.still.is_some() && peer_still
    }

    /// Corrects times from the first kept packet on if both sides' clocks did not advance, by no more than the pause was long.
    fn conclude(&mut self, pause: &Pause) {
        let both = pause.sides.iter().find_map(|side| {
            let peer = pause.sides.iter().find(|peer| peer.ends == [side.ends[1], side.ends[0]])?;
            Some(side.still?.min(peer.still?))
        });
        let (Some(ns), Some(first)) = (both, pause.kept.first()) else { return };
        let ns = ns.min(first.time_ns.saturating_sub(self.last));
        self.ahead = self.ahead.saturating_add(ns);
        if self.steps.len() < limits::CLOCK_STEPS {
            self.steps.push(Step { packet: first.number, ns });
        } else {
            self.steps_not_listed += 1;
        }
    }
}

impl Flow {
    /// What a timestamp at `time` says; `None` where its clock is too slow, or wraps too soon, to tell.
    fn said(&self, value: u32, time: i64) -> Option<Said> {
        let paused = time.saturating_sub(self.last.1);
        let ticks = value.wrapping_sub(self.last.0);
        let (seen, in_ns) = (self.last.0.wrapping_sub(self.first.0), self.last.1.saturating_sub(self.first.1));
        let known = (LEAST_TICKS..u32::MAX / 2).contains(&seen) && in_ns > 0;
        // one tick more or less than was counted, on either end
        let slowest = if known { ((in_ns + LATER) / i64::from(seen - 1) + 1).min(SLOWEST_TICK) } else { SLOWEST_TICK };
        let quickest = if known { in_ns / i64::from(seen + 1) } else { 0 };
        let wraps = known && paused / quickest.max(QUICKEST_TICK) >= i64::from(u32::MAX / 2);
        if paused < LEAST || wraps || ticks > u32::MAX / 2 {
            return None;
        }
        let most = i64::from(ticks + 1).saturating_mul(slowest);
        if paused.saturating_sub(most) >= LEAST / 2 {
            let passed = if known { i64::from(ticks).saturating_mul(in_ns / i64::from(seen)) } else { 0 };
            return Some(Said::StoodStill(paused - passed));
        }
        let least = i64::from(ticks.saturating_sub(1)).saturating_mul(quickest);
        (paused.saturating_sub(least) < LEAST).then_some(Said::WentOn)
    }
}

#[inline]
fn ends(segment: &Segment<'_>) -> Ends {
    [(segment.source, segment.source_port), (segment.destination, segment.destination_port)]
}

/// Ports tell connections apart well enough: one that takes another's place is followed instead. Both directions have places.
#[inline]
fn place(ends: &Ends) -> usize {
    let (from, to) = (usize::from(ends[0].1), usize::from(ends[1].1));
    let forth = if from == to { ends[0].0 < ends[1].0 } else { from < to };
    (from.wrapping_mul(to) ^ from ^ to) % (FLOWS / 2) * 2 + usize::from(forth)
}

#[cfg(test)]
mod tests;
