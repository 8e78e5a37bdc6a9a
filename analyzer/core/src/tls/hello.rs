//! ClientHello, ServerHello and EncryptedExtensions (RFC 8446 section 4): what decryption and diagnosis need of them.
//!
//! The server's name (SNI) is passed over on purpose: it tells who talks to whom, and no finding needs it.

use crate::limits::TLS_ALPN_OFFERS;

use super::keylog::Random;

/// Extension types (RFC 8446 section 4.2).
pub mod extension {
    pub const ALPN: u16 = 16;
    pub const PRE_SHARED_KEY: u16 = 41;
    pub const EARLY_DATA: u16 = 42;
    pub const SUPPORTED_VERSIONS: u16 = 43;
}

/// The random of a ServerHello that is a HelloRetryRequest: SHA-256 of that word (RFC 8446 section 4.1.3).
pub const HELLO_RETRY_REQUEST: Random = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// What a ClientHello tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The random, by which key logs name the connection.
    pub random: Random,
    /// The protocols offered by ALPN, each after its length (RFC 7301 section 3.1); empty when there is no ALPN.
    pub alpn: Vec<u8>,
    /// Early data (0-RTT) may follow.
    pub early_data: bool,
}

/// What a ServerHello tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHello {
    /// The random; part of TLS 1.2's keys.
    pub random: Random,
    /// The version chosen: 0x0303 is TLS 1.2, 0x0304 TLS 1.3.
    pub version: u16,
    /// The number of the cipher suite chosen.
    pub suite: u16,
    /// The session is compressed, as TLS 1.2 allows.
    pub compressed: bool,
    /// It asks for another ClientHello.
    pub retry: bool,
    /// A TLS 1.3 session is resumed.
    pub resumed: bool,
    /// The protocol chosen by ALPN; TLS 1.3 tells it in EncryptedExtensions.
    pub alpn: Vec<u8>,
}

/// What EncryptedExtensions tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncryptedExtensions {
    /// The protocol chosen by ALPN.
    pub alpn: Vec<u8>,
    /// Early data are accepted.
    pub early_data: bool,
}

impl ClientHello {
    /// Reads the message's body; `None` when it is damaged.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut body = Reader(body);
        body.take(2)?;
        let mut hello = Self { random: body.random()?, ..Self::default() };
        body.vector8()?; // session identifier
        body.vector16()?; // cipher suites
        body.vector8()?; // compression methods
        body.extensions(|kind, mut data| {
            match kind {
                extension::ALPN => {
                    let offers = data.vector16()?;
                    hello.alpn = offers.get(..offers.len().min(TLS_ALPN_OFFERS))?.to_vec();
                }
                extension::EARLY_DATA => hello.early_data = true,
                _ => {}
            }
            Some(())
        })?;
        Some(hello)
    }
}

impl ServerHello {
    /// Reads the message's body; `None` when it is damaged.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut body = Reader(body);
        let mut hello = Self { version: body.u16()?, random: body.random()?, ..Self::default() };
        body.vector8()?; // session identifier
        hello.suite = body.u16()?;
        hello.compressed = body.u8()? != 0;
        hello.retry = hello.random == HELLO_RETRY_REQUEST;
        body.extensions(|kind, mut data| {
            match kind {
                extension::SUPPORTED_VERSIONS => hello.version = data.u16()?,
                extension::PRE_SHARED_KEY => hello.resumed = true,
                extension::ALPN => hello.alpn = Reader(data.vector16()?).vector8()?.to_vec(),
                _ => {}
            }
            Some(())
        })?;
        Some(hello)
    }
}

impl EncryptedExtensions {
    /// Reads the message's body; `None` when it is damaged.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut extensions = Self::default();
        Reader(body).extensions(|kind, mut data| {
            match kind {
                extension::ALPN => extensions.alpn = Reader(data.vector16()?).vector8()?.to_vec(),
                extension::EARLY_DATA => extensions.early_data = true,
                _ => {}
            }
            Some(())
        })?;
        Some(extensions)
    }
}

/// The protocols of an ALPN list, each after its length.
pub fn protocols(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut list = Reader(list);
    std::iter::from_fn(move || list.vector8())
}

/// Bytes that are yet to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn random(&mut self) -> Option<Random> {
        self.array()
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    /// Shows each extension to `see`; TLS 1.2 may leave all of them away.
    fn extensions(&mut self, mut see: impl FnMut(u16, Self) -> Option<()>) -> Option<()> {
        if self.0.is_empty() {
            return Some(());
        }
        let mut extensions = Self(self.vector16()?);
        while !extensions.0.is_empty() {
            let (kind, data) = (extensions.u16()?, extensions.vector16()?);
            see(kind, Self(data))?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::support::hex;

    /// RFC 8448 section 3: the ServerHello of a simple handshake, without its four bytes of header.
    #[test]
    fn server_hello_of_rfc_8448() {
        let body = hex(
            "0303a6af06a4121860dc5e6e60249cd34c95930c8ac5cb1434dac155772ed3e2692800130100002e00330024001d0020c9828876112095fe\
             66762bdbf7c672e156d6cc253b833df1dd69b1b04e751f0f002b00020304",
        );
        let hello = ServerHello::parse(&body).unwrap();
        assert_eq!((hello.version, hello.suite, hello.retry, hello.resumed), (0x0304, 0x1301, false, false));
        assert_eq!(hello.random.to_vec(), hex("a6af06a4121860dc5e6e60249cd34c95930c8ac5cb1434dac155772ed3e26928"));
        for end in 0..body.len() {
            // Without any extension it is a whole hello of TLS 1.2.
            assert_eq!(ServerHello::parse(&body[..end]).is_some(), end == 38, "cut at {end}");
        }
    }

    #[test]
    fn client_hello() {
        let mut body = vec![3, 3];
        body.extend([9; 32]);
        body.extend(hex("00 0002 1301 0100 0017 0010 000b 0009 02 6832 05 682f312e31 002a 0000 0000 0000"));
        let mut hello = ClientHello::parse(&body[..body.len()]).unwrap();
        assert_eq!(protocols(&hello.alpn).collect::<Vec<_>>(), [&b"h2"[..], b"h/1.1"]);
        assert!(hello.early_data && hello.random == [9; 32]);
        hello.alpn.pop();
        assert_eq!(protocols(&hello.alpn).collect::<Vec<_>>(), [b"h2"], "a cut offer is none");
        assert_eq!(ClientHello::parse(&body[..50]), None);
    }

    #[test]
    fn encrypted_extensions() {
        let body = hex("000f 0010 0005 0003 02 6832 0000 0000 002a ");
        assert_eq!(EncryptedExtensions::parse(&body), None);
        let extensions = EncryptedExtensions::parse(&hex("0011 0010 0005 0003 02 6832 0000 0000 002a 0000")).unwrap();
        assert_eq!((extensions.alpn.as_slice(), extensions.early_data), (&b"h2"[..], true));
    }
}
