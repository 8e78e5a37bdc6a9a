//! Collects the ICMP errors about segments of known connections.

use std::collections::HashMap;

use crate::at::At;
use crate::limits;
use crate::packet::{Address, icmp};
use crate::store::tables::{IcmpErrorRow, IcmpErrors};

/// Connection and sender of the segment, who reports what.
type Key = (u32, usize, Address, u8, u8, u32);

/// The errors so far: equal ones have one row.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    rows: Vec<(Address, IcmpErrorRow)>,
    places: HashMap<Key, usize>,
}

impl Collected {
    /// Takes an error about a segment that a side of a connection sent.
    #[cold]
    pub fn take(&mut self, error: &icmp::Error, (connection, side): (u32, usize), at: At) {
        let icmp::Error { reporter, kind, code, mtu, .. } = *error;
        let key = (connection, side, reporter, kind, code, mtu);
        if let Some((_, row)) = self.places.get(&key).and_then(|&place| self.rows.get_mut(place)) {
            row.messages += 1;
            (row.last_packet, row.last_time_ns) = (at.packet, at.time);
        } else if self.rows.len() < limits::ICMP_ERRORS {
            self.places.insert(key, self.rows.len());
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
            self.rows.push((reporter, row));
        }
    }

    /// Gives connections the numbers that `numbers` has in the place of their old ones.
    pub fn renumber(&mut self, numbers: &[u32]) {
        for (_, row) in &mut self.rows {
            row.connection = numbers.get(row.connection as usize).copied().unwrap_or(u32::MAX);
        }
    }

    /// Takes the errors of the next piece in.
    pub fn absorb(&mut self, next: Self) {
        let key = |(reporter, row): &(Address, IcmpErrorRow)| {
            (row.connection, usize::from(row.direction), *reporter, row.kind, row.code, row.mtu)
        };
        self.places = self.rows.iter().map(key).zip(0..).collect();
        for one in next.rows {
            if let Some((_, row)) = self.places.get(&key(&one)).and_then(|&place| self.rows.get_mut(place)) {
                row.messages += one.1.messages;
                (row.last_packet, row.last_time_ns) = (one.1.last_packet, one.1.last_time_ns);
            } else if self.rows.len() < limits::ICMP_ERRORS {
                self.places.insert(key(&one), self.rows.len());
                self.rows.push(one);
            }
        }
    }

    /// The table, with the client's side of each connection and the `number` of each address.
    pub fn into_table(self, client_sides: &[u8], mut number: impl FnMut(Address) -> u32) -> IcmpErrors {
        let mut table = IcmpErrors::default();
        for (reporter, row) in self.rows {
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
        icmp::Error { reporter: end.0, kind: icmp::UNREACHABLE, code, mtu, source: end, destination: end, seq: 0 }
    }

    #[test]
    fn equal_errors_have_one_row_and_directions_are_the_clients() {
        let mut collected = Collected::default();
        for (packet, code, side) in [(1, 4, 0), (2, 4, 0), (3, 4, 1), (4, 1, 0)] {
            collected.take(&error(code, 0), (1, side), At::new(packet, i64::from(packet)));
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
        assert_eq!(collected.into_table(&[0], |_| 0).len(), limits::ICMP_ERRORS);
    }
}
