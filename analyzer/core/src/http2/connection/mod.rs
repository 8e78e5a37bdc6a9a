//! Follows both directions of one connection: cuts bytes into frames, and applies frames to settings, windows and
//! streams.

pub mod application;
mod blocks;
mod control;
pub mod detect;
pub mod events;
mod http1;
pub mod http2;
pub mod interval_counts;
mod parser;
mod pings;
pub mod reading;
mod seen_blocks;
pub mod side;
pub mod streams;
mod used_up;
pub mod watch;
pub mod windows;
