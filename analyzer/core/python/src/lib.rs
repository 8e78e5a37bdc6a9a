//! The face of the core towards Python: a run that is stepped through, and columns as numpy arrays.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grpcdiag_core::capture_file::{self, Source};
use grpcdiag_core::connection::{roles, set_up};
use grpcdiag_core::grpc::{headers, protocol, repeats, status};
use grpcdiag_core::http2::frame::header::FrameType;
use grpcdiag_core::http2::frame::ping::PURPOSES;
use grpcdiag_core::http2::observe::implementation;
use grpcdiag_core::limits;
use grpcdiag_core::processes::path::PARTS;
use grpcdiag_core::processes::states::STATES;
use grpcdiag_core::run::in_order::{InOrder, Read};
use grpcdiag_core::run::interval::finish_interval;
use grpcdiag_core::run::pipeline::Pipeline;
use grpcdiag_core::run::saved::Saved;
use grpcdiag_core::store::budget::CAUSES;
use grpcdiag_core::store::disorder::Stream;
use grpcdiag_core::store::durations;
use grpcdiag_core::store::emitted_rpcs::Due;
use grpcdiag_core::store::options::{Options, Packing};
use grpcdiag_core::store::row_selection::{Range, RowSelection};
use grpcdiag_core::store::spill::Spill;
use grpcdiag_core::tcp::note;
use grpcdiag_core::tls::KeyLog;

mod annotating;
mod errors;
mod key_logs;
mod live;
mod order;
mod processes;
mod results;
mod scrubbing;
#[cfg(not(feature = "parquet"))]
mod without_parquet;
mod writing;

use annotating::Annotating;
use errors::{CaptureError, EmptyCaptureError, MemoryLimitError, SpillError, cannot_open};
use key_logs::leading_secrets;
use live::Live;
use order::PacketOrder;
use processes::{ProcessRecord, TracePages};
use results::{capture, tables, taken, to_dict};
use scrubbing::Scrubbing;
use writing::RowWriter;

/// The Python module `grpcdiag.analyzer._core`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Run>()?;
    module.add_class::<Live>()?;
    module.add_class::<PacketOrder>()?;
    module.add_class::<Scrubbing>()?;
    module.add_class::<Annotating>()?;
    module.add_class::<TracePages>()?;
    module.add_class::<ProcessRecord>()?;
    module.add_class::<RowWriter>()?;
    module.add_function(wrap_pyfunction!(measure_records, module)?)?;
    module.add_function(wrap_pyfunction!(earliest_deadlines, module)?)?;
    module.add("CaptureError", module.py().get_type::<CaptureError>())?;
    module.add("EmptyCaptureError", module.py().get_type::<EmptyCaptureError>())?;
    module.add("MemoryLimitError", module.py().get_type::<MemoryLimitError>())?;
    module.add("SpillError", module.py().get_type::<SpillError>())?;
    module.add("CAUSES", CAUSES.to_vec())?;
    module.add("PATH_PARTS", PARTS.to_vec())?;
    module.add("THREAD_STATES", STATES.to_vec())?;
    module.add("FRAME_TYPES", FrameType::NAMES.to_vec())?;
    module.add("STATUSES", status::NAMES.to_vec())?;
    module.add("WITHHELD", headers::WITHHELD)?;
    module.add("STATUS_SOURCES", status::SOURCES.to_vec())?;
    module.add("REPEATED_WITHIN_NS", repeats::WITHIN)?;
    module.add("LATE_NS", status::LATE)?;
    module.add("FIRST_RPCS", limits::FIRST_RPCS)?;
    module.add("RETRIES", limits::RETRIES)?;
    module.add("SLOWEST_RPCS", limits::SLOWEST_RPCS)?;
    module.add("CLASSES_PER_DECADE", durations::CLASSES_PER_DECADE)?;
    module.add("RPC_PROTOCOLS", protocol::NAMES.to_vec())?;
    module.add("VANTAGES", roles::VANTAGES.to_vec())?;
    module.add("ROLES_FROM", roles::NAMES.to_vec())?;
    module.add("PING_PURPOSES", PURPOSES.to_vec())?;
    module.add("PACKET_NOTES", note::NAMES.to_vec())?;
    module.add("TLS_ALERT_LENGTH", grpcdiag_core::tls::ALERT_LENGTH)?;
    module.add("BEGINNINGS", set_up::BEGINNINGS.to_vec())?;
    module.add("IMPLEMENTATIONS", implementation::NAMES.to_vec())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("__features__", writing::FEATURES.to_vec())?;
    let profile = if cfg!(debug_assertions) { "quick" } else { "release" }; // only one of the two has assertions
    module.add("__build__", (option_env!("GRPCDIAG_COMMIT"), option_env!("GRPCDIAG_BUILT"), profile))
}

