//! How a connection begins: the first bytes of each side, and a TLS alert.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::http2::connection::detect::{self, Opening};
use crate::state_fields;
use crate::tls::record::kind;

/// Names of what the first bytes of a direction are, by `SetupRow::client_begins` and `server_begins`.
pub const BEGINNINGS: [&str; 8] =
    ["", "preface", "settings", "http1_request", "http1_response", "tls", "alert", "other"];

/// The first bytes of a direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Beginning {
    /// Their packet.
    pub at: At,
    /// What they are, index into [`BEGINNINGS`].
    pub kind: u8,
    /// Of an HTTP/1 response, 0 of anything else.
    pub http1_status: u16,
}

impl Beginning {
    /// Judges the first bytes of a direction, as far as one packet carried them.
    pub fn new(bytes: &[u8], at: At) -> Self {
        let kind = match detect::opening(bytes) {
            _ if alert_of(bytes).is_some() => 6,
            Opening::Preface => 1,
            Opening::Settings => 2,
            Opening::Http1Request => 3,
            Opening::Http1Response => 4,
            Opening::Tls => 5,
            Opening::Undecided | Opening::Other => 7,
        };
        Self { at, kind, http1_status: http1_status(bytes).unwrap_or(0) }
    }

    /// Whether they are of a protocol that is none of those that gRPC uses.
    pub fn is_foreign(&self) -> bool {
        self.kind == 7
    }

    /// Whether a client of gRPC may begin like that: with the preface of HTTP/2, or TLS.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, 1 | 5)
    }
}

/// A TLS alert that was sent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Alert {
    /// Who sent it.
    #[serde(deserialize_with = "state_fields::side")]
    pub side: usize,
    /// What it says (RFC 8446 section 6).
    pub description: u8,
    /// Its packet.
    pub at: At,
}

/// The description of an alert in the clear (RFC 8446 sections 5.1 and 6): its type, a version, two bytes.
pub fn alert_of(bytes: &[u8]) -> Option<u8> {
    match bytes.first_chunk::<7>()? {
        [kind::ALERT, 3, _, 0, 2, 1 | 2, description] => Some(*description),
        _ => None,
    }
}

/// The first text in the first bytes of a protocol, without its line end: at least four printable characters.
pub fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    const SEARCHED: usize = 128;
    const LONGEST: usize = 60;
    let begin = bytes.get(..SEARCHED).unwrap_or(bytes);
    let is_printable = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let line = begin.split(|byte| !is_printable(byte)).find(|line| line.len() >= 4)?;
    Some(line.get(..LONGEST).unwrap_or(line).trim_ascii())
}

/// The code in the status line of an HTTP/1 response (RFC 9112 section 4).
fn http1_status(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_are_named() {
        let named = |bytes: &[u8]| BEGINNINGS[usize::from(Beginning::new(bytes, At::default()).kind)];
        assert_eq!(named(detect::PREFACE), "preface");
        assert_eq!(named(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), "settings");
        assert_eq!(named(b"HTTP/1.1 400 Bad Request\r\n"), "http1_response");
        assert_eq!(named(b"\x16\x03\x01\x02\x00\x01"), "tls");
        assert_eq!(named(b"\x15\x03\x03\x00\x02\x02\x28"), "alert");
        assert_eq!(named(b"SSH-2.0-x"), "other");
    }

    #[test]
    fn a_status_line_has_a_code() {
        assert_eq!(http1_status(b"HTTP/1.1 400 Bad Request\r\n"), Some(400));
        assert_eq!(http1_status(b"HTTP/1.0 50"), None);
        assert_eq!(http1_status(b"HTTP/2 200"), None);
    }

    #[test]
    fn a_foreign_protocol_has_a_first_line() {
        assert_eq!(first_line(b"-ERR unknown command\r\n-ERR more\r\n"), Some(&b"-ERR unknown command"[..]));
        assert_eq!(first_line(b"J\0\0\0\x0a8.0.36\0rest"), Some(&b"8.0.36"[..])); // the greeting of MySQL
        assert_eq!(first_line(&[b'a'; 200]).map(<[u8]>::len), Some(60));
        assert_eq!(first_line(&[0; 64]), None);
    }

    #[test]
    fn an_alert_has_a_description() {
        assert_eq!(alert_of(b"\x15\x03\x01\x00\x02\x02\x2a"), Some(42));
        assert_eq!(alert_of(b"\x15\x03\x01\x00\x1a\x02\x2a"), None); // encrypted
        assert_eq!(alert_of(b"\x15\x03"), None);
    }
}
