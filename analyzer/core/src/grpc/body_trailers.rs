//! Trailers in the body of a response: gRPC-Web's (PROTOCOL-WEB.md), Connect's end of stream and its errors
//! (connectrpc.com/docs/protocol, "Streaming RPCs" and "Error End-Stream").

use serde::{Deserialize, Serialize};

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

use flate2::read::GzDecoder;

use crate::limits;
use crate::state_fields;

use super::call::Call;
use super::message::PREFIX_LEN;
use super::protocol::Kind;
use super::status::{self, Ending, Source};

/// Flag of gRPC-Web's trailer frame.
const WEB_TRAILERS: u8 = 0x80;

/// Flag of Connect's last envelope.
const CONNECT_END: u8 = 0x02;

/// Flag of what is compressed, in both.
const COMPRESSED: u8 = 0x01;

/// How text of gzip begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether octets that are no message begin the RPC's end in the body of a response.
pub(crate) fn begins_end(kind: Kind, octets: &[u8]) -> bool {
    let flag = match kind {
        Kind::GrpcWeb => WEB_TRAILERS,
        Kind::ConnectStream => CONNECT_END,
        _ => 0,
    };
    octets.first().is_some_and(|first| first & flag != 0)
}

/// The trailers of open streams as far as they came.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BodyTrailers {
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::TAILS }, _, _>")]
    open: HashMap<u32, Vec<u8>, foldhash::fast::RandomState>,
}

impl BodyTrailers {
    /// Adds the next octets of a stream's end. `kept` counts the octets that all connections keep. Octets beyond the
    /// longest possible end are dropped; `false` if there is no room.
    #[cold]
    pub(super) fn add(&mut self, stream: u32, octets: &[u8], kept: &mut usize) -> bool {
        let is_new = !self.open.contains_key(&stream);
        if is_new && self.open.len() >= limits::TAILS || *kept + octets.len() > limits::TAILS_TOTAL {
            return false;
        }
        let trailers = self.open.entry(stream).or_default();
        let before = if is_new { 0 } else { Self::size(trailers) };
        let room = limits::TAIL_BYTES.saturating_sub(trailers.len());
        trailers.extend_from_slice(octets.get(..room).unwrap_or(octets));
        *kept += Self::size(trailers) - before;
        true
    }

    /// Forgets a stream.
    #[cold]
    pub(super) fn forget(&mut self, stream: u32, kept: &mut usize) {
        let size = self.open.remove(&stream).map_or(0, |octets| Self::size(&octets));
        *kept = kept.saturating_sub(size);
    }

    /// What an end takes.
    fn size(octets: &[u8]) -> usize {
        size_of::<(u32, Vec<u8>)>() + octets.len()
    }

    /// How the body of a response has ended its RPC so far; `None` while it has not, and in gRPC, where trailers do.
    #[inline]
    pub(super) fn of_body(&self, call: &Call) -> Option<Ending> {
        if call.kind == Kind::Grpc || call.trailers_cut { None } else { self.read(call) }
    }

    #[cold]
    fn read(&self, call: &Call) -> Option<Ending> {
        if call.is_answered_otherwise() {
            return None;
        }
        let status = match (self.open.get(&call.id), call.kind) {
            (Some(octets), Kind::GrpcWeb) => read_trailers(&unframed(octets)?),
            (Some(octets), Kind::ConnectStream) => read_end_of_stream(&unframed(octets)?),
            (Some(octets), _) => read_code(&plain(octets)?.octets),
            (None, Kind::GrpcWeb) => call.status_in_headers,
            (None, _) => None,
        };
        status.map(|status| Ending { status, source: Source::Trailers })
    }

    /// How an RPC ended whose server ended the stream, if neither trailers nor the body tell.
    pub(super) fn without_end(&self, call: &Call) -> Ending {
        let ok = call.http_status == 200 && !call.is_answered_otherwise();
        match call.kind {
            Kind::ConnectUnary if ok => Ending { status: status::OK, source: Source::HttpStatus },
            _ if ok && call.in_trailers => Ending::NOT_SEEN, // compressed otherwise, or cut, or not kept
            _ => Ending::without_grpc_status(call.http_status),
        }
    }
}

