//! The protocols that carry RPCs over HTTP/2 streams, told apart by `content-type`.

use serde::{Deserialize, Serialize};

/// What a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    /// An RPC of gRPC (PROTOCOL-HTTP2.md).
    Grpc,
    /// An RPC of gRPC-Web (PROTOCOL-WEB.md): trailers are a frame of the body.
    GrpcWeb,
    /// An RPC of Connect with enveloped messages (connectrpc.com/docs/protocol, "Streaming RPCs").
    ConnectStream,
    /// An RPC of Connect whose body is its message ("Unary RPCs").
    ConnectUnary,
    /// Another use of HTTP/2.
    #[default]
    Other,
}

/// Names of the protocols of RPCs, by [`Kind::protocol`].
pub const NAMES: [&str; 3] = ["grpc", "grpc-web", "connect"];

impl Kind {
    /// The number of an RPC's protocol: both kinds of Connect are one.
    #[inline(always)]
    pub fn protocol(self) -> u8 {
        (self as u8).min(Self::ConnectStream as u8)
    }

    /// Whether the stream carries an RPC.
    #[inline(always)]
    pub fn is_rpc(self) -> bool {
        self != Self::Other
    }
}

/// The media type of a `content-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Content {
    /// There was none.
    #[default]
    None,
    /// `application/grpc`, `application/grpc+proto`, `application/grpc;...`.
    Grpc,
    /// `application/grpc-web`, `application/grpc-web+proto`; not `application/grpc-web-text`, which is base64.
    GrpcWeb,
    /// `application/connect+proto`, `application/connect+json`.
    ConnectStream,
    /// `application/proto`, `application/json`: Connect's if the request has `connect-protocol-version`.
    Message,
    /// Another one.
    Other,
}

impl Content {
    /// The media type of a `content-type`, without its parameters.
    pub fn from_header(value: &[u8]) -> Self {
        let media = without_parameters(value);
        match media {
            _ if is_subtype(media, b"application/grpc") => Self::Grpc,
            _ if is_subtype(media, WEB) => Self::GrpcWeb,
            _ if is_subtype(media, b"application/connect") => Self::ConnectStream,
            b"application/proto" | b"application/json" => Self::Message,
            b"*/*" => Self::None, // no type: sonora repeats what the client accepts
            _ => Self::Other,
        }
    }

    /// gRPC-Web's type, and whether its messages are in base64, of a `content-type` over HTTP/1.1; `None` for others.
    pub fn over_http1(value: &[u8]) -> Option<(&'static [u8], bool)> {
        let media = without_parameters(value).to_ascii_lowercase();
        let is_text = is_subtype(&media, b"application/grpc-web-text");
        (is_text || is_subtype(&media, WEB)).then_some((WEB, is_text))
    }

    /// Whether a request of this type is one of Connect's by POST; `versioned` says that Connect's version was there.
    pub fn is_connect(self, versioned: bool) -> bool {
        self == Self::ConnectStream || self == Self::Message && versioned
    }

    /// What a request of this type opens; `connect` says that Connect's version was there.
    #[inline]
    pub fn opens(self, connect: bool) -> Kind {
        match self {
            Self::Grpc => Kind::Grpc,
            Self::GrpcWeb => Kind::GrpcWeb,
            Self::ConnectStream => Kind::ConnectStream,
            Self::Message | Self::None if connect => Kind::ConnectUnary,
            _ => Kind::Other,
        }
    }

    /// Whether a response of this type may answer an RPC of `kind`. Without a type nothing speaks against it.
    #[inline]
    pub fn answers(self, kind: Kind) -> bool {
        self == Self::None
            || match kind {
                Kind::Grpc => self == Self::Grpc,
                Kind::GrpcWeb => self == Self::GrpcWeb,
                Kind::ConnectStream => self == Self::ConnectStream,
                Kind::ConnectUnary => self == Self::Message,
                Kind::Other => true,
            }
    }
}

/// The media type of gRPC-Web.
const WEB: &[u8] = b"application/grpc-web";

fn without_parameters(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|&octet| octet == b';').unwrap_or(value.len());
    value.get(..end).unwrap_or(value).trim_ascii_end()
}

/// Whether it is this type, with or without a message format behind `+`.
fn is_subtype(media: &[u8], name: &[u8]) -> bool {
    media.strip_prefix(name).is_some_and(|rest| matches!(rest.first(), None | Some(b'+')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types() {
        let table: [(&[u8], Content); 13] = [
            (b"*/*", Content::None),
            (b"application/grpc", Content::Grpc),
            (b"application/grpc+proto", Content::Grpc),
            (b"application/grpc;x=y", Content::Grpc),
            (b"application/grpc-web", Content::GrpcWeb),
            (b"application/grpc-web+proto", Content::GrpcWeb),
            (b"application/grpc-webx", Content::Other),
            (b"application/grpcx", Content::Other),
            (b"application/connect+json", Content::ConnectStream),
            (b"application/proto", Content::Message),
            (b"application/json; charset=utf-8", Content::Message),
            (b"text/html", Content::Other),
            (b"", Content::Other),
        ];
        for (value, content) in table {
            assert_eq!(Content::from_header(value), content, "{}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn plain_json_is_connect_only_with_its_version() {
        assert_eq!(Content::Message.opens(true), Kind::ConnectUnary);
        assert_eq!(Content::Message.opens(false), Kind::Other);
        assert_eq!(Content::None.opens(false), Kind::Other);
        assert!(Content::Message.answers(Kind::ConnectUnary) && !Content::Other.answers(Kind::Grpc));
    }
}
