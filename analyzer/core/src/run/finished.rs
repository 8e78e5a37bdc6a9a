//! Makes the tables with a row per connection, and those whose rows have addresses.

use std::collections::HashMap;

use crate::connection::Ended;
use crate::connection::tap::Tap;
use crate::packet::Address;
use crate::store::budget::Budget;
use crate::store::tables::{
    ConnectionRow, Connections, Directions, IcmpErrors, LookupAddresses, Lookups, Setups, Turns,
};

use super::icmp_errors::Collected;
use super::questions::Questions;
use super::route::End;

/// The end of a run.
#[derive(Debug, Default)]
pub struct Finished {
    /// One row per connection.
    pub connections: Connections,
    /// The budgets of each connection's RPCs.
    pub budgets: Vec<Budget>,
    /// Two rows per connection.
    pub directions: Directions,
    /// One row per connection.
    pub turns: Turns,
    /// One row per connection.
    pub setups: Setups,
    /// DNS questions.
    pub lookups: Lookups,
    /// Addresses in their answers.
    pub lookup_addresses: LookupAddresses,
    /// Names that were asked for.
    pub lookup_names: Vec<String>,
    /// ICMP errors about segments of connections.
    pub icmp_errors: IcmpErrors,
    /// Addresses by number.
    pub addresses: Vec<String>,
    /// The tap, if there was one.
    pub tap: Option<Box<dyn Tap>>,
}

impl Finished {
    /// The tables of connections with their ends, the first sender before the other.
    pub fn new(rows: impl Iterator<Item = ([End; 2], Ended)>, questions: Questions, icmp_errors: Collected) -> Self {
        let mut numbers: HashMap<Address, u32> = HashMap::new();
        let mut addresses = Vec::new();
        let mut number = |address: Address| {
            *numbers.entry(address).or_insert_with(|| {
                addresses.push(address.to_string());
                (addresses.len() - 1) as u32
            })
        };
        let mut tables = Self::default();
        for (ends, ended) in rows {
            let (client, server) = match ended.row.client_side {
                0 => (ends[0], ends[1]),
                _ => (ends[1], ends[0]),
            };
            tables.connections.push(ConnectionRow {
                client_ip: number(client.0),
                client_port: u32::from(client.1),
                server_ip: number(server.0),
                server_port: u32::from(server.1),
                ..ended.row
            });
            tables.budgets.push(ended.budget);
            ended.directions.into_iter().for_each(|row| tables.directions.push(row));
            tables.turns.push(ended.turns);
            tables.setups.push(ended.setup);
        }
        let (lookups, lookup_addresses, lookup_names) = questions.into_tables(&mut number);
        let icmp_errors = icmp_errors.into_table(&tables.connections.client_side, number);
        Self { lookups, lookup_addresses, lookup_names, icmp_errors, addresses, ..tables }
    }
}
