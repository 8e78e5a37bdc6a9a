//! Which header fields may be shown: names that HTTP and gRPC define, and values out of which nothing but gRPC's own
//! working can be read. Everything else is replaced.

use crate::grpc::headers::{IMPLEMENTATIONS, PROXIES};
use crate::grpc::known_texts;
use crate::store::traces::Trace;

use super::replace::{Kind, Part};

/// Names beyond HPACK's static table that standards define: RFC 9110, PROTOCOL-HTTP2.md and gRFCs A6 (retries), A66
/// (metrics), W3C Trace Context and what proxies commonly add.
const NAMES: [&[u8]; 37] = [
    b":protocol",
    b"te",
    b"trailer",
    b"keep-alive",
    b"connection",
    b"upgrade",
    b"http2-settings",
    b"priority",
    b"grpc-status",
    b"grpc-message",
    b"grpc-status-details-bin",
    b"grpc-timeout",
    b"grpc-encoding",
    b"grpc-accept-encoding",
    b"grpc-message-type",
    b"grpc-previous-rpc-attempts",
    b"grpc-retry-pushback-ms",
    b"grpc-trace-bin",
    b"grpc-tags-bin",
    b"grpc-internal-encoding-request",
    b"endpoint-load-metrics-bin",
    b"lb-token",
    b"traceparent",
    b"tracestate",
    b"x-request-id",
    b"x-forwarded-for",
    b"x-forwarded-proto",
    b"x-envoy-upstream-service-time",
    b"x-envoy-expected-rq-timeout-ms",
    b"forwarded",
    b"alt-svc",
    b"connect-protocol-version",
    b"connect-timeout-ms",
    b"connect-content-encoding",
    b"connect-accept-encoding",
    b"x-grpc-web",
    b"x-user-agent",
];

/// Names of content codings (gRPC's and RFC 9110's).
const CODINGS: [&[u8]; 8] = [b"identity", b"gzip", b"deflate", b"snappy", b"zstd", b"br", b"*", b"compress"];
/// Content types that tell nothing of the application.
const CONTENT_TYPES: [&[u8]; 4] =
    [b"text/html", b"text/plain", b"application/json; charset=utf-8", b"text/plain; charset=utf-8"];
/// Content types that tell the protocol of an RPC ([`Content`](crate::grpc::protocol::Content)).
const RPC_TYPES: [&[u8]; 5] =
    [b"application/grpc", b"application/grpc-web", b"application/connect", b"application/proto", b"application/json"];
/// What follows them (PROTOCOL-HTTP2.md).
const FORMATS: [&[u8]; 4] = [b"", b"+proto", b"+json", b"+thrift"];
/// Servers and proxies that name themselves so.
const SERVERS: [&[u8]; 18] = [
    b"nginx",
    b"openresty",
    b"nghttpx",
    b"Caddy",
    b"envoy",
    b"istio-envoy",
    b"haproxy",
    b"Apache",
    b"awselb",
    b"cloudflare",
    b"Kestrel",
    b"Microsoft-IIS",
    b"Jetty",
    b"h2o",
    b"gws",
    b"gunicorn",
    b"hypercorn",
    b"uvicorn",
];
/// gRPC implementations that name themselves so, before a version.
const AGENTS: [&[u8]; 30] = [
    b"grpc-go",
    b"grpc-c++",
    b"grpc-c",
    b"grpc-python",
    b"grpc-python-asyncio",
    b"grpc-ruby",
    b"grpc-php",
    b"grpc-objc",
    b"grpc-csharp",
    b"grpc-dotnet",
    b"grpc-java",
    b"grpc-java-netty",
    b"grpc-java-okhttp",
    b"grpc-java-cronet",
    b"grpc-java-inprocess",
    b"grpc-java-jetty",
    b"grpc-kotlin",
    b"grpc-node",
    b"grpc-node-js",
    b"grpc-swift",
    b"grpc-swift-nio",
    b"grpc-dart",
    b"grpc-erlang",
    b"grpc-elixir",
    b"grpc-rust",
    b"tonic",
    b"connect-go",
    b"connect-es",
    b"armeria",
    b"dart-grpc",
];

/// Whether a field of this name may show it.
pub(super) fn is_standard(name: &[u8], in_static_table: bool) -> bool {
    in_static_table || NAMES.contains(&name)
}

/// What decides about the values of a block besides each name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// The block is known not to be a gRPC request's: its path is no method.
    pub other_content: bool,
    /// Methods are hidden.
    pub hide_methods: bool,
}

