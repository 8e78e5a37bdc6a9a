//! TLS: the headers of records and of handshake messages stay, and of hello messages what is read of them (`hello`). So
//! it shows that it is TLS, when and how much of it there was. All else is zero: nothing in it can be told from what it
//! protects, and what is in the clear (names of servers, certificates) is not to be shown.
//!
//! Records and messages are found as `tls::Session` finds them, also behind bytes that the capture lacks.

use crate::limits::TLS_RESYNC_STEP;
use crate::tls::handshake::MessageReader;
use crate::tls::record::{HANDSHAKE_RECORD, HEADER_LENGTH, Header, kind};
use crate::tls::record_search::{Boundary, Search};

use super::edits::Edits;
use super::hello;

/// Octets of an alert that is not encrypted (RFC 8446 section 6): its level and what it says, which stay.
const ALERT_LENGTH: usize = 2;

/// Where one side is in its records.
#[derive(Debug, Default)]
pub(super) struct Records {
    head: Header,
    have: usize,
    /// Octets of the record that are still to come.
    left: usize,
    /// Those of a handshake record that have come.
    body: Vec<u8>,
    /// The capture lacks octets of the record.
    damaged: bool,
    messages: Messages,
    /// A search for the next record, with the octets that it took.
    search: Option<Box<Search<()>>>,
    /// Offset behind the last octet taken.
    position: i64,
}

impl Records {
    /// Takes the next octets, the first of them at `position`.
    pub fn feed(&mut self, position: i64, mut bytes: &[u8], edits: &mut Edits) {
        self.position = position;
        while !bytes.is_empty() {
            let taken = if self.search.is_some() { self.search(bytes, edits) } else { self.read(bytes, edits) };
            bytes = bytes.get(taken..).unwrap_or_default();
        }
    }

    /// `length` octets are not in the capture.
    pub fn missing(&mut self, length: u64, edits: &mut Edits) {
        if let Some(search) = &mut self.search {
            return search.gap(length);
        }
        match usize::try_from(length).ok().filter(|&length| self.have == HEADER_LENGTH && length <= self.left) {
            Some(length) => {
                self.damaged = true;
                self.left -= length;
                self.position = self.position.saturating_add_unsigned(length as u64);
                self.end_record(edits);
            }
            None => self.begin_search(edits),
        }
    }

    /// No more octets come.
    pub fn finish(&mut self, edits: &mut Edits) {
        self.put_mark(edits);
        if let Some(mut search) = self.search.take()
            && let Some(boundary) = search.at_end()
        {
            self.resume(&search, boundary, edits);
        }
    }

    /// Takes octets of one record: how many.
    fn read(&mut self, bytes: &[u8], edits: &mut Edits) -> usize {
        let is_head = self.have < HEADER_LENGTH;
        let taken = bytes.len().min(if is_head { HEADER_LENGTH - self.have } else { self.left });
        let part = bytes.get(..taken).unwrap_or_default();
        self.position += taken as i64;
        if is_head {
            self.read_head(part, edits);
        } else {
            self.left -= taken;
            let is_alert = self.head.kind() == kind::ALERT && self.left + self.body.len() + taken == ALERT_LENGTH;
            if (self.head.kind() == kind::HANDSHAKE || is_alert) && !self.damaged {
                self.body.extend_from_slice(part);
            }
        }
        self.end_record(edits);
        taken
    }

    fn read_head(&mut self, part: &[u8], edits: &mut Edits) {
        if let Some(room) = self.head.0.get_mut(self.have..self.have + part.len()) {
            room.copy_from_slice(part);
        }
        self.have += part.len();
        if self.have < HEADER_LENGTH {
            return;
        }
        match self.head.length() {
            Some(length) => {
                self.left = length;
                edits.put(self.position - HEADER_LENGTH as i64, &self.head.0);
            }
            None => self.begin_search(edits),
        }
    }

    /// If the record is over, reads its messages.
    fn end_record(&mut self, edits: &mut Edits) {
        if self.have < HEADER_LENGTH || self.left > 0 || self.search.is_some() {
            return;
        }
        let length = self.head.length().unwrap_or_default();
        if self.head.kind() == kind::ALERT && !self.damaged && length == ALERT_LENGTH {
            edits.put(self.position - length as i64, &self.body);
        }
        if self.head.kind() == kind::HANDSHAKE {
            if self.damaged {
                self.messages.skip(length);
            } else {
                self.messages.feed(self.position - length as i64, &self.body, edits);
            }
        }
        self.begin_record();
    }

    fn begin_record(&mut self) {
        (self.have, self.left, self.damaged) = (0, 0, false);
        self.body.clear();
    }

