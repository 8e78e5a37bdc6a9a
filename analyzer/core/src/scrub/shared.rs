//! What all connections share: replacements, and texts that were left out.

use super::replace::Replacer;

/// Replacements, and what was left out.
#[derive(Debug)]
pub(super) struct Shared {
    pub replacer: Replacer,
    pub hide_methods: bool,
    /// GOAWAY debug texts that are not shown.
    pub reasons: Vec<String>,
}
