//! Single frames: the header that all share, one file per type, and the search for the next frame after missing bytes.

pub mod boundary_search;
pub mod continuation;
pub mod data;
pub mod goaway;
pub mod header;
pub mod headers;
pub mod ping;
pub mod priority;
pub mod push_promise;
pub mod rst_stream;
pub mod settings;
pub mod window_update;
