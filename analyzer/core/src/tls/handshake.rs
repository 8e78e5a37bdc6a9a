//! Handshake messages (RFC 8446 section 4, RFC 5246 section 7.4) out of the records that carry them, which hold several
//! or a part of one.

use crate::limits::TLS_HELLO_LENGTH;

use super::hello::{ClientHello, EncryptedExtensions, ServerHello};

/// Bytes of a message's header: type and length.
const HEADER_LENGTH: usize = 4;

/// Message types (RFC 8446 section 4).
pub mod kind {
    pub const CLIENT_HELLO: u8 = 1;
    pub const SERVER_HELLO: u8 = 2;
    pub const NEW_SESSION_TICKET: u8 = 4;
    pub const ENCRYPTED_EXTENSIONS: u8 = 8;
    pub const CERTIFICATE: u8 = 11;
    pub const SERVER_KEY_EXCHANGE: u8 = 12;
    pub const SERVER_HELLO_DONE: u8 = 14;
    pub const FINISHED: u8 = 20;
    pub const KEY_UPDATE: u8 = 24;
}

/// A message that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// ClientHello.
    ClientHello(ClientHello),
    /// ServerHello or HelloRetryRequest.
    ServerHello(ServerHello),
    /// EncryptedExtensions.
    EncryptedExtensions(EncryptedExtensions),
    /// NewSessionTicket.
    NewSessionTicket,
    /// A message that only a full TLS 1.2 handshake has: of certificates or key exchange.
    FullHandshake,
    /// Finished.
    Finished,
    /// KeyUpdate: what follows in this direction has new keys.
    KeyUpdate,
    /// A message of another type.
    Other(u8),
    /// A message that does not follow its format, of this type.
    Malformed(u8),
}

/// A message that came to its end, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its type.
    pub kind: u8,
    /// Its body, when it is whole and one that is read.
    pub body: Option<Vec<u8>>,
}

/// Reads one direction's handshake messages.
#[derive(Clone, Debug, Default)]
pub struct MessageReader {
    header: [u8; HEADER_LENGTH],
    /// Bytes of the header that have come.
    have: usize,
    /// Bytes of the body that are to come.
    need: usize,
    kept: Vec<u8>,
    damaged: bool,
}

impl MessageReader {
    /// Takes bytes off the front of `rest` up to the end of a message; `None` when all are taken before.
    pub fn next(&mut self, rest: &mut &[u8]) -> Option<Message> {
        self.next_unread(rest).map(Unread::read)
    }

    /// The same, with the message as it was sent.
    pub fn next_unread(&mut self, rest: &mut &[u8]) -> Option<Unread> {
        while self.have < HEADER_LENGTH {
            let (&byte, left) = rest.split_first()?;
            *rest = left;
            *self.header.get_mut(self.have)? = byte;
            self.have += 1;
            if self.have == HEADER_LENGTH {
                let [_, high, middle, low] = self.header;
                self.need = u32::from_be_bytes([0, high, middle, low]) as usize;
            }
        }
        let (taken, left) = rest.split_at(self.need.min(rest.len()));
        *rest = left;
        self.need -= taken.len();
        if self.is_read() && self.kept.len() + taken.len() <= TLS_HELLO_LENGTH {
            self.kept.extend_from_slice(taken);
        }
        if self.need > 0 { None } else { Some(self.finish()) }
    }

    /// Passes bytes that cannot be read. `Err` when they hide a message's begin.
    pub fn skip(&mut self, length: usize) -> Result<Option<Message>, ()> {
        self.skip_unread(length).map(|message| message.map(Unread::read))
    }

    /// The same, with the message as it was sent.
    pub fn skip_unread(&mut self, length: usize) -> Result<Option<Unread>, ()> {
        if self.have < HEADER_LENGTH || length > self.need {
            *self = Self::default();
            return Err(());
        }
        self.damaged = true;
        self.need -= length;
        Ok(if self.need > 0 { None } else { Some(self.finish()) })
    }

