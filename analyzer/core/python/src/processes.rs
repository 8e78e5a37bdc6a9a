//! Process records: redacting pages while they are recorded, and joining them with packets.

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyByteArrayMethods, PyBytes};
use std::sync::{Mutex, PoisonError};

use grpcdiag_core::processes::format::Format;
use grpcdiag_core::processes::path::{PARTS, Parts, Step, Surroundings, Walk};
use grpcdiag_core::processes::record::{Record, Task, Thread};
use grpcdiag_core::processes::redact::Redactor;
use grpcdiag_core::processes::states::list_spans;
use grpcdiag_core::processes::threads::{Sent, Threads};

/// Redacts and compresses trace pages; see `processes::redact`.
#[pyclass(module = "grpcdiag.analyzer._core")]
pub(super) struct TracePages {
    inner: Mutex<Redactor>,
}

#[pymethods]
impl TracePages {
    /// `formats` are the texts of the events' `format` files.
    #[new]
    fn new(formats: Vec<String>, key: [u8; 32]) -> Self {
        let formats = formats.iter().filter_map(|text| Format::parse(text)).collect();
        Self { inner: Mutex::new(Redactor::new(formats, key)) }
    }

    /// Makes one compressed block of pages, each behind its length.
    fn compress<'py>(&self, py: Python<'py>, pages: Vec<Bound<'py, PyByteArray>>) -> Bound<'py, PyBytes> {
        let mut pages: Vec<Vec<u8>> = pages.iter().map(PyByteArrayMethods::to_vec).collect();
        let block = py.detach(|| self.inner.lock().unwrap_or_else(PoisonError::into_inner).compress(&mut pages));
        PyBytes::new(py, &block)
    }
}

/// What the scheduler did; see `processes`.
#[pyclass(module = "grpcdiag.analyzer._core")]
pub(super) struct ProcessRecord {
    inner: Mutex<(Record, Threads)>,
}

type Column<'py, T> = Bound<'py, PyArray1<T>>;
type Times<'py> = PyReadonlyArray1<'py, i64>;

#[pymethods]
impl ProcessRecord {
    /// `blocks` are those of `TracePages` with their processors; `tasks` the threads with process and name that were
    /// recorded from the beginning.
    #[new]
    fn new(
        py: Python<'_>,
        formats: Vec<String>,
        tasks: Vec<(Thread, Thread, String)>,
        blocks: Vec<(u16, Vec<u8>)>,
    ) -> Self {
        let inner = py.detach(|| {
            let tasks =
                tasks.into_iter().map(|(thread, process, name)| (thread, Task { process, root: process, name }));
            let mut record = Record::new(&formats, tasks.collect());
            record.read_blocks(&blocks);
            let threads = Threads::new(&record);
            (record, threads)
        });
        Self { inner: Mutex::new(inner) }
    }

