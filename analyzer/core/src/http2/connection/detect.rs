//! Tells HTTP/2 from other protocols by a direction's first bytes: the connection preface (RFC 9113 section 3.4), a
//! server's first SETTINGS, an HTTP/1.1 upgrade to h2c (RFC 7540 section 3.2), a TLS record (RFC 8446 section 5.1).

use serde::{Deserialize, Serialize};

use crate::http1::base64::Base64;
use crate::http1::head::{self, Body};
use crate::http2::frame::header::{FrameHeader, FrameType, HEADER_LEN};

/// The client's connection preface.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the first bytes of a direction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// Too few bytes to tell.
    Undecided,
    /// The client's connection preface.
    Preface,
    /// A SETTINGS frame: a server that begins HTTP/2.
    Settings,
    /// An HTTP/1.x request, which may ask for an upgrade.
    Http1Request,
    /// An HTTP/1.x response, which may accept one.
    Http1Response,
    /// A TLS record.
    Tls,
    /// Something else.
    Other,
}

/// Judges the first bytes of a direction.
pub fn opening(bytes: &[u8]) -> Opening {
    let Some(&first) = bytes.first() else {
        return Opening::Undecided;
    };
    if starts(bytes, PREFACE) {
        return if bytes.len() < PREFACE.len() { Opening::Undecided } else { Opening::Preface };
    }
    if is_tls(bytes) {
        return if bytes.len() < 3 { Opening::Undecided } else { Opening::Tls };
    }
    if starts(bytes, b"HTTP/1.") {
        return if bytes.len() < 7 { Opening::Undecided } else { Opening::Http1Response };
    }
    match bytes.first_chunk::<HEADER_LEN>().map(FrameHeader::parse) {
        None if first == 0 || bytes.iter().all(u8::is_ascii_uppercase) => Opening::Undecided,
        Some(header) if header.kind() == FrameType::SETTINGS && header.flags() == 0 && header.is_plausible() => {
            Opening::Settings
        }
        _ if is_http1_request(bytes) => Opening::Http1Request,
        _ => Opening::Other,
    }
}

/// Whether one is a prefix of the other.
fn starts(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.iter().zip(pattern).all(|(a, b)| a == b)
}

/// A handshake record of TLS 1.0 to 1.3.
fn is_tls(bytes: &[u8]) -> bool {
    let [first, major, minor] = [0, 1, 2].map(|i| bytes.get(i).copied());
    first == Some(0x16) && major.is_none_or(|b| b == 3) && minor.is_none_or(|b| b <= 4)
}

/// A method token of capitals and a space, within the first bytes.
fn is_http1_request(bytes: &[u8]) -> bool {
    let token = bytes.iter().take(16).take_while(|b| b.is_ascii_uppercase()).count();
    token >= 3 && bytes.get(token) == Some(&b' ')
}

/// An HTTP/1.1 head, as far as the upgrade needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http1Head {
    /// Octets of the head with its empty line.
    pub length: usize,
    /// What is behind it; `None` where the head is malformed.
    pub body: Option<Body>,
    /// Path of the request.
    pub path: Vec<u8>,
    /// `Content-Type`.
    pub content_type: Vec<u8>,
    /// `Upgrade: h2c` was there.
    pub upgrade_h2c: bool,
    /// The decoded `HTTP2-Settings` field: the payload of the client's first SETTINGS.
    pub settings: Vec<u8>,
    /// The status line says 101.
    pub switching: bool,
    /// The method is HEAD: its response has no body.
    pub is_head: bool,
}

/// Parses an HTTP/1.1 head; `None` until its empty line has come.
pub fn http1_head(bytes: &[u8]) -> Option<Http1Head> {
    let length = bytes.windows(4).position(|octets| octets == b"\r\n\r\n")? + 4;
    let (octets, mut room) = (bytes.get(..length)?, head::room());
    let parsed = match octets {
        [b'H', b'T', b'T', b'P', b'/', ..] => head::parse_response(octets, &mut room),
        _ => head::parse_request(octets, &mut room),
    };
    let Some(head) = parsed else { return Some(Http1Head { length, ..Http1Head::default() }) };
    Some(Http1Head {
        length,
        body: head.body(),
        path: head.target.as_bytes().to_vec(),
        content_type: head.value(b"content-type").unwrap_or_default().to_vec(),
        upgrade_h2c: head.values(b"upgrade").any(|protocol| protocol.eq_ignore_ascii_case(b"h2c")),
        settings: head.value(b"http2-settings").and_then(base64url).unwrap_or_default(),
        switching: head.status == 101,
        is_head: head.method == "HEAD",
    })
}

/// Base64url without padding (RFC 7540 section 3.2.1); `None` when it is none.
pub(crate) fn base64url(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    Base64::default().decode(text, &mut bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings() {
        assert_eq!(opening(b""), Opening::Undecided);
        assert_eq!(opening(b"PRI * HT"), Opening::Undecided);
        assert_eq!(opening(PREFACE), Opening::Preface);
        assert_eq!(opening(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64"), Opening::Settings);
        assert_eq!(opening(b"\0\0\x00\x04\x01\0\0\0\0"), Opening::Other, "an acknowledgement comes never first");
        assert_eq!(opening(b"\0\0\x06"), Opening::Undecided);
        assert_eq!(opening(b"POST /a HTTP/1.1\r\n"), Opening::Http1Request);
        assert_eq!(opening(b"HTTP/1.1 101 S"), Opening::Http1Response);
        assert_eq!(opening(b"\x16\x03\x01\x02\0"), Opening::Tls);
        assert_eq!(opening(b"SSH-2.0-OpenSSH"), Opening::Other);
    }

    #[test]
    fn upgrade_heads() {
        let request = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
            HTTP2-Settings: AAMAAABkAAQAoAAA\r\n\r\nPRI";
        assert_eq!(http1_head(&request[..20]), None);
        let head = http1_head(request).unwrap();
        assert!(head.upgrade_h2c && !head.switching);
        assert_eq!(head.path, b"/x");
        assert_eq!(head.length, request.len() - 3);
        assert_eq!(head.settings, [0, 3, 0, 0, 0, 100, 0, 4, 0, 0xa0, 0, 0]);
        let answer = http1_head(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n").unwrap();
        assert!(answer.switching && answer.upgrade_h2c);
    }
}