/// How many whole records of at most `longest` bytes begin a piece of a pcap, where the last of them begins, and where it ends.
#[pyfunction]
fn measure_records(piece: &[u8], is_big_endian: bool, longest: u32) -> (usize, usize, usize) {
    capture_file::measure_records(piece, is_big_endian, longest)
}

/// How long after its beginning each RPC reaches its deadline at the earliest, by its `grpc-timeout`.
#[pyfunction]
fn earliest_deadlines<'py>(py: Python<'py>, timeouts_ns: PyReadonlyArray1<'py, i64>) -> Bound<'py, PyArray1<i64>> {
    timeouts_ns.as_array().iter().map(|&timeout_ns| status::earliest(timeout_ns)).collect::<Vec<_>>().into_pyarray(py)
}

/// What a run found, what of it is open, and what another run goes on with.
type FileEnd<'py> = (Bound<'py, PyDict>, Bound<'py, PyDict>, Option<Bound<'py, PyBytes>>);

/// A connection; its first and last packet and time, whose rows are wanted; the only stream whose frames are.
type Wanted = (u32, [u32; 2], [i64; 2], Option<u32>);

/// The analysis of one capture, stepped through packet by packet.
#[pyclass(module = "grpcdiag.analyzer._core")]
struct Run {
    // a lock for Python's sake alone: numbers of bytes may be asked for while another thread steps
    inner: Mutex<Inner>,
}

struct Inner {
    packets: InOrder,
    pipeline: Option<Pipeline>,
    /// How the pipeline was made.
    options: Options,
    keys: Arc<KeyLog>,
    spill: Option<Arc<Spill>>,
    /// Bytes that this process may take, as the operating system counts them.
    memory: Option<u64>,
}

#[pymethods]
impl Run {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    #[pyo3(signature = (paths, *, frames=false, messages=false, packets=false, rpc_rows=false, marks_examples=false, slowest=0, sampled=0, distributions=false, acts=false, errors=false, ports=Vec::new(), labels=Vec::new(), keylog=None, as_scrubbed=false, file_times=false, unlisted_packets=false, only=None, lists_packets=false, most_frames=usize::MAX, threads=1, spill=0, memory=None, resumes=false, saved=None, order=None))]
    fn new(
        py: Python<'_>,
        paths: Vec<String>,
        frames: bool,
        messages: bool,
        packets: bool,
        rpc_rows: bool,
        marks_examples: bool,
        slowest: usize,
        sampled: usize,
        distributions: bool,
        acts: bool,
        errors: bool,
        ports: Vec<u16>,
        labels: Vec<(u32, String)>,
        keylog: Option<Vec<u8>>,
        as_scrubbed: bool,
        file_times: bool,
        unlisted_packets: bool,
        only: Option<Vec<Wanted>>,
        lists_packets: bool,
        most_frames: usize,
        threads: u8,
        spill: usize,
        memory: Option<u64>,
        resumes: bool,
        saved: Option<Vec<u8>>,
        order: Option<&PacketOrder>,
    ) -> PyResult<Self> {
        if paths.is_empty() {
            return Err(PyValueError::new_err("no capture file given"));
        }
        // before any file is opened: one that comes through a pipe can be read once
        let saved = saved.map(|saved| py.detach(|| Saved::parse(&saved))).transpose().map_err(PyValueError::new_err)?;
        let source = |path: String| if path == "-" { Source::Stdin } else { Source::Path(PathBuf::from(path)) };
        let mut keys = KeyLog::parse(&keylog.unwrap_or_default());
        let own = if as_scrubbed { Vec::new() } else { py.detach(|| leading_secrets(&paths)) };
        for secrets in own {
            keys.extend(&secrets);
        }
        let sources: Vec<Source> = paths.into_iter().map(source).collect();
        let takes_rows = frames || messages || packets || rpc_rows || resumes;
        let before = saved.as_ref().map_or(0, Saved::packets_before);
        let packets_in_order = py.detach(|| InOrder::open(sources, !takes_rows, before)).map_err(cannot_open)?;
        let spill = if spill > 0 { Some(Spill::new(spill).map_err(spilling)?) } else { None };
        let keys = Arc::new(keys);
        let spilled = spill.clone();
        let selection = only.map(|ranges| select(ranges, order, lists_packets, most_frames));
        let options = Options {
            frames,
            messages,
            packets,
            unlisted_packets,
            rpc_rows,
            marks_examples,
            slowest,
            sampled,
            distributions,
            selection: selection.map(Arc::new),
            acts,
            errors,
            file_times,
            as_scrubbed,
            ports,
            labels,
            resumes,
            packing: Packing::default(),
            threads,
            spill: spilled,
        };
        let pipeline = match saved {
            Some(saved) => Pipeline::resume(options.clone(), Arc::clone(&keys), saved),
            None if resumes => Pipeline::resumable(options.clone(), Arc::clone(&keys)),
            None => Pipeline::with_keys(options.clone(), Arc::clone(&keys)),
        };
        let (packets, pipeline) = (packets_in_order, Some(pipeline));
        Ok(Self { inner: Mutex::new(Inner { packets, pipeline, options, keys, spill, memory }) })
    }

