//! DNS messages: names with their labels replaced, addresses mapped, and types, codes and lengths. Times to live and data
//! of other records are zero.

use crate::limits::DNS_RECORDS;
use crate::packet::dns::{Message, POINTER, PORT, messages};

use super::super::replace::Key;
use super::Walk;

/// Labels that gRPC's resolvers put in front of names (gRFC A2, gRFC A26), which are nobody's.
const KNOWN: [&[u8]; 3] = [b"_grpc_config", b"_grpclb", b"_tcp"];
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Labels up to this length are permuted: drawn ones would often be alike.
const SHORT: usize = 2;

impl Walk<'_> {
    /// The message from `at` to `end`; what is no message stays zero.
    pub(super) fn dns(&mut self, at: usize, end: usize) -> Option<()> {
        Message::parse(self.input.get(at..end)?)?;
        self.keep(at, 12)?;
        let records: usize = [6, 8, 10].into_iter().filter_map(|field| self.be16(at + field)).map(usize::from).sum();
        let mut next = self.dns_name(at + 12)?;
        self.keep(next, 4)?;
        next += 4;
        for _ in 0..records.min(DNS_RECORDS) {
            next = self.dns_record(next)?;
        }
        Some(())
    }

    /// The messages of a TCP segment from or to a DNS server.
    pub(super) fn dns_segment(&mut self, at: usize, end: usize) -> Option<()> {
        let from = at + usize::from(self.byte(at + 12)? >> 4) * 4;
        if self.be16(at)? != PORT && self.be16(at + 2)? != PORT {
            return None;
        }
        let payload = self.input.get(from..end)?;
        let lengths: Vec<usize> = messages(payload).map(<[u8]>::len).collect();
        let mut next = from;
        for length in lengths {
            let (begin, behind) = (next + 2, next + 2 + length);
            if Message::parse(self.input.get(begin..behind)?).is_some() {
                self.keep(next, 2)?;
                let _ = self.dns(begin, behind);
                self.out.get_mut(behind..end)?.fill(0); // a message may claim to go on behind its end
            }
            next = behind;
        }
        Some(())
    }

    /// A record that begins at `at`; where the next one does.
    fn dns_record(&mut self, at: usize) -> Option<usize> {
        let fixed = self.dns_name(at)?;
        self.keep(fixed, 4)?;
        let length = self.keep16(fixed + 8)?;
        match (self.be16(fixed)?, length) {
            (1, 4) => self.address_v4(fixed + 10)?,
            (28, 16) => self.address_v6(fixed + 10)?,
            _ => {}
        }
        Some(fixed + 10 + usize::from(length))
    }

    /// A name that begins at `at`; what is behind it.
    fn dns_name(&mut self, mut at: usize) -> Option<usize> {
        loop {
            let length = self.byte(at)?;
            self.keep(at, 1)?;
            if length & POINTER == POINTER {
                self.keep(at, 2)?;
                return Some(at + 2);
            }
            let whole = at + 1..at + 1 + usize::from(length);
            let label = replace_label(self.input.get(whole.clone())?, self.key);
            self.put(whole.start, &label);
            at = whole.end;
            if length == 0 {
                return Some(at);
            }
        }
    }
}

/// Another label of the same length, the same one for the same label in capitals or not.
fn replace_label(label: &[u8], key: &Key) -> Vec<u8> {
    let plain = label.to_ascii_lowercase();
    if KNOWN.contains(&plain.as_slice()) {
        return plain;
    }
    let draw = |nth: usize| {
        let seed: &[u8] = if plain.len() > SHORT { &plain } else { b"" };
        key.number(&[b"dns", seed, &nth.to_be_bytes()]) as usize
    };
    let moved = |nth: usize, octet: u8| {
        let place = LETTERS.iter().position(|&letter| letter == octet).filter(|_| plain.len() <= SHORT);
        LETTERS[place.unwrap_or(0).wrapping_add(draw(nth) % LETTERS.len()) % LETTERS.len()]
    };
    plain.iter().enumerate().map(|(nth, &octet)| moved(nth, octet)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Rewriter;
    use super::*;

    #[test]
    fn labels_keep_their_length_and_their_sameness() {
        let key = Key::new(b"key");
        let replaced = |label: &[u8]| replace_label(label, &key);
        assert_eq!(replaced(b"secret"), replaced(b"SecreT"));
        assert_ne!(replaced(b"secret"), b"secret");
        assert_ne!(replaced(b"secret"), replaced(b"Secret2")[..6]);
        assert_eq!(replaced(b"_grpc_config"), b"_grpc_config");
    }

    #[test]
    fn octets_behind_a_message_are_zeroed_whatever_it_announces() {
        const RAW: u32 = 101;
        let question = [0, 1, 0x81, 0x80, 0, 1, 0, 9, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
        let length = u8::try_from(28 + question.len()).unwrap();
        let ip = [69, 0, 0, length, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let udp = [0, 53, 9, 9, 0, length - 20, 0, 0];
        let behind =
            [3, 0xd1, 0xd2, 0xd3, 0, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xdb, 0, 4, 0xdc, 0xdd, 0xde, 0xdf];
        let packet = [&ip[..], &udp, &question, &behind].concat();
        let mut rewriter = Rewriter::default();
        let (out, _) = rewriter.rewrite(RAW, &packet, packet.len() as u32, None, &Key::new(b"key"));
        assert_eq!(out[usize::from(length)..], [0; 19]);
        assert_eq!(out[34..36], [0, 9], "the message itself is there");
    }

    #[test]
    fn messages_over_tcp_are_rewritten_as_well() {
        const RAW: u32 = 101;
        let question = [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 1, 0, 1];
        let framed = [&[0, question.len() as u8], &question[..]].concat();
        let tcp = [0x9c, 0x40, 0, 53, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
        let length = (20 + tcp.len() + 2 * framed.len() + 1) as u8;
        let ip = [69, 0, 0, length, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let packet = [&ip[..], &tcp, &framed, &framed, &[7]].concat();
        let mut rewriter = Rewriter::default();
        let (out, _) = rewriter.rewrite(RAW, &packet, packet.len() as u32, None, &Key::new(b"key"));
        let written: Vec<_> = messages(&out[40..]).map(|message| Message::parse(message).unwrap()).collect();
        assert_eq!(written.len(), 2);
        assert_eq!((written[0].id, written[0].name.len(), written[0].kind), (1, 3, 1));
        assert_ne!(written[0].name, "abc");
        assert_eq!(written[0], written[1]);
        assert_eq!(out.last(), Some(&0));
    }

    #[test]
    fn short_labels_stay_different() {
        let key = Key::new(b"key");
        let labels: std::collections::HashSet<_> =
            LETTERS.iter().map(|&letter| replace_label(&[letter], &key)).collect();
        assert_eq!(labels.len(), LETTERS.len());
    }
}
