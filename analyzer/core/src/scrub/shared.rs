//! What all connections share: replacements, and texts that were left out.

use super::replace::Replacer;

/// Replacements, and what was left out.
#[derive(Debug)]
pub(super) struct Shared {
    pub replacer: Replacer,
    pub hide_methods: bool,
    /// GOAWAY debug texts that are not shown.
    pub reasons: Vec<String>,
    /// Bytes of memory that unfinished ends of RPCs take.
    pub end_bytes: usize,
}
