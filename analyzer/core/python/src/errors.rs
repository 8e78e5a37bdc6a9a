//! The exceptions of the module.

#![allow(missing_docs, reason = "the macro takes the text for Python")]

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use grpcdiag_core::capture_file::OpenError;

create_exception!(_core, CaptureError, PyException, "A capture cannot be opened or is none.");
create_exception!(_core, EmptyCaptureError, CaptureError, "A capture has no whole file header.");
create_exception!(_core, MemoryLimitError, PyException, "A run needs more memory than it is allowed.");
create_exception!(_core, SpillError, PyException, "A temporary file cannot be written or read.");

/// Why a capture cannot be opened.
pub(super) fn cannot_open(error: OpenError) -> PyErr {
    if error.kind.is_empty() {
        EmptyCaptureError::new_err(error.to_string())
    } else {
        CaptureError::new_err(error.to_string())
    }
}
