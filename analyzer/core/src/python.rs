//! The face of the core towards Python: a run that is stepped through, and columns as numpy arrays.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::budget::{Budget, CAUSES};
use crate::capture_file::{CaptureInfo, CaptureReader, Source};
use crate::context::{Context, Options};
use crate::durations::Durations;
use crate::grpc::taken::Rows;
use crate::grpc::{implementation, status};
use crate::http2::frame::FrameType;
use crate::http2::ping::PURPOSES;
use crate::methods::{self, MethodStats};
use crate::pipeline::{CaptureCounts, Finished, Pipeline};
use crate::scrub::{Report, Scrub, Wishes};
use crate::spill::Spill;
use crate::tables::{Column, ProblemLog};
use crate::tcp::{note, roles};
use crate::tls::KeyLog;

create_exception!(_core, CaptureError, PyException, "A capture cannot be opened or is none.");
create_exception!(_core, MemoryLimitError, PyException, "A run needs more memory than it is allowed.");
create_exception!(_core, SpillError, PyException, "A temporary file cannot be written or read.");

/// Adds everything to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Run>()?;
    module.add_class::<Scrubbing>()?;
    module.add("CaptureError", module.py().get_type::<CaptureError>())?;
    module.add("MemoryLimitError", module.py().get_type::<MemoryLimitError>())?;
    module.add("SpillError", module.py().get_type::<SpillError>())?;
    module.add("CAUSES", CAUSES.to_vec())?;
    module.add("FRAME_TYPES", FrameType::NAMES.to_vec())?;
    module.add("STATUSES", status::NAMES.to_vec())?;
    module.add("VANTAGES", roles::VANTAGES.to_vec())?;
    module.add("ROLES_FROM", roles::NAMES.to_vec())?;
    module.add("PING_PURPOSES", PURPOSES.to_vec())?;
    module.add("PACKET_NOTES", note::NAMES.to_vec())?;
    module.add("IMPLEMENTATIONS", implementation::NAMES.to_vec())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}

/// The analysis of one capture, stepped through packet by packet.
#[pyclass(module = "grpcdiag.analyzer._core")]
struct Run {
    // a lock for Python's sake alone: numbers of bytes may be asked for while another thread steps
    inner: Mutex<Inner>,
}

struct Inner {
    reader: CaptureReader,
    pipeline: Option<Pipeline>,
    spill: Option<Arc<Spill>>,
    /// Bytes that this process may take, as the operating system counts them.
    memory: Option<u64>,
}

#[pymethods]
impl Run {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    #[pyo3(signature = (paths, *, frames=false, messages=false, packets=false, rpc_rows=false, ports=Vec::new(), keylog=None, own_secrets=true, threads=1, spill=0, memory=None))]
    fn new(
        py: Python<'_>,
        paths: Vec<String>,
        frames: bool,
        messages: bool,
        packets: bool,
        rpc_rows: bool,
        ports: Vec<u16>,
        keylog: Option<Vec<u8>>,
        own_secrets: bool,
        threads: u8,
        spill: usize,
        memory: Option<u64>,
    ) -> PyResult<Self> {
        if paths.is_empty() {
            return Err(PyValueError::new_err("no capture file given"));
        }
        let source = |path: String| if path == "-" { Source::Stdin } else { Source::Path(PathBuf::from(path)) };
        let mut keys = KeyLog::parse(&keylog.unwrap_or_default());
        let own = if own_secrets { py.detach(|| leading_secrets(&paths)) } else { Vec::new() };
        for secrets in own {
            keys.extend(&secrets);
        }
        let sources: Vec<Source> = paths.into_iter().map(source).collect();
        let reader =
            py.detach(|| CaptureReader::open(sources)).map_err(|error| CaptureError::new_err(error.to_string()))?;
        let spill = if spill > 0 { Some(Spill::new(spill).map_err(spilling)?) } else { None };
        let keys = Arc::new(keys);
        let options = Options { frames, messages, packets, rpc_rows, ports, keys, threads, spill: spill.clone() };
        Ok(Self { inner: Mutex::new(Inner { reader, pipeline: Some(Pipeline::new(options)), spill, memory }) })
    }

