//! Length-prefixed messages over the DATA of one direction of a stream (PROTOCOL-HTTP2.md, "Length-Prefixed-Message"):
//! one octet compressed flag, four octets length, then the message. DATA boundaries mean nothing.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::state_fields;

/// Octets before each message.
pub const PREFIX_LEN: u8 = 5;

/// A message whose last byte has come; the bytes just fed hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Position among the messages of its direction, from 0.
    pub index: u32,
    /// Bytes without the prefix.
    pub length: u32,
    /// The compressed flag.
    pub compressed: bool,
    /// The prefix's first byte.
    pub first: &'a At,
}

/// What feeding bytes did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The first byte of a message's prefix.
    Begin,
    /// A message is whole.
    End(Message<'a>),
    /// The flag octet is neither 0 nor 1: these are not gRPC messages, or the beginning is missing. So many octets are
    /// left from there on.
    NotGrpc(usize),
}

/// Reads the messages of one direction of one stream.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Reader {
    prefix: [u8; PREFIX_LEN as usize],
    #[serde(deserialize_with = "state_fields::below::<{ PREFIX_LEN as usize + 1 }, _, _>")]
    prefix_have: u8,
    lost: bool,
    /// These are no gRPC messages.
    foreign: bool,
    remaining: u32,
    first: At,
    /// Whole messages so far.
    pub messages: u32,
    /// Bytes of whole messages, and of the unfinished one as far as it came, without prefixes.
    pub bytes: u64,
}

impl Reader {
    /// Whether a message has begun and is not whole.
    #[inline]
    pub fn is_inside(&self) -> bool {
        self.prefix_have > 0
    }

    /// Bytes of the unfinished message that are still to come, as far as its prefix is known.
    pub fn owed(&self) -> u32 {
        match self.prefix_have {
            0 => 0,
            PREFIX_LEN => self.remaining,
            have => u32::from(PREFIX_LEN - have),
        }
    }

    /// The length of the unfinished message, by its prefix, and the prefix's first byte; `None` where it is not known.
    pub fn announced(&self) -> Option<(u32, At)> {
        let length = u32::from_be_bytes([self.prefix[1], self.prefix[2], self.prefix[3], self.prefix[4]]);
        (self.prefix_have == PREFIX_LEN && !self.lost && !self.foreign).then_some((length, self.first))
    }

    /// Whether the unfinished message's length is known, and `length` bytes are what it lacks.
    pub fn lacks(&self, length: u32) -> bool {
        self.prefix_have == PREFIX_LEN && self.remaining == length
    }

    /// Whether message boundaries are unknown from here on.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Gives up on message boundaries.
    pub fn lose(&mut self) {
        self.lost = true;
        self.prefix_have = 0;
        self.remaining = 0;
    }

    /// Looks for a message boundary at the beginning of a DATA frame of `frame` bytes: writers begin one there, and
    /// where messages fill the frame exactly, they did. `data` are the first of its bytes.
    #[cold]
    pub fn resume(&mut self, data: &[u8], frame: Option<u32>) {
        let Some(frame) = frame.filter(|_| !self.foreign) else { return };
        let mut position = 0;
        while let Some([flag, a, b, c, d]) = data.get(position..).and_then(|rest| rest.first_chunk()) {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            position = position.saturating_add(usize::from(PREFIX_LEN)).saturating_add(length);
            if *flag > 1 || position > frame as usize {
                return;
            }
            if position == frame as usize {
                self.lost = false;
                return;
            }
        }
    }

    /// Skips `length` bytes that the capture does not hold: fine inside one message, else boundaries are lost.
    pub fn skip(&mut self, length: u32) {
        if self.prefix_have == PREFIX_LEN && length < self.remaining {
            self.remaining -= length;
            self.bytes += u64::from(length);
        } else {
            self.lose();
        }
    }

