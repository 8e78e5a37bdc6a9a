//! A run that goes on: at each cut it gives what came since the last one.

use std::sync::Arc;

use crate::at::At;
use crate::clock_steps::Clock;
use crate::connection::CaptureEnd;
use crate::limits;
use crate::store::interval_parts::Parts;
use crate::store::options::Options;
use crate::tls::KeyLog;

use super::connection_opening::Opening;
use super::interval::{Interval, IntervalConnection};
use super::pipeline::{CaptureCounts, Pipeline};
use super::replay::Replay;
use super::shard::Cut;

impl Pipeline {
    /// A run that is cut: one thread, and no tables whose rows are taken while the run goes on.
    pub fn live(options: Options, keys: Arc<KeyLog>) -> Self {
        Self::resumable(Options { frames: false, messages: false, packets: false, ..options }, keys)
    }

    /// A run that is cut, whose rows of packets may be taken.
    pub fn resumable(options: Options, keys: Arc<KeyLog>) -> Self {
        Self::with_keys(Options { threads: 0, resumes: true, ..options }, keys)
    }

    /// Ends an interval. `end` is the time up to which no packet is missing, if later than the last packet's.
    pub fn cut(&mut self, end: i64) -> Interval {
        let kept = self.clock.as_ref().and_then(Clock::kept_times);
        if kept.is_some_and(|(_, last)| end > last) {
            self.read_kept(); // it is in doubt how long a pause was, but not that it is over
        }
        let end = kept.map_or(end, |(first, last)| if end > last { end } else { end.min(first) });
        self.divide(self.clock.as_ref().map_or(end, |clock| clock.corrected(end)), 0, false)
    }

    /// Ends the last interval: the stream is over, and lacks packets after its packet `damage`.
    pub fn cut_last(&mut self, damage: u32) -> Interval {
        self.read_kept();
        self.divide(i64::MIN, damage, true)
    }

    /// Ends the interval of a file behind which others may come; it lacks packets after its packet `damage`.
    pub fn cut_file(&mut self, damage: u32) -> Interval {
        self.read_kept();
        let mut interval = self.divide(i64::MIN, damage, false);
        interval.sort_connections();
        interval
    }

    fn divide(&mut self, end: i64, damage: u32, is_last: bool) -> Interval {
        self.shards.read_buffered();
        let packets_before = self.packets_before;
        let packet = packets_before.saturating_add(u32::try_from(self.counts.packets).unwrap_or(u32::MAX));
        let now = if end > i64::MIN { end } else { self.last_time };
        let last_time = if self.end_time > i64::MIN { self.end_time } else { self.last_time };
        let end = CaptureEnd { last: At::new(packet, last_time.max(end).max(0)), damage };
        let mut parts = Parts::begin(&mut self.shards.here.cx);
        if is_last {
            std::mem::swap(&mut parts.done.strings, &mut parts.next.strings); // with the trace contexts
        }
        let (connections, numbers, places) = self.report(Cut { end, now, is_last }, &mut parts);
        parts.finish();
        let Parts { mut done, mut open, mut next, .. } = parts;
        let mut icmp_errors = std::mem::take(&mut self.icmp_errors);
        done.renumber_connections(&places);
        open.renumber_connections(&places);
        icmp_errors.renumber(&places);
        let new: Vec<u32> = numbers.iter().map(|number| number.unwrap_or(u32::MAX)).collect();
        next.renumber_connections(&new);
        self.shards.here.cx = next;
        let counts = self.take_counts();
        self.forget(&numbers, packet);
        let agents = || connections.iter().flat_map(|one| [one.ended.row.client_agent, one.ended.row.server_agent]);
        done.pack(agents());
        open.pack(agents());
        let questions = self.questions.take_interval(now);
        Interval {
            connections,
            done,
            open,
            counts,
            questions,
            icmp_errors,
            packets_before,
            end_time: end.last.time,
            places,
        }
    }