    /// Reads up to `packets` packets; `False` at the end.
    fn step(&mut self, py: Python<'_>, packets: u32) -> PyResult<bool> {
        let Inner { reader, pipeline, spill, memory } = self.inner();
        let pipeline = pipeline.as_mut().ok_or_else(finished)?;
        let more = py.detach(|| {
            for _ in 0..packets {
                match reader.next_packet() {
                    Some(packet) => pipeline.packet(&packet),
                    None => return false,
                }
            }
            true
        });
        is_well(spill.as_deref())?;
        within(*memory, pipeline.counts.packets)?;
        Ok(more)
    }

    /// Bytes read of the files as they are on disk.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.lock().reader.bytes_read()
    }

    /// Bytes of all files together; `None` for standard input.
    #[getter]
    fn bytes_total(&self) -> Option<u64> {
        self.lock().reader.bytes_total()
    }

    /// Takes the rows of `frames`, `messages` or `packets` that have come since the last call.
    fn take<'py>(&mut self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        let cx = self.inner().pipeline.as_mut().ok_or_else(finished)?.tables();
        let columns = match table {
            "frames" => cx.frames.take_columns(),
            "messages" => cx.messages.take_columns(),
            "packets" => cx.packets.take_columns(),
            _ => return Err(PyValueError::new_err(format!("no table {table:?} can be taken while the run goes on"))),
        };
        to_dict(py, columns)
    }

    /// Takes the rows of RPCs out of which nothing more comes, up to the first of which something may, as far as they
    /// are `least`; with more than `most` rows behind them that one is taken too, and `take_settled` gives it again.
    fn take_rpcs<'py>(&mut self, py: Python<'py>, least: usize, most: usize) -> PyResult<Bound<'py, PyDict>> {
        let cx = self.inner().pipeline.as_mut().ok_or_else(finished)?.tables();
        let settled = cx.settled_rpcs();
        let rows = if cx.rpcs.len() - settled > most { cx.rpcs.len() - most / 2 } else { settled };
        let taken = cx.take_rpcs(if rows < least { 0 } else { rows });
        rpc_rows(py, taken)
    }

    /// Takes the rows of RPCs that were taken too early, now that nothing more comes of them, and `numbers`, which says
    /// what their places were among all that were taken.
    fn take_settled<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cx = self.inner().pipeline.as_mut().ok_or_else(finished)?.tables();
        settled(py, cx)
    }

    /// The methods by number that are known so far, from one on: `None` for one whose name was sent before the capture.
    fn methods_from(&mut self, first: usize) -> PyResult<Vec<Option<String>>> {
        let cx = self.inner().pipeline.as_mut().ok_or_else(finished)?.tables();
        Ok(cx.strings.methods_from(first))
    }

    /// Ends the run and gives everything it has found; see `analyzer/tables.py` for the meaning of each entry.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let pipeline = self.inner().pipeline.take().ok_or_else(finished)?;
        let (end, cx, counts) = py.detach(|| pipeline.finish());
        let result = PyDict::new(py);
        result.set_item("capture", capture(py, self.inner().reader.info(), &counts)?)?;
        tables(py, &result, end, cx)?;
        is_well(self.inner().spill.as_deref())?;
        Ok(result)
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

/// Writing a capture anew without what anybody sent, stepped through packet by packet.
#[pyclass(module = "grpcdiag.analyzer._core")]
struct Scrubbing {
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
    dict.set_item("format", report.format)?;
    dict.set_item("packets", report.packets)?;
    dict.set_item("not_tcp", report.not_tcp)?;
    dict.set_item("fragments", report.fragments)?;
    dict.set_item("unreadable", report.unreadable)?;
    dict.set_item("addresses", report.addresses.iter().cloned().collect::<HashMap<_, _>>())?;
    dict.set_item("methods", report.methods.iter().cloned().collect::<HashMap<_, _>>())?;
    dict.set_item("agents", report.agents.iter().cloned().collect::<HashMap<_, _>>())?;
    dict.set_item("reasons", &report.reasons)?;
    let treated = report.connections.iter().map(|one| (one.ends[0].clone(), one.ends[1].clone(), one.carries));
    dict.set_item("connections", treated.collect::<Vec<_>>())?;
    Ok(dict)
}

/// Key logs that pcapng files hold before their first packet, where tools put them. Standard input is not read for
/// them, and what cannot be opened is told when it is read.
fn leading_secrets(paths: &[String]) -> Vec<Vec<u8>> {
    const NSS_KEY_LOG: u32 = 0x544c_534b;
    let of_file = |path: &String| {
        let mut reader = CaptureReader::open(vec![Source::Path(PathBuf::from(path))]).ok()?;
        reader.next_packet();
        let kept = reader.info().secrets.iter().filter(|secrets| secrets.kind == NSS_KEY_LOG);
        Some(kept.map(|secrets| secrets.data.clone()).collect::<Vec<_>>())
    };
    let regular = |path: &&String| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    paths.iter().filter(regular).filter_map(of_file).flatten().collect()
}