    /// Takes the next bytes of the direction, all at `at`.
    #[inline(always)]
    pub fn feed(&mut self, mut data: &[u8], at: At, on_event: &mut impl FnMut(Event<'_>)) {
        while !data.is_empty() && !self.lost {
            if self.prefix_have < PREFIX_LEN {
                data = self.feed_prefix(data, at, on_event);
            }
            if self.prefix_have == PREFIX_LEN {
                data = self.feed_body(data, on_event);
            }
        }
    }

    /// Takes the next bytes of a direction whose body is one message without a prefix.
    #[cold]
    pub fn feed_unframed(&mut self, data: &[u8], at: At, on_event: &mut impl FnMut(Event<'_>)) {
        if self.lost {
            return;
        }
        if self.prefix_have == 0 {
            self.prefix_have = PREFIX_LEN;
            self.first = at;
            on_event(Event::Begin);
        }
        self.bytes += data.len() as u64;
    }

    /// Ends the message of such a direction, which may be empty.
    #[cold]
    pub fn end_unframed(&mut self, at: At, on_event: &mut impl FnMut(Event<'_>)) {
        if self.lost || self.messages > 0 {
            return;
        }
        self.feed_unframed(&[], at, on_event);
        let length = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        on_event(Event::End(Message { index: 0, length, compressed: false, first: &self.first }));
        self.prefix_have = 0;
        self.messages = 1;
    }

    /// Takes one whole message and nothing else, as most DATA frames are; `None` when it is something else, which
    /// [`feed`](Self::feed) takes.
    #[inline(always)]
    pub fn take_whole<'a>(&mut self, data: &[u8], at: &'a At) -> Option<Message<'a>> {
        let ([compressed @ 0..=1, a, b, c, d], body) = data.split_first_chunk::<5>()? else { return None };
        let length = u32::from_be_bytes([*a, *b, *c, *d]);
        if body.len() != length as usize || self.prefix_have > 0 || self.lost {
            return None;
        }
        let message = Message { index: self.messages, length, compressed: *compressed == 1, first: at };
        self.bytes += u64::from(length);
        self.messages = self.messages.saturating_add(1);
        Some(message)
    }

    #[inline(always)]
    fn feed_prefix<'a>(&mut self, data: &'a [u8], at: At, on_event: &mut impl FnMut(Event<'_>)) -> &'a [u8] {
        if self.prefix_have == 0 {
            self.first = at;
            match data.first() {
                Some(&flag) if flag > 1 => {
                    self.lose();
                    self.foreign = true;
                    on_event(Event::NotGrpc(data.len()));
                    return &[];
                }
                _ => on_event(Event::Begin),
            }
        }
        let have = usize::from(self.prefix_have);
        let take = data.len().min(usize::from(PREFIX_LEN) - have);
        let (head, rest) = data.split_at(take);
        if let Some(room) = self.prefix.get_mut(have..have + take) {
            room.copy_from_slice(head);
        }
        self.prefix_have += take as u8;
        if self.prefix_have == PREFIX_LEN {
            let [_, a, b, c, d] = self.prefix;
            self.remaining = u32::from_be_bytes([a, b, c, d]);
        }
        rest
    }

    #[inline(always)]
    fn feed_body<'a>(&mut self, data: &'a [u8], on_event: &mut impl FnMut(Event<'_>)) -> &'a [u8] {
        let take = data.len().min(self.remaining as usize);
        self.remaining -= take as u32;
        self.bytes += take as u64;
        if self.remaining == 0 {
            let [compressed, a, b, c, d] = self.prefix;
            let message = Message {
                index: self.messages,
                length: u32::from_be_bytes([a, b, c, d]),
                compressed: compressed == 1,
                first: &self.first,
            };
            on_event(Event::End(message));
            self.prefix_have = 0;
            self.messages = self.messages.saturating_add(1);
        }
        data.get(take..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wire(lengths: &[u16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &length in lengths {
            bytes.push(0);
            bytes.extend(u32::from(length).to_be_bytes());
            bytes.extend(std::iter::repeat_n(0xaa, usize::from(length)));
        }
        bytes
    }

    proptest! {
        /// However the bytes are cut, the messages are the same and know their first and last piece.
        #[test]
        fn cutting_does_not_matter(lengths in prop::collection::vec(0_u16..300, 0..12), cut in 1_usize..200) {
            let bytes = wire(&lengths);
            let mut reader = Reader::default();
            let mut seen = Vec::new();
            for (piece, chunk) in bytes.chunks(cut).enumerate() {
                let at = At::new(piece as u32, piece as i64);
                if let Some(message) = reader.take_whole(chunk, &at) {
                    seen.push((message.length, at, at));
                    continue;
                }
                reader.feed(chunk, at, &mut |event| if let Event::End(message) = event {
                    seen.push((message.length, *message.first, at));
                });
            }
            prop_assert_eq!(seen.iter().map(|m| m.0 as u16).collect::<Vec<_>>(), lengths.clone());
            prop_assert!(!reader.is_inside());
            prop_assert_eq!(reader.bytes, lengths.iter().map(|&l| u64::from(l)).sum::<u64>());
            let mut offset = 0_usize;
            for (length, first, last) in seen {
                let end = offset + 5 + length as usize;
                prop_assert_eq!(first.packet as usize, offset / cut);
                prop_assert_eq!(last.packet as usize, (end - 1) / cut);
                offset = end;
            }
        }
    }

    #[test]
    fn a_wrong_flag_ends_reading() {
        let mut reader = Reader::default();
        let mut wrong = Vec::new();
        reader.feed(b"\x02\0\0\0\x01x", At::default(), &mut |event| wrong.push(event == Event::NotGrpc(6)));
        assert_eq!(wrong, [true]);
        assert!(reader.is_lost());
    }

    #[test]
    fn a_body_with_a_hole_is_no_message_of_known_length() {
        let (mut reader, mut events) = (Reader::default(), 0);
        reader.feed_unframed(b"ab", At::default(), &mut |_| {});
        reader.skip(5);
        reader.feed_unframed(b"cd", At::default(), &mut |_| events += 1);
        reader.end_unframed(At::default(), &mut |_| events += 1);
        assert_eq!((events, reader.is_inside(), reader.messages), (0, false, 0));
    }

    #[test]
    fn a_gap_inside_a_message_keeps_its_end() {
        let mut reader = Reader::default();
        let mut ends = 0;
        reader.feed(b"\0\0\0\0\x0aab", At::default(), &mut |_| {});
        assert_eq!(reader.owed(), 8);
        reader.skip(5);
        reader.feed(b"xyz", At::default(), &mut |event| ends += i32::from(matches!(event, Event::End(_))));
        assert_eq!((ends, reader.bytes), (1, 10));
        reader.skip(1);
        assert!(reader.is_lost());
    }

    #[test]
    fn a_state_with_more_of_a_prefix_than_there_is_is_refused() {
        let mut saved = postcard::to_stdvec(&Reader::default()).unwrap();
        assert!(postcard::from_bytes::<Reader>(&saved).is_ok());
        saved[usize::from(PREFIX_LEN)] = PREFIX_LEN + 1;
        assert!(postcard::from_bytes::<Reader>(&saved).is_err());
    }
}