/// The end of an RPC, all of whose octets from its first on are `octets`, with nothing in it but its status; as long as
/// it was. `None` when it has no room for that, or is none.
#[cold]
pub(crate) fn rewrite(call: &Call, octets: &[u8]) -> Option<Vec<u8>> {
    if call.kind == Kind::Grpc || call.http_status == 0 {
        return None;
    }
    let mut trailers = BodyTrailers::default();
    trailers.add(call.id, octets, &mut 0);
    let Ending { status, .. } = trailers.of_body(call)?;
    let name = status::to_connect(status)?;
    let (prefix, text) = match call.kind {
        Kind::GrpcWeb => (WEB_TRAILERS, format!("grpc-status:{status}\r\n")),
        Kind::ConnectStream if status == status::OK => (CONNECT_END, "{}".to_owned()),
        Kind::ConnectStream => (CONNECT_END, format!("{{\"error\":{{\"code\":\"{name}\"}}}}")),
        _ => (0, format!("{{\"code\":\"{name}\"}}")),
    };
    let mut out = Vec::new();
    if prefix != 0 {
        out.push(prefix);
        out.extend_from_slice(octets.get(1..usize::from(PREFIX_LEN))?);
    }
    let room = octets.len().checked_sub(out.len() + text.len())?;
    let (front, last) = text.split_at_checked(text.len() - 1)?;
    out.extend_from_slice(front.as_bytes());
    out.extend(std::iter::repeat_n(b' ', room));
    out.extend_from_slice(last.as_bytes());
    Some(out)
}

/// Octets of a text, as far as they came.
struct Text<'a> {
    octets: Cow<'a, [u8]>,
    is_whole: bool,
}

/// The payload of a frame; `None` when it is compressed otherwise than by gzip.
fn unframed(octets: &[u8]) -> Option<Text<'_>> {
    let (&[flags, a, b, c, d], rest) = octets.split_first_chunk()?;
    let whole = rest.get(..u32::from_be_bytes([a, b, c, d]) as usize);
    let payload = whole.unwrap_or(rest);
    if flags & COMPRESSED == 0 {
        return Some(Text { octets: Cow::Borrowed(payload), is_whole: whole.is_some() });
    }
    let text = plain(payload).filter(|text| matches!(text.octets, Cow::Owned(_)))?;
    Some(Text { is_whole: text.is_whole && whole.is_some(), ..text })
}

/// What a text is without gzip (RFC 1952).
fn plain(text: &[u8]) -> Option<Text<'_>> {
    if !text.starts_with(&GZIP) {
        return Some(Text { octets: Cow::Borrowed(text), is_whole: true });
    }
    let mut out = Vec::new();
    // what is read before a fault or the end of what came stays
    let read = GzDecoder::new(text).take(limits::TAIL_BYTES as u64).read_to_end(&mut out);
    let is_whole = read.is_ok() && out.len() < limits::TAIL_BYTES;
    (!out.is_empty()).then_some(Text { octets: Cow::Owned(out), is_whole })
}

/// `grpc-status` among fields in the form of HTTP/1.1's. A server that does not send all of them has not ended the RPC well.
fn read_trailers(fields: &Text<'_>) -> Option<u8> {
    let mut lines = fields.octets.split_inclusive(|&octet| octet == b'\n');
    let status = lines.find_map(|line| {
        let colon = line.iter().position(|&octet| octet == b':')?;
        let (name, value) = line.split_at(colon);
        let is_status = name.trim_ascii().eq_ignore_ascii_case(b"grpc-status");
        let value = value.get(1..).filter(|_| is_status && (fields.is_whole || line.ends_with(b"\n")))?;
        Some(status::from_header(value.trim_ascii()))
    });
    status.filter(|&status| fields.is_whole || status != status::OK)
}

/// The status of Connect's last envelope: its `error`, or OK without one.
fn read_end_of_stream(json: &Text<'_>) -> Option<u8> {
    match after_key(&json.octets, b"\"error\"") {
        Some(error) => read_code(error),
        None => json.is_whole.then_some(status::OK),
    }
}

/// The `code` of a Connect error. A text that quotes the key has its quotation marks escaped, so that the first such key is
/// the error's.
fn read_code(json: &[u8]) -> Option<u8> {
    let value = after_key(json, b"\"code\"")?.strip_prefix(b"\"")?;
    let end = value.iter().position(|&octet| octet == b'"')?;
    status::from_connect(value.get(..end)?)
}

