//! A capture that is read while it is recorded.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use grpcdiag_core::capture_file::Source;
use grpcdiag_core::run::live_reader::{self, LiveError};
use grpcdiag_core::store::options::Options;
use grpcdiag_core::tls::{KeyFile, KeyLog};

use crate::errors::{CaptureError, cannot_open};
use crate::key_logs::leading_secrets;
use crate::results::{capture, tables};

/// A capture that is read in a thread of its own while it is recorded; see `analyzer/live.py`.
#[pyclass(module = "grpcdiag.analyzer._core", frozen)]
pub(super) struct Live {
    inner: live_reader::Live,
}

#[pymethods]
impl Live {
    /// Begins to open a path, `-` for standard input, and keeps up to `history` intervals.
    #[new]
    /// Secrets are read from `key_file` when they are needed.
    #[pyo3(signature = (path, *, history=1, errors=false, ports=Vec::new(), keylog=None, key_file=None))]
    fn new(
        py: Python<'_>,
        path: String,
        history: usize,
        errors: bool,
        ports: Vec<u16>,
        keylog: Option<Vec<u8>>,
        key_file: Option<PathBuf>,
    ) -> PyResult<Self> {
        let mut keys = KeyLog::parse(&keylog.unwrap_or_default());
        let own = py.detach(|| leading_secrets(std::slice::from_ref(&path)));
        own.iter().for_each(|secrets| keys.extend(secrets));
        if let Some(path) = key_file {
            keys.follow(KeyFile::new(path));
        }
        let source = if path == "-" { Source::Stdin } else { Source::Path(PathBuf::from(path)) };
        let options = Options { errors, ports, ..Options::default() };
        let inner = live_reader::Live::start(source, options, Arc::new(keys), history);
        Ok(Self { inner: inner.map_err(|error| PyOSError::new_err(error.to_string()))? })
    }

    /// Lets packets before `until` be read, all if it is `None`, and waits so many seconds for that or for the stream's end.
    /// Says whether either came, and whether the stream goes on.
    #[pyo3(signature = (seconds, until=None))]
    fn wait(&self, py: Python<'_>, seconds: f64, until: Option<i64>) -> PyResult<(bool, bool)> {
        let timeout = Duration::try_from_secs_f64(seconds.clamp(0.0, 3600.0)).unwrap_or_default();
        py.detach(|| self.inner.wait(timeout, until)).map_err(|error| match error {
            LiveError::Open(error) => cannot_open(error),
            error @ LiveError::Reader { .. } => CaptureError::new_err(error.to_string()),
        })
    }

    /// Ends an interval; `end` is the time up to which no packet is missing, if later than the last packet's.
    #[pyo3(signature = (end=None))]
    fn cut(&self, py: Python<'_>, end: Option<i64>) {
        py.detach(|| self.inner.cut(end.unwrap_or(i64::MIN)));
    }

    /// The last intervals, joined, as `Run.finish` gives them, with `first_packet`, `begin_ns`, `end_ns`, and `missing`, the number
    /// of intervals in front that were wanted and for which there was no room; `None` before the first cut.
    fn window<'py>(&self, py: Python<'py>, pieces: usize) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(window) = py.detach(|| self.inner.window(pieces)) else { return Ok(None) };
        let result = PyDict::new(py);
        result.set_item("first_packet", window.first_packet)?;
        result.set_item("begin_ns", window.begin.or(window.counts.first_time_ns))?;
        result.set_item("end_ns", window.end)?;
        result.set_item("missing", window.missing)?;
        result.set_item("capture", capture(py, &window.info, &window.counts, None)?)?;
        tables(py, &result, window.finished, window.cx, None)?;
        Ok(Some(result))
    }

    /// Packets read; connections, open streams, rows and names that are kept.
    fn kept(&self, py: Python<'_>) -> (u64, usize, usize, usize, usize) {
        let kept = py.detach(|| self.inner.kept());
        (kept.packets, kept.connections, kept.streams, kept.rows, kept.names)
    }

    /// Lets the thread end with the next packet.
    fn stop(&self) {
        self.inner.stop();
    }
}
