//! gRPC over HTTP/2 (grpc/grpc doc/PROTOCOL-HTTP2.md): messages in DATA, RPCs on streams.

mod act;
pub mod call;
pub mod data;
mod direction;
mod events;
pub mod headers;
pub mod known_texts;
mod late;
pub mod message;
mod other;
mod outcome;
pub mod piece;
mod probe;
pub mod protocol;
mod refused;
pub mod repeats;
mod rows;
mod rpc;
mod rpc_end;
mod stall;
pub mod state;
pub mod status;
pub mod tail;
pub mod turns;
mod unread;
pub mod unreceived;
pub mod used;
