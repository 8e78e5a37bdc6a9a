//! The time between two cuts of a run that goes on, and several of them joined.

use std::collections::{HashMap, HashSet};

use crate::connection::Ended;
use crate::store::context::Context;
use crate::store::interval_parts::OpenTime;

use super::finished::Finished;
use super::icmp_errors::Collected;
use super::join_rows::{add_loss, join, join_repeated};
use super::merge::absorb;
use super::order_rows::order_rows;
use super::pipeline::CaptureCounts;
use super::questions::Questions;
use super::route::End;

/// A connection in an interval.
#[derive(Clone, Copy, Debug)]
pub struct IntervalConnection {
    /// Its ends, the first sender before the other.
    pub ends: [End; 2],
    /// Its rows.
    pub ended: Ended,
    /// The time of its open RPCs.
    pub open: OpenTime,
}

/// What came between two cuts.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Connections; other tables refer to them by number.
    pub connections: Vec<IntervalConnection>,
    /// What is over.
    pub done: Context,
    /// What is open at its end.
    pub open: Context,
    /// Counts of packets.
    pub counts: CaptureCounts,
    /// DNS questions.
    pub questions: Questions,
    /// ICMP errors.
    pub icmp_errors: Collected,
    /// Packets before it.
    pub packets_before: u32,
    /// When it ends, nanoseconds since the epoch.
    pub end_time: i64,
    /// Numbers of connections here by those before the cut, `u32::MAX` without a row.
    pub places: Vec<u32>,
}

impl Interval {
    /// Numbers connections by their first packets in the interval, as a run over its packets alone does.
    pub fn sort_connections(&mut self) {
        let mut order: Vec<u32> = (0..self.connections.len() as u32).collect();
        let first = |&row: &u32| self.connections.get(row as usize).map_or(0, |one| one.ended.row.first_packet);
        order.sort_by_key(first);
        let mut numbers = vec![0; order.len()];
        for (new, &old) in (0..).zip(&order) {
            numbers[old as usize] = new;
        }
        self.connections = order.iter().filter_map(|&row| self.connections.get(row as usize).copied()).collect();
        self.done.renumber_connections(&numbers);
        self.open.renumber_connections(&numbers);
        self.icmp_errors.renumber(&numbers);
        for place in &mut self.places {
            *place = numbers.get(*place as usize).copied().unwrap_or(*place);
        }
    }

    /// Rows of all tables.
    pub fn rows(&self) -> usize {
        self.connections.len() + self.done.rows() + self.open.rows()
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        let connections = size_of_val(self.connections.as_slice());
        connections + self.done.bytes() + self.open.bytes() + self.questions.bytes()
    }

    /// Leaves out what was open at its end, but for what was not answered: another interval follows, which knows better.
    pub fn go_on(&mut self) {
        let Context { unanswered, undelivered, .. } = std::mem::take(&mut self.open);
        self.open = Context { unanswered, undelivered, ..Context::default() };
    }
}

/// The tables of intervals that follow one another; the last one has what is open.
pub fn join_intervals<'a>(intervals: impl Iterator<Item = &'a Interval>) -> Option<(Finished, Context, CaptureCounts)> {
    let mut intervals = intervals.peekable();
    let first = intervals.next()?;
    let mut joined = Joined::begin(first, first.done.clone());
    let mut last = first;
    for interval in intervals {
        joined.add(interval);
        last = interval;
    }
    Some(joined.finish(first, last))
}

/// The tables of one interval, and of what is open at its end alone.
pub fn finish_interval(mut interval: Interval) -> [(Finished, Context, CaptureCounts); 2] {
    let done = std::mem::take(&mut interval.done);
    let nothing = interval.open.new_like();
    [done, nothing].map(|done| Joined::begin(&interval, done).finish(&interval, &interval))
}

impl Joined {
    fn begin(first: &Interval, done: Context) -> Self {
        let mut joined = Self {
            places: HashMap::new(),
            connections: Vec::new(),
            cx: done,
            counts: first.counts.clone(),
            questions: first.questions.clone(),
            icmp_errors: first.icmp_errors.clone(),
        };
        joined.cx.unpack();
        joined.add_connections(&first.connections, None);
        joined.add_unanswered(first);
        joined
    }

    fn finish(mut self, first: &Interval, last: &Interval) -> (Finished, Context, CaptureCounts) {
        self.add_open(last);
        for one in &mut self.connections {
            forget_opening(&mut one.ended, first.packets_before);
        }
        let Self { connections, mut cx, mut counts, questions, icmp_errors, .. } = self;
        counts.icmp_errors_not_listed = icmp_errors.not_listed;
        join_repeated(&mut cx);
        order_rows(&mut cx);
        let rows = connections.into_iter().map(|one| (one.ends, one.ended));
        (Finished::new(rows, questions, icmp_errors), cx, counts)
    }
}