    /// Losses, whether there is more than is read, whether it is damaged, events.
    fn counts(&self) -> (u64, bool, bool, usize) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.0.losses, inner.0.is_cut, inner.0.is_damaged, inner.0.events.len())
    }

    /// When each socket was established, its own address and port, its peer's, and the bytes sent on it.
    #[expect(clippy::type_complexity, reason = "a row")]
    fn sockets(&self) -> Vec<(i64, Vec<u8>, u16, Vec<u8>, u16, u64)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (record, threads) = &*inner;
        let sent = |place: usize| threads.sends.get(place).and_then(|sends| sends.last()).map_or(0, |sent| sent.end);
        let row = |(place, socket): (usize, &grpcdiag_core::processes::record::Socket)| {
            let ([own, peer], [port, peer_port]) = (socket.addresses.clone(), socket.ports);
            (socket.time, own, port, peer, peer_port, sent(place))
        };
        record.sockets.iter().enumerate().map(row).collect()
    }

    /// Threads with their process, the process from which it stems, and their name.
    fn tasks(&self) -> Vec<(Thread, Thread, Thread, String)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.tasks.iter().map(|(&thread, task)| (thread, task.process, task.root, task.name.clone())).collect()
    }

    /// The thread that ended each interval by sending the byte at `offset` of `socket`, 0 when it is not known, and
    /// nanoseconds by part. `arrivals` and `throttled` are ascending; all times are the trace's.
    #[expect(clippy::too_many_arguments, reason = "columns of a table")]
    fn divide<'py>(
        &self,
        py: Python<'py>,
        starts: Times<'py>,
        ends: Times<'py>,
        sockets: Times<'py>,
        offsets: PyReadonlyArray1<'py, u64>,
        arrivals: Times<'py>,
        throttled: Vec<(i64, i64)>,
    ) -> PyResult<(Column<'py, i32>, Bound<'py, PyArray2<i64>>)> {
        let (mut senders, mut cells) = (Vec::new(), Vec::new());
        self.walk([starts, ends, sockets], &offsets, (&arrivals, throttled), |walk, sent, start, end| {
            let mut parts = Parts::default();
            senders.push(walk.explain(sent, start, end, &mut parts));
            cells.extend_from_slice(&parts);
        })?;
        let cells = cells.into_pyarray(py).reshape([senders.len(), PARTS.len()])?;
        Ok((senders.into_pyarray(py), cells))
    }

    /// The ways to the sends that ended intervals, in steps: which interval, part, thread, begin and end. Arguments as of
    /// `divide`.
    #[expect(clippy::too_many_arguments, clippy::type_complexity, reason = "columns of a table")]
    fn follow<'py>(
        &self,
        py: Python<'py>,
        starts: Times<'py>,
        ends: Times<'py>,
        sockets: Times<'py>,
        offsets: PyReadonlyArray1<'py, u64>,
        arrivals: Times<'py>,
        throttled: Vec<(i64, i64)>,
    ) -> PyResult<(Column<'py, i64>, Column<'py, u8>, Column<'py, i32>, Column<'py, i64>, Column<'py, i64>)> {
        let (mut intervals, mut steps) = (Vec::new(), Vec::<Step>::new());
        let mut interval = 0;
        self.walk([starts, ends, sockets], &offsets, (&arrivals, throttled), |walk, sent, start, end| {
            let first = steps.len();
            walk.explain(sent, start, end, &mut steps);
            steps.get_mut(first..).unwrap_or_default().sort_unstable_by_key(|step: &Step| step.start);
            intervals.resize(steps.len(), interval);
            interval += 1;
        })?;
        Ok((
            intervals.into_pyarray(py),
            steps.iter().map(|step| step.part as u8).collect::<Vec<_>>().into_pyarray(py),
            steps.iter().map(|step| step.thread).collect::<Vec<_>>().into_pyarray(py),
            steps.iter().map(|step| step.start).collect::<Vec<_>>().into_pyarray(py),
            steps.iter().map(|step| step.end).collect::<Vec<_>>().into_pyarray(py),
        ))
    }

    /// What the threads did for at least the width that is returned: thread, state, begin and end of at most `most` times.
    fn spans<'py>(
        &self,
        py: Python<'py>,
        throttled: Vec<(i64, i64)>,
        most: usize,
    ) -> (i64, Column<'py, i32>, Column<'py, u8>, Column<'py, i64>, Column<'py, i64>) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let surroundings = Surroundings { arrivals: Vec::new(), throttled };
        let walk = Walk { threads: &inner.1, record: &inner.0, surroundings: &surroundings };
        let (width, spans) = list_spans(&walk, most);
        (
            width,
            spans.iter().map(|span| span.thread).collect::<Vec<_>>().into_pyarray(py),
            spans.iter().map(|span| span.state).collect::<Vec<_>>().into_pyarray(py),
            spans.iter().map(|span| span.start).collect::<Vec<_>>().into_pyarray(py),
            spans.iter().map(|span| span.end).collect::<Vec<_>>().into_pyarray(py),
        )
    }
}

impl ProcessRecord {
    /// Calls `each` with the send that ended each interval. Raises ValueError for columns that do not fit.
    fn walk(
        &self,
        [starts, ends, sockets]: [Times<'_>; 3],
        offsets: &PyReadonlyArray1<'_, u64>,
        (arrivals, throttled): (&Times<'_>, Vec<(i64, i64)>),
        mut each: impl FnMut(&Walk<'_>, Option<Sent>, i64, i64),
    ) -> PyResult<()> {
        let (starts, ends) = (starts.as_slice()?, ends.as_slice()?);
        let (sockets, offsets) = (sockets.as_slice()?, offsets.as_slice()?);
        let surroundings = Surroundings { arrivals: arrivals.as_slice()?.to_vec(), throttled };
        if [ends.len(), sockets.len(), offsets.len()] != [starts.len(); 3] {
            return Err(PyValueError::new_err("columns differ in length"));
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (record, threads) = &*inner;
        let walk = Walk { threads, record, surroundings: &surroundings };
        for ((&start, &end), (&socket, &offset)) in starts.iter().zip(ends).zip(sockets.iter().zip(offsets)) {
            let sent = usize::try_from(socket).ok().and_then(|socket| threads.sender(socket, offset));
            each(&walk, sent, start, end);
        }
        Ok(())
    }
}
