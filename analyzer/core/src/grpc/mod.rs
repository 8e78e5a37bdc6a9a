//! gRPC over HTTP/2 (grpc/grpc doc/PROTOCOL-HTTP2.md): messages in DATA, RPCs on streams.

pub mod headers;
pub mod message;
mod rows;
pub mod rpc;
pub mod status;
pub mod turns;
pub mod used;
