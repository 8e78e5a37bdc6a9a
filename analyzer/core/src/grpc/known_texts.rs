//! Texts that gRPC implementations and proxies write themselves, word for word in their sources: nothing of the calls
//! can be read out of them, so they need not be hidden as other texts are.

/// Most digits of a number: one of 64 bits has 20 decimal ones.
const DIGITS: usize = 20;

/// Values of `grpc-message`. `#` stands for hexadecimal digits, and `*` at the end for what is left out. They are of Envoy
/// 1.39, grpcio and C-core 1.85, grpc for Ruby 1.51, grpc-go 1.85, grpc-java 1.68, grpc-js 1.14, grpc-dotnet 2.66, tonic
/// 0.14, Armeria 1.32, connect-es 2.1, connect-go 1.18, Dubbo 3.3 and etcd 3.7.
const ERRORS: [&str; 46] = [
    "upstream request timeout",
    "downstream duration timeout",
    "stream timeout",
    "no healthy upstream",
    "local_rate_limited",
    "RBAC: access denied",
    "envoy overloaded",
    "fault filter abort",
    "Concurrent RPC limit exceeded!",
    "No free threads in thread pool",
    "received initial metadata size exceeds limit",
    "received metadata size exceeds hard limit (value length # vs. #)*",
    "received metadata size exceeds hard limit (# vs. #)*",
    "received metadata size exceeds soft limit (# vs. #)*",
    "Received message larger than max (# vs. #)*",
    "Received message larger than max (# vs #)*",
    "SERVER: Received message larger than max (# vs. #)*",
    "CLIENT: Received message larger than max (# vs. #)*",
    "SERVER: Sent message larger than max (# vs. #)*",
    "trying to send message larger than max (# vs. #)",
    "grpc: received message larger than max (# vs. #)*",
    "grpc: received message after decompression larger than max #*",
    "gRPC message exceeds maximum size #: #",
    "Received message exceeds the maximum configured message size.",
    "Error, decoded message length too large: found # bytes, the limit is: # bytes",
    "Error, encoded message length too large: found # bytes, the limit is: # bytes",
    "Error, message length too large: found # bytes, the limit is: # bytes",
    "com.linecorp.armeria.common.grpc.protocol.ArmeriaMessageDeframer: Frame size # exceeds maximum: #.*",
    "message size # is larger than configured readMaxBytes #",
    "message size # is larger than configured max #",
    "Method not found!",
    "Exception calling application: *",
    "Timeout expired",
    "Too many active requests for the connection",
    "Content is compressed with *",
    "grpc: Decompressor is not installed for grpc-encoding *",
    "Received message compressed with unsupported encoding *",
    "max connection age",
    "Response Entity Too Large",
    "etcdserver: mvcc: database space exceeded",
    "etcdserver: mvcc: required revision has been compacted",
    "etcdserver: request is too large",
    "etcdserver: too many requests",
    "etcdserver: no leader",
    "etcdserver: leader changed",
    "etcdserver: request timed out*",
];

/// How Envoy begins when it has lost a request (router.cc, Envoy 1.39).
const RESETS: [&str; 2] = [
    "upstream connect error or disconnect/reset before headers. reset reason: ",
    "upstream connect error or disconnect/reset before headers. retried and the latest reset reason: ",
];

/// How Envoy goes on (`resetReasonToString`, utility.cc, Envoy 1.39).
const REASONS: [&str; 10] = [
    "overflow*",
    "local connection failure*",
    "remote connection failure*",
    "connection timeout*",
    "connection termination*",
    "local reset*",
    "local refused stream reset*",
    "remote reset*",
    "remote refused stream reset*",
    "protocol error*",
];