/// A field's value in parts, and what it is. `name` is `None` where the capture does not hold it.
pub(super) fn parts<'a>(name: Option<&[u8]>, value: &'a [u8], around: Around) -> (Kind, Vec<Part<'a>>) {
    let whole = |keep: bool| vec![if keep { Part::Kept(value) } else { Part::Hidden(value) }];
    let parts = match name.unwrap_or_default() {
        b":path" => return path(value, around),
        b"traceparent" if value.len() == 55 && Trace::parse(value).is_some() => return (Kind::Trace, trace(value)),
        b"user-agent" => agents(value),
        b"server" => products(value),
        b"via" => proxies(value),
        b"connect-protocol-version" => whole(value == b"1"),
        b"connect-timeout-ms" => whole(value.len() <= 10 && is_number(value)),
        b"content-type" => content_type(value),
        b":method" => whole(matches!(value, b"POST" | b"GET" | b"PUT" | b"CONNECT" | b"OPTIONS" | b"HEAD")),
        b":scheme" => whole(matches!(value, b"http" | b"https")),
        b":status" => whole(value.len() == 3 && is_number(value)),
        b"te" => whole(value == b"trailers"),
        b"grpc-status" | b"grpc-previous-rpc-attempts" => whole(value.len() <= 2 && is_number(value)),
        b"grpc-retry-pushback-ms" => whole(value.len() <= 7 && is_number(value)),
        b"content-length" => whole(value.len() <= 12 && is_number(value)),
        b"grpc-message" => {
            let (known, other) = value.split_at(known_texts::find_error(value).map_or(0, <[u8]>::len));
            vec![Part::Kept(known), Part::Hidden(other)]
        }
        b"grpc-timeout" => whole(is_timeout(value)),
        b"transfer-encoding" => whole(value == b"chunked"),
        b"grpc-encoding"
        | b"grpc-accept-encoding"
        | b"accept-encoding"
        | b"content-encoding"
        | b"connect-content-encoding"
        | b"connect-accept-encoding" => {
            whole(value.split(|&c| c == b',').all(|coding| CODINGS.contains(&coding.trim_ascii())))
        }
        _ => whole(value.is_empty()),
    };
    (Kind::Value, parts)
}

fn is_number(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_digit)
}

/// At most eight digits and a unit (PROTOCOL-HTTP2.md).
fn is_timeout(value: &[u8]) -> bool {
    crate::grpc::headers::parse_timeout(value).is_some()
}

/// A path and its query, of which what says that it is Connect's stays.
fn path(value: &[u8], around: Around) -> (Kind, Vec<Part<'_>>) {
    let end = value.iter().position(|&c| c == b'?').unwrap_or(value.len());
    let (front, query) = value.split_at(end);
    let (kind, mut parts) = path_alone(front, around);
    for word in query.split_inclusive(|c| b"?&".contains(c)) {
        let (bare, mark) = match word {
            [bare @ .., b'?' | b'&'] => word.split_at(bare.len()),
            _ => (word, &b""[..]),
        };
        parts.push(if bare == b"connect=v1" { Part::Kept(bare) } else { Part::Hidden(bare) });
        parts.push(Part::Kept(mark));
    }
    (kind, parts)
}

/// A method, `/package.Service/Method`, is kept or hidden part by part; another path is replaced behind its slash.
fn path_alone(value: &[u8], around: Around) -> (Kind, Vec<Part<'_>>) {
    let Some(names) = method(value).filter(|_| !around.other_content) else {
        let parts = match value.split_at_checked(1) {
            Some((slash @ b"/", rest)) => vec![Part::Kept(slash), Part::Hidden(rest)],
            _ => vec![Part::Hidden(value)],
        };
        return (Kind::Method, parts);
    };
    if !around.hide_methods {
        return (Kind::Value, vec![Part::Kept(value)]);
    }
    let [service, method] = names;
    (Kind::Method, vec![Part::Kept(b"/"), Part::Hidden(service), Part::Kept(b"/"), Part::Hidden(method)])
}

/// Service and method of a path that is one.
fn method(path: &[u8]) -> Option<[&[u8]; 2]> {
    let rest = path.strip_prefix(b"/")?;
    let slash = rest.iter().position(|&c| c == b'/')?;
    let (service, method) = (rest.get(..slash)?, rest.get(slash + 1..)?);
    let is_name = |text: &[u8]| !text.is_empty() && text.iter().all(|c| c.is_ascii_alphanumeric() || b"_.".contains(c));
    (is_name(service) && is_name(method)).then_some([service, method])
}

/// The trace-id and the parent-id of a well-formed `traceparent` are replaced each for itself: requests of one trace stay
/// requests of one trace.
fn trace(value: &[u8]) -> Vec<Part<'_>> {
    let ends = [0, 3, 35, 36, 52, value.len()];
    let mut parts = ends.windows(2).filter_map(|ends| value.get(ends[0]..ends[1]));
    let mut next = || parts.next().unwrap_or_default();
    vec![Part::Kept(next()), Part::Hidden(next()), Part::Kept(next()), Part::Hidden(next()), Part::Kept(next())]
}

