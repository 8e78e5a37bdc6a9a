//! Annotating a capture, stepped through.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use grpcdiag_core::capture_file::{CaptureReader, Copies, Copy, Source};

use crate::errors::CaptureError;

/// Writing a capture again as pcapng, with comments on packets, stepped through packet by packet.
#[pyclass(module = "grpcdiag.analyzer._core")]
pub(super) struct Annotating {
    // as in `Run`
    inner: Mutex<Copy>,
}

#[pymethods]
impl Annotating {
    /// Opens regular files. `comments` are texts with the numbers of their packets.
    #[new]
    fn new(py: Python<'_>, paths: Vec<String>, comments: Vec<(u32, String)>) -> PyResult<Self> {
        if paths.is_empty() {
            return Err(PyValueError::new_err("no capture file given"));
        }
        let sources = paths.into_iter().map(|path| Source::Path(PathBuf::from(path))).collect();
        let reader = py.detach(|| CaptureReader::open(sources));
        let reader = reader.map_err(|error| CaptureError::new_err(error.to_string()))?;
        let mut of_packets = HashMap::<u32, Vec<String>>::new();
        for (packet, comment) in comments {
            of_packets.entry(packet).or_default().push(comment);
        }
        Ok(Self { inner: Mutex::new(Copy::new(reader, of_packets)) })
    }

    /// Gives the bytes of up to `packets` more packets; `None` at the end.
    fn step<'py>(&mut self, py: Python<'py>, packets: u32) -> Option<Bound<'py, PyBytes>> {
        let copy = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        py.detach(|| copy.step(packets)).map(|bytes| PyBytes::new(py, &bytes))
    }

    /// Bytes read of the files as they are on disk.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bytes_read()
    }

    /// Packets written, those of them with comments, and those whose blocks have no room for comments.
    #[getter]
    fn counts(&self) -> (u32, u32, u32) {
        let Copies { packets, commented, without_room } =
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).copies();
        (packets, commented, without_room)
    }
}
