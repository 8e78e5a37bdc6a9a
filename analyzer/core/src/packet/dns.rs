//! DNS messages (RFC 1035 section 4): the question, and the addresses in an answer.

use crate::limits::{DNS_ADDRESSES, DNS_RECORDS};

use super::address::Address;

/// The port on which DNS servers listen (RFC 1035 section 4.2).
pub const PORT: u16 = 53;

const HEADER_LENGTH: usize = 12;
const RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const CODE: u16 = 0x000f;
/// The two high bits of a length octet that make it a pointer (RFC 1035 section 4.1.4).
pub const POINTER: u8 = 0xc0;
const LONGEST_NAME: usize = 255;
const INTERNET: u16 = 1;
const A: u16 = 1;
const AAAA: u16 = 28;

/// A message from or to a DNS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Sender's address and port.
    pub source: (Address, u16),
    /// Receiver's address and port.
    pub destination: (Address, u16),
    /// The message, as captured.
    pub message: &'a [u8],
}

/// A message with one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What ties an answer to its question.
    pub id: u16,
    /// It is an answer.
    pub is_response: bool,
    /// The response code: 0 is no error, 3 says that there is no such name.
    pub code: u8,
    /// The name asked for, in lower case.
    pub name: String,
    /// The type of record asked for.
    pub kind: u16,
    /// Addresses in the answer.
    pub addresses: Vec<Address>,
}

/// The messages of a segment that begins with one: over TCP each has its length in front (RFC 1035 section 4.2.2). The last
/// one may go on in the next segment.
pub fn messages(mut payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = payload.split_first_chunk()?;
        let (message, behind) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
        payload = behind;
        Some(message)
    })
}

impl Message {
    /// Reads a message; `None` when it is none, or has not exactly one question.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        let (id, flags, questions, answers) = (word(0)?, word(2)?, word(4)?, word(6)?);
        if flags & OPCODE != 0 || questions != 1 {
            return None;
        }
        let (name, end) = read_name(bytes)?;
        let (kind, class) = (word(end)?, word(end + 2)?);
        let is_response = flags & RESPONSE != 0;
        let found = (class == INTERNET).then(|| Self {
            id,
            is_response,
            code: (flags & CODE) as u8,
            name,
            kind,
            addresses: Vec::new(),
        });
        found.map(|message| Self { addresses: read_addresses(bytes, end + 4, answers), ..message })
    }
}

/// The name of the question, which is not compressed, and where it ends.
fn read_name(bytes: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (String::new(), HEADER_LENGTH);
    loop {
        let length = usize::from(*bytes.get(at)?);
        let label = bytes.get(at + 1..at + 1 + length).filter(|_| length < usize::from(POINTER))?;
        at += 1 + length;
        if length == 0 || at - HEADER_LENGTH > LONGEST_NAME {
            return (length == 0).then_some((name, at));
        }
        if !name.is_empty() {
            name.push('.');
        }
        for octet in label {
            match octet.to_ascii_lowercase() {
                plain if plain.is_ascii_alphanumeric() || b"-_".contains(&plain) => name.push(plain.into()),
                other => name.push_str(&format!("\\{other:03}")), // RFC 1035 section 5.1
            }
        }
    }
}

/// The addresses in an answer, whoever's name they are: behind an alias they are another name's.
fn read_addresses(bytes: &[u8], mut at: usize, answers: u16) -> Vec<Address> {
    let mut addresses = Vec::new();
    for _ in 0..usize::from(answers).min(DNS_RECORDS) {
        let Some((kind, data, end)) = read_record(bytes, at) else { break };
        let address = match kind {
            A => data.try_into().ok().map(Address::v4),
            AAAA => data.try_into().ok().map(Address::v6),
            _ => None,
        };
        addresses.extend(address.filter(|_| addresses.len() < DNS_ADDRESSES));
        at = end;
    }
    addresses
}

/// Type and data of a record, and where it ends.
fn read_record(bytes: &[u8], at: usize) -> Option<(u16, &[u8], usize)> {
    let fixed = skip_name(bytes, at)?;
    let &[k0, k1, _, _, _, _, _, _, l0, l1] = bytes.get(fixed..)?.first_chunk::<10>()?;
    let begin = fixed + 10;
    let end = begin + usize::from(u16::from_be_bytes([l0, l1]));
    Some((u16::from_be_bytes([k0, k1]), bytes.get(begin..end)?, end))
}

fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length if length & POINTER == POINTER => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03sVc\x04test\x00\x00\x01\x00\x01";

    fn answer(records: &[u8], count: u8) -> Vec<u8> {
        let mut bytes = QUESTION.to_vec();
        (bytes[2], bytes[7]) = (0x81, count);
        bytes.extend_from_slice(records);
        bytes
    }

    #[test]
    fn a_question_has_a_name_and_a_type() {
        let message = Message::parse(QUESTION).unwrap();
        assert_eq!((message.id, message.is_response, message.kind), (0x1234, false, 1));
        assert_eq!(message.name, "svc.test");
    }

    #[test]
    fn addresses_behind_an_alias_are_read() {
        let alias = b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x05\x00\x02\xc0\x10";
        let address = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x0a\x00\x00\x02";
        let message = Message::parse(&answer(&[alias.as_slice(), address].concat(), 2)).unwrap();
        assert_eq!(message.addresses, [Address::v4([10, 0, 0, 2])]);
    }

    #[test]
    fn an_answer_that_is_cut_gives_what_came_before() {
        let address = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x0a\x00\x00\x02";
        let message = Message::parse(&answer(&[address.as_slice(), b"\xc0\x0c\x00\x01"].concat(), 200)).unwrap();
        assert_eq!(message.addresses.len(), 1);
    }

    #[test]
    fn messages_over_tcp_have_their_length_in_front() {
        let length = [0, QUESTION.len() as u8];
        let whole = [&length, QUESTION].concat();
        assert_eq!(messages(&[whole.as_slice(), &whole].concat()).collect::<Vec<_>>(), [QUESTION, QUESTION]);
        let cut = messages(&whole[..20]).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(cut, [18]);
        assert_eq!(messages(&[0; 7]).count(), 3); // empty ones; the last octet is half a length
        assert_eq!(messages(&[]).count(), 0);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(Message::parse(&[0; 40]), None);
        assert_eq!(Message::parse(&QUESTION[..20]), None);
        let mut looped = QUESTION.to_vec();
        looped[12] = 0xc0; // a pointer in a question
        assert_eq!(Message::parse(&looped), None);
        let mut endless = QUESTION[..12].to_vec();
        endless.extend(std::iter::repeat_n([1, b'a'], 400).flatten());
        assert_eq!(Message::parse(&endless), None);
    }

    #[test]
    fn octets_that_are_no_letters_are_escaped() {
        let bytes = [&QUESTION[..12], b"\x04a\x1b.\"\x00\x00\x01\x00\x01"].concat();
        assert_eq!(Message::parse(&bytes).unwrap().name, "a\\027\\046\\034");
    }
}
