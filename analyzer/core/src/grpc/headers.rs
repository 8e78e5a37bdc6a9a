//! Gives header fields their meaning in gRPC. Each HPACK table entry is classified once, when it is inserted.

use serde::{Deserialize, Serialize};

use std::hash::BuildHasher;

use crate::http1::head::is_coded;
use crate::http2::hpack::{Classifier, Field};
use crate::store::strings::Strings;
use crate::store::traces::Trace;

use super::known_texts;
use super::protocol::Content;
use super::status;

/// The meaning of one header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeaderClass {
    /// Nothing that gRPC's framing needs.
    Other,
    /// Name or value was inserted before the capture began.
    Unknown,
    /// `:path`, the interned method.
    Path(u32),
    /// `:path` whose value was inserted before the capture began.
    UnknownPath,
    /// `:status`.
    HttpStatus(u16),
    /// `content-type`.
    ContentType(Content),
    /// `grpc-status`, as a code.
    GrpcStatus(u8),
    /// `grpc-message`, the interned text, where it is kept.
    GrpcMessage(u32),
    /// `grpc-timeout` or `connect-timeout-ms`, in nanoseconds.
    Timeout(i64),
    /// `grpc-previous-rpc-attempts`.
    PreviousAttempts(u8),
    /// `traceparent`, by its number among those of the run.
    Trace(u32),
    /// `x-request-id`, as a number that equal ones share.
    RequestId(u64),
    /// `user-agent`, the interned implementation and version.
    UserAgent(u32),
    /// `server`, or `via` of a known proxy: the interned product.
    Server(u32),
    /// `connect-protocol-version`.
    ConnectVersion,
    /// `:path` of a request of Connect's by GET: the interned method.
    ConnectPath(u32),
    /// `content-encoding`, or over HTTP/1.1 `transfer-encoding`, other than none: the body's octets are not the messages'.
    Coded,
    /// `te: trailers`, which gRPC clients must send.
    TeTrailers,
    /// `:method` or `:scheme`.
    Request,
    /// `:authority`.
    Authority,
}

/// Stands for the number of a `grpc-message` that is not shown unless it is asked for.
pub const WITHHELD: u32 = u32::MAX - 1;

impl Classifier for Strings {
    type Class = HeaderClass;

    fn classify(&mut self, name: Option<&[u8]>, value: Option<&[u8]>) -> HeaderClass {
        let (name, value) = match (name, value) {
            (Some(name), Some(value)) => (name, value),
            (Some(b":path"), None) => return HeaderClass::UnknownPath,
            _ => return HeaderClass::Unknown,
        };
        match name {
            b":path" => classify_path(self, value),
            b":method" | b":scheme" => HeaderClass::Request,
            b":authority" => HeaderClass::Authority,
            b":status" => HeaderClass::HttpStatus(parse_http_status(value)),
            b"content-type" => HeaderClass::ContentType(Content::from_header(value)),
            b"grpc-status" => HeaderClass::GrpcStatus(status::from_header(value)),
            b"grpc-message" => {
                let shown = if self.keeps_errors { Some(value) } else { known_texts::find_error(value) };
                let number = shown.map(|text| self.errors.intern(text)).or((!value.is_empty()).then_some(WITHHELD));
                number.map_or(HeaderClass::Other, HeaderClass::GrpcMessage)
            }
            b"grpc-timeout" => parse_timeout(value).map_or(HeaderClass::Other, HeaderClass::Timeout),
            b"grpc-previous-rpc-attempts" => HeaderClass::PreviousAttempts(parse_attempts(value)),
            b"traceparent" => {
                Trace::parse(value).map_or(HeaderClass::Other, |trace| HeaderClass::Trace(self.traces.keep(trace)))
            }
            b"x-request-id" => HeaderClass::RequestId(digest(value)),
            b"user-agent" => HeaderClass::UserAgent(self.agents.intern(agent(value).as_bytes())),
            b"server" => HeaderClass::Server(self.agents.intern(server(value).as_bytes())),
            b"via" => proxy(value).map_or(HeaderClass::Other, |name| HeaderClass::Server(self.agents.intern(name))),
            b"connect-protocol-version" => HeaderClass::ConnectVersion,
            b"connect-timeout-ms" => parse_milliseconds(value).map_or(HeaderClass::Other, HeaderClass::Timeout),
            b"te" if value == b"trailers" => HeaderClass::TeTrailers,
            b"content-encoding" | b"transfer-encoding" if is_coded(value) => HeaderClass::Coded,
            _ => HeaderClass::Other,
        }
    }