fn spilling(error: std::io::Error) -> PyErr {
    SpillError::new_err(error.to_string())
}

/// Raises what went wrong with the temporary file.
fn is_well(spill: Option<&Spill>) -> PyResult<()> {
    spill.and_then(Spill::failure).map_or(Ok(()), |error| Err(spilling(error)))
}

/// Raises when this process has taken more memory than it may.
fn within(memory: Option<u64>, packets: u64) -> PyResult<()> {
    let Some(allowed) = memory else { return Ok(()) };
    match peak() {
        Some(taken) if taken > allowed => {
            let taken = taken.div_ceil(1_000_000);
            Err(MemoryLimitError::new_err(format!("{taken} MB were taken after {packets} packets")))
        }
        _ => Ok(()),
    }
}

/// The most bytes that this process has taken, mapped pages included; `None` where the system does not tell.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Columns of RPCs with `deadlines` and `budgets`.
fn rpc_rows(py: Python<'_>, rows: Rows) -> PyResult<Bound<'_, PyDict>> {
    let dict = to_dict(py, rows.columns)?;
    dict.set_item("deadlines", rows.deadlines.into_pyarray(py))?;
    dict.set_item("budgets", budgets(py, rows.budgets)?)?;
    Ok(dict)
}

fn settled<'py>(py: Python<'py>, cx: &mut Context) -> PyResult<Bound<'py, PyDict>> {
    let (numbers, rows) = cx.taken.take_settled();
    let dict = rpc_rows(py, rows)?;
    dict.set_item("numbers", numbers.into_pyarray(py))?;
    Ok(dict)
}

fn finished() -> PyErr {
    PyRuntimeError::new_err("this run is finished")
}

fn to_dict<'py>(py: Python<'py>, columns: Vec<(&'static str, Column)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in columns {
        match column {
            Column::I64(cells) => dict.set_item(name, cells.into_pyarray(py))?,
            Column::U64(cells) => dict.set_item(name, cells.into_pyarray(py))?,
            Column::U32(cells) => dict.set_item(name, cells.into_pyarray(py))?,
            Column::U8(cells) => dict.set_item(name, cells.into_pyarray(py))?,
        }
    }
    Ok(dict)
}

fn tables(py: Python<'_>, result: &Bound<'_, PyDict>, mut end: Finished, mut cx: Context) -> PyResult<()> {
    result.set_item("connections", to_dict(py, end.connections.take_columns())?)?;
    result.set_item("connection_budgets", budgets(py, end.budgets)?)?;
    result.set_item("addresses", end.addresses)?;
    cx.taken.settle_all();
    result.set_item("settled", settled(py, &mut cx)?)?;
    result.set_item("renumbered", std::mem::take(&mut cx.taken.renumbered).into_pyarray(py))?;
    let deadlines = std::mem::take(&mut cx.deadlines);
    let rpcs = cx.rpcs.take_columns().into_iter().chain(cx.rpc_sizes.take_columns()).collect();
    let rpc_budgets = std::mem::take(&mut cx.rpc_budgets);
    let request_budgets = std::mem::take(&mut cx.request_budgets);
    let request_ends = std::mem::take(&mut cx.request_ends);
    result.set_item("rpcs", to_dict(py, rpcs)?)?;
    result.set_item("deadlines", deadlines.into_pyarray(py))?;
    result.set_item("rpc_budgets", budgets(py, rpc_budgets)?)?;
    result.set_item("request_budgets", budgets(py, request_budgets)?)?;
    result.set_item("request_ends", request_ends.into_pyarray(py))?;
    result.set_item("waits", to_dict(py, cx.waits.take_columns())?)?;
    for (name, columns) in [
        ("record_waits", cx.record_waits.take_columns()),
        ("records", cx.records.take_columns()),
        ("directions", end.directions.take_columns()),
        ("turns", end.turns.take_columns()),
        ("idles", cx.idles.take_columns()),
        ("pings", cx.pings.take_columns()),
        ("goaways", cx.goaways.take_columns()),
        ("delays", cx.delays.take_columns()),
        ("failures", cx.failures.take_columns()),
        ("connection_methods", cx.connection_methods.take_columns()),
        ("frames", cx.frames.take_columns()),
        ("messages", cx.messages.take_columns()),
        ("packets", cx.packets.take_columns()),
    ] {
        result.set_item(name, to_dict(py, columns)?)?;
    }
    result.set_item("goaway_reasons", std::mem::take(&mut cx.goaway_reasons))?;
    result.set_item("failure_budgets", budgets(py, std::mem::take(&mut cx.failure_budgets))?)?;
    result.set_item("problems", problems(py, &mut cx.problems)?)?;
    result.set_item("methods", methods(py, &mut cx)?)?;
    result.set_item("agents", cx.strings.agents.texts())?;
    result.set_item("frame_counts", cx.totals.frames.to_vec())?;
    result.set_item("message_count", cx.totals.messages)?;
    result.set_item("compressed_messages", cx.totals.compressed_messages)?;
    result.set_item("begun_before", cx.totals.begun_before)?;
    result.set_item("other_streams", cx.totals.other_streams)
}

