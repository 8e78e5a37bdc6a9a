//! What holds for every capture, whole, cut, damaged, divided or scrubbed.

mod captures;
mod cuts;
mod intervals;
mod properties;
mod scrub;
#[path = "../support/mod.rs"]
mod support;
mod threads;