/// Debug data of GOAWAY: grpc-go internal/transport/http2_server.go, grpc-java NettyServerHandler, C-core
/// chttp2_transport.cc, nghttp2 and h2, Netty's DefaultHttp2HeadersDecoder, Tomcat's Http2UpgradeHandler, Jetty's
/// HTTP2Session, Armeria's Http2ResponseDecoder.
const GOAWAYS: [&str; 19] = [
    "",
    "too_many_pings",
    "max_age",
    "max_idle",
    "graceful_stop",
    "app_requested",
    "Connection GOAWAY",
    "server_shutdown",
    "Server shutdown",
    "Connection aborted",
    "keepalive watchdog timeout",
    "disconnecting",
    "client transport shutdown",
    "shutdown",
    "keepalive_timeout",
    "Header size exceeded max allowed size (#)",
    "Connection [#], Too much overhead so the connection will be closed",
    "invalid_headers_frame",
    "content too large: transferred(# + #) > limit(#) (stream: #)",
];

/// The known part of a `grpc-message`, from its beginning; `None` for other texts.
pub fn find_error(value: &[u8]) -> Option<&[u8]> {
    let find_reset = |begin: &&str| {
        let reason = find(&REASONS, value.strip_prefix(begin.as_bytes())?)?;
        value.get(..begin.len() + reason.len())
    };
    find(&ERRORS, value).or_else(|| RESETS.iter().find_map(find_reset))
}

/// Whether the debug data of a GOAWAY is a text of an implementation.
pub fn is_of_goaway(debug_data: &[u8]) -> bool {
    find(&GOAWAYS, debug_data).is_some()
}

/// The part of `value` that one of `texts` describes.
fn find<'a>(texts: &[&str], value: &'a [u8]) -> Option<&'a [u8]> {
    texts.iter().find_map(|text| value.get(..count_matching(text.as_bytes(), value)?))
}

/// How many octets of `value` match `text`; they may be percent-encoded, as connect-es encodes spaces.
fn count_matching(text: &[u8], value: &[u8]) -> Option<usize> {
    let mut at = 0;
    for &octet in text {
        match octet {
            b'*' => return Some(at),
            b'#' => {
                let digits = value.get(at..)?.iter().take(DIGITS).take_while(|octet| octet.is_ascii_hexdigit()).count();
                at += digits;
                if digits == 0 {
                    return None;
                }
            }
            _ if value.get(at) == Some(&octet) => at += 1,
            b' ' if value.get(at..)?.starts_with(b"%20") => at += 3,
            _ => return None,
        }
    }
    (at == value.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_as_far_as_it_is_known() {
        let find = |value: &str| find_error(value.as_bytes()).map(|kept| String::from_utf8_lossy(kept).into_owned());
        assert_eq!(find("upstream request timeout").as_deref(), Some("upstream request timeout"));
        assert_eq!(find("upstream request timeout of bob"), None);
        assert_eq!(find("Exception calling application: bob").as_deref(), Some("Exception calling application: "));
        let refused = "grpc: received message larger than max (5000000 vs. 4194304)";
        assert_eq!(find(refused).as_deref(), Some(refused));
        assert_eq!(find("grpc: received message larger than max (bob vs. 4194304)"), None);
        assert_eq!(find(&format!("grpc: received message larger than max ({} vs. 1)", "a".repeat(21))), None);
        let lost = "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure";
        assert_eq!(find(&format!("{lost}, transport failure reason: 10.0.0.1")), Some(lost.to_owned()));
        let encoded = "message%20size%20200008%20is%20larger%20than%20configured%20readMaxBytes%20100000";
        assert_eq!(find(encoded).as_deref(), Some(encoded));
        assert_eq!(find(""), None);
        assert!(is_of_goaway(b"Connection [1f], Too much overhead so the connection will be closed"));
        assert!(!is_of_goaway(b"Connection of bob"));
        assert!(is_of_goaway(b"content too large: transferred(0 + 16384) > limit(5000) (stream: 3)"));
        assert_eq!(
            find("Content is compressed with `zstd` which isn't").as_deref(),
            Some("Content is compressed with ")
        );
    }
}