/// Budgets as an array of shape (rows, causes).
fn budgets(py: Python<'_>, rows: Vec<Budget>) -> PyResult<Bound<'_, PyAny>> {
    let shape = [rows.len(), CAUSES.len()];
    // each step keeps the memory of the one before
    let cells = rows.into_iter().map(|row| row.0).collect::<Vec<_>>().into_flattened();
    let cells: Vec<i64> = cells.into_iter().map(|ns| i64::try_from(ns).unwrap_or(i64::MAX)).collect();
    Ok(cells.into_pyarray(py).reshape(shape)?.into_any())
}

fn problems<'py>(py: Python<'py>, log: &mut ProblemLog) -> PyResult<Bound<'py, PyDict>> {
    let dict = to_dict(py, log.rows.take_columns())?;
    dict.set_item("kinds", log.kinds.clone())?;
    dict.set_item("counts", log.counts.clone())?;
    Ok(dict)
}

/// One entry per method that an RPC used, the unknown method (`None`) first if there is one. Of a method whose name was
/// sent before the capture `label` is the number, from 1, by which it is told apart from others.
fn methods<'py>(py: Python<'py>, cx: &mut Context) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let names = cx.strings.methods.texts();
    let unnamed: HashMap<u32, usize> = cx.strings.unnamed_methods().into_iter().zip(1..).collect();
    for (index, stats) in cx.methods.iter_mut().enumerate() {
        let Some(stats) = stats else { continue };
        let dict = PyDict::new(py);
        let number = index.checked_sub(1);
        let label = number.and_then(|number| unnamed.get(&(number as u32)));
        dict.set_item("number", number.map_or(u32::MAX, |number| number as u32))?;
        dict.set_item("name", number.filter(|_| label.is_none()).and_then(|number| names.get(number)))?;
        dict.set_item("label", label)?;
        dict.set_item("rpcs", stats.rpcs)?;
        dict.set_item("complete", stats.complete)?;
        dict.set_item("touch_gaps", stats.touch_gaps)?;
        dict.set_item("statuses", stats.statuses.to_vec())?;
        dict.set_item("first_start_ns", stats.first_start)?;
        dict.set_item("last_end_ns", stats.last_end)?;
        dict.set_item("latency", latency(py, &mut stats.durations)?)?;
        dict.set_item("messages", stats.messages)?;
        dict.set_item("budget", stats.budget.0.to_vec())?;
        dict.set_item("turnaround", turnaround(py, stats)?)?;
        list.append(dict)?;
    }
    Ok(list)
}

/// The quantiles that reports give.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// Exact quantiles by nearest rank in nanoseconds; `None` without any.
fn latency<'py>(py: Python<'py>, durations: &mut Durations) -> PyResult<Option<Bound<'py, PyDict>>> {
    if durations.is_empty() {
        return Ok(None);
    }
    let count = durations.len() as u64;
    let mut ranks = vec![1];
    for (_, share) in QUANTILES {
        let (low, high) = methods::interval_ranks(share, count);
        let all = [methods::nearest_rank(share, count), low.unwrap_or(0), high.unwrap_or(0)];
        ranks.extend(all.map(|rank| rank as usize)); // rank 0 there is not
    }
    let values = py.detach(|| durations.at_ranks(&ranks));
    let dict = PyDict::new(py);
    dict.set_item("min", values.first())?;
    let mut value = ranks.iter().zip(values).skip(1).map(|(&rank, value)| (rank > 0).then_some(value));
    quantiles(py, &dict, || value.next().flatten())?;
    dict.set_item("max", durations.longest())?;
    dict.set_item("mean", durations.sum() / count)?;
    Ok(Some(dict))
}

