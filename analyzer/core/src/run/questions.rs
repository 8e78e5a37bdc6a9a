//! Ties the answers of DNS servers to the questions of clients.

use serde::{Deserialize, Serialize};

use std::collections::{HashMap, HashSet};

use crate::limits;
use crate::packet::dns::{Datagram, Message, PORT, messages};
use crate::packet::{Address, Segment};
use crate::state_fields;
use crate::store::tables::{LookupAddressRow, LookupAddresses, LookupRow, Lookups};

use super::route::End;

/// Who asked whom for what; the number is the name's.
type Key = (End, End, u16, u16, u32);

/// A question, its answer, and who asked whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Asked {
    client: Address,
    server: Address,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::DNS_ADDRESSES }, _, _>")]
    addresses: Vec<Address>,
    /// Whether only its answer shows that it was asked: segments may cut messages over TCP.
    needs_answer: bool,
    row: LookupRow,
}

/// The questions so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Questions {
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::LOOKUPS }, _, _>")]
    asked: Vec<Asked>,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::LOOKUPS }, _, _>")]
    names: HashMap<String, u32>,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::LOOKUPS }, _, _>")]
    open: HashMap<Key, usize>,
    /// Questions that were asked when the table was full.
    pub not_listed: u64,
}

impl Questions {
    /// Takes the messages of a segment from or to a DNS server.
    #[cold]
    pub fn take_segment(&mut self, segment: &Segment<'_>, packet: u32, time: i64) {
        let source = (segment.source, segment.source_port);
        let destination = (segment.destination, segment.destination_port);
        for message in messages(segment.payload) {
            self.take_message(&Datagram { source, destination, message }, true, packet, time);
        }
    }

    /// Takes a datagram from or to a DNS server.
    #[cold]
    pub fn take(&mut self, datagram: &Datagram<'_>, packet: u32, time: i64) {
        self.take_message(datagram, false, packet, time);
    }

    fn take_message(&mut self, datagram: &Datagram<'_>, needs_answer: bool, packet: u32, time: i64) {
        let Some(message) = Message::parse(datagram.message) else { return };
        let (source, destination) = (datagram.source, datagram.destination);
        if message.is_response && source.1 == PORT {
            self.answer(destination, source, message, packet, time);
        } else if !message.is_response && destination.1 == PORT {
            self.ask(source, destination, &message, needs_answer, packet, time);
        }
    }

    fn ask(&mut self, client: End, server: End, message: &Message, needs_answer: bool, packet: u32, time: i64) {
        let name = self.names.get(&message.name);
        if name.is_some_and(|&name| self.open.contains_key(&(client, server, message.id, message.kind, name))) {
            return;
        }
        if self.asked.len() >= limits::LOOKUPS {
            self.not_listed += 1;
            return;
        }
        let next = self.names.len() as u32;
        let name = *self.names.entry(message.name.clone()).or_insert(next);
        self.open.insert((client, server, message.id, message.kind, name), self.asked.len());
        let row = LookupRow {
            name,
            kind: message.kind.into(),
            packet,
            time_ns: time,
            answer_time_ns: -1,
            ..LookupRow::default()
        };
        self.asked.push(Asked { client: client.0, server: server.0, addresses: Vec::new(), needs_answer, row });
    }

    fn answer(&mut self, client: End, server: End, message: Message, packet: u32, time: i64) {
        let Some(&name) = self.names.get(&message.name) else { return };
        let place = self.open.remove(&(client, server, message.id, message.kind, name));
        let Some(asked) = place.and_then(|place| self.asked.get_mut(place)) else { return };
        asked.row.answer_packet = packet;
        asked.row.answer_time_ns = time;
        asked.row.code = message.code;
        asked.addresses = message.addresses;
    }

    /// Bytes that the questions take, about.
    pub fn bytes(&self) -> usize {
        let addresses: usize = self.asked.iter().map(|asked| asked.addresses.len()).sum();
        let names: usize = self.names.keys().map(|name| name.len()).sum();
        self.asked.len() * size_of::<Asked>() + addresses * size_of::<Address>() + names
    }

