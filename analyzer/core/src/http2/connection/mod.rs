//! Both directions of one connection: its bytes are cut into frames, and frames change settings, windows and streams.

mod blocks;
mod control;
pub mod detect;
mod late;
mod parser;
pub mod reading;
pub mod side;
pub mod state;
pub mod streams;
pub mod watch;
