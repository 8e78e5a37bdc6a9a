//! gRPC status codes and how HTTP/2 tells them (grpc/grpc doc/statuscodes.md, doc/PROTOCOL-HTTP2.md section
//! "Errors", doc/http-grpc-status-mapping.md).

use serde::{Deserialize, Serialize};

use crate::store::methods::STATUSES;

/// Names in the order of their codes.
pub const NAMES: [&str; STATUSES] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A client acts on its deadline within a few milliseconds; a busy host takes longer: 20 ms.
pub const LATE: i64 = 20_000_000;

/// The deadline counts from before the request is sent, `grpc-timeout` from when it is written, and C-core rounds that up by some
/// per cent: 1 ms, or a fiftieth up to 100 ms if that is more.
fn early(timeout_ns: i64) -> i64 {
    (timeout_ns / 50).clamp(1_000_000, 100_000_000).min(timeout_ns / 2)
}

/// How long after its beginning an RPC reaches its deadline at the earliest.
pub fn earliest(timeout_ns: i64) -> i64 {
    timeout_ns - early(timeout_ns)
}

/// Success.
pub use crate::store::methods::OK;

/// No status was seen on the wire.
pub const NOT_SEEN: u8 = 255;
/// CANCELLED.
pub const CANCELLED: u8 = 1;
/// UNKNOWN.
pub const UNKNOWN: u8 = 2;
/// DEADLINE_EXCEEDED.
pub const DEADLINE_EXCEEDED: u8 = 4;
/// UNIMPLEMENTED.
pub const UNIMPLEMENTED: u8 = 12;
/// PERMISSION_DENIED.
pub const PERMISSION_DENIED: u8 = 7;
/// RESOURCE_EXHAUSTED.
pub const RESOURCE_EXHAUSTED: u8 = 8;
/// INTERNAL.
pub const INTERNAL: u8 = 13;
/// UNAVAILABLE.
pub const UNAVAILABLE: u8 = 14;
/// UNAUTHENTICATED.
pub const UNAUTHENTICATED: u8 = 16;

/// What a status was concluded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Source {
    /// Nothing: the status was not seen.
    None,
    /// The RPC's own status: `grpc-status`, or Connect's error.
    Trailers,
    /// `:status`, since the response ended without `grpc-status` (http-grpc-status-mapping.md).
    HttpStatus,
    /// RST_STREAM of the server, by its error code.
    ServerReset,
    /// RST_STREAM of the client when `grpc-timeout` had passed, whatever its error code.
    ClientDeadline,
    /// RST_STREAM of the client before that.
    ClientReset,
    /// The connection ended before the RPC.
    Connection,
    /// The server ended it with header fields that the capture does not hold, and sent no message: of a unary RPC that is
    /// an error, of a server stream it may be OK.
    NoMessage,
    /// The same, and these fields differ from those that ended RPCs with one response message: it is an error.
    OtherTrailers,
}

/// Names of [`Source`], in the order of their numbers.
pub const SOURCES: [&str; 9] = [
    "",
    "trailers",
    "http_status",
    "server_reset",
    "client_deadline",
    "client_reset",
    "connection",
    "no_message",
    "other_trailers",
];

/// How an RPC ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ending {
    /// Its status code, or [`NOT_SEEN`].
    pub status: u8,
    /// What that was concluded from.
    pub source: Source,
}

impl Ending {
    /// A status that was not seen.
    pub const NOT_SEEN: Self = Self { status: NOT_SEEN, source: Source::None };

    /// The server closed the connection first.
    pub const CONNECTION_CLOSED: Self = Self { status: UNAVAILABLE, source: Source::Connection };

    /// The client refused a complete response by RST_STREAM.
    pub const REFUSED: Self = Self { status: CANCELLED, source: Source::ClientReset };

    /// The status of a response that ended without `grpc-status`.
    pub fn without_grpc_status(http_status: u16) -> Self {
        Self { status: from_http(http_status), source: Source::HttpStatus }
    }

    /// What the client makes of an end that the server gave the RPC `after_ns` after its beginning. The client's timer had ended
    /// it [`LATE`] before. But a client that sends no RST_STREAM within the round trip to it leaves its deadline to the
    /// server, and takes a response that is later.
    #[inline]
    pub fn after(self, after_ns: i64, timeout_ns: i64, client_rtt: i64) -> Self {
        let late = timeout_ns >= 0 && after_ns >= timeout_ns.saturating_add(LATE);
        let answered = matches!(self.source, Source::Trailers | Source::HttpStatus);
        let waited = client_rtt >= 0 && after_ns >= timeout_ns.saturating_add(LATE).saturating_add(client_rtt);
        if late && !(answered && waited) && self.source != Source::ClientReset {
            return Self { status: DEADLINE_EXCEEDED, source: Source::ClientDeadline };
        }
        self
    }