    /// What there is to report of each connection. Gives the numbers that connections have from now on, `None` for those that
    /// are forgotten, and their numbers in the report.
    fn report(&mut self, cut: Cut, parts: &mut Parts) -> (Vec<IntervalConnection>, Vec<Option<u32>>, Vec<u32>) {
        let named = self.icmp_errors.connections();
        let (mut connections, mut numbers, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut free, before) = (0_u32.., self.packets_before);
        for (row, known) in (0..).zip(self.router.known()) {
            let (found, goes_on) = match known.opening() {
                Some(opening) => {
                    let has_news = opening.last_packet() > Some(before) || named.contains(&row);
                    let ended = if has_news { self.replay.end(opening, row, before, cut.end) } else { None };
                    (ended.map(|ended| (ended, Default::default())), goes_on(opening, cut.now))
                }
                None => self.shards.here.divide(known.local(), cut, named.contains(&row), parts),
            };
            numbers.push(if goes_on { free.next() } else { None });
            places.push(if found.is_some() { connections.len() as u32 } else { u32::MAX });
            connections.extend(found.map(|(ended, open)| IntervalConnection { ends: known.ends(), ended, open }));
        }
        (connections, numbers, places)
    }

    fn take_counts(&mut self) -> CaptureCounts {
        let link_types = self.counts.link_types.clone();
        let mut counts = std::mem::replace(&mut self.counts, CaptureCounts { link_types, ..CaptureCounts::default() });
        if let Some(clock) = &mut self.clock {
            counts.clock_steps = std::mem::take(&mut clock.steps);
            counts.clock_steps_not_listed = std::mem::take(&mut clock.steps_not_listed);
        }
        counts.connections_not_listed = self.router.not_listed;
        counts.lookups_not_listed = self.questions.not_listed;
        counts
    }

    /// Forgets what is over; `numbers` has the new numbers of connections, and `packet` is the last one read.
    pub(super) fn forget(&mut self, numbers: &[Option<u32>], packet: u32) {
        let places = self.shards.here.renumber(numbers);
        self.router.renumber(numbers, &places);
        self.shards.here.cx.strings.renumber();
        if self.shards.here.cx.strings.is_half_full() {
            self.shards.here.forget_names();
        }
        self.replay = Replay::new(self.shards.here.cx.options.ports.clone());
        (self.packets_before, self.shards.cut) = (packet, packet);
        self.end_time = i64::MIN; // one packet of a wrong time counts in its own interval
    }

    /// Connections that are followed, streams that are open on them, rows that are not taken, names.
    pub fn kept(&self) -> [usize; 4] {
        let (connections, streams) = self.shards.here.counts();
        let (cx, bare) = (&self.shards.here.cx, self.router.known().iter().filter(|known| known.opening().is_some()));
        let names = [&cx.strings.methods, &cx.strings.agents, &cx.strings.errors].map(|names| names.kept());
        [connections + bare.count(), streams, cx.rows(), names.iter().sum()]
    }
}

/// Whether a connection without payload is remembered.
fn goes_on(opening: &Opening, now: i64) -> bool {
    let most = if opening.is_over() { limits::LIVE_LINGER } else { limits::LIVE_IDLE };
    now.saturating_sub(opening.last_time()) < most
}

impl CaptureCounts {
    /// Takes the counts of what came next in.
    pub fn absorb(&mut self, next: &Self) {
        let &Self {
            packets,
            bytes,
            captured_bytes,
            first_time_ns,
            last_time_ns,
            tcp,
            not_tcp,
            malformed,
            truncated,
            fragments,
            unsupported_link,
            time_steps_back,
            ref clock_steps,
            clock_steps_not_listed,
            connections_not_listed,
            lookups_not_listed,
            icmp_errors_not_listed: _, // as many as the joined table has no room for
            tunnelled,
            ref link_types,
        } = next;
        for (sum, count) in [
            (&mut self.packets, packets),
            (&mut self.bytes, bytes),
            (&mut self.captured_bytes, captured_bytes),
            (&mut self.tcp, tcp),
            (&mut self.not_tcp, not_tcp),
            (&mut self.malformed, malformed),
            (&mut self.truncated, truncated),
            (&mut self.fragments, fragments),
            (&mut self.unsupported_link, unsupported_link),
            (&mut self.time_steps_back, time_steps_back),
            (&mut self.clock_steps_not_listed, clock_steps_not_listed),
            (&mut self.connections_not_listed, connections_not_listed),
            (&mut self.lookups_not_listed, lookups_not_listed),
            (&mut self.tunnelled, tunnelled),
        ] {
            *sum += count;
        }
        self.first_time_ns = self.first_time_ns.into_iter().chain(first_time_ns).min();
        self.last_time_ns = self.last_time_ns.max(last_time_ns);
        self.clock_steps.extend(clock_steps.iter().copied());
        self.link_types.clone_from(link_types);
    }
}
