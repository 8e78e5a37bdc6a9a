//! Gives header fields their meaning in gRPC. Each HPACK table entry is classified once, when it is inserted.

use crate::http2::hpack::{Classifier, Field};
use crate::store::strings::Strings;

use super::status;

/// The meaning of one header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// `content-type`, and whether it is `application/grpc`.
    ContentType(bool),
    /// `grpc-status`, as a code.
    GrpcStatus(u8),
    /// `grpc-timeout` in nanoseconds.
    Timeout(i64),
    /// `user-agent`, the interned implementation and version.
    UserAgent(u32),
    /// `te: trailers`, which gRPC clients must send.
    TeTrailers,
    /// `:method` or `:scheme`.
    Request,
    /// `:authority`.
    Authority,
}

impl Classifier for Strings {
    type Class = HeaderClass;

    fn classify(&mut self, name: Option<&[u8]>, value: Option<&[u8]>) -> HeaderClass {
        let (name, value) = match (name, value) {
            (Some(name), Some(value)) => (name, value),
            (Some(b":path"), None) => return HeaderClass::UnknownPath,
            _ => return HeaderClass::Unknown,
        };
        match name {
            b":path" => HeaderClass::Path(self.method(value)),
            b":method" | b":scheme" => HeaderClass::Request,
            b":authority" => HeaderClass::Authority,
            b":status" => HeaderClass::HttpStatus(parse_http_status(value)),
            b"content-type" => HeaderClass::ContentType(is_grpc(value)),
            b"grpc-status" => HeaderClass::GrpcStatus(status::from_header(value)),
            b"grpc-timeout" => parse_timeout(value).map_or(HeaderClass::Other, HeaderClass::Timeout),
            b"user-agent" => HeaderClass::UserAgent(self.agents.intern(agent(value).as_bytes())),
            b"te" if value == b"trailers" => HeaderClass::TeTrailers,
            _ => HeaderClass::Other,
        }
    }

    /// A gRPC request or the beginning of a response (PROTOCOL-HTTP2.md): pseudo-header fields come first (RFC 9113
    /// section 8.3), a request has `:method`, `:scheme`, `:path` and perhaps `:authority`, a response `:status` alone,
    /// and both have `content-type` once. Trailers have too little that is theirs alone.
    fn is_whole_block(&self, fields: &[HeaderClass]) -> bool {
        let is_pseudo = |class: &HeaderClass| {
            use HeaderClass::{HttpStatus, Path, Request, UnknownPath};
            matches!(class, Path(_) | UnknownPath | HttpStatus(_) | Request)
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
            && count(|class| *class == HeaderClass::ContentType(true)) == 1
            && once(|class| *class == HeaderClass::ContentType(false), 0)
            && once(|class| *class == HeaderClass::TeTrailers, usize::from(request))
            && once(|class| matches!(class, HeaderClass::UserAgent(_)), usize::from(request))
            && once(|class| matches!(class, HeaderClass::Timeout(_)), usize::from(request))
            && once(|class| matches!(class, HeaderClass::GrpcStatus(_)), usize::from(response))
    }
}

fn parse_http_status(value: &[u8]) -> u16 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `application/grpc`, `application/grpc+proto`, `application/grpc;...`; not `application/grpc-web` (PROTOCOL-HTTP2.md).
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// `grpc-timeout` in nanoseconds: at most 8 digits and a unit H, M, S, m, u or n (PROTOCOL-HTTP2.md); `None` when it
/// is none.
pub fn parse_timeout(value: &[u8]) -> Option<i64> {
    let (&unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount = digits.iter().fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
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

/// The part of a user agent that names a gRPC implementation and its version (`grpc-<language>[-variant]/<version>`,
/// PROTOCOL-HTTP2.md, or `tonic/<version>`); the application's own part may be private and is left out.
pub(crate) fn agent(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let known = |word: &&str| (word.starts_with("grpc-") || word.starts_with("tonic/")) && word.contains('/');
    match text.split(' ').find(known) {
        Some(word) => word.chars().filter(|c| c.is_ascii_graphic()).take(64).collect(),
        None => String::new(),
    }
}

/// A field that is in no table.
const NO_ENTRY: u64 = u64::MAX;

/// What one decoded header block says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// `:path`.
    pub method: Option<u32>,
    /// `:path`, `:method`, `:scheme` or `:authority` was there: a request.
    pub request: bool,
    /// `te: trailers` was there.
    pub te_trailers: bool,
    /// `:status`.
    pub http_status: Option<u16>,
    /// `content-type`, and whether it is gRPC's.
    pub grpc_content: Option<bool>,
    /// `grpc-status`.
    pub grpc_status: Option<u8>,
    /// `grpc-timeout`, nanoseconds.
    pub timeout_ns: Option<i64>,
    /// `user-agent`.
    pub agent: Option<u32>,
    /// Fields whose name or value the capture does not hold.
    pub unknown: u32,
    /// The method is known by its table entry alone, its name is not.
    pub unnamed: bool,
}

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
            HeaderClass::ContentType(grpc) => self.grpc_content = Some(grpc),
            HeaderClass::GrpcStatus(status) => self.grpc_status = Some(status),
            HeaderClass::Timeout(ns) => self.timeout_ns = Some(ns),
            HeaderClass::UserAgent(agent) => self.agent = Some(agent),
            HeaderClass::TeTrailers => self.te_trailers = true,
        }
    }
}

impl Origin {
    /// Takes one field in that is known.
    #[inline]
    pub fn add(&mut self, class: HeaderClass) {
        match class {
            HeaderClass::Authority => self.authority = true,
            HeaderClass::Path(_) | HeaderClass::Request | HeaderClass::HttpStatus(_) => {}
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
    fn content_types() {
        assert!(is_grpc(b"application/grpc"));
        assert!(is_grpc(b"application/grpc+proto"));
        assert!(is_grpc(b"application/grpc;x=y"));
        assert!(!is_grpc(b"application/grpc-web"));
        assert!(!is_grpc(b"text/html"));
    }

    #[test]
    fn agents_leave_out_the_application() {
        assert_eq!(agent(b"secret-app/1 grpc-go/1.85.0"), "grpc-go/1.85.0");
        assert_eq!(agent(b"grpc-c++/1.51.1 grpc-c/29.0.0 (linux; chttp2)"), "grpc-c++/1.51.1");
        assert_eq!(agent(b"tonic/0.14.0"), "tonic/0.14.0");
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
