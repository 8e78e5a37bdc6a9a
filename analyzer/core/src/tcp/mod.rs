//! TCP (RFC 9293): which packets belong together, and in which order their bytes were meant.

pub mod congestion;
pub mod connection;
pub mod duplicate;
pub mod half;
pub mod note;
pub mod reassembly;
pub mod roles;
pub mod rtt;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use crate::at::At;
use crate::budget::Budget;
use crate::context::Context;
use crate::limits;
use crate::packet::{Address, Segment, TcpFlags};
use crate::tables::{ConnectionRow, Connections, Layer};

use connection::Connection;

/// Both ends of a connection, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    low: (Address, u16),
    high: (Address, u16),
}

/// A connection in the order of first packets.
#[derive(Debug)]
struct Slot {
    /// The end that sent the first packet.
    first_sender: (Address, u16),
    other: (Address, u16),
    live: Option<Box<Connection>>,
    /// Packets after the connection was over.
    late: u32,
}

/// Packets after which a connection that is over is put away: late packets may still come, and the capture point may
/// have mixed the order.
const LINGER_PACKETS: u32 = 256;

/// All connections of a run.
#[derive(Debug, Default)]
pub struct ConnectionTable {
    numbers: HashMap<Key, u32, foldhash::fast::RandomState>,
    slots: Vec<Slot>,
    rows: Vec<(ConnectionRow, Budget)>,
    /// Ends that are known to listen.
    servers: HashSet<(Address, u16), foldhash::fast::RandomState>,
    /// Connections that are over, with the packet at which they may be put away.
    lingering: VecDeque<(u32, u32)>,
    last: Option<(Key, u32)>,
    ignored: u64,
    end: At,
}

impl ConnectionTable {
    /// Takes one segment.
    #[inline]
    pub fn segment(&mut self, segment: &Segment<'_>, packet: u32, time: i64, cx: &mut Context) {
        let at = At::new(packet, time);
        self.end = if time >= self.end.time { at } else { self.end };
        let source = (segment.source, segment.source_port);
        let destination = (segment.destination, segment.destination_port);
        let key = if source <= destination {
            Key { low: source, high: destination }
        } else {
            Key { low: destination, high: source }
        };
        let Some(number) = self.number(key, source, segment, at, cx) else { return };
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        let side = usize::from(slot.first_sender != source);
        match &mut slot.live {
            Some(connection) => {
                let was_finished = connection.is_finished();
                connection.segment(side, segment, at, cx);
                if connection.is_finished() && !was_finished {
                    self.lingering.push_back((packet.saturating_add(LINGER_PACKETS), number));
                }
            }
            None => slot.late += 1,
        }
        if !self.lingering.is_empty() {
            self.put_away(packet, cx);
        }
    }

    /// The connection of a segment, made when it is new; `None` when there are too many.
    #[inline]
    fn number(&mut self, key: Key, source: (Address, u16), segment: &Segment<'_>, at: At, cx: &mut Context) -> Option<u32> {
        let known = match self.last {
            Some((last, number)) if last == key => Some(number),
            _ => self.numbers.get(&key).copied(),
        };
        let number = match known {
            Some(number) if !segment.flags.contains(TcpFlags::SYN) || !self.is_replaced_by(number, source, segment) => number,
            Some(number) => {
                self.finish(number, true, cx);
                self.open(key, source, segment, at, cx)?
            }
            None => self.open(key, source, segment, at, cx)?,
        };
        self.last = Some((key, number));
        Some(number)
    }

    /// Whether a SYN opens another connection on the same addresses and ports: its initial sequence number is not
    /// the one of the connection that is known.
    fn is_replaced_by(&self, number: u32, source: (Address, u16), segment: &Segment<'_>) -> bool {
        let Some(slot) = self.slots.get(number as usize) else { return false };
        let Some(connection) = &slot.live else { return true };
        let side = usize::from(slot.first_sender != source);
        match connection.halves[side].isn {
            Some(isn) => isn != segment.seq,
            // the other side's SYN is known and this is its answer, or the opening was not captured
            None => connection.halves[1 - side].isn.is_none() && connection.halves[side].started,
        }
    }

    fn open(&mut self, key: Key, source: (Address, u16), segment: &Segment<'_>, at: At, cx: &mut Context) -> Option<u32> {
        if self.slots.len() >= limits::CONNECTIONS {
            self.ignored += 1;
            if self.ignored == 1 {
                let text = "too many connections: further ones are not followed";
                cx.problem(Layer::Tcp, text, crate::tables::NO_CONNECTION, at.packet, at.time);
            }
            return None;
        }
        let number = self.slots.len() as u32;
        let other = if key.low == source { key.high } else { key.low };
        let suggested = match (self.servers.contains(&source), self.servers.contains(&other)) {
            (true, false) => 1,
            (false, true) => 0,
            _ => roles::from_ports(source.1, other.1),
        };
        match (segment.flags.contains(TcpFlags::SYN), segment.flags.contains(TcpFlags::ACK)) {
            (true, false) => drop(self.servers.insert(other)),
            (true, true) => drop(self.servers.insert(source)),
            _ => {}
        }
        let live = Some(Box::new(Connection::new(number, segment, suggested, at, cx)));
        self.slots.push(Slot { first_sender: source, other, live, late: 0 });
        self.rows.push(Default::default());
        self.numbers.insert(key, number);
        Some(number)
    }

    fn put_away(&mut self, packet: u32, cx: &mut Context) {
        while let Some(&(due, number)) = self.lingering.front() {
            if due > packet {
                return;
            }
            self.lingering.pop_front();
            self.finish(number, false, cx);
        }
    }

    fn finish(&mut self, number: u32, replaced: bool, cx: &mut Context) {
        let end = self.end;
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        let Some(connection) = slot.live.take() else { return };
        let row = connection.finish(replaced, end, cx);
        if let Some(place) = self.rows.get_mut(number as usize) {
            *place = row;
        }
    }

    /// The capture is over: every connection ends, and the table is made. Addresses become numbers of `addresses`.
    pub fn into_table(mut self, cx: &mut Context) -> (Connections, Vec<Budget>, Vec<String>) {
        for number in 0..self.slots.len() as u32 {
            self.finish(number, false, cx);
        }
        let mut table = Connections::default();
        let mut names = Addresses::default();
        for (slot, (row, _)) in self.slots.iter().zip(&self.rows) {
            let client_first = row.client_side == 0;
            let (client, server) = if client_first { (slot.first_sender, slot.other) } else { (slot.other, slot.first_sender) };
            table.push(ConnectionRow {
                client_ip: names.number(client.0),
                client_port: u32::from(client.1),
                server_ip: names.number(server.0),
                server_port: u32::from(server.1),
                late_packets: slot.late,
                ..*row
            });
        }
        let budgets = self.rows.iter().map(|&(_, budget)| budget).collect();
        (table, budgets, names.texts)
    }
}

/// Addresses as numbers.
#[derive(Debug, Default)]
struct Addresses {
    numbers: HashMap<Address, u32, foldhash::fast::RandomState>,
    texts: Vec<String>,
}

impl Addresses {
    fn number(&mut self, address: Address) -> u32 {
        *self.numbers.entry(address).or_insert_with(|| {
            self.texts.push(address.to_string());
            (self.texts.len() - 1) as u32
        })
    }
}
