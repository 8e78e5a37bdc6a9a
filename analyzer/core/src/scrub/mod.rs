//! A capture that can be shown to others: the same packets at the same times with the same structure, and nothing that
//! anybody sent. See docs/scrub.md for what stays.
//!
//! Two passes over the source. The first runs the decoder and is shown all bytes of all connections in the order in
//! which it reads them; per side it notes what is structure, with replaced strings (`stream`). The second writes every
//! packet anew (`packet`): zeros, known header fields, and the structure that its payload's place in the sender's bytes
//! has. So a retransmitted byte gets what it got the first time, and a byte that nobody read is zero.

mod addresses;
mod block;
mod body_trailers;
mod checksum;
mod control;
mod edits;
mod fields;
mod file;
mod hello;
mod http1_head;
mod learning;
mod messages;
mod packet;
mod packet_queue;
mod passes;
mod places;
mod replace;
mod shared;
mod stream;
mod tls;
mod writing;

pub use passes::{Refusal, Scrub, Sources, Wishes};
pub use writing::{Report, Treated};
