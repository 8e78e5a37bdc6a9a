//! What all connections of a run share.

use super::replace::Replacer;

/// Replacements, and what was left out.
#[derive(Debug)]
pub(super) struct Shared {
    pub replacer: Replacer,
    pub hide_methods: bool,
    /// GOAWAY debug texts that are not shown.
    pub reasons: Vec<String>,
}