    /// A gRPC request or the beginning of a response (PROTOCOL-HTTP2.md): pseudo-header fields come first (RFC 9113
    /// section 8.3), a request has `:method`, `:scheme`, `:path` and perhaps `:authority`, a response `:status` alone,
    /// and both have `content-type` once. Trailers have too little that is theirs alone.
    fn is_whole_block(&self, fields: &[HeaderClass]) -> bool {
        let is_pseudo = |class: &HeaderClass| {
            use HeaderClass::{ConnectPath, HttpStatus, Path, Request, UnknownPath};
            matches!(class, Path(_) | ConnectPath(_) | UnknownPath | HttpStatus(_) | Request)
        };
        let is_regular = |class: &HeaderClass| !is_pseudo(class) && *class != HeaderClass::Unknown;
        let pseudo = fields.iter().rposition(is_pseudo).map_or(0, |last| last + 1);
        let regular = fields.iter().position(is_regular).unwrap_or(fields.len());
        let count = |is: fn(&HeaderClass) -> bool| fields.iter().filter(|class| is(class)).count();
        let paths = count(|class| matches!(class, HeaderClass::Path(_) | HeaderClass::UnknownPath));
        let statuses = count(|class| matches!(class, HeaderClass::HttpStatus(_)));
        let others = count(|class| *class == HeaderClass::Request);
        // what is not known may be the pseudo-header field that a request lacks, if it stands before the others
        let unknown = fields.iter().take(regular).filter(|class| **class == HeaderClass::Unknown).count();
        let once = |is: fn(&HeaderClass) -> bool, most: usize| count(is) <= most;
        let request = paths <= 1 && (2..=3).contains(&others) && paths + unknown >= 1 && statuses == 0;
        let response = statuses == 1 && paths == 0 && others == 0;
        pseudo <= regular
            && (request || response)
            && count(|class| *class == HeaderClass::ContentType(Content::Grpc)) == 1
            && once(|class| matches!(class, HeaderClass::ContentType(_)), 1)
            && once(|class| *class == HeaderClass::TeTrailers, usize::from(request))
            && once(|class| matches!(class, HeaderClass::UserAgent(_)), usize::from(request))
            && once(|class| matches!(class, HeaderClass::Timeout(_)), usize::from(request))
            && once(|class| matches!(class, HeaderClass::PreviousAttempts(_)), usize::from(request))
            && once(|class| matches!(class, HeaderClass::GrpcStatus(_)), usize::from(response))
    }
}

fn parse_http_status(value: &[u8]) -> u16 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `:path` without its query, which may hold anything.
pub(super) fn classify_path(strings: &mut Strings, value: &[u8]) -> HeaderClass {
    let path = value.split(|&octet| octet == b'?').next().unwrap_or(value);
    let method = strings.method(path);
    if is_connect_get(value) { HeaderClass::ConnectPath(method) } else { HeaderClass::Path(method) }
}

/// Whether a path's query has `connect=v1`: it is of an RPC of Connect's by GET (connectrpc.com/docs/protocol,
/// "Unary-Get-Request").
pub(crate) fn is_connect_get(path: &[u8]) -> bool {
    let query = path.iter().position(|&octet| octet == b'?').and_then(|at| path.get(at..)).unwrap_or_default();
    query.split(|octet| matches!(octet, b'?' | b'&')).any(|part| part == b"connect=v1")
}

/// `connect-timeout-ms` in nanoseconds: at most ten digits (connectrpc.com/docs/protocol).
fn parse_milliseconds(value: &[u8]) -> Option<i64> {
    parse_digits(value, 10)?.checked_mul(1_000_000)
}

/// A number of at most `most` digits.
fn parse_digits(text: &[u8], most: usize) -> Option<i64> {
    let is_number = (1..=most).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| text.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
}