    /// The status of an RPC that its server reset `after_ns` after its beginning: servers cancel what has passed its deadline, as
    /// the client does by itself. Where the deadline is `unknown` it may have passed.
    pub fn reset_by_server(code: u32, after_ns: i64, timeout_ns: i64, unknown: bool) -> Self {
        let (status, source) = (from_rst_stream(code), Source::ServerReset);
        match status {
            CANCELLED if unknown || after_ns < 0 => Self { status: NOT_SEEN, source },
            CANCELLED if timeout_ns >= 0 && after_ns >= earliest(timeout_ns) => {
                Self { status: DEADLINE_EXCEEDED, source: Source::ClientDeadline }
            }
            _ => Self { status, source },
        }
    }

    /// The status of an RPC whose client closed its connection of HTTP/1.1 `after_ns` after its beginning: before its
    /// deadline, the client may have ended.
    pub fn given_up(after_ns: i64, timeout_ns: i64) -> Self {
        match timeout_ns {
            0.. if after_ns >= earliest(timeout_ns) => {
                Self { status: DEADLINE_EXCEEDED, source: Source::ClientDeadline }
            }
            _ => Self::NOT_SEEN,
        }
    }

    /// The status of an RPC that its client reset `after_ns` after its beginning. The error code does not matter: the
    /// application sees what its library made of the deadline or of the cancellation, and codes differ by library.
    /// It is `unknown` where `grpc-timeout` may be among fields that are, or the client may have refused a response of which bytes
    /// are missing. Before its beginning no RPC ends: the capture's clock was set back.
    pub fn reset_by_client(after_ns: i64, timeout_ns: i64, unknown: bool) -> Self {
        let source = Source::ClientReset;
        match timeout_ns {
            0.. if after_ns >= earliest(timeout_ns) => {
                Self { status: DEADLINE_EXCEEDED, source: Source::ClientDeadline }
            }
            _ if unknown || after_ns < 0 => Self { status: NOT_SEEN, source },
            _ => Self { status: CANCELLED, source },
        }
    }
}

/// The value of a `grpc-status` field; codes outside 0 to 16 and other text are UNKNOWN.
pub fn from_header(value: &[u8]) -> u8 {
    let code = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u8>().ok());
    code.filter(|&code| usize::from(code) < NAMES.len()).unwrap_or(UNKNOWN)
}

/// The status of a code of Connect's (connectrpc.com/docs/protocol, "Error Codes"); `None` when it is none.
pub fn from_connect(code: &[u8]) -> Option<u8> {
    if code == b"canceled" {
        return Some(CANCELLED);
    }
    let place = NAMES.iter().position(|name| code.eq_ignore_ascii_case(name.as_bytes()))?;
    u8::try_from(place).ok()
}

/// Connect's code for a status.
pub fn to_connect(status: u8) -> Option<String> {
    if status == CANCELLED {
        return Some("canceled".to_owned());
    }
    NAMES.get(usize::from(status)).map(|name| name.to_ascii_lowercase())
}

/// The status a client must give for a RST_STREAM error code (PROTOCOL-HTTP2.md, "Errors").
pub fn from_rst_stream(code: u32) -> u8 {
    match code {
        7 => UNAVAILABLE,
        8 => CANCELLED,
        11 => RESOURCE_EXHAUSTED,
        12 => PERMISSION_DENIED,
        0..=4 | 6 | 9 | 10 => INTERNAL,
        _ => UNKNOWN,
    }
}

