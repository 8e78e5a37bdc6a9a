//! What a run found, as dictionaries of numpy arrays, numbers and text.

use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::HashMap;

use grpcdiag_core::capture_file::CaptureInfo;
use grpcdiag_core::packet_order::{Numbers, Sorter};
use grpcdiag_core::run::order_rows::sampled;
use grpcdiag_core::run::pipeline::{CaptureCounts, Finished};
use grpcdiag_core::store::budget::{Budget, CAUSES};
use grpcdiag_core::store::context::Context;
use grpcdiag_core::store::durations::Durations;
use grpcdiag_core::store::emitted_rpcs::{Rows, Taken};
use grpcdiag_core::store::methods::{self, MethodStats};
use grpcdiag_core::store::tables::{Column, ProblemLog};

/// Puts fields into a dictionary under their names.
macro_rules! put {
    ($dict:expr, $of:expr; $($field:ident),+) => { $($dict.set_item(stringify!($field), &$of.$field)?;)+ };
}
pub(super) use put;

/// The same for tables, whose columns are taken.
macro_rules! put_tables {
    ($dict:expr, $of:expr, $numbers:expr; $($table:ident),+) => {
        $($dict.set_item(stringify!($table), to_dict($dict.py(), $of.$table.take_columns(), $numbers)?)?;)+
    };
}

/// Columns of RPCs with `deadlines` and `budgets`.
fn rpc_rows<'py>(py: Python<'py>, rows: Rows, numbers: Option<&Numbers>) -> PyResult<Bound<'py, PyDict>> {
    let dict = to_dict(py, rows.columns, numbers)?;
    dict.set_item("deadlines", rows.deadlines.into_pyarray(py))?;
    dict.set_item("budgets", budgets(py, rows.budgets)?)?;
    Ok(dict)
}

/// What was taken at one time: `rows`; `settled`, with the `numbers` that its rows had among all; `methods`; `errors`.
pub(super) fn taken<'py>(py: Python<'py>, taken: Taken, numbers: Option<&Numbers>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    put!(dict, taken; methods, errors);
    dict.set_item("rows", rpc_rows(py, taken.rows, numbers)?)?;
    dict.set_item("settled", settled(py, taken.settled, numbers)?)?;
    Ok(dict)
}

fn settled<'py>(
    py: Python<'py>,
    (rpcs, rows): (Vec<u32>, Rows),
    numbers: Option<&Numbers>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = rpc_rows(py, rows, numbers)?;
    dict.set_item("numbers", rpcs.into_pyarray(py))?;
    Ok(dict)
}

/// Columns by name. Packets have their numbers in the file.
pub(super) fn to_dict<'py>(
    py: Python<'py>,
    columns: Vec<(&'static str, Column)>,
    numbers: Option<&Numbers>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let numbers = numbers.filter(|numbers| !numbers.is_empty());
    for (name, mut column) in columns {
        if let (Column::U32(cells), Some(numbers)) = (&mut column, numbers)
            && is_of_packets(name)
        {
            number_packets(cells, numbers);
        }
        match column {
            Column::I64(cells) => dict.set_item(name, cells.into_pyarray(py))?,
            Column::U64(cells) => dict.set_item(name, cells.into_pyarray(py))?,
            Column::U32(cells) => dict.set_item(name, cells.into_pyarray(py))?,
            Column::U16(cells) => dict.set_item(name, cells.into_pyarray(py))?,
            Column::U8(cells) => dict.set_item(name, cells.into_pyarray(py))?,
        }
    }
    Ok(dict)
}

/// Whether a column has numbers of packets: `late_packets` has counts.
fn is_of_packets(name: &str) -> bool {
    name == "packet" || name.ends_with("_packet")
}

fn number_packets(cells: &mut [u32], numbers: &Numbers) {
    for cell in cells {
        *cell = numbers.number(*cell);
    }
}

pub(super) fn tables(
    py: Python<'_>,
    result: &Bound<'_, PyDict>,
    mut end: Finished,
    mut cx: Context,
    numbers: Option<&Numbers>,
) -> PyResult<()> {
    put_tables!(result, end, numbers; connections);
    result.set_item("connection_budgets", budgets(py, end.budgets)?)?;
    result.set_item("addresses", end.addresses)?;
    result.set_item("lookup_names", end.lookup_names)?;
    cx.emitted.settle_all();
    result.set_item("settled", settled(py, cx.emitted.take_settled(), numbers)?)?;
    result.set_item("renumbered", std::mem::take(&mut cx.emitted.renumbered).into_pyarray(py))?;
    result.set_item("deadlines", std::mem::take(&mut cx.deadlines).into_pyarray(py))?;
    result.set_item("request_ends", std::mem::take(&mut cx.request_ends).into_pyarray(py))?;
    result.set_item("rpc_budgets", budgets(py, std::mem::take(&mut cx.rpc_budgets))?)?;
    result.set_item("request_budgets", budgets(py, std::mem::take(&mut cx.request_budgets))?)?;
    result.set_item("failure_budgets", budgets(py, std::mem::take(&mut cx.failure_budgets))?)?;
    let sampled: Vec<u8> = sampled(&cx).into_iter().map(u8::from).collect();
    result.set_item("sampled", sampled.into_pyarray(py))?;
    let rpcs = cx.rpcs.take_columns().into_iter().chain(cx.rpc_sizes.take_columns()).collect();
    result.set_item("rpcs", to_dict(py, rpcs, numbers)?)?;
    put_tables!(result, end, numbers; directions, turns, setups, lookups, lookup_addresses, icmp_errors);
    put_tables!(result, cx, numbers; waits, record_waits, records, idles, stalls, unanswered, undelivered, closings);
    put_tables!(result, cx, numbers; open_rpcs, connection_methods, acts);
    put_tables!(result, cx, numbers; pings, goaways, delays, other_requests, queues, failures, repeats);
    put_tables!(result, cx, numbers; frames, messages, packets);
    result.set_item("in_flight", to_dict(py, cx.selected.in_flight.take_columns(), None)?)?;
    let lengths: Vec<usize> = cx.selected.packets.iter().map(Vec::len).collect();
    let mut listed = cx.selected.packets.concat();
    numbers.into_iter().for_each(|numbers| number_packets(&mut listed, numbers));
    result.set_item("listed_packets", (lengths.into_pyarray(py), listed.into_pyarray(py)))?;
    put!(result, cx; goaway_reasons, acts_left_out);
    result.set_item("problems", problems(py, &mut cx.problems, numbers)?)?;
    result.set_item("methods", methods(py, &mut cx)?)?;
    result.set_item("paths", cx.strings.methods_from(0))?;
    result.set_item("agents", cx.strings.agents.texts())?;
    result.set_item("errors", cx.strings.errors.texts())?;
    put!(result, cx.totals; compressed_messages, begun_before, other_streams);
    result.set_item("frame_counts", cx.totals.frames.to_vec())?;
    result.set_item("message_count", cx.totals.messages)
}