/// Adds each quantile and, as `intervals`, the two values between which it lies; `next` gives all three in turn.
fn quantiles(py: Python<'_>, dict: &Bound<'_, PyDict>, mut next: impl FnMut() -> Option<u64>) -> PyResult<()> {
    let intervals = PyDict::new(py);
    for (name, _) in QUANTILES {
        dict.set_item(name, next())?;
        intervals.set_item(name, (next(), next()))?;
    }
    dict.set_item("intervals", intervals)
}

/// Quantiles in nanoseconds; `None` when there is no sample.
fn turnaround<'py>(py: Python<'py>, stats: &MethodStats) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(histogram) = stats.turnaround.as_ref().filter(|histogram| !histogram.is_empty()) else {
        return Ok(None);
    };
    let count = histogram.len();
    let at = |share: f64| histogram.value_at_quantile(share).clamp(stats.turnaround_min, stats.turnaround_max);
    let at_rank = |rank: Option<u64>| rank.map(|rank| at((rank as f64 - 0.5) / count as f64));
    let mut values = QUANTILES.iter().flat_map(|&(_, share)| {
        let (low, high) = methods::interval_ranks(share, count);
        [Some(at(share)), at_rank(low), at_rank(high)]
    });
    let dict = PyDict::new(py);
    dict.set_item("count", count)?;
    dict.set_item("min", stats.turnaround_min)?;
    quantiles(py, &dict, || values.next().flatten())?;
    dict.set_item("max", stats.turnaround_max)?;
    dict.set_item("mean", stats.turnaround_sum / count)?;
    Ok(Some(dict))
}

fn capture<'py>(py: Python<'py>, info: &CaptureInfo, counts: &CaptureCounts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let files = PyList::empty(py);
    for file in &info.files {
        let entry = PyDict::new(py);
        entry.set_item("name", &file.name)?;
        entry.set_item("format", file.format.name())?;
        entry.set_item("compression", file.compression.map(|compression| compression.name()))?;
        files.append(entry)?;
    }
    dict.set_item("files", files)?;
    let damage = PyList::empty(py);
    for item in &info.damage {
        let entry = PyDict::new(py);
        entry.set_item("file", info.files.get(item.file).map(|file| &file.name))?;
        entry.set_item("offset", item.offset)?;
        entry.set_item("packet", item.packet)?;
        entry.set_item("reason", &item.reason)?;
        damage.append(entry)?;
    }
    dict.set_item("damage", damage)?;
    dict.set_item("damage_not_listed", info.damage_not_listed)?;
    dict.set_item("snaplen", info.interfaces.iter().map(|interface| interface.snaplen).max())?;
    dict.set_item("interfaces", info.interfaces.len())?;
    dict.set_item("dropped_packets", info.dropped_packets())?;
    dict.set_item("comments", info.comments.clone())?;
    dict.set_item("secrets", info.secrets.len())?;
    dict.set_item("packets_without_time", info.packets_without_time)?;
    add_counts(&dict, counts)?;
    Ok(dict)
}

fn add_counts(dict: &Bound<'_, PyDict>, counts: &CaptureCounts) -> PyResult<()> {
    dict.set_item("packets", counts.packets)?;
    dict.set_item("bytes", counts.bytes)?;
    dict.set_item("captured_bytes", counts.captured_bytes)?;
    dict.set_item("first_time_ns", counts.first_time_ns)?;
    dict.set_item("last_time_ns", counts.last_time_ns)?;
    dict.set_item("tcp_packets", counts.tcp)?;
    dict.set_item("not_tcp_packets", counts.not_tcp)?;
    dict.set_item("malformed_packets", counts.malformed)?;
    dict.set_item("truncated_packets", counts.truncated)?;
    dict.set_item("fragments", counts.fragments)?;
    dict.set_item("unsupported_link_packets", counts.unsupported_link)?;
    dict.set_item("time_steps_back", counts.time_steps_back)?;
    dict.set_item("tunnelled_packets", counts.tunnelled)?;
    dict.set_item("link_types", counts.link_types.clone())
}
