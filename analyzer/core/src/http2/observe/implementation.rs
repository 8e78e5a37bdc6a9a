//! Guesses a gRPC implementation from its habits on the wire, where no header names it.

use crate::http2::frame::settings::Pairs;

/// An implementation known by its frames. Inferred, never proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
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
}

/// Names in the order of [`Implementation`].
pub const NAMES: [&str; 7] = ["", "grpc-go", "grpc-java", "tonic (h2)", "grpc-dotnet", "grpc-c-core", "grpc-node"];

impl Implementation {
    /// By the eight octets of a PING that is no acknowledgement; constants of each implementation's source:
    /// grpc-go internal/transport/bdp_estimator.go, grpc-java AbstractNettyHandler and NettyServerHandler, h2
    /// src/frame/ping.rs.
    pub fn from_ping(payload: [u8; 8]) -> Self {
        const GO_BDP: [u8; 8] = [2, 4, 16, 16, 9, 14, 7, 7];
        const GO_DRAIN: [u8; 8] = [1, 6, 1, 8, 0, 3, 3, 9];
        const H2_USER: [u8; 8] = [0x3b, 0x7c, 0xdb, 0x7a, 0x0b, 0x87, 0x16, 0xb4];
        const H2_SHUTDOWN: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];
        match payload {
            GO_BDP | GO_DRAIN => Self::Go,
            H2_USER | H2_SHUTDOWN => Self::RustH2,
            _ => match u64::from_be_bytes(payload) {
                1234 | 1111 | 0xdead | 0x0009_7ace_f001 => Self::JavaNetty,
                _ => Self::Unknown,
            },
        }
    }

    /// By the first SETTINGS of a side, in the order sent: gRPC's own settings 0xfe03 to 0xfe05 are C-core's alone;
    /// servers' defaults are those of grpc-go internal/transport/http2_server.go, grpc-java NettyServerBuilder and
    /// hyper src/proto/h2/server.rs, as seen in captures of each.
    pub fn from_settings(pairs: Pairs<'_>, server: bool) -> Self {
        let mut first = [(0_u16, 0_u32); 4];
        let mut count = 0;
        for (place, pair) in first.iter_mut().zip(pairs) {
            *place = pair;
            count += 1;
        }
        if pairs.into_iter().any(|(id, _)| (0xfe03..=0xfe05).contains(&id)) {
            return Self::CCore;
        }
        match (server, first.get(..count).unwrap_or_default()) {
            (true, [(5, 16_384)]) => Self::Go,
            (true, [(3, 0x7fff_ffff), (4, _), (6, 8_192)]) => Self::JavaNetty,
            (true, [(4, 0x0010_0000), (5, 16_384), (6, 16_384)]) => Self::RustH2,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(values: &[(u16, u32)]) -> Implementation {
        let octets: Vec<u8> =
            values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        Implementation::from_settings(crate::http2::frame::settings::pairs(&octets), true)
    }

    #[test]
    fn server_settings() {
        assert_eq!(server(&[(5, 16_384)]), Implementation::Go);
        assert_eq!(server(&[(4, 1 << 20), (5, 16_384), (6, 16_384)]), Implementation::RustH2);
        assert_eq!(server(&[(3, 0x7fff_ffff), (4, 1 << 20), (6, 8_192)]), Implementation::JavaNetty);
        assert_eq!(server(&[(4, 4_194_303), (5, 4_194_303), (6, 8_192), (0xfe03, 1)]), Implementation::CCore);
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
