//! SETTINGS_HEADER_TABLE_SIZE as it binds one direction's encoder (RFC 7541 4.2 and 6.3).

use serde::{Deserialize, Serialize};

use super::DEFAULT_TABLE_SIZE;

/// The settings that may bind the encoder.
#[derive(Serialize, Deserialize)]
pub(super) struct SizeSettings {
    /// In force, in bytes: the last one acknowledged.
    in_force: u32,
    /// Largest one seen but not yet acknowledged: an encoder may follow it before its ACK is out.
    announced: u32,
    /// How many are not yet acknowledged.
    pending: u32,
    /// `false` if a setting may have been missed.
    complete: bool,
    /// The next block has to begin with an update to this size or less (RFC 7541 4.2).
    demanded: Option<u32>,
}

impl SizeSettings {
    /// The default, known to be in force from the connection's start.
    pub fn from_start() -> Self {
        Self { in_force: DEFAULT_TABLE_SIZE, announced: 0, pending: 0, complete: true, demanded: None }
    }

    /// From now on settings may have been missed.
    pub fn forget(&mut self) {
        self.complete = false;
        self.demanded = None;
    }

    pub fn announce(&mut self, bytes: u32) {
        self.announced = self.announced.max(bytes);
        self.pending = self.pending.saturating_add(1);
    }

    /// A setting came into force while the table's maximum was `table_size`, if that is known.
    pub fn acknowledge(&mut self, bytes: u32, table_size: Option<u32>) {
        self.in_force = bytes;
        self.complete = true;
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.announced = 0;
        }
        if self.demanded.or(table_size).is_some_and(|lowest| bytes < lowest) {
            self.demanded = Some(bytes);
        }
    }

    /// The largest setting that may be in force, in bytes; `None` if settings may have been missed.
    pub fn largest(&self) -> Option<u32> {
        self.complete.then(|| self.in_force.max(self.announced))
    }

    /// Whether a block whose smallest update is `smallest` lacks one that is demanded; each demand
    /// is told once.
    pub fn take_missing(&mut self, smallest: Option<u32>) -> bool {
        let demanded = self.demanded.take();
        demanded.is_some_and(|demanded| smallest.is_none_or(|smallest| smallest > demanded))
    }
}