fn content_type(value: &[u8]) -> Vec<Part<'_>> {
    if CONTENT_TYPES.contains(&value) {
        return vec![Part::Kept(value)];
    }
    for name in RPC_TYPES {
        let Some(rest) = value.strip_prefix(name) else { continue };
        if FORMATS.contains(&rest) {
            return vec![Part::Kept(value)];
        }
        // a format or parameters begin here, whatever they are
        let blanks = rest.len() - rest.trim_ascii_start().len();
        let begins = rest.first() == Some(&b'+') || rest.get(blanks) == Some(&b';');
        if let Some((front, rest)) = value.split_at_checked(name.len() + blanks + 1).filter(|_| begins) {
            return vec![Part::Kept(front), Part::Hidden(rest)];
        }
    }
    vec![Part::Hidden(value)]
}

/// The words of a user agent that name a gRPC implementation and its version stay (PROTOCOL-HTTP2.md, "User Agents");
/// of an implementation or a version that is not known, what makes it be one.
fn agents(value: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for word in value.split_inclusive(|&c| c == b' ') {
        let (bare, space) = match word {
            [bare @ .., b' '] => (bare, &b" "[..]),
            _ => (word, &b""[..]),
        };
        agent(bare, &mut parts);
        parts.push(Part::Kept(space));
    }
    parts
}

/// The first product of `server` stays if it is a known one, with its version; what follows is replaced.
fn products(value: &[u8]) -> Vec<Part<'_>> {
    let end = value.iter().position(|c| b" (".contains(c)).unwrap_or(value.len());
    let (product, rest) = value.split_at_checked(end).unwrap_or((value, &[]));
    let slash = product.iter().position(|&c| c == b'/').unwrap_or(product.len());
    let (name, version) = product.split_at_checked(slash).unwrap_or((product, &[]));
    if !SERVERS.contains(&name) {
        return vec![Part::Hidden(value)];
    }
    let (slash, version) = version.split_at_checked(1).unwrap_or_default();
    let mut parts = vec![Part::Kept(name), Part::Kept(slash)];
    put_version(version, &mut parts);
    // the first octet ends the product, also where the rest is replaced
    let (first, rest) = rest.split_at_checked(1).unwrap_or_default();
    parts.extend([Part::Kept(first), Part::Hidden(rest)]);
    parts
}

/// A `via` that names known proxies alone, with versions of HTTP, stays.
fn proxies(value: &[u8]) -> Vec<Part<'_>> {
    let is_known = |word: &&[u8]| {
        let is_version = matches!(*word, b"" | b"1.0" | b"1.1" | b"2" | b"2.0" | b"3" | b"HTTP");
        is_version || PROXIES.iter().any(|name| name.eq_ignore_ascii_case(word))
    };
    let known = value.split(|octet| b" ,/".contains(octet)).all(|word| is_known(&word));
    vec![if known { Part::Kept(value) } else { Part::Hidden(value) }]
}

fn agent<'a>(word: &'a [u8], parts: &mut Vec<Part<'a>>) {
    let is_named = IMPLEMENTATIONS.iter().any(|name| word.starts_with(name.as_bytes()));
    let slash = word.iter().position(|&c| c == b'/').filter(|_| is_named);
    let Some((name, rest)) = slash.and_then(|slash| word.split_at_checked(slash)) else {
        return parts.push(Part::Hidden(word));
    };
    if AGENTS.contains(&name) {
        parts.push(Part::Kept(name));
    } else {
        let dash = name.iter().position(|&c| c == b'-').map_or(name.len(), |dash| dash + 1);
        let (kept, own) = name.split_at_checked(dash).unwrap_or((name, &[]));
        parts.extend([Part::Kept(kept), Part::Hidden(own)]);
    }
    let (slash, version) = rest.split_at_checked(1).unwrap_or((rest, &[]));
    parts.push(Part::Kept(slash));
    put_version(version, parts);
}

fn put_version<'a>(version: &'a [u8], parts: &mut Vec<Part<'a>>) {
    let known = if is_version(version) { version.len() } else { numbers(version) };
    let (known, own) = version.split_at_checked(known).unwrap_or((version, &[]));
    parts.extend([Part::Kept(known), Part::Hidden(own)]);
}

/// How many octets of a version are numbers of at most four digits and the dots between them, four at most.
fn numbers(version: &[u8]) -> usize {
    let mut length = 0;
    for number in version.split(|&c| c == b'.').take(4) {
        let digits = number.iter().take_while(|c| c.is_ascii_digit()).count();
        if digits == 0 || digits > 4 {
            break;
        }
        length += digits + usize::from(length > 0);
        if digits < number.len() {
            break;
        }
    }
    length
}

