//! What is done with hostile bytes: one module per target, each with `run` for one input and `seeds` to begin from.
//!
//! cargo-fuzz runs them by `fuzz_targets/`; `tests/fuzz.rs` of the core runs the same bodies on a stable toolchain.

pub mod capture_file;
pub mod http2;
pub mod input;
pub mod packets;
pub mod pipeline;
pub mod scrub;
pub mod tls;

#[path = "../../tests/support/mod.rs"]
pub mod support;

/// A target: what `fuzz_targets/` calls it, its body, and the inputs to begin from.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, fast ones first.
pub const TARGETS: [Target; 6] = [
    Target { name: "packets", run: packets::run, seeds: packets::seeds },
    Target { name: "http2", run: http2::run, seeds: http2::seeds },
    Target { name: "tls", run: tls::run, seeds: tls::seeds },
    Target { name: "capture_file", run: capture_file::run, seeds: capture_file::seeds },
    Target { name: "pipeline", run: pipeline::run, seeds: pipeline::seeds },
    Target { name: "scrub", run: scrub::run, seeds: scrub::seeds },
];