/// The software that a field of this name names: `user-agent`, or `server`.
pub(crate) fn software(name: &[u8], value: &[u8]) -> String {
    if name == b"server" { server(value) } else { agent(value) }
}

/// The first product of a `server` field (RFC 9110 section 10.2.4), `nginx/1.22.1`.
fn server(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let product = text.split([' ', '(']).next().unwrap_or_default();
    product.chars().filter(char::is_ascii_graphic).take(64).collect()
}

/// Proxies by the names that they give themselves in `via` (RFC 9110 section 7.6.3). Other names there may be hosts'.
pub(crate) const PROXIES: [&[u8]; 9] =
    [b"nghttpx", b"Caddy", b"google", b"envoy", b"haproxy", b"varnish", b"traefik", b"linkerd", b"nginx"];

/// The proxy that a `via` field names last, which is the one nearest to the client.
fn proxy(value: &[u8]) -> Option<&'static [u8]> {
    let nearest = value.rsplit(|&octet| octet == b',').next()?;
    let mut words = nearest.split(|octet| matches!(octet, b' ' | b'/' | b'('));
    words.find_map(|word| PROXIES.into_iter().find(|name| name.eq_ignore_ascii_case(word)))
}

/// `grpc-timeout` in nanoseconds: at most 8 digits and a unit H, M, S, m, u or n (PROTOCOL-HTTP2.md); `None` when it
/// is none.
pub fn parse_timeout(value: &[u8]) -> Option<i64> {
    let (&unit, digits) = value.split_last()?;
    let amount = parse_digits(digits, 8)?;
    let nanoseconds = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    amount.checked_mul(nanoseconds)
}

/// `grpc-previous-rpc-attempts`, at most two digits: gRFC A6 allows five attempts. 0 when it is no such number.
fn parse_attempts(value: &[u8]) -> u8 {
    if value.len() > 2 || !value.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    value.iter().fold(0, |sum, digit| sum * 10 + (digit - b'0'))
}

/// A number for a text that is compared and never shown; 0 for none alone.
fn digest(value: &[u8]) -> u64 {
    foldhash::quality::FixedState::default().hash_one(value).max(1)
}

/// How the user agents of implementations begin.
pub(crate) const IMPLEMENTATIONS: [&str; 6] = ["grpc-", "tonic/", "connect-", "armeria/", "dart-grpc/", "kitex/"];

/// The part of a user agent that names a gRPC implementation and its version (`grpc-<language>[-variant]/<version>`,
/// PROTOCOL-HTTP2.md, or `tonic/<version>`); the application's own part may be private and is left out.
pub(crate) fn agent(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let known = |word: &&str| IMPLEMENTATIONS.iter().any(|name| word.starts_with(name)) && word.contains('/');
    match text.split(' ').find(known) {
        Some(word) => word.chars().filter(|c| c.is_ascii_graphic()).take(64).collect(),
        None => String::new(),
    }
}

/// A field that is in no table.
const NO_ENTRY: u64 = u64::MAX;

/// What one decoded header block says.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// `:path`.
    pub method: Option<u32>,
    /// `:path`, `:method`, `:scheme` or `:authority` was there: a request.
    pub request: bool,
    /// `te: trailers` was there.
    pub te_trailers: bool,
    /// `:status`.
    pub http_status: Option<u16>,
    /// `content-type`.
    pub content: Content,
    /// The body is coded, by gzip for example.
    pub coded: bool,
    /// `connect-protocol-version`, or `connect=v1` in the query.
    pub connect: bool,
    /// `server`, or a proxy's `via`.
    pub server: Option<u32>,
    /// `grpc-status`.
    pub grpc_status: Option<u8>,
    /// `grpc-message`.
    pub grpc_message: Option<u32>,
    /// `grpc-timeout`, nanoseconds.
    pub timeout_ns: Option<i64>,
    /// `grpc-previous-rpc-attempts`, 0 without.
    pub previous_attempts: u8,
    /// `traceparent`, by its number.
    pub trace: Option<u32>,
    /// `x-request-id`, 0 without.
    pub request_id: u64,
    /// `user-agent`.
    pub agent: Option<u32>,
    /// Fields whose name or value the capture does not hold.
    pub unknown: u32,
    /// Table entries of the first of them.
    pub hidden: Hidden,
    /// The method is known by its table entry alone, its name is not.
    pub unnamed: bool,
}