/// Numbers with dots, and what pre-releases are called.
fn is_version(version: &[u8]) -> bool {
    let mut words = version.split(|&c| c == b'-' || c == b'+');
    let front = words.next().unwrap_or_default();
    let is_stage = |word: &[u8]| {
        let letters = word.iter().take_while(|c| c.is_ascii_alphabetic()).count();
        let (stage, number) = word.split_at_checked(letters).unwrap_or_default();
        let known = [&b"dev"[..], b"pre", b"rc", b"alpha", b"beta", b"SNAPSHOT", b"preview"].contains(&stage);
        known && number.len() <= 4 && number.iter().all(|c| c.is_ascii_digit() || *c == b'.')
    };
    !front.is_empty() && version.len() <= 24 && numbers(front) == front.len() && words.all(is_stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, value: &str, around: Around) -> String {
        let (_, parts) = parts(Some(name.as_bytes()), value.as_bytes(), around);
        let show = |part: &Part<'_>| match part {
            Part::Kept(octets) => String::from_utf8_lossy(octets).into_owned(),
            Part::Hidden(octets) => "?".repeat(octets.len()),
        };
        parts.iter().map(show).collect()
    }

    #[test]
    fn values_are_shown_only_where_they_are_grpcs_own() {
        let plain = |name: &str, value: &str| shown(name, value, Around::default());
        assert_eq!(plain("grpc-status", "14"), "14");
        assert_eq!(plain("grpc-status", "hunter2"), "???????");
        assert_eq!(plain("grpc-message", "no"), "??");
        assert_eq!(plain("grpc-message", "Exception calling application: no"), "Exception calling application: ??");
        assert_eq!(plain("grpc-timeout", "50m"), "50m");
        assert_eq!(plain("grpc-accept-encoding", "identity, gzip"), "identity, gzip");
        assert_eq!(plain("grpc-encoding", "acme"), "????");
        assert_eq!(plain(":authority", "db.acme"), "???????");
        assert_eq!(plain("content-type", "application/grpc+proto"), "application/grpc+proto");
        assert_eq!(plain("content-type", "application/grpc+acme"), "application/grpc+????");
        assert_eq!(plain("content-type", "application/acme"), "????????????????");
        assert_eq!(plain("content-type", "application/grpc-web;acme=1"), "application/grpc-web;??????");
        assert_eq!(plain("content-type", "application/grpc-web+acme"), "application/grpc-web+????");
        assert_eq!(plain("content-type", "application/connect+proto; x=y"), "application/connect+??????????");
        assert_eq!(plain("content-type", "application/grpc ; acme"), "application/grpc ;?????");
        assert_eq!(plain("content-type", "application/grpcacme"), "?".repeat(20));
        assert_eq!(plain("authorization", "x"), "?");
        assert_eq!(plain("x-custom", ""), "");
    }

    #[test]
    fn methods_are_paths_of_two_names() {
        let plain = |value: &str| shown(":path", value, Around::default());
        assert_eq!(plain("/acme.v1.Lab/Echo"), "/acme.v1.Lab/Echo");
        assert_eq!(plain("/a.B/C?token=1"), "/a.B/C????????");
        assert_eq!(plain("/a.B/C?connect=v1&message=x"), "/a.B/C?connect=v1&?????????");
        assert_eq!(plain("/a.B/C?x&connect=v1"), "/a.B/C??&connect=v1");
        assert_eq!(plain("*"), "?");
        assert_eq!(shown(":path", "/a.B/C", Around { hide_methods: true, ..Around::default() }), "/???/?");
        let other = |value: &str| shown(":path", value, Around { other_content: true, ..Around::default() });
        assert_eq!(other("/users/alice"), "/???????????");
        assert_eq!(other("/users/alice?token=1"), "/???????????????????");
    }

    #[test]
    fn agents_keep_the_implementation_alone() {
        let plain = |value: &str| shown("user-agent", value, Around::default());
        assert_eq!(plain("grpc-go/1.85.0"), "grpc-go/1.85.0");
        assert_eq!(
            plain("acme/1 grpc-c++/1.51.1 grpc-c/29.0.0 (linux)"),
            "?????? grpc-c++/1.51.1 grpc-c/29.0.0 ???????"
        );
        assert_eq!(plain("grpc-go/1.85.0-dev"), "grpc-go/1.85.0-dev");
        assert_eq!(plain("grpc-go/1.85.0-acme"), "grpc-go/1.85.0?????");
        assert_eq!(plain("grpc-acme/1.0"), "grpc-????/1.0");
        assert_eq!(plain("grpc-acme/hunter2"), "grpc-????/???????");
        assert_eq!(plain("tonic/0.14.0"), "tonic/0.14.0");
        assert_eq!(plain("tonic/123456789012"), "tonic/????????????");
    }
}
