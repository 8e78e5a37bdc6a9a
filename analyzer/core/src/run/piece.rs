//! The time between two cuts of a run that goes on, and several of them joined.

use std::collections::{HashMap, HashSet};

use crate::connection::Ended;
use crate::store::context::Context;
use crate::store::piece::OpenTime;

use super::finished::Finished;
use super::icmp_errors::Collected;
use super::join_rows::{add_loss, join, join_repeated};
use super::merge::absorb;
use super::order_rows::order_rows;
use super::pipeline::CaptureCounts;
use super::questions::Questions;
use super::route::End;

/// A connection in a piece.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Its ends, the first sender before the other.
    pub ends: [End; 2],
    /// Its rows.
    pub ended: Ended,
    /// The time of its open RPCs.
    pub open: OpenTime,
}

/// What came between two cuts.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Connections; other tables refer to them by number.
    pub told: Vec<Told>,
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

impl Piece {
    /// Numbers connections by their first packets in the piece, as a run over its packets alone does.
    pub fn sort_connections(&mut self) {
        let mut order: Vec<u32> = (0..self.told.len() as u32).collect();
        let first = |&row: &u32| self.told.get(row as usize).map_or(0, |one| one.ended.row.first_packet);
        order.sort_by_key(first);
        let mut numbers = vec![0; order.len()];
        for (new, &old) in (0..).zip(&order) {
            numbers[old as usize] = new;
        }
        self.told = order.iter().filter_map(|&row| self.told.get(row as usize).copied()).collect();
        self.done.renumber_connections(&numbers);
        self.open.renumber_connections(&numbers);
        self.icmp_errors.renumber(&numbers);
        for place in &mut self.places {
            *place = numbers.get(*place as usize).copied().unwrap_or(*place);
        }
    }

    /// Rows of all tables.
    pub fn rows(&self) -> usize {
        self.told.len() + self.done.rows() + self.open.rows()
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        let told = size_of_val(self.told.as_slice());
        told + self.done.bytes() + self.open.bytes() + self.questions.bytes()
    }

    /// Leaves out what was open at its end, but for what was not answered: another piece follows, which knows better.
    pub fn go_on(&mut self) {
        let Context { unanswered, undelivered, .. } = std::mem::take(&mut self.open);
        self.open = Context { unanswered, undelivered, ..Context::default() };
    }
}

/// The tables of pieces that follow one another; the last one has what is open.
pub fn join_pieces<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Option<(Finished, Context, CaptureCounts)> {
    let mut pieces = pieces.peekable();
    let first = pieces.next()?;
    let mut joined = Joined::begin(first, first.done.clone());
    let mut last = first;
    for piece in pieces {
        joined.add(piece);
        last = piece;
    }
    Some(joined.finish(first, last))
}

/// The tables of one piece, and of what is open at its end alone.
pub fn finish_piece(mut piece: Piece) -> [(Finished, Context, CaptureCounts); 2] {
    let done = std::mem::take(&mut piece.done);
    let nothing = piece.open.new_like();
    [done, nothing].map(|done| Joined::begin(&piece, done).finish(&piece, &piece))
}

impl Joined {
    fn begin(first: &Piece, done: Context) -> Self {
        let mut joined = Self {
            places: HashMap::new(),
            told: Vec::new(),
            cx: done,
            counts: first.counts.clone(),
            questions: first.questions.clone(),
            icmp_errors: first.icmp_errors.clone(),
        };
        joined.cx.unpack();
        joined.add_connections(&first.told, None);
        joined.add_unanswered(first);
        joined
    }

    fn finish(mut self, first: &Piece, last: &Piece) -> (Finished, Context, CaptureCounts) {
        self.add_open(last);
        for one in &mut self.told {
            forget_opening(&mut one.ended, first.packets_before);
        }
        let Self { told, mut cx, mut counts, questions, icmp_errors, .. } = self;
        counts.icmp_errors_not_listed = icmp_errors.not_listed;
        join_repeated(&mut cx);
        order_rows(&mut cx);
        let rows = told.into_iter().map(|one| (one.ends, one.ended));
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
    told: Vec<Told>,
    cx: Context,
    counts: CaptureCounts,
    questions: Questions,
    icmp_errors: Collected,
}

impl Joined {
    fn add(&mut self, piece: &Piece) {
        let mut done = piece.done.clone();
        done.unpack();
        let numbers = self.numbers(&piece.told);
        done.renumber_connections(&numbers);
        let told: HashSet<u32> = numbers.iter().copied().collect();
        let others = |connections: &[u32]| {
            (0..).zip(connections).filter(|(_, one)| !told.contains(one)).map(|(row, _)| row).collect::<Vec<u32>>()
        };
        self.cx.unanswered.arrange(&others(&self.cx.unanswered.connection));
        self.cx.undelivered.arrange(&others(&self.cx.undelivered.connection));
        let agents = absorb(&mut self.cx, done);
        self.add_connections(&piece.told, Some(&agents));
        self.add_unanswered(piece);
        self.counts.absorb(&piece.counts);
        self.questions.absorb(piece.questions.clone());
        let mut errors = piece.icmp_errors.clone();
        errors.renumber(&numbers);
        self.icmp_errors.absorb(errors);
    }

    /// The numbers here of the connections of a piece.
    fn numbers(&mut self, told: &[Told]) -> Vec<u32> {
        let places = &mut self.places;
        told.iter()
            .map(|one| {
                let free = places.len() as u32;
                *places.entry(one.ended.id).or_insert(free)
            })
            .collect()
    }

    /// Adds the rows of connections. `agents` has the numbers of agents here by those of the piece.
    fn add_connections(&mut self, told: &[Told], agents: Option<&[u32]>) {
        for (number, one) in self.numbers(told).into_iter().zip(told) {
            let mut one = *one;
            let row = &mut one.ended.row;
            for agent in [&mut row.client_agent, &mut row.server_agent] {
                *agent = agents.and_then(|agents| agents.get(*agent as usize)).copied().unwrap_or(*agent);
            }
            match self.told.get_mut(number as usize) {
                Some(known) => *known = Told { ended: join(&known.ended, &one.ended), ..one },
                None => self.told.push(one),
            }
        }
    }

    /// Adds what was not answered at the end of a piece: it stays so until the connection has packets again.
    fn add_unanswered(&mut self, piece: &Piece) {
        let Context { unanswered, undelivered, .. } = &piece.open;
        let mut open =
            Context { unanswered: unanswered.clone(), undelivered: undelivered.clone(), ..Context::default() };
        open.renumber_connections(&self.numbers(&piece.told));
        self.cx.unanswered.append(&mut open.unanswered);
        self.cx.undelivered.append(&mut open.undelivered);
    }

    /// Adds what else is open at the end of the last piece.
    fn add_open(&mut self, last: &Piece) {
        let mut open = last.open.clone();
        open.unpack();
        (open.unanswered, open.undelivered) = Default::default();
        open.renumber_connections(&self.numbers(&last.told));
        absorb(&mut self.cx, open);
        for one in &last.told {
            let place = self.places.get(&one.ended.id).copied().unwrap_or(u32::MAX);
            if let Some(known) = self.told.get_mut(place as usize) {
                known.ended.budget.add_all(&one.open.budget);
                add_loss(&mut known.ended.row, &one.open.loss);
            }
        }
    }
}