/// Table entries of the first fields of a block whose name or value the capture does not hold.
pub type Hidden = [u64; 3];

/// Where the `:path` of a block comes from, when its text was sent before the capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// `:authority` was there.
    authority: bool,
    /// A regular field was there, behind which no pseudo-header comes (RFC 9113 section 8.3).
    regular: bool,
    /// Table entries of the first unknown fields that may be `:path` or `:authority`.
    entries: [u64; 2],
    /// How many unknown fields may be.
    candidates: u8,
}

impl Summary {
    /// Table entries of all fields that are not known, if all are in the table.
    pub fn hidden_entries(&self) -> Option<&[u64]> {
        let entries = self.hidden.get(..self.unknown as usize)?;
        (!entries.is_empty() && !entries.contains(&NO_ENTRY)).then_some(entries)
    }

    /// Takes one field in.
    #[inline]
    pub fn add(&mut self, class: HeaderClass) {
        match class {
            HeaderClass::Other => {}
            HeaderClass::Unknown => self.unknown += 1,
            HeaderClass::Path(method) => {
                self.method = Some(method);
                self.request = true;
            }
            HeaderClass::UnknownPath => {
                self.request = true;
                self.unknown += 1;
            }
            HeaderClass::HttpStatus(status) => self.http_status = Some(status),
            HeaderClass::Request | HeaderClass::Authority => self.request = true,
            HeaderClass::ContentType(content) => self.content = content,
            HeaderClass::ConnectVersion => self.connect = true,
            HeaderClass::Coded => self.coded = true,
            HeaderClass::ConnectPath(method) => {
                self.method = Some(method);
                self.request = true;
                self.connect = true;
            }
            HeaderClass::Server(server) => {
                self.server.get_or_insert(server);
            }
            HeaderClass::GrpcStatus(status) => self.grpc_status = Some(status),
            HeaderClass::GrpcMessage(text) => self.grpc_message = Some(text),
            HeaderClass::Timeout(ns) => self.timeout_ns = Some(ns),
            HeaderClass::PreviousAttempts(attempts) => self.previous_attempts = attempts,
            HeaderClass::Trace(number) => self.trace = Some(number),
            HeaderClass::RequestId(number) => self.request_id = number,
            HeaderClass::UserAgent(agent) => self.agent = Some(agent),
            HeaderClass::TeTrailers => self.te_trailers = true,
        }
    }
}

impl Origin {
    /// Takes in a field whose class is known.
    #[inline]
    pub fn add(&mut self, class: HeaderClass) {
        match class {
            HeaderClass::Authority => self.authority = true,
            HeaderClass::Path(_) | HeaderClass::ConnectPath(_) | HeaderClass::Request | HeaderClass::HttpStatus(_) => {}
            _ => self.regular = true,
        }
    }

    /// A field that is not known completely, in table entry `entry`, is the block's next one.
    #[cold]
    pub fn add_unknown(&mut self, class: HeaderClass, entry: Option<u64>) {
        if class == HeaderClass::UnknownPath {
            self.entries = [entry.unwrap_or(NO_ENTRY); 2];
            self.candidates = u8::MAX;
        } else if !self.regular {
            if let Some(place) = self.entries.get_mut(usize::from(self.candidates)) {
                *place = entry.unwrap_or(NO_ENTRY);
            }
            self.candidates = self.candidates.saturating_add(1);
        }
    }

    /// The table entries that tell the method of a request whose `:path` is not known: `:path` is one of the first two
    /// unknown fields, or the first one when `:authority` is known, because pseudo-headers come first (RFC 9113
    /// section 8.3). Requests with equal ones have equal paths.
    pub fn path_entries(&self) -> Option<[u64; 2]> {
        let [first, second] = self.entries;
        let entries = match self.candidates {
            0 => return None,
            1 => [first, first],
            _ if self.authority => [first, first],
            _ => [first, second],
        };
        (!entries.contains(&NO_ENTRY)).then_some(entries)
    }
}

/// Collects the fields of a header block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// What they say so far.
    pub summary: Summary,
    /// Where the method comes from.
    pub origin: Origin,
}