/// Budgets as an array of shape (rows, causes).
fn budgets(py: Python<'_>, rows: Vec<Budget>) -> PyResult<Bound<'_, PyAny>> {
    let shape = [rows.len(), CAUSES.len()];
    // each step keeps the memory of the one before
    let cells = rows.into_iter().map(|row| row.0).collect::<Vec<_>>().into_flattened();
    let cells: Vec<i64> = cells.into_iter().map(|ns| i64::try_from(ns).unwrap_or(i64::MAX)).collect();
    Ok(cells.into_pyarray(py).reshape(shape)?.into_any())
}

fn problems<'py>(py: Python<'py>, log: &mut ProblemLog, numbers: Option<&Numbers>) -> PyResult<Bound<'py, PyDict>> {
    let dict = to_dict(py, log.rows.take_columns(), numbers)?;
    put!(dict, log; kinds, counts);
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
        put!(dict, stats; rpcs, complete, touch_gaps, end_missing, messages);
        dict.set_item("statuses", stats.statuses.to_vec())?;
        dict.set_item("first_start_ns", stats.first_start)?;
        dict.set_item("last_end_ns", stats.last_end)?;
        dict.set_item("latency", latency(py, &mut stats.durations)?)?;
        let distribution = if cx.options.distributions { stats.durations.classes() } else { Vec::new() };
        dict.set_item("distribution", distribution)?;
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

pub(super) fn capture<'py>(
    py: Python<'py>,
    info: &CaptureInfo,
    counts: &CaptureCounts,
    sorter: Option<&Sorter>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let files = PyList::empty(py);
    for file in &info.files {
        let entry = PyDict::new(py);
        put!(entry, file; name);
        entry.set_item("format", file.format.name())?;
        entry.set_item("compression", file.compression.map(|compression| compression.name()))?;
        files.append(entry)?;
    }
    dict.set_item("files", files)?;
    let damage = PyList::empty(py);
    for item in &info.damage {
        let entry = PyDict::new(py);
        entry.set_item("file", info.files.get(item.file).map(|file| &file.name))?;
        put!(entry, item; offset, packet, reason);
        damage.append(entry)?;
    }
    dict.set_item("damage", damage)?;
    dict.set_item("left_out", info.left_out.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    put!(dict, info; damage_not_listed, comments, packets_without_time);
    dict.set_item("snaplen", info.interfaces.iter().map(|interface| interface.snaplen).max())?;
    dict.set_item("interfaces", info.interfaces.len())?;
    dict.set_item("dropped_packets", info.dropped_packets())?;
    dict.set_item("received_packets", info.received_packets())?;
    dict.set_item("secrets", info.secrets.len())?;
    dict.set_item("sorted_packets", sorter.map_or(0, |sorter| sorter.moved))?;
    dict.set_item("contradicted_times", sorter.map_or(0, |sorter| sorter.contradicted))?;
    dict.set_item("too_late_packets", sorter.map_or(Vec::new(), |sorter| sorter.too_late.clone()))?;
    add_counts(&dict, counts)?;
    let number = |packet| sorter.map_or(packet, |sorter| sorter.numbers.number(packet));
    let steps: Vec<_> = counts.clock_steps.iter().map(|step| (number(step.packet), step.ns)).collect();
    dict.set_item("clock_steps", steps)?;
    Ok(dict)
}

fn add_counts(dict: &Bound<'_, PyDict>, counts: &CaptureCounts) -> PyResult<()> {
    put!(dict, counts; packets, bytes, captured_bytes, first_time_ns, last_time_ns, fragments, time_steps_back);
    put!(dict, counts; clock_steps_not_listed, connections_not_listed, lookups_not_listed, icmp_errors_not_listed);
    put!(dict, counts; link_types);
    dict.set_item("tcp_packets", counts.tcp)?;
    dict.set_item("not_tcp_packets", counts.not_tcp)?;
    dict.set_item("malformed_packets", counts.malformed)?;
    dict.set_item("truncated_packets", counts.truncated)?;
    dict.set_item("unsupported_link_packets", counts.unsupported_link)?;
    dict.set_item("tunnelled_packets", counts.tunnelled)
}
