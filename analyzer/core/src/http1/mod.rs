//! HTTP/1.1 messages (RFC 9112), which carry gRPC-Web and Connect where browsers or proxies speak no HTTP/2.

pub mod base64;
pub mod head;
pub mod reader;
