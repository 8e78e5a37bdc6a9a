//! Heads of requests and responses, and how long the body behind each is (RFC 9112 section 6.3).

use serde::{Deserialize, Serialize};

use std::mem::MaybeUninit;

/// Fields of a head that are read; with more it is none.
const FIELDS: usize = 128;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// By its length.
    Length(u64),
    /// By a chunk of length 0.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// Where a parser puts the fields of a head.
pub type Room<'a> = [MaybeUninit<httparse::Header<'a>>; FIELDS];

/// Room for the fields of one head.
pub fn room<'a>() -> Room<'a> {
    [const { MaybeUninit::uninit() }; FIELDS]
}

/// A head.
#[derive(Debug)]
pub struct Head<'b, 'a> {
    /// Method of a request.
    pub method: &'a str,
    /// Target of a request.
    pub target: &'a str,
    /// Status code of a response, 0 of a request.
    pub status: u16,
    /// Names as they were sent, and values.
    pub fields: &'b [httparse::Header<'a>],
}

/// Parses the head of a request; `None` when it is none.
pub fn parse_request<'b, 'a>(octets: &'a [u8], room: &'b mut Room<'a>) -> Option<Head<'b, 'a>> {
    let mut request = httparse::Request::new(&mut []);
    request.parse_with_uninit_headers(octets, room).ok().filter(httparse::Status::is_complete)?;
    Some(Head { method: request.method?, target: request.path?, status: 0, fields: request.headers })
}

/// Parses the head of a response; `None` when it is none.
pub fn parse_response<'b, 'a>(octets: &'a [u8], room: &'b mut Room<'a>) -> Option<Head<'b, 'a>> {
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let read = config.parse_response_with_uninit_headers(&mut response, octets, room);
    read.ok().filter(httparse::Status::is_complete)?;
    Some(Head { method: "", target: "", status: response.code?, fields: response.headers })
}

impl<'a> Head<'_, 'a> {
    /// The first value of a field.
    pub fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// All values of a field.
    pub fn values(&self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name.as_bytes().eq_ignore_ascii_case(name))
            .map(|field| field.value)
    }

    /// How the end of the body is found; `None` when the fields do not agree. A response without a length ends with the
    /// connection, a request without one has no body.
    pub fn body(&self) -> Option<Body> {
        let is_request = self.status == 0;
        if let Some(codings) = self.values(b"transfer-encoding").last() {
            let last = codings.rsplit(|&octet| octet == b',').next()?.trim_ascii();
            return match last.eq_ignore_ascii_case(b"chunked") {
                true => Some(Body::Chunked),
                false => (!is_request).then_some(Body::UntilClose),
            };
        }
        // equal ones may be joined to a list (RFC 9110 section 8.6)
        let lists = self.values(b"content-length").flat_map(|list| list.split(|&octet| octet == b','));
        let mut lengths = lists.map(<[u8]>::trim_ascii);
        let Some(length) = lengths.next() else {
            return Some(if is_request { Body::Length(0) } else { Body::UntilClose });
        };
        let agree = lengths.all(|other| other == length) && length.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(length).ok()?.parse().ok()?;
        agree.then_some(Body::Length(length))
    }

    /// Whether the body is coded, by gzip for example: then its octets are not those of the messages.
    pub fn is_coded(&self) -> bool {
        [&b"content-encoding"[..], b"transfer-encoding"].iter().any(|name| self.values(name).any(is_coded))
    }

    /// The path of the target with its query, also of an absolute one (RFC 9112 section 3.2.2).
    pub fn path(&self) -> &'a [u8] {
        let target = self.target;
        let behind = target.split_once("://").filter(|_| !target.starts_with('/')).map_or(target, |(_, rest)| rest);
        behind.find('/').and_then(|slash| behind.get(slash..)).unwrap_or(target).as_bytes()
    }
}

/// Whether a list of codings has one that changes octets.
pub fn is_coded(codings: &[u8]) -> bool {
    let is_plain = |coding: &[u8]| {
        let coding = coding.trim_ascii();
        [&b""[..], b"identity", b"chunked"].iter().any(|plain| coding.eq_ignore_ascii_case(plain))
    };
    !codings.split(|&octet| octet == b',').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of_response(fields: &str) -> Option<Body> {
        parse_response(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), &mut room())?.body()
    }

    fn body_of_request(fields: &str) -> Option<Body> {
        parse_request(format!("POST /a.B/C HTTP/1.1\r\n{fields}\r\n").as_bytes(), &mut room())?.body()
    }

    #[test]
    fn lengths_of_bodies() {
        assert_eq!(body_of_response("Content-Length: 12\r\n"), Some(Body::Length(12)));
        assert_eq!(body_of_response("content-length: 12\r\nContent-Length: 12\r\n"), Some(Body::Length(12)));
        assert_eq!(body_of_response("Content-Length: 12\r\nContent-Length: 13\r\n"), None);
        assert_eq!(body_of_response("Content-Length: 34, 34\r\n"), Some(Body::Length(34)));
        assert_eq!(body_of_response("Content-Length: 34, 35\r\n"), None);
        assert_eq!(body_of_response("Content-Length: 34,\r\n"), None);
        assert_eq!(body_of_response("Content-Length: +12\r\n"), None);
        assert_eq!(body_of_response("Transfer-Encoding: gzip, Chunked\r\nContent-Length: 3\r\n"), Some(Body::Chunked));
        assert_eq!(body_of_response("Transfer-Encoding: gzip\r\n"), Some(Body::UntilClose));
        assert_eq!(body_of_response(""), Some(Body::UntilClose));
        assert_eq!(body_of_request(""), Some(Body::Length(0)));
        assert_eq!(body_of_request("Transfer-Encoding: gzip\r\n"), None);
        assert_eq!(body_of_request("Transfer-Encoding: chunked\r\n"), Some(Body::Chunked));
    }

    #[test]
    fn codings_of_bodies() {
        let is_coded = |fields: &str| {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            parse_response(head.as_bytes(), &mut room()).map(|head| head.is_coded())
        };
        assert_eq!(is_coded("Transfer-Encoding: Chunked\r\nContent-Encoding: identity\r\n"), Some(false));
        assert_eq!(is_coded("Content-Encoding: gzip\r\n"), Some(true));
        assert_eq!(is_coded("Transfer-Encoding: gzip, chunked\r\n"), Some(true));
    }

    #[test]
    fn paths_of_targets() {
        let path = |target: &str| {
            let head = format!("GET {target} HTTP/1.1\r\n\r\n");
            parse_request(head.as_bytes(), &mut room()).map(|head| head.path().to_vec())
        };
        assert_eq!(path("/a.B/C?d=e://f"), Some(b"/a.B/C?d=e://f".to_vec()));
        assert_eq!(path("http://h:80/a.B/C"), Some(b"/a.B/C".to_vec()));
        assert_eq!(path("*"), Some(b"*".to_vec()));
    }

    #[test]
    fn what_is_no_head() {
        assert!(parse_request(b"nonsense\r\n\r\n", &mut room()).is_none());
        assert!(parse_request(b"POST / HTTP/1.1\r\n", &mut room()).is_none(), "it has no end");
        assert!(parse_response(b"HTTP/1.1 abc\r\n\r\n", &mut room()).is_none());
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert!(parse_request(format!("POST / HTTP/1.1\r\n{many}\r\n").as_bytes(), &mut room()).is_none());
    }
}