    /// Of a header that is not whole, or none, the two octets stay by which a connection is TLS (`connection::encrypted`).
    fn put_mark(&mut self, edits: &mut Edits) {
        let have = self.head.0.get(..self.have).unwrap_or_default();
        if self.left == 0 && have.starts_with(&HANDSHAKE_RECORD) {
            edits.put(self.position - have.len() as i64, &HANDSHAKE_RECORD);
        }
    }

    fn begin_search(&mut self, edits: &mut Edits) {
        self.put_mark(edits);
        self.begin_record();
        self.messages = Messages::default();
        self.search = Some(Box::new(Search::new(Vec::new(), 0)));
    }

    /// Searches the next record in octets: how many it took.
    fn search(&mut self, bytes: &[u8], edits: &mut Edits) -> usize {
        let step = bytes.get(..bytes.len().min(TLS_RESYNC_STEP)).unwrap_or_default();
        let Some(mut search) = self.search.take() else { return 0 };
        let Some((boundary, taken)) = search.push(step, ()) else {
            self.position += step.len() as i64;
            self.search = Some(search);
            return step.len();
        };
        self.position += taken as i64;
        self.resume(&search, boundary, edits);
        taken
    }

    /// Goes on at a boundary whose proof ends at the last octet taken.
    fn resume(&mut self, search: &Search<()>, boundary: Boundary, edits: &mut Edits) {
        let proof = search.held.bytes().get(boundary.begin..boundary.end).unwrap_or_default();
        self.feed(self.position - proof.len() as i64, proof, edits);
    }
}

/// One side's handshake messages.
#[derive(Debug, Default)]
struct Messages {
    reader: MessageReader,
    /// Where the body of the current message is: offsets and lengths.
    places: Vec<(i64, usize)>,
}

impl Messages {
    /// Takes the content of a record, the first octet of it at `position`.
    fn feed(&mut self, mut position: i64, mut bytes: &[u8], edits: &mut Edits) {
        while !bytes.is_empty() {
            let (before, header) = (bytes, self.reader.header_left().min(bytes.len()));
            let message = self.reader.next_unread(&mut bytes);
            let taken = before.len() - bytes.len();
            edits.put(position, before.get(..header).unwrap_or_default());
            if taken > header {
                self.places.push((position + header as i64, taken - header));
            }
            position += taken as i64;
            if let Some(message) = message {
                self.put(hello::shown(&message).as_deref().unwrap_or_default(), edits);
            }
        }
    }

    fn put(&mut self, mut shown: &[u8], edits: &mut Edits) {
        for (offset, length) in self.places.drain(..) {
            let (piece, rest) = shown.split_at(length.min(shown.len()));
            edits.put(offset, piece);
            shown = rest;
        }
    }

    /// Passes the content of a record that is not whole.
    fn skip(&mut self, length: usize) {
        if !matches!(self.reader.skip_unread(length), Ok(None)) {
            self.places.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut records, mut edits, mut offset) = (Records::default(), Edits::default(), 0);
        for piece in pieces {
            records.feed(offset, piece, &mut edits);
            offset += piece.len() as i64;
        }
        records.finish(&mut edits);
        edits.finish();
        let mut out = vec![b'.'; usize::try_from(offset).unwrap()];
        edits.apply(0, &mut out);
        out
    }

    #[test]
    fn headers_of_records_and_messages_stay() {
        // a Certificate of three octets over two records
        let data = b"\x16\x03\x01\0\x02\x0b\0\x16\x03\x01\0\x05\0\x03abc\x17\x03\x03\0\x01d\x99secret";
        for cut in 0..data.len() {
            let (front, back) = data.split_at(cut);
            assert_eq!(
                shown(&[front, back]),
                b"\x16\x03\x01\0\x02\x0b\0\x16\x03\x01\0\x05\0\x03...\x17\x03\x03\0\x01........",
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn records_are_found_again_behind_a_hole() {
        let record = |length: u8| [&[23, 3, 3, 0, length][..], &vec![b's'; usize::from(length)]].concat();
        let before = [record(20), b"\x17\x03\x03\0\x40sss".to_vec()].concat();
        let behind = [b"ssss".to_vec(), record(30), record(16), record(17)].concat();
        let (mut records, mut edits) = (Records::default(), Edits::default());
        records.feed(0, &before, &mut edits);
        records.missing(1000, &mut edits);
        records.feed(1000 + before.len() as i64, &behind, &mut edits);
        records.finish(&mut edits);
        edits.finish();
        let mut out = vec![b's'; behind.len()];
        edits.apply(1000 + before.len() as i64, &mut out);
        assert_eq!(out, behind, "headers alone are no `s`");
    }
}