impl Block {
    /// Takes the next field in.
    #[inline]
    pub fn add(&mut self, field: &Field<'_, HeaderClass>) {
        if field.name.is_none() || field.value.is_none() {
            self.origin.add_unknown(field.class, field.entry);
            if let Some(place) = self.summary.hidden.get_mut(self.summary.unknown as usize) {
                *place = field.entry.unwrap_or(NO_ENTRY);
            }
        } else {
            self.origin.add(field.class);
        }
        self.summary.add(field.class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        assert_eq!(parse_timeout(b"50m"), Some(50_000_000));
        assert_eq!(parse_timeout(b"1H"), Some(3_600_000_000_000));
        assert_eq!(parse_timeout(b"99999999H"), None, "beyond 292 years of nanoseconds");
        assert_eq!(parse_timeout(b"7n"), Some(7));
        assert_eq!(parse_timeout(b"123456789S"), None);
        assert_eq!(parse_timeout(b"S"), None);
        assert_eq!(parse_timeout(b"-5S"), None);
        assert_eq!(parse_timeout(b"5s"), None);
        assert_eq!(parse_timeout(b""), None);
    }

    #[test]
    fn previous_attempts() {
        assert_eq!(parse_attempts(b"4"), 4);
        assert_eq!(parse_attempts(b"12"), 12);
        assert_eq!(parse_attempts(b"100"), 0);
        assert_eq!(parse_attempts(b"-1"), 0);
        assert_eq!(parse_attempts(b""), 0);
    }

    #[test]
    fn connect_timeouts() {
        assert_eq!(parse_milliseconds(b"150"), Some(150_000_000));
        assert_eq!(parse_milliseconds(b"9999999999"), Some(9_999_999_999_000_000));
        assert_eq!(parse_milliseconds(b"12345678901"), None);
        assert_eq!(parse_milliseconds(b""), None);
        assert_eq!(parse_milliseconds(b"-1"), None);
    }

    #[test]
    fn servers_are_named_by_their_first_product() {
        assert_eq!(server(b"nginx/1.22.1"), "nginx/1.22.1");
        assert_eq!(server(b"Apache/2.4 (Debian) secret"), "Apache/2.4");
        assert_eq!(server(b"\x1b[31mred"), "[31mred");
        assert_eq!(server(b""), "");
    }

    #[test]
    fn only_known_proxies_are_taken_from_via() {
        assert_eq!(proxy(b"2 nghttpx"), Some(&b"nghttpx"[..]));
        assert_eq!(proxy(b"1.1 gate.corp.example, 2.0 Caddy"), Some(&b"Caddy"[..]));
        assert_eq!(proxy(b"1.1 varnish (Varnish/7.1), 1.1 gate.corp.example"), None, "the nearest one is a host");
        assert_eq!(proxy(b""), None);
    }

    #[test]
    fn a_query_is_never_part_of_a_method() {
        let mut strings = Strings::default();
        let HeaderClass::ConnectPath(get) = strings.classify(Some(b":path"), Some(b"/a.B/C?connect=v1&message=secret"))
        else {
            panic!("a GET of Connect's");
        };
        assert_eq!(strings.classify(Some(b":path"), Some(b"/a.B/C?connect=v10")), HeaderClass::Path(get));
        assert_eq!(strings.methods.get(get), Some(&b"/a.B/C"[..]));
    }

    #[test]
    fn agents_leave_out_the_application() {
        assert_eq!(agent(b"secret-app/1 grpc-go/1.85.0"), "grpc-go/1.85.0");
        assert_eq!(agent(b"grpc-c++/1.51.1 grpc-c/29.0.0 (linux; chttp2)"), "grpc-c++/1.51.1");
        assert_eq!(agent(b"tonic/0.14.0"), "tonic/0.14.0");
        assert_eq!(agent(b"connect-go/1.18.1 (go1.24.4)"), "connect-go/1.18.1");
        assert_eq!(agent(b"curl/8"), "");
    }

    #[test]
    fn unknown_path_is_still_a_request() {
        let mut strings = Strings::default();
        let mut summary = Summary::default();
        summary.add(strings.classify(Some(b":path"), None));
        assert!(summary.request && summary.method.is_none() && summary.unknown == 1);
    }
}
