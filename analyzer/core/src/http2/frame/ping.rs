//! PING (RFC 9113 section 6.7): keepalive, drain, or a bandwidth-delay estimator; the payload tells which.

use super::header::{FrameError, FrameHeader};

/// Parses a whole payload into the eight opaque octets.
pub fn parse(_header: &FrameHeader, payload: &[u8]) -> Result<[u8; 8], FrameError> {
    <[u8; 8]>::try_from(payload).map_err(|_| FrameError::size("PING is not 8 octets long"))
}

/// What a PING is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Purpose {
    /// Neither its payload nor its time tells.
    #[default]
    Unknown = 0,
    /// A bandwidth-delay estimator's.
    Bdp = 1,
    /// Keepalive.
    Keepalive = 2,
    /// A graceful shutdown's.
    Drain = 3,
    /// A round trip measured for window scaling (.NET).
    Rtt = 4,
}

/// Names in the order of [`Purpose`].
pub const PURPOSES: [&str; 5] = ["unknown", "bdp", "keepalive", "drain", "rtt"];

impl Purpose {
    /// What the eight octets tell; `None` when they are random, a clock, a count, or used for several purposes. Constants of
    /// each implementation's source: grpc-go internal/transport (bdp_estimator.go, http2_client.go, http2_server.go),
    /// grpc-java AbstractNettyHandler, NettyClientHandler, NettyServerHandler and OkHttpServerTransport, h2
    /// src/frame/ping.rs, .NET Http2StreamWindowManager.cs.
    pub fn from_payload(payload: [u8; 8]) -> Option<Self> {
        const GO_BDP: [u8; 8] = [2, 4, 16, 16, 9, 14, 7, 7];
        const GO_DRAIN: [u8; 8] = [1, 6, 1, 8, 0, 3, 3, 9];
        const H2_SHUTDOWN: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];
        const DOTNET_RTT: std::ops::Range<i64> = -1_000_000_000..0;
        match payload {
            GO_BDP => Some(Self::Bdp),
            GO_DRAIN | H2_SHUTDOWN => Some(Self::Drain),
            _ => match i64::from_be_bytes(payload) {
                1111 | 0xdead => Some(Self::Keepalive),
                1234 => Some(Self::Bdp),
                0x0009_7ace_f001 | 0x1111 => Some(Self::Drain),
                value if DOTNET_RTT.contains(&value) => Some(Self::Rtt),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_tell() {
        for (payload, purpose) in [
            (0x0204_1010_090e_0707, Some(Purpose::Bdp)),
            (1234, Some(Purpose::Bdp)),
            (0, None), // grpc-go's keepalive, and the first of an old C-core
            (0x0106_0108_0003_0309, Some(Purpose::Drain)),
            (-2, Some(Purpose::Rtt)),
            (0x3b7c_db7a_0b87_16b4, None), // h2: estimator and keepalive alike
            (0x1234_5678_9abc_def0, None),
        ] {
            assert_eq!(Purpose::from_payload(i64::to_be_bytes(payload)), purpose, "{payload:x}");
        }
    }
}
