//! Floods: whatever a capture holds a million of, memory stays within what `limits` allows, and the report is told.

mod flood;
mod memory;

mod connections;
mod files;
mod http2;
mod live;
mod live_cuts;
mod states;
mod tcp;
