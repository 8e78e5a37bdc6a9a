//! How much memory is held.

use std::sync::{Mutex, MutexGuard, PoisonError};

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One flood at a time: memory is that of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

pub const KB: usize = 1 << 10;
pub const MB: usize = 1 << 20;
/// Bytes of a row of the problems table, and as many for the growth of its columns.
pub const PROBLEM_ROW: usize = 2 * 24;

/// How much more memory was held at most since this was made.
pub struct Measured {
    _alone: MutexGuard<'static, ()>,
    before: usize,
}

impl Measured {
    pub fn begin() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut measured = Self { _alone: alone, before: 0 };
        measured.again();
        measured
    }

    /// What is held now does not count.
    pub fn again(&mut self) {
        MEMORY.reset_peak_usage();
        self.before = MEMORY.current_usage();
    }

    pub fn assert_freed(&self, least: usize) {
        let freed = self.before.saturating_sub(MEMORY.current_usage());
        assert!(freed >= least, "{freed} bytes freed, fewer than {least}");
    }

    pub fn assert_below(&self, most: usize) {
        let held = MEMORY.peak_usage().saturating_sub(self.before);
        assert!(held < most, "{held} bytes held, not below {most}");
    }
}

/// Memory of an analysis with nothing in it, and what a connection in it takes.
pub const SMALL: usize = 2 * MB;
