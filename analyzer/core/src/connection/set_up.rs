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
    fn an_alert_has_a_description() {
        assert_eq!(alert_of(b"\x15\x03\x01\x00\x02\x02\x2a"), Some(42));
        assert_eq!(alert_of(b"\x15\x03\x01\x00\x1a\x02\x2a"), None); // encrypted
        assert_eq!(alert_of(b"\x15\x03"), None);
    }
}