    /// Whether no message is begun.
    pub fn is_between(&self) -> bool {
        self.have == 0
    }

    /// Bytes of the current message's header that are yet to come.
    pub fn header_left(&self) -> usize {
        HEADER_LENGTH - self.have
    }

    /// Whether the body of the current message is of interest.
    fn is_read(&self) -> bool {
        matches!(self.header[0], kind::CLIENT_HELLO | kind::SERVER_HELLO | kind::ENCRYPTED_EXTENSIONS)
    }

    fn finish(&mut self) -> Unread {
        let done = std::mem::take(self);
        let [kind, ..] = done.header;
        let length = u32::from_be_bytes([0, done.header[1], done.header[2], done.header[3]]) as usize;
        Unread { kind, body: Some(done.kept).filter(|body| !done.damaged && body.len() == length) }
    }
}

impl Unread {
    fn read(self) -> Message {
        let body = self.body.as_deref();
        match self.kind {
            kind::CLIENT_HELLO => body.and_then(ClientHello::parse).map(Message::ClientHello),
            kind::SERVER_HELLO => body.and_then(ServerHello::parse).map(Message::ServerHello),
            kind::ENCRYPTED_EXTENSIONS => body.and_then(EncryptedExtensions::parse).map(Message::EncryptedExtensions),
            kind::NEW_SESSION_TICKET => Some(Message::NewSessionTicket),
            kind::CERTIFICATE | kind::SERVER_KEY_EXCHANGE | kind::SERVER_HELLO_DONE => Some(Message::FullHandshake),
            kind::FINISHED => Some(Message::Finished),
            kind::KEY_UPDATE => Some(Message::KeyUpdate),
            other => Some(Message::Other(other)),
        }
        .unwrap_or(Message::Malformed(self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &mut MessageReader, mut piece: &[u8]) -> Vec<Message> {
        std::iter::from_fn(|| reader.next(&mut piece)).collect()
    }

    #[test]
    fn messages_in_pieces() {
        // Certificate of 5 bytes, Finished of 2, KeyUpdate of 1, an empty ServerHelloDone.
        let bytes = b"\x0b\0\0\x05abcde\x14\0\0\x02fg\x18\0\0\x01\0\x0e\0\0\0";
        let all = [Message::FullHandshake, Message::Finished, Message::KeyUpdate, Message::FullHandshake];
        assert_eq!(read(&mut MessageReader::default(), bytes), all);
        for size in 1..bytes.len() {
            let mut reader = MessageReader::default();
            let messages: Vec<_> = bytes.chunks(size).flat_map(|piece| read(&mut reader, piece)).collect();
            assert_eq!(messages, all, "in pieces of {size}");
            assert!(reader.is_between());
        }
    }

    #[test]
    fn lost_bytes() {
        let mut reader = MessageReader::default();
        assert_eq!(read(&mut reader, b"\x0b\0\0\x05a"), []);
        assert_eq!(reader.skip(3), Ok(None));
        assert_eq!(reader.skip(1), Ok(Some(Message::FullHandshake)));
        assert_eq!(reader.skip(1), Err(()), "the begin of a message");
        assert_eq!(read(&mut reader, b"\x08\0\0\x02\0"), []);
        assert_eq!(reader.skip(1), Ok(Some(Message::Malformed(8))), "half of it was not seen");
        assert_eq!(read(&mut reader, b"\x14\0\0\x02\0"), []);
        assert_eq!(reader.skip(2), Err(()), "over the end");
        assert!(reader.is_between());
    }

    #[test]
    fn an_endless_hello_is_not_kept() {
        let mut reader = MessageReader::default();
        assert_eq!(read(&mut reader, b"\x01\xff\xff\xff"), []);
        for _ in 0..1023 {
            assert_eq!(read(&mut reader, &[0; 16 << 10]), []);
            assert!(reader.kept.len() <= TLS_HELLO_LENGTH);
        }
        assert_eq!(read(&mut reader, &[0; 16 << 10]), [Message::Malformed(1), Message::Other(0)][..1]);
    }
}
