//! Guesses a gRPC implementation from its habits on the wire, where no header names it.

use serde::{Deserialize, Serialize};

use crate::http2::frame::settings::Pairs;

/// An implementation known by its frames. Inferred, never proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Implementation {
    /// Not known.
    #[default]
    Unknown = 0,
    /// grpc-go.
    Go = 1,
    /// grpc-java on Netty.
    JavaNetty = 2,
    /// hyper's h2: tonic and other Rust users.
    RustH2 = 3,
    /// .NET's SocketsHttpHandler.
    DotNet = 4,
    /// C-core: C++, Python, Ruby, PHP.
    CCore = 5,
    /// Node's http2 (nghttp2): grpc-js.
    Node = 6,
    /// nginx.
    Nginx = 7,
    /// HAProxy.
    Haproxy = 8,
    /// nghttpx.
    Nghttpx = 9,
    /// Envoy.
    Envoy = 10,
    /// Go's net/http: connect-go, Caddy, Traefik.
    GoHttp = 11,
    /// hyper-h2 of Python: grpclib.
    Hyper = 12,
    /// Apache Dubbo: its Triple protocol, on Netty.
    Dubbo = 13,
}

/// Names in the order of [`Implementation`].
pub const NAMES: [&str; 14] = [
    "",
    "grpc-go",
    "grpc-java",
    "tonic (h2)",
    "grpc-dotnet",
    "grpc-c-core",
    "grpc-node",
    "nginx",
    "haproxy",
    "nghttpx",
    "envoy",
    "Go net/http (connect-go, Caddy, Traefik)",
    "grpclib",
    "Dubbo",
];