    /// Reads up to `packets` packets; `False` at the end.
    fn step(&mut self, py: Python<'_>, packets: u32) -> PyResult<bool> {
        let inner = self.inner();
        py.detach(|| inner.step(packets))
    }

    /// Bytes read of the files as they are on disk.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.lock().packets.reader().bytes_read()
    }

    /// Bytes of all files together; `None` for standard input.
    #[getter]
    fn bytes_total(&self) -> Option<u64> {
        self.lock().packets.reader().bytes_total()
    }

    /// The earliest time of the packets read so far; `None` before the first, and after `finish`.
    #[getter]
    fn first_time_ns(&self) -> Option<i64> {
        self.lock().pipeline.as_ref()?.counts.first_time_ns
    }

    /// Takes the rows of `frames`, `messages` or `packets` that have come since the last call.
    fn take<'py>(&mut self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        let table = match table {
            "frames" => Stream::Frames,
            "messages" => Stream::Messages,
            "packets" => Stream::Packets,
            _ => return Err(PyValueError::new_err(format!("no table {table:?} can be taken while the run goes on"))),
        };
        let Inner { packets, pipeline, .. } = self.inner();
        let rows = pipeline.as_mut().ok_or_else(finished)?.rows().take_stream(table);
        to_dict(py, rows, packets.numbers())
    }

    /// Takes the rows of RPCs out of which nothing more comes, up to the first of which something may, as far as they
    /// are `least`; with more than `most` rows behind it that one is taken too, and given again when it is complete.
    /// Gives what was taken so far, in order; what another thread takes meanwhile comes with a later call, or at the end.
    fn take_rpcs<'py>(&mut self, py: Python<'py>, least: usize, most: usize) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let Inner { packets, pipeline, .. } = self.inner();
        let pipeline = pipeline.as_mut().ok_or_else(finished)?;
        let found = py.detach(|| pipeline.take_rpcs(Due { least, most }));
        found.into_iter().map(|found| taken(py, found, packets.numbers())).collect()
    }

    /// Ends the run and gives everything it has found; see `analyzer/tables/` for the meaning of each entry.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Inner { packets, pipeline, spill, .. } = self.inner();
        let mut pipeline = pipeline.take().ok_or_else(finished)?;
        let damage = packets.info().last_damage();
        let (left, (end, cx, counts)) = py.detach(|| (pipeline.taken_rpcs(), pipeline.finish_damaged(damage)));
        let result = PyDict::new(py);
        let numbers = packets.numbers();
        let left: Vec<_> = left.into_iter().map(|found| taken(py, found, numbers)).collect::<PyResult<_>>()?;
        result.set_item("taken", left)?;
        result.set_item("capture", capture(py, packets.info(), &counts, packets.sorter())?)?;
        tables(py, &result, end, cx, numbers)?;
        result.set_item("order", Py::new(py, PacketOrder(packets.take_numbers()))?)?;
        is_well(spill.as_deref())?;
        Ok(result)
    }

    /// Ends a run behind which others may come: what `finish` gives, the same of what is open at the end alone, and what
    /// another run goes on with; `None` if that cannot be saved. `places` has the numbers of connections by those before.
    fn finish_file<'py>(&mut self, py: Python<'py>) -> PyResult<FileEnd<'py>> {
        let Inner { packets, pipeline, .. } = self.inner();
        let mut pipeline = pipeline.take().ok_or_else(finished)?;
        let damage = packets.info().last_damage();
        let (places, reports, saved) = py.detach(|| {
            let mut interval = pipeline.cut_file(damage);
            let places = std::mem::take(&mut interval.places);
            (places, finish_interval(interval), pipeline.save())
        });
        let numbers = packets.numbers();
        let [all, open] = reports.map(|(end, cx, counts)| {
            let result = PyDict::new(py);
            result.set_item("capture", capture(py, packets.info(), &counts, packets.sorter())?)?;
            tables(py, &result, end, cx, numbers)?;
            Ok::<_, PyErr>(result)
        });
        let all = all?;
        all.set_item("places", places.into_pyarray(py))?;
        Ok((all, open?, saved.ok().map(|saved| PyBytes::new(py, &saved))))
    }
}