/// What follows a key and its colon.
fn after_key<'a>(json: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let start = json.windows(key.len()).position(|octets| octets == key)?;
    let rest = json.get(start + key.len()..)?.trim_ascii_start();
    Some(rest.strip_prefix(b":")?.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn ending(kind: Kind, http_status: u16, pieces: &[&[u8]]) -> (Option<&'static str>, &'static str) {
        let mut trailers = BodyTrailers::default();
        for piece in pieces {
            trailers.add(1, piece, &mut 0);
        }
        let call = Call { id: 1, kind, http_status, in_trailers: !pieces.is_empty(), ..Call::default() };
        let ending = trailers.of_body(&call).unwrap_or_else(|| trailers.without_end(&call));
        (status::NAMES.get(usize::from(ending.status)).copied(), status::SOURCES[ending.source as usize])
    }

    /// A frame with its length, as far as `length` of its payload came.
    fn frame(flags: u8, payload: &[u8], length: usize) -> Vec<u8> {
        let said = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[flags][..], &said, &payload[..length]].concat()
    }

    fn whole(flags: u8, payload: &[u8]) -> Vec<u8> {
        frame(flags, payload, payload.len())
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(text).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_bomb_is_read_to_the_limit() {
        let bomb = gzip(&[b' '; 1 << 20]);
        let read = plain(&bomb).map(|text| (text.octets.len(), text.is_whole));
        assert_eq!(read, Some((limits::TAIL_BYTES, false)));
    }

    #[test]
    fn trailers_of_grpc_web() {
        let web = |pieces: &[&[u8]]| ending(Kind::GrpcWeb, 200, pieces);
        let fields = b"grpc-message: x\r\nGrpc-Status: 5\r\n";
        let trailers = whole(0x80, fields);
        assert_eq!(web(&[&trailers]), (Some("NOT_FOUND"), "trailers"));
        assert_eq!(web(&[&trailers[..7], &trailers[7..]]), (Some("NOT_FOUND"), "trailers"));
        assert_eq!(
            web(&[&whole(0x80, b"grpc-status:16")]),
            (Some("UNAUTHENTICATED"), "trailers"),
            "no end of its line"
        );
        assert_eq!(web(&[&whole(0x81, b"xx")]), (None, ""), "not gzip");
        let zipped = whole(0x81, &gzip(b"grpc-status: 7\r\n"));
        assert_eq!(web(&[&zipped]), (Some("PERMISSION_DENIED"), "trailers"));
        assert_eq!(web(&[&zipped[..18]]), (None, ""), "cut");
        assert_eq!(web(&[]), (Some("UNKNOWN"), "http_status"), "none came");
        assert_eq!(ending(Kind::GrpcWeb, 503, &[]), (Some("UNAVAILABLE"), "http_status"));
    }

    #[test]
    fn trailers_that_are_cut_tell_no_status_but_that_of_a_whole_line() {
        let web = |fields: &[u8], length| ending(Kind::GrpcWeb, 200, &[&frame(0x80, fields, length)]);
        assert_eq!(web(b"grpc-status: 16\r\n", 14), (None, ""), "this is no 1");
        assert_eq!(web(b"grpc-status: 16\r\nx: y\r\n", 17), (Some("UNAUTHENTICATED"), "trailers"));
        assert_eq!(web(b"grpc-status: 0\r\nx: y\r\n", 16), (None, ""), "the server did not send all");
        assert_eq!(web(b"grpc-status: 0\r\nx: y\r\n", 22), (Some("OK"), "trailers"));
    }

    #[test]
    fn the_end_of_a_connect_stream() {
        let end = |json: &str| ending(Kind::ConnectStream, 200, &[&whole(0x02, json.as_bytes())]);
        assert_eq!(end("{}"), (Some("OK"), "trailers"));
        assert_eq!(end(r#"{"metadata":{"code":["x"]}}"#), (Some("OK"), "trailers"));
        assert_eq!(
            end(r#"{"error": {"code" : "resource_exhausted", "message":"\"code\":\"ok\""}}"#),
            (Some("RESOURCE_EXHAUSTED"), "trailers")
        );
        assert_eq!(
            end(r#"{"error":{"message":"a \"code\":\"internal\" x","code":"canceled"}}"#),
            (Some("CANCELLED"), "trailers")
        );
        assert_eq!(end("{\"error\":{"), (None, ""), "no code");
        let cut = frame(0x02, br#"{"metadata":{},"error":{"code":"internal"}}"#, 14);
        assert_eq!(ending(Kind::ConnectStream, 200, &[&cut]), (None, ""), "cut behind a brace");
    }

    #[test]
    fn a_unary_connect_rpc() {
        let end = |http_status, body: &str| ending(Kind::ConnectUnary, http_status, &[body.as_bytes()]);
        assert_eq!(ending(Kind::ConnectUnary, 200, &[]), (Some("OK"), "http_status"));
        assert_eq!(end(429, r#"{"code":"resource_exhausted"}"#), (Some("RESOURCE_EXHAUSTED"), "trailers"));
        assert_eq!(end(404, "<html>"), (Some("UNIMPLEMENTED"), "http_status"));
        assert_eq!(end(500, r#"{"code":"no such code"}"#), (Some("UNKNOWN"), "http_status"));
    }

    #[test]
    fn a_rewritten_end_has_the_status_alone() {
        let rewritten = |kind, http_status, octets: &[u8]| {
            let call = Call { id: 1, kind, http_status, ..Call::default() };
            let written = rewrite(&call, octets)?;
            assert_eq!(written.len(), octets.len());
            assert!(!written.windows(6).any(|octets| octets == b"secret"));
            ending(kind, http_status, &[&written]).0
        };
        let web = whole(0x80, b"grpc-message: secret\r\ngrpc-status: 5\r\n");
        assert_eq!(rewritten(Kind::GrpcWeb, 200, &web), Some("NOT_FOUND"));
        let zipped = whole(0x81, &gzip(b"grpc-status: 7\r\n"));
        assert_eq!(rewritten(Kind::GrpcWeb, 200, &zipped), Some("PERMISSION_DENIED"));
        let end = whole(0x02, b"{\"metadata\":{\"secret\":[\"secret\"]}}");
        assert_eq!(rewritten(Kind::ConnectStream, 200, &end), Some("OK"));
        let error = whole(0x02, b"{\"error\":{\"code\":\"canceled\",\"message\":\"secret\"}}");
        assert_eq!(rewritten(Kind::ConnectStream, 200, &error), Some("CANCELLED"));
        let unary = b"{\"message\":\"secret\",\"code\":\"aborted\"}";
        assert_eq!(rewritten(Kind::ConnectUnary, 409, unary), Some("ABORTED"));
        assert_eq!(rewritten(Kind::GrpcWeb, 200, b"\x80\0\0\0\x03grp"), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (mut trailers, mut kept) = (BodyTrailers::default(), 0);
        for stream in 0..2 * limits::TAILS as u32 {
            let fits = trailers.add(stream, &[b'x'; 2 * limits::TAIL_BYTES], &mut kept);
            assert_eq!(fits, stream < limits::TAILS as u32);
        }
        assert!(trailers.add(0, b"more", &mut kept));
        assert_eq!(trailers.open.len(), limits::TAILS);
        assert!(trailers.open.values().all(|octets| octets.len() == limits::TAIL_BYTES));
        (0..2 * limits::TAILS as u32).for_each(|stream| trailers.forget(stream, &mut kept));
        assert_eq!(kept, 0);
    }

    #[test]
    fn what_all_connections_keep_is_bounded() {
        let mut kept = 0;
        let mut connections: Vec<BodyTrailers> =
            (0..2 * limits::TAILS_TOTAL / limits::TAIL_BYTES).map(|_| BodyTrailers::default()).collect();
        let fit = connections
            .iter_mut()
            .filter_map(|trailers| trailers.add(1, &[b'x'; limits::TAIL_BYTES], &mut kept).then_some(()));
        assert!((1_000..limits::TAILS_TOTAL / limits::TAIL_BYTES).contains(&fit.count()));
        assert!(kept <= limits::TAILS_TOTAL + size_of::<(u32, Vec<u8>)>());
    }
}