/// The status a client must give for a response without `grpc-status` (http-grpc-status-mapping.md).
pub fn from_http(status: u16) -> u8 {
    match status {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values() {
        assert_eq!(from_header(b"0"), 0);
        assert_eq!(from_header(b"16"), UNAUTHENTICATED);
        assert_eq!(from_header(b"17"), UNKNOWN);
        assert_eq!(from_header(b"-1"), UNKNOWN);
        assert_eq!(from_header(b""), UNKNOWN);
    }

    #[test]
    fn reset_codes_follow_the_specification() {
        let table = [
            (0, "INTERNAL"),
            (1, "INTERNAL"),
            (2, "INTERNAL"),
            (3, "INTERNAL"),
            (4, "INTERNAL"),
            (5, "UNKNOWN"),
            (6, "INTERNAL"),
            (7, "UNAVAILABLE"),
            (8, "CANCELLED"),
            (9, "INTERNAL"),
            (10, "INTERNAL"),
            (11, "RESOURCE_EXHAUSTED"),
            (12, "PERMISSION_DENIED"),
        ];
        for (code, name) in table {
            assert_eq!(NAMES[usize::from(from_rst_stream(code))], name, "RST_STREAM {code}");
        }
    }

    #[test]
    fn a_reset_by_the_client_is_its_deadline_or_its_cancellation() {
        let ended = |after_ns, timeout_ns| {
            let ending = Ending::reset_by_client(after_ns, timeout_ns, false);
            (NAMES[usize::from(ending.status)], SOURCES[ending.source as usize])
        };
        assert_eq!(ended(97_600_000, 97_000_000), ("DEADLINE_EXCEEDED", "client_deadline"));
        assert_eq!(ended(95_060_000, 97_000_000), ("DEADLINE_EXCEEDED", "client_deadline"));
        assert_eq!(ended(95_059_999, 97_000_000), ("CANCELLED", "client_reset"));
        assert_eq!(ended(i64::MAX, -1), ("CANCELLED", "client_reset"));
        let ending = Ending::reset_by_client(i64::MAX, -1, true);
        assert_eq!((ending.status, ending.source), (NOT_SEEN, Source::ClientReset));
    }

    #[test]
    fn an_answer_after_the_deadline_comes_too_late() {
        let ok = Ending { status: OK, source: Source::Trailers };
        let ended = |after_ns, timeout_ns| SOURCES[ok.after(after_ns, timeout_ns, -1).source as usize];
        assert_eq!(ended(1_019_999_999, 1_000_000_000), "trailers");
        assert_eq!(ended(1_020_000_000, 1_000_000_000), "client_deadline");
        assert_eq!(ended(i64::MAX, -1), "trailers");
        assert_eq!(Ending::reset_by_client(1, 10, false).after(LATE + 10, 10, 0).status, CANCELLED);
        let taken = |rtt| ok.after(1_030_000_000, 1_000_000_000, rtt).status == OK;
        assert!(taken(0) && taken(10_000_000) && !taken(10_000_001), "its RST_STREAM may be on the way");
        let closed = Ending::CONNECTION_CLOSED.after(1_030_000_000, 1_000_000_000, 0);
        assert_eq!(closed.status, DEADLINE_EXCEEDED, "nobody answered");
    }

    #[test]
    fn both_ends_reset_what_has_passed_its_deadline() {
        let by_server = |code, after_ns| Ending::reset_by_server(code, after_ns, 40_000_000, false).status;
        assert_eq!([by_server(8, 39_000_000), by_server(8, 38_999_999)], [DEADLINE_EXCEEDED, CANCELLED]);
        assert_eq!([by_server(7, 50_000_000), by_server(2, 50_000_000)], [UNAVAILABLE, INTERNAL]);
        assert_eq!(Ending::reset_by_server(8, 50_000_000, -1, false).status, CANCELLED);
        let unknown = |code| Ending::reset_by_server(code, 50_000_000, -1, true).status;
        assert_eq!([unknown(8), unknown(7)], [NOT_SEEN, UNAVAILABLE], "the deadline may have passed");
        assert_eq!([by_server(8, -1), Ending::reset_by_client(-1, 40, false).status], [NOT_SEEN; 2], "time went back");
        let by_client = |after_ns, timeout_ns| Ending::reset_by_client(after_ns, timeout_ns, false).status;
        assert_eq!(
            [by_client(39_000_000, 40_000_000), by_client(38_999_999, 40_000_000)],
            [DEADLINE_EXCEEDED, CANCELLED]
        );
        assert_eq!([by_client(5, 10), by_client(4, 10)], [DEADLINE_EXCEEDED, CANCELLED]);
    }

    #[test]
    fn a_deadline_is_reached_a_little_early() {
        let early = |timeout_ns| timeout_ns - earliest(timeout_ns);
        assert_eq!(
            [early(4_999_999_950), early(5_000_000_050), early(i64::MAX)],
            [99_999_999, 100_000_000, 100_000_000]
        );
        assert_eq!([early(50_000_050), early(49_999_950)], [1_000_001, 1_000_000], "a fiftieth");
        assert_eq!([early(2_000_000), early(1_999_998), early(0)], [1_000_000, 999_999, 0], "half of it at the most");
    }

    #[test]
    fn http_status_without_grpc_status() {
        assert_eq!(from_http(200), UNKNOWN);
        assert_eq!(from_http(404), UNIMPLEMENTED);
        assert_eq!(from_http(503), UNAVAILABLE);
    }
}
