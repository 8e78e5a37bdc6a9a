//! Hello messages of TLS (RFC 8446 section 4.1) with what the analysis reads of them, and no more: versions, the chosen
//! cipher suite, protocols of ALPN that the standards name, and whether a session is resumed. Host names (SNI), keys,
//! session identifiers and the offers that tell programs apart are zero.

use crate::tls::handshake::{Unread, kind};
use crate::tls::hello::{ClientHello, HELLO_RETRY_REQUEST, ServerHello, extension};

/// Padding (RFC 7685), whose content is zeros: it stands for every extension that is not shown.
const PADDING: u16 = 21;
/// No hello begins so: its first list would be longer than the message.
const MALFORMED: u8 = 0xff;
/// Bytes of a random.
const RANDOM: usize = 32;
/// Protocols of ALPN that tell nothing but what is spoken; `grpc-exp` is gRPC's own.
const KNOWN_PROTOCOLS: [&[u8]; 5] = [b"h2", b"http/1.1", b"http/1.0", b"h3", b"grpc-exp"];

/// The body of a message as it is written, as long as it was; `None` when nothing of it is.
pub(super) fn shown(message: &Unread) -> Option<Vec<u8>> {
    let body = message.body.as_deref()?;
    let (is_whole, write): (bool, fn(&mut Copy<'_>) -> Option<()>) = match message.kind {
        kind::CLIENT_HELLO => (ClientHello::parse(body).is_some(), client_hello),
        kind::SERVER_HELLO => (ServerHello::parse(body).is_some(), server_hello),
        _ => return None,
    };
    if !is_whole {
        return Some(vec![MALFORMED; body.len()]);
    }
    let mut copy = Copy { from: body, out: Vec::with_capacity(body.len()) };
    write(&mut copy);
    copy.out.resize(body.len(), 0);
    Some(copy.out)
}

fn client_hello(copy: &mut Copy<'_>) -> Option<()> {
    copy.keep(2)?;
    copy.hide(RANDOM)?;
    copy.hide_vector8()?; // session identifier
    copy.hide_vector16()?; // cipher suites
    copy.hide_vector8()?; // compression methods
    copy.extensions(|kind, data| match kind {
        extension::ALPN => data.protocols(),
        // that it is there says all
        extension::EARLY_DATA => Some(()),
        _ => None,
    })
}

fn server_hello(copy: &mut Copy<'_>) -> Option<()> {
    copy.keep(2)?;
    if copy.left().starts_with(&HELLO_RETRY_REQUEST) {
        copy.keep(RANDOM)?
    } else {
        copy.hide(RANDOM)?
    };
    copy.hide_vector8()?; // session identifier
    copy.keep(3)?; // cipher suite and compression
    copy.extensions(|kind, data| match kind {
        extension::ALPN => data.protocols(),
        extension::SUPPORTED_VERSIONS => data.keep(2).map(|_| ()),
        extension::PRE_SHARED_KEY => Some(()),
        _ => None,
    })
}

/// A text that is written anew from its beginning.
struct Copy<'a> {
    from: &'a [u8],
    out: Vec<u8>,
}

