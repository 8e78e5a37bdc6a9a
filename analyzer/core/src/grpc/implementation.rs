//! Guessing a gRPC implementation from habits on the wire, where no header names it.

use crate::http2::settings::Pairs;

/// An implementation known by its frames. Inferred, never proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Implementation {
    /// Nothing tells.
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
                1234 | 1111 | 0xdead | 0x97_ace_f001 => Self::JavaNetty,
                _ => Self::Unknown,
            },
        }
    }

    /// By the first SETTINGS of a side. gRPC's own settings 0xfe03 to 0xfe05 are C-core's alone.
    pub fn from_settings(pairs: Pairs<'_>, _server: bool) -> Self {
        for (id, _) in pairs {
            if (0xfe03..=0xfe05).contains(&id) {
                return Self::CCore;
            }
        }
        Self::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_payloads() {
        assert_eq!(Implementation::from_ping([2, 4, 16, 16, 9, 14, 7, 7]), Implementation::Go);
        assert_eq!(Implementation::from_ping(1234_u64.to_be_bytes()), Implementation::JavaNetty);
        assert_eq!(Implementation::from_ping([0x3b, 0x7c, 0xdb, 0x7a, 0x0b, 0x87, 0x16, 0xb4]), Implementation::RustH2);
        assert_eq!(Implementation::from_ping([0; 8]), Implementation::Unknown, "zeros are many implementations' keepalive");
    }
}