/// Leaves out how a connection was set up if all of that lies before the window: up to packet `before`.
fn forget_opening(ended: &mut Ended, before: u32) {
    let Ended { row, setup, .. } = ended;
    let is_set_up = row.tls_finished_packet > 0 || setup.server_settings_packet > 0;
    let set_up = [
        setup.syn_ack_packet,
        setup.client_packet,
        setup.server_packet,
        setup.client_settings_packet,
        setup.server_settings_packet,
        setup.alert_packet,
        if is_set_up { 0 } else { setup.closed_packet }, // else its end says how the set-up failed
        row.tls_hello_packet,
        row.tls_finished_packet,
    ];
    let last = set_up.into_iter().max().filter(|&packet| packet > 0).unwrap_or(row.last_packet);
    if last <= before {
        setup.syns = 0;
        (setup.client_settings_packet, setup.client_settings_time_ns) = (0, -1);
        (setup.server_settings_packet, setup.server_settings_time_ns) = (0, -1);
        row.tls_server_hello_ns = -1;
    }
}

struct Joined {
    /// Connections by their first packets.
    places: HashMap<u32, u32>,
    connections: Vec<IntervalConnection>,
    cx: Context,
    counts: CaptureCounts,
    questions: Questions,
    icmp_errors: Collected,
}

impl Joined {
    fn add(&mut self, interval: &Interval) {
        let mut done = interval.done.clone();
        done.unpack();
        let numbers = self.numbers(&interval.connections);
        done.renumber_connections(&numbers);
        let updated: HashSet<u32> = numbers.iter().copied().collect();
        let others = |connections: &[u32]| {
            (0..).zip(connections).filter(|(_, one)| !updated.contains(one)).map(|(row, _)| row).collect::<Vec<u32>>()
        };
        self.cx.unanswered.arrange(&others(&self.cx.unanswered.connection));
        self.cx.undelivered.arrange(&others(&self.cx.undelivered.connection));
        let agents = absorb(&mut self.cx, done);
        self.add_connections(&interval.connections, Some(&agents));
        self.add_unanswered(interval);
        self.counts.absorb(&interval.counts);
        self.questions.absorb(interval.questions.clone());
        let mut errors = interval.icmp_errors.clone();
        errors.renumber(&numbers);
        self.icmp_errors.absorb(errors);
    }

    /// The numbers here of the connections of an interval.
    fn numbers(&mut self, connections: &[IntervalConnection]) -> Vec<u32> {
        let places = &mut self.places;
        connections
            .iter()
            .map(|one| {
                let free = places.len() as u32;
                *places.entry(one.ended.id).or_insert(free)
            })
            .collect()
    }

    /// Adds the rows of connections. `agents` has the numbers of agents here by those of the interval.
    fn add_connections(&mut self, connections: &[IntervalConnection], agents: Option<&[u32]>) {
        for (number, one) in self.numbers(connections).into_iter().zip(connections) {
            let mut one = *one;
            let row = &mut one.ended.row;
            for agent in [&mut row.client_agent, &mut row.server_agent] {
                *agent = agents.and_then(|agents| agents.get(*agent as usize)).copied().unwrap_or(*agent);
            }
            match self.connections.get_mut(number as usize) {
                Some(known) => *known = IntervalConnection { ended: join(&known.ended, &one.ended), ..one },
                None => self.connections.push(one),
            }
        }
    }

    /// Adds what was not answered at the end of an interval: it stays so until the connection has packets again.
    fn add_unanswered(&mut self, interval: &Interval) {
        let Context { unanswered, undelivered, .. } = &interval.open;
        let mut open =
            Context { unanswered: unanswered.clone(), undelivered: undelivered.clone(), ..Context::default() };
        open.renumber_connections(&self.numbers(&interval.connections));
        self.cx.unanswered.append(&mut open.unanswered);
        self.cx.undelivered.append(&mut open.undelivered);
    }

    /// Adds what else is open at the end of the last interval.
    fn add_open(&mut self, last: &Interval) {
        let mut open = last.open.clone();
        open.unpack();
        (open.unanswered, open.undelivered) = Default::default();
        open.renumber_connections(&self.numbers(&last.connections));
        absorb(&mut self.cx, open);
        for one in &last.connections {
            let place = self.places.get(&one.ended.id).copied().unwrap_or(u32::MAX);
            if let Some(known) = self.connections.get_mut(place as usize) {
                known.ended.budget.add_all(&one.open.budget);
                add_loss(&mut known.ended.row, &one.open.loss);
            }
        }
    }
}