    /// Takes the questions, and keeps for their answers those that were asked not long before `now`.
    pub fn take_interval(&mut self, now: i64) -> Self {
        let interval = std::mem::take(self);
        let text: HashMap<u32, &String> = interval.names.iter().map(|(name, &number)| (number, name)).collect();
        for (&(client, server, id, kind, name), &place) in &interval.open {
            let is_late = |asked: &Asked| now.saturating_sub(asked.row.time_ns) >= limits::LIVE_QUESTION;
            let asked = interval.asked.get(place).filter(|asked| !is_late(asked));
            let (Some(asked), Some(&text)) = (asked, text.get(&name)) else { continue };
            let next = self.names.len() as u32;
            let name = *self.names.entry(text.clone()).or_insert(next);
            self.open.insert((client, server, id, kind, name), self.asked.len());
            self.asked.push(Asked { row: LookupRow { name, ..asked.row }, ..asked.clone() });
        }
        interval
    }

    /// Takes the questions of the next interval in; one that has its answer there is not listed twice.
    pub fn absorb(&mut self, next: Self) {
        self.not_listed += next.not_listed;
        let packets: HashSet<u32> = next.asked.iter().map(|asked| asked.row.packet).collect();
        self.asked.retain(|asked| !packets.contains(&asked.row.packet));
        let mut names = vec![0; next.names.len()];
        for (text, number) in next.names {
            let free = self.names.len() as u32;
            if let Some(place) = names.get_mut(number as usize) {
                *place = *self.names.entry(text).or_insert(free);
            }
        }
        let here = |number: u32| names.get(number as usize).copied().unwrap_or(0);
        let asked =
            next.asked.into_iter().map(|one| Asked { row: LookupRow { name: here(one.row.name), ..one.row }, ..one });
        self.asked.extend(asked);
        self.asked.sort_by_key(|asked| asked.row.packet);
    }

    /// The tables, with the `number` of each address, and the names by their numbers.
    pub fn into_tables(self, mut number: impl FnMut(Address) -> u32) -> (Lookups, LookupAddresses, Vec<String>) {
        let (mut lookups, mut addresses) = (Lookups::default(), LookupAddresses::default());
        let known = self.asked.into_iter().filter(|asked| !asked.needs_answer || asked.row.answer_time_ns >= 0);
        for (lookup, asked) in (0..).zip(known) {
            lookups.push(LookupRow { client_ip: number(asked.client), server_ip: number(asked.server), ..asked.row });
            for address in asked.addresses {
                addresses.push(LookupAddressRow { lookup, address: number(address) });
            }
        }
        let mut names: Vec<(String, u32)> = self.names.into_iter().collect();
        names.sort_unstable_by_key(|&(_, number)| number);
        (lookups, addresses, names.into_iter().map(|(name, _)| name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u8, is_response: bool, name: &[u8]) -> Vec<u8> {
        let flags = if is_response { 0x81 } else { 1 };
        let header = [0, id, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.len() as u8];
        [&header, name, &[0, 0, 1, 0, 1]].concat()
    }

    fn send(questions: &mut Questions, id: u8, is_response: bool, name: &[u8], at: (u32, i64)) {
        let (client, server) = ((Address::v4([10, 0, 0, 1]), 4000), (Address::v4([10, 0, 0, 2]), PORT));
        let (source, destination) = if is_response { (server, client) } else { (client, server) };
        questions.take(&Datagram { source, destination, message: &message(id, is_response, name) }, at.0, at.1);
    }

    #[test]
    fn an_answer_finds_its_question() {
        let mut questions = Questions::default();
        send(&mut questions, 1, false, b"a", (1, 0));
        send(&mut questions, 2, false, b"b", (2, 10));
        send(&mut questions, 1, false, b"a", (3, 20)); // asked again
        send(&mut questions, 2, true, b"b", (4, 30));
        send(&mut questions, 9, true, b"a", (5, 40)); // of no question
        let (lookups, _, names) = questions.into_tables(|_| 0);
        assert_eq!(names, ["a", "b"]);
        assert_eq!(lookups.packet, [1, 2]);
        assert_eq!(lookups.answer_packet, [0, 4]);
        assert_eq!(lookups.answer_time_ns, [-1, 30]);
    }

    #[test]
    fn questions_are_bounded_but_counted() {
        let mut questions = Questions::default();
        for number in 0..limits::LOOKUPS as u32 + 7 {
            send(&mut questions, 1, false, format!("{number}").as_bytes(), (number, 0));
        }
        assert_eq!(questions.not_listed, 7);
        assert_eq!(questions.into_tables(|_| 0).0.len(), limits::LOOKUPS);
    }
}
