//! The five octets before each gRPC message, which stay, and the message behind them, which does not.

use crate::grpc::message::PREFIX_LEN;

use super::edits::Edits;

/// Neither 0 nor 1, the flags a message may have: a reader sees that no message begins here.
const NO_FLAG: u8 = 0xff;

/// Where one direction of a stream is in its messages, as `grpc::message::Reader` follows them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Messages {
    prefix: [u8; PREFIX_LEN as usize],
    have: u8,
    remaining: u32,
    lost: bool,
}

impl Messages {
    /// Message boundaries are unknown from here on.
    pub fn lose(&mut self) {
        (self.lost, self.have, self.remaining) = (true, 0, 0);
    }

    /// `length` octets are not in the capture.
    pub fn skip(&mut self, length: u32) {
        if self.have == PREFIX_LEN && length < self.remaining {
            self.remaining -= length;
        } else {
            self.lose();
        }
    }

    /// Takes the next octets, the first of them at `position`.
    pub fn feed(&mut self, data: &[u8], position: i64, edits: &mut Edits) {
        let (mut data, mut position) = (data, position);
        while !data.is_empty() && !self.lost {
            let taken =
                if self.have < PREFIX_LEN { self.feed_prefix(data, position, edits) } else { self.feed_body(data) };
            if self.have == PREFIX_LEN && self.remaining == 0 {
                self.have = 0;
            }
            data = data.get(taken..).unwrap_or_default();
            position += taken as i64;
        }
    }

    fn feed_prefix(&mut self, data: &[u8], position: i64, edits: &mut Edits) -> usize {
        if self.have == 0 && data.first().is_some_and(|&flag| flag > 1) {
            edits.put(position, &[NO_FLAG]);
            self.lose();
            return 0;
        }
        let have = usize::from(self.have);
        let taken = data.len().min(usize::from(PREFIX_LEN) - have);
        let part = data.get(..taken).unwrap_or_default();
        edits.put(position, part);
        if let Some(room) = self.prefix.get_mut(have..have + taken) {
            room.copy_from_slice(part);
        }
        self.have += taken as u8;
        let [_, length @ ..] = self.prefix;
        self.remaining = u32::from_be_bytes(length);
        taken
    }

    fn feed_body(&mut self, data: &[u8]) -> usize {
        let taken = data.len().min(self.remaining as usize);
        self.remaining -= taken as u32;
        taken
    }
}

/// Keeps what looks like the beginning of messages in the first octets of a DATA frame of `length` octets: all that
/// tells a stream from before the capture (see `http2::late`). Where none can begin, it says so.
pub(super) fn put_beginnings(octets: &[u8], length: u32, position: i64, edits: &mut Edits) {
    let (mut at, length) = (0_usize, length as usize);
    while at < length {
        let Some(prefix) = octets.get(at..).and_then(|rest| rest.first_chunk::<5>()) else { return };
        let &[flag, a, b, c, d] = prefix;
        let message = u32::from_be_bytes([a, b, c, d]);
        if flag > 1 || (message == 0 && length > usize::from(PREFIX_LEN)) {
            return edits.put(position + at as i64, &[NO_FLAG]);
        }
        edits.put(position + at as i64, prefix);
        at = at.saturating_add(usize::from(PREFIX_LEN)).saturating_add(message as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stays of pieces that follow each other, `.` for zero.
    fn kept(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut messages, mut edits, mut position) = (Messages::default(), Edits::default(), 0);
        for piece in pieces {
            messages.feed(piece, position, &mut edits);
            position += piece.len() as i64;
        }
        edits.finish();
        let mut out = vec![b'.'; position as usize];
        edits.apply(0, &mut out);
        out
    }

    #[test]
    fn prefixes_stay_wherever_they_are_cut() {
        let data = b"\0\0\0\0\x03abc\x01\0\0\0\0\0\0\0\0\x02de\0\0";
        let expected = b"\0\0\0\0\x03...\x01\0\0\0\0\0\0\0\0\x02..\0\0";
        for cut in 0..data.len() {
            let (front, back) = data.split_at(cut);
            assert_eq!(kept(&[front, back]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_message_is_zeroed_and_still_none() {
        assert_eq!(kept(&[b"<html>", b"\0\0\0\0\x01"]), b"\xff..........");
    }

    #[test]
    fn a_gap_in_a_message_is_bridged_and_any_other_is_not() {
        let (mut messages, mut edits) = (Messages::default(), Edits::default());
        messages.feed(b"\0\0\0\0\x09ab", 0, &mut edits);
        messages.skip(6);
        messages.feed(b"c\0\0\0\0\x01d", 13, &mut edits);
        messages.skip(3);
        messages.feed(b"\0\0\0\0\x01", 23, &mut edits);
        edits.finish();
        let mut out = vec![b'.'; 28];
        edits.apply(0, &mut out);
        assert_eq!(&out, b"\0\0\0\0\x09.........\0\0\0\0\x01.........");
    }
}
