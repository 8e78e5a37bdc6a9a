//! Scrubbing a capture, stepped through.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use grpcdiag_core::capture_file::Source;
use grpcdiag_core::scrub::{Report, Scrub, Wishes};

use crate::errors::CaptureError;
use crate::results::put;

/// Writing a capture anew without what anybody sent, stepped through packet by packet.
#[pyclass(module = "grpcdiag.analyzer._core")]
pub(super) struct Scrubbing {
    // as in `Run`
    inner: Mutex<Scrub>,
}

#[pymethods]
impl Scrubbing {
    /// Opens the capture, which is read twice: no standard input. `key` hides what replacements stand for.
    #[new]
    #[pyo3(signature = (paths, *, key, hide_methods=false, ports=Vec::new()))]
    fn new(py: Python<'_>, paths: Vec<String>, key: Vec<u8>, hide_methods: bool, ports: Vec<u16>) -> PyResult<Self> {
        if paths.is_empty() {
            return Err(PyValueError::new_err("no capture file given"));
        }
        let sources = Box::new(move || paths.iter().map(|path| Source::Path(PathBuf::from(path))).collect());
        let opened = py.detach(|| Scrub::open(sources, &key, Wishes { hide_methods, ports }));
        let scrub = opened.map_err(|error| CaptureError::new_err(error.to_string()))?;
        Ok(Self { inner: Mutex::new(scrub) })
    }

    /// Reads up to `packets` packets and gives the bytes of the new file that are due; `None` at its end.
    fn step<'py>(&mut self, py: Python<'py>, packets: u32) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let scrub = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let bytes = py.detach(|| scrub.step(packets)).map_err(|refusal| CaptureError::new_err(refusal.to_string()))?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Bytes read of the files as they are on disk, over both passes.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bytes_read()
    }

    /// What was done; only at the end.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let scrub = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        scrub_report(py, scrub.report().ok_or_else(|| PyRuntimeError::new_err("the file is not finished"))?)
    }
}

fn scrub_report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    put!(dict, report; format, packets, not_tcp, fragments, unreadable, reasons);
    dict.set_item("addresses", report.addresses.iter().cloned().collect::<HashMap<_, _>>())?;
    dict.set_item("methods", report.methods.iter().cloned().collect::<HashMap<_, _>>())?;
    dict.set_item("agents", report.agents.iter().cloned().collect::<HashMap<_, _>>())?;
    let treated = report.connections.iter().map(|one| (one.ends[0].clone(), one.ends[1].clone(), one.carries));
    dict.set_item("connections", treated.collect::<Vec<_>>())?;
    Ok(dict)
}
