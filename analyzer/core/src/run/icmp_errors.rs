//! Collects the ICMP errors about segments of known connections.

use std::collections::{HashMap, HashSet};

use crate::at::At;
use crate::limits;
use crate::packet::{Address, icmp};
use crate::store::tables::{IcmpErrorRow, IcmpErrors};

/// How long apart two recordings of one error may be when the packet has no identification, as in IPv6, nanoseconds.
const WITHOUT_IDENTIFICATION: u64 = 1_000_000;
/// Errors of a kind among which a repeated one is looked for: a burst may pass the second interface later.
const RECENT: usize = 4;

/// Connection and sender of the segment, who reports what.
type Key = (u32, usize, Address, u8, u8, u32);

/// Which packet an error is about, and when it was recorded.
#[derive(Clone, Copy, Debug, Default)]
struct Sighting {
    seq: u32,
    ip_id: u16,
    time: i64,
}

impl Sighting {
    /// Whether both are the same error, recorded on two interfaces: a retransmission has an identification of its own.
    fn repeats(self, old: Self) -> bool {
        let close = self.time.abs_diff(old.time) <= WITHOUT_IDENTIFICATION;
        (self.seq, self.ip_id) == (old.seq, old.ip_id) && (self.ip_id != 0 || close)
    }
}

/// Equal errors.
#[derive(Clone, Debug)]
struct Kind {
    reporter: Address,
    row: IcmpErrorRow,
    recent: [Sighting; RECENT],
}

impl Kind {
    fn key(&self) -> Key {
        let row = &self.row;
        (row.connection, usize::from(row.direction), self.reporter, row.kind, row.code, row.mtu)
    }
}

/// The errors so far: equal ones have one row.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    kinds: Vec<Kind>,
    places: HashMap<Key, usize>,
    /// Errors of further kinds, and of connections that are not known any more.
    pub not_listed: u64,
}

impl Collected {
    /// Takes an error about a segment that a side of a connection sent.
    #[cold]
    pub fn take(&mut self, error: &icmp::Error, (connection, side): (u32, usize), at: At) {
        let icmp::Error { reporter, kind, code, mtu, .. } = *error;
        let key = (connection, side, reporter, kind, code, mtu);
        let sighting = Sighting { seq: error.seq, ip_id: error.ip_id, time: at.time };
        if let Some(Kind { row, recent, .. }) = self.places.get(&key).and_then(|&place| self.kinds.get_mut(place)) {
            if recent.iter().any(|&old| sighting.repeats(old)) {
                return;
            }
            recent[row.messages as usize % RECENT] = sighting;
            row.messages += 1;
            (row.last_packet, row.last_time_ns) = (at.packet, at.time);
        } else if self.kinds.len() < limits::ICMP_ERRORS {
            self.places.insert(key, self.kinds.len());
            let row = IcmpErrorRow {
                connection,
                direction: side as u8,
                kind,
                code,
                mtu,
                messages: 1,
                first_packet: at.packet,
                first_time_ns: at.time,
                last_packet: at.packet,
                last_time_ns: at.time,
                ..IcmpErrorRow::default()
            };
            self.kinds.push(Kind { reporter, row, recent: [sighting; RECENT] });
        } else {
            self.not_listed += 1;
        }
    }

    /// The connections with errors.
    pub fn connections(&self) -> HashSet<u32> {
        self.kinds.iter().map(|kind| kind.row.connection).collect()
    }

    /// Gives connections the numbers that `numbers` has in the place of their old ones; errors of the others are counted.
    pub fn renumber(&mut self, numbers: &[u32]) {
        self.kinds.retain_mut(|Kind { row, .. }| {
            row.connection = numbers.get(row.connection as usize).copied().unwrap_or(u32::MAX);
            self.not_listed += if row.connection == u32::MAX { u64::from(row.messages) } else { 0 };
            row.connection != u32::MAX
        });
    }

    /// Takes the errors of the next interval in.
    pub fn absorb(&mut self, next: Self) {
        self.places = self.kinds.iter().map(Kind::key).zip(0..).collect();
        self.not_listed += next.not_listed;
        for kind in next.kinds {
            if let Some(Kind { row, .. }) = self.places.get(&kind.key()).and_then(|&place| self.kinds.get_mut(place)) {
                row.messages += kind.row.messages;
                (row.last_packet, row.last_time_ns) = (kind.row.last_packet, kind.row.last_time_ns);
            } else if self.kinds.len() < limits::ICMP_ERRORS {
                self.places.insert(kind.key(), self.kinds.len());
                self.kinds.push(kind);
            } else {
                self.not_listed += u64::from(kind.row.messages);
            }
        }
    }

    /// The table, with the client's side of each connection and the `number` of each address.
    pub fn into_table(self, client_sides: &[u8], mut number: impl FnMut(Address) -> u32) -> IcmpErrors {
        let mut table = IcmpErrors::default();
        for Kind { reporter, row, .. } in self.kinds {
            if let Some(client) = client_sides.get(row.connection as usize) {
                table.push(IcmpErrorRow { reporter: number(reporter), direction: row.direction ^ client, ..row });
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u8, mtu: u32) -> icmp::Error {
        let end = (Address::v4([10, 0, 0, 1]), 1);
        icmp::Error {
            reporter: end.0,
            kind: icmp::UNREACHABLE,
            code,
            mtu,
            source: end,
            destination: end,
            seq: 0,
            ip_id: 0,
        }
    }

    #[test]
    fn an_error_that_was_recorded_twice_counts_once() {
        let mut collected = Collected::default();
        let ms = 1_000_000;
        // packet, its sequence number and identification, and the millisecond of the error
        for (seq, ip_id, at) in
            [(1, 7, 0), (2, 8, 0), (1, 7, 9), (2, 8, 9), (1, 9, 20), (3, 0, 30), (3, 0, 31), (3, 0, 33)]
        {
            collected.take(&icmp::Error { seq, ip_id, ..error(1, 0) }, (0, 0), At::new(1, at * ms));
        }
        assert_eq!(collected.into_table(&[0], |_| 0).messages, vec![5]);
    }

    #[test]
    fn equal_errors_have_one_row_and_directions_are_the_clients() {
        let mut collected = Collected::default();
        for (packet, code, side) in [(1, 4, 0), (2, 4, 0), (3, 4, 1), (4, 1, 0)] {
            let error = icmp::Error { seq: packet, ..error(code, 0) };
            collected.take(&error, (1, side), At::new(packet, i64::from(packet)));
        }
        collected.take(&error(1, 0), (2, 0), At::new(5, 5)); // a connection without a row
        let table = collected.into_table(&[0, 1], |_| 7);
        assert_eq!((table.messages, table.direction), (vec![2, 1, 1], vec![1, 0, 1]));
        assert_eq!((table.first_packet, table.last_packet), (vec![1, 3, 4], vec![2, 3, 4]));
    }

    #[test]
    fn rows_are_bounded() {
        let mut collected = Collected::default();
        for mtu in 0..limits::ICMP_ERRORS as u32 + 7 {
            collected.take(&error(4, mtu), (0, 0), At::new(1, 1));
        }
        assert_eq!(collected.not_listed, 7);
        assert_eq!(collected.into_table(&[0], |_| 0).len(), limits::ICMP_ERRORS);
    }
}
