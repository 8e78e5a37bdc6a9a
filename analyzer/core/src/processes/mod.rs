//! What the scheduler did with the threads of one host while a capture ran (docs/processes.md).
//!
//! `format` and `page` read the kernel's trace pages, `redact` removes what is not the caller's, `record` makes events of them,
//! `threads` puts the events of each thread in order, `path` walks back over wake-ups from a send,
//! `states` lists what to draw.

pub mod format;
pub mod page;
pub mod path;
pub mod record;
pub mod redact;
pub mod states;
pub mod threads;

#[cfg(test)]
mod tests;