impl Run {
    fn inner(&mut self) -> &mut Inner {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn step(&mut self, packets: u32) -> PyResult<bool> {
        let mut left = packets;
        while left > 0 {
            let pipeline = self.pipeline.as_mut().ok_or_else(finished)?;
            within(self.memory, pipeline).map_err(MemoryLimitError::new_err)?;
            let some = left.min(limits::MEMORY_PACKETS);
            match self.packets.read(some, pipeline).map_err(cannot_open)? {
                Read::More => left -= some,
                Read::End => return is_well(self.spill.as_deref()).map(|()| false),
                Read::Again => self.begin_again(),
            }
        }
        is_well(self.spill.as_deref()).map(|()| true)
    }

    /// Forgets what was read.
    fn begin_again(&mut self) {
        self.pipeline = None; // before the next one takes memory
        self.pipeline = Some(Pipeline::with_keys(self.options.clone(), Arc::clone(&self.keys)));
    }
}

/// What of some connections is wanted; those beyond the limit on connections have no rows.
fn select(
    mut ranges: Vec<Wanted>,
    order: Option<&PacketOrder>,
    lists_packets: bool,
    most_frames: usize,
) -> RowSelection {
    let mut selection = RowSelection::new(lists_packets, most_frames);
    if let Some(PacketOrder(numbers)) = order {
        numbers.cover(ranges.iter_mut().map(|(_, packets, ..)| packets));
        ranges.sort_by_key(|&(connection, [first, _], ..)| (connection, first));
    }
    let kept = ranges.into_iter().filter(|&(connection, ..)| (connection as usize) < limits::CONNECTIONS);
    kept.for_each(|(connection, packets, times, stream)| selection.add(connection, Range { packets, times, stream }));
    selection
}

fn spilling(error: std::io::Error) -> PyErr {
    SpillError::new_err(error.to_string())
}

/// Raises what went wrong with the temporary file.
fn is_well(spill: Option<&Spill>) -> PyResult<()> {
    spill.and_then(Spill::failure).map_or(Ok(()), |error| Err(spilling(error)))
}

/// Why this process would take more memory than it may if it went on; nothing where the system does not tell.
fn within(memory: Option<u64>, pipeline: &Pipeline) -> Result<(), String> {
    let Some(allowed) = memory else { return Ok(()) }; // before the system is asked, which takes a while
    let Some(taken) = resident() else { return Ok(()) };
    let (more, connections) = (pipeline.memory_to_come(), pipeline.connections());
    if taken.saturating_add(more) <= allowed {
        return Ok(());
    }
    let [taken, more] = [taken, more].map(|bytes| bytes.div_ceil(1_000_000));
    let packets = pipeline.counts.packets;
    Err(format!("{taken} MB were taken after {packets} packets, and {connections} connections may need {more} MB more"))
}

/// Bytes that this process takes now, mapped pages included; `None` where the system does not tell.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn finished() -> PyErr {
    PyRuntimeError::new_err("this run is finished")
}