impl Implementation {
    /// By the eight octets of a PING that is no acknowledgement; constants of each implementation's source:
    /// grpc-go internal/transport/bdp_estimator.go, grpc-java AbstractNettyHandler and NettyServerHandler, h2
    /// src/frame/ping.rs. Dubbo's graceful shutdown sends the same PING as grpc-java's.
    pub fn from_ping(payload: [u8; 8]) -> Self {
        const GO_BDP: [u8; 8] = [2, 4, 16, 16, 9, 14, 7, 7];
        const GO_DRAIN: [u8; 8] = [1, 6, 1, 8, 0, 3, 3, 9];
        const H2_USER: [u8; 8] = [0x3b, 0x7c, 0xdb, 0x7a, 0x0b, 0x87, 0x16, 0xb4];
        const H2_SHUTDOWN: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];
        match payload {
            GO_BDP | GO_DRAIN => Self::Go,
            H2_USER | H2_SHUTDOWN => Self::RustH2,
            _ => match u64::from_be_bytes(payload) {
                1234 | 1111 | 0xdead => Self::JavaNetty,
                _ => Self::Unknown,
            },
        }
    }

    /// By the first SETTINGS of a side, in the order sent: gRPC's own settings 0xfe03 to 0xfe05 are C-core's alone;
    /// servers' defaults are those of grpc-go internal/transport/http2_server.go, grpc-java NettyServerBuilder and
    /// hyper src/proto/h2/server.rs, as seen in captures of each. The same of nginx src/http/v2/ngx_http_v2.c and
    /// ngx_http_grpc_module.c, haproxy src/mux_h2.c, nghttpx src/shrpx_http2_upstream.cc, golang.org/x/net/http2
    /// server.go and transport.go, hyper-h2 src/h2/settings.py, Dubbo's TripleConfig. Envoy's windows of 256 MiB are its own (protocol.proto).
    pub fn from_settings(pairs: Pairs<'_>, server: bool) -> Self {
        let mut first = [(0_u16, 0_u32); 8];
        let mut count = 0;
        for (place, pair) in first.iter_mut().zip(pairs) {
            *place = pair;
            count += 1;
        }
        if pairs.into_iter().any(|(id, _)| (0xfe03..=0xfe05).contains(&id)) {
            return Self::CCore;
        }
        match (server, first.get(..count).unwrap_or_default()) {
            (true, [(5, 16_384)] | [(5, 16_384), (3, _)]) => Self::Go,
            (true, [(3, 0x7fff_ffff), (4, _), (6, 8_192)]) => Self::JavaNetty,
            (true, [(4, 0x0010_0000), (5, 16_384), (6, 16_384)]) => Self::RustH2,
            (true, [(3, _), (4, _), (5, 16_777_215)]) | (false, [(1, 0), (2, 0), (4, 0x7fff_ffff)]) => Self::Nginx,
            (true, [(8, 1), (3, _)] | [(8, 1), (4, _), (3, _)]) | (false, [(2, 0), (8, 1), (3, _)]) => Self::Haproxy,
            (true, [(3, _), (4, _), (9, 1), (8, 1)]) => Self::Nghttpx,
            (true, [.., (4, 0x1000_0000)] | [.., (4, 0x1000_0000), _])
            | (false, [(2, 0), (1, 4_096), (8, 0), (3, _), (4, _)]) => Self::Envoy,
            (true, [(5, 1_048_576), (3, _), (6, _), (1, _), (4, _)])
            | (false, [(2, 0), (4, 4_194_304), (5, 16_384), (6, 10_485_760)]) => Self::GoHttp,
            (_, [(1, 4_096), (2, _), (4, 65_535), (5, 16_384), (8, 0), (3, 100), (6, 65_536), (4, _)]) => Self::Hyper,
            (_, [(1, 4_096), .., (5, 8_388_608), (6, 32_768)]) => Self::Dubbo,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(values: &[(u16, u32)], server: bool) -> Implementation {
        let octets: Vec<u8> =
            values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        Implementation::from_settings(crate::http2::frame::settings::pairs(&octets), server)
    }

    fn server(values: &[(u16, u32)]) -> Implementation {
        sender(values, true)
    }

    #[test]
    fn settings_of_proxies_to_their_backends() {
        let client = |values| sender(values, false);
        assert_eq!(client(&[(1, 0), (2, 0), (4, 0x7fff_ffff)]), Implementation::Nginx);
        assert_eq!(client(&[(2, 0), (8, 1), (3, 100)]), Implementation::Haproxy);
        assert_eq!(client(&[(2, 0), (1, 4_096), (8, 0), (3, 1_024), (4, 1 << 24)]), Implementation::Envoy);
        assert_eq!(client(&[(4, 1 << 28)]), Implementation::Unknown, "any client may have such a window");
    }

    #[test]
    fn server_settings() {
        assert_eq!(server(&[(5, 16_384)]), Implementation::Go);
        assert_eq!(server(&[(4, 1 << 20), (5, 16_384), (6, 16_384)]), Implementation::RustH2);
        assert_eq!(server(&[(3, 0x7fff_ffff), (4, 1 << 20), (6, 8_192)]), Implementation::JavaNetty);
        assert_eq!(server(&[(4, 4_194_303), (5, 4_194_303), (6, 8_192), (0xfe03, 1)]), Implementation::CCore);
        assert_eq!(server(&[(5, 16_384), (3, u32::MAX)]), Implementation::Go);
        assert_eq!(server(&[(3, 128), (4, 65_536), (5, 16_777_215)]), Implementation::Nginx);
        assert_eq!(server(&[(8, 1), (3, 100)]), Implementation::Haproxy);
        assert_eq!(server(&[(3, 100), (4, 65_535), (9, 1), (8, 1)]), Implementation::Nghttpx);
        assert_eq!(server(&[(1, 4_096), (3, 100), (4, 1 << 28)]), Implementation::Envoy);
        let go_http = [(5, 1 << 20), (3, 250), (6, 1_048_896), (1, 4_096), (4, 1 << 20)];
        assert_eq!(server(&go_http), Implementation::GoHttp);
        let dubbo = [(1, 4_096), (3, 0x7fff_ffff), (4, 8_388_608), (5, 8_388_608), (6, 32_768)];
        assert_eq!(server(&dubbo), Implementation::Dubbo);
        assert_eq!(server(&[]), Implementation::Unknown);
    }

    #[test]
    fn ping_payloads() {
        assert_eq!(Implementation::from_ping([2, 4, 16, 16, 9, 14, 7, 7]), Implementation::Go);
        assert_eq!(Implementation::from_ping(1234_u64.to_be_bytes()), Implementation::JavaNetty);
        assert_eq!(Implementation::from_ping([0x3b, 0x7c, 0xdb, 0x7a, 0x0b, 0x87, 0x16, 0xb4]), Implementation::RustH2);
        assert_eq!(
            Implementation::from_ping([0; 8]),
            Implementation::Unknown,
            "zeros are many implementations' keepalive"
        );
    }
}
