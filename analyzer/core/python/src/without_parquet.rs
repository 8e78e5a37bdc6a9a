//! What stands in for the crate that writes Parquet in a build without it: every table is refused.

use std::collections::HashMap;

use grpcdiag_core::rows::Column;

const REFUSED: &str = "this build cannot write Parquet";

/// Refuses all rows.
pub struct Writer;

impl Writer {
    /// Takes the same as the writer that it stands in for.
    pub fn new(_metadata: Vec<(String, String)>, _fields: HashMap<String, HashMap<String, String>>) -> Self {
        Self
    }

    /// Takes no rows.
    pub fn write(&mut self, _columns: &[Column<'_>]) -> Result<Vec<u8>, &'static str> {
        Err(REFUSED)
    }

    /// Gives nothing: no file was begun.
    pub fn finish(&mut self) -> Result<Vec<u8>, &'static str> {
        Ok(Vec::new())
    }
}