impl<'a> Copy<'a> {
    fn left(&self) -> &'a [u8] {
        self.from.get(self.out.len()..).unwrap_or_default()
    }

    fn keep(&mut self, length: usize) -> Option<&'a [u8]> {
        let octets = self.left().get(..length)?;
        self.out.extend_from_slice(octets);
        Some(octets)
    }

    fn hide(&mut self, length: usize) -> Option<&'a [u8]> {
        let octets = self.left().get(..length)?;
        self.out.resize(self.out.len() + length, 0);
        Some(octets)
    }

    fn keep_u16(&mut self) -> Option<usize> {
        self.keep(2)?.first_chunk().map(|octets| usize::from(u16::from_be_bytes(*octets)))
    }

    fn hide_vector8(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(*self.keep(1)?.first()?);
        self.hide(length)
    }

    fn hide_vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.keep_u16()?;
        self.hide(length)
    }

    /// Shows each extension to `write`, which writes what stays of it, or `None` to hide even its type.
    fn extensions(&mut self, mut write: impl FnMut(u16, &mut Copy<'a>) -> Option<()>) -> Option<()> {
        let length = self.keep_u16()?;
        let end = self.out.len() + length;
        while self.out.len() < end {
            let kind = u16::from_be_bytes(*self.left().first_chunk()?);
            let mark = self.out.len();
            self.hide(2)?;
            let length = self.keep_u16()?;
            let mut data = Copy { from: self.left().get(..length)?, out: Vec::new() };
            let stays = write(kind, &mut data).is_some();
            let (kind, mut content) = if stays { (kind, data.out) } else { (PADDING, Vec::new()) };
            content.resize(length, 0);
            self.out.get_mut(mark..mark + 2)?.copy_from_slice(&kind.to_be_bytes());
            self.out.extend(content);
        }
        Some(())
    }

    /// The protocols of ALPN (RFC 7301 section 3.1): their lengths, and the names of known ones.
    fn protocols(&mut self) -> Option<()> {
        self.keep_u16()?;
        while let Some(&length) = self.left().first() {
            self.keep(1)?;
            let name = self.left().get(..usize::from(length)).unwrap_or_default();
            if KNOWN_PROTOCOLS.contains(&name) {
                self.keep(name.len())?
            } else {
                self.hide(name.len())?
            };
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::hello::protocols;

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
    }

    fn client_hello() -> Vec<u8> {
        let extensions = [
            extension(0, b"\0\x13\0\0\x10secret.host.test"),
            extension(extension::ALPN, b"\0\x0f\x02h2\x0binternal/42"),
            extension(51, &[0x77; 40]),
            extension(extension::EARLY_DATA, b""),
        ]
        .concat();
        let length = u16::try_from(extensions.len()).unwrap().to_be_bytes();
        let front = [&[3, 3][..], &[0x77; 32], &[32], &[0x77; 32], &[0, 4, 0x13, 1, 0xc0, 0x2f, 1, 0]].concat();
        [front, length.to_vec(), extensions].concat()
    }

    #[test]
    fn a_client_hello_keeps_what_is_read_of_it() {
        let body = client_hello();
        let new = shown(&Unread { kind: kind::CLIENT_HELLO, body: Some(body.clone()) }).unwrap();
        assert_eq!(new.len(), body.len());
        let (before, after) = (ClientHello::parse(&body).unwrap(), ClientHello::parse(&new).unwrap());
        assert_eq!((after.random, after.early_data, before.early_data), ([0; 32], true, true));
        let lengths = |hello: &ClientHello| protocols(&hello.alpn).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&before), lengths(&after));
        assert_eq!(protocols(&after.alpn).collect::<Vec<_>>(), [&b"h2"[..], &[0; 11]]);
        let allowed = [&[0, 1, 2, 3, 4, 11, 15, 16, 17, 19, 21, 32, 40, 42][..], b"h2"].concat();
        let others: Vec<u8> = new.iter().copied().filter(|octet| !allowed.contains(octet)).collect();
        assert_eq!(others, [u8::try_from(body.len() - 77).unwrap()], "the length of the extensions");
    }

    #[test]
    fn a_damaged_hello_stays_damaged() {
        let body = client_hello();
        for end in 0..body.len() {
            for kind in [kind::CLIENT_HELLO, kind::SERVER_HELLO] {
                let before = Unread { kind, body: body.get(..end).map(<[u8]>::to_vec) };
                let after = shown(&before).unwrap();
                let parse = |body: &[u8]| match kind {
                    kind::CLIENT_HELLO => ClientHello::parse(body).is_some(),
                    _ => ServerHello::parse(body).is_some(),
                };
                assert_eq!(parse(&after), parse(before.body.as_deref().unwrap()), "cut at {end}");
                assert_eq!(after.len(), end);
            }
        }
    }

    #[test]
    fn other_messages_are_not_shown() {
        assert_eq!(shown(&Unread { kind: kind::CERTIFICATE, body: Some(vec![1; 9]) }), None);
        assert_eq!(shown(&Unread { kind: kind::SERVER_HELLO, body: None }), None);
    }
}
