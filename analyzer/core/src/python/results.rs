//! What a run found, as dictionaries of numpy arrays, numbers and text.

use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::HashMap;

use crate::capture_file::CaptureInfo;
use crate::run::pipeline::{CaptureCounts, Finished};
use crate::store::budget::{Budget, CAUSES};
use crate::store::context::Context;
use crate::store::durations::Durations;
use crate::store::handed_on::Rows;
use crate::store::methods::{self, MethodStats};
use crate::store::tables::{Column, ProblemLog};

/// Columns of RPCs with `deadlines` and `budgets`.
pub(super) fn rpc_rows(py: Python<'_>, rows: Rows) -> PyResult<Bound<'_, PyDict>> {
    let dict = to_dict(py, rows.columns)?;
    dict.set_item("deadlines", rows.deadlines.into_pyarray(py))?;
    dict.set_item("budgets", budgets(py, rows.budgets)?)?;
    Ok(dict)
}

pub(super) fn settled(py: Python<'_>, numbers: Vec<u32>, rows: Rows) -> PyResult<Bound<'_, PyDict>> {
    let dict = rpc_rows(py, rows)?;
    dict.set_item("numbers", numbers.into_pyarray(py))?;
    Ok(dict)
}

pub(super) fn to_dict<'py>(py: Python<'py>, columns: Vec<(&'static str, Column)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in columns {
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

pub(super) fn tables(py: Python<'_>, result: &Bound<'_, PyDict>, mut end: Finished, mut cx: Context) -> PyResult<()> {
    result.set_item("connections", to_dict(py, end.connections.take_columns())?)?;
    result.set_item("connection_budgets", budgets(py, end.budgets)?)?;
    result.set_item("addresses", end.addresses)?;
    result.set_item("lookup_names", end.lookup_names)?;
    cx.handed_on.settle_all();
    let (numbers, rows) = cx.handed_on.take_settled();
    result.set_item("settled", settled(py, numbers, rows)?)?;
    result.set_item("renumbered", std::mem::take(&mut cx.handed_on.renumbered).into_pyarray(py))?;
    result.set_item("deadlines", std::mem::take(&mut cx.deadlines).into_pyarray(py))?;
    result.set_item("request_ends", std::mem::take(&mut cx.request_ends).into_pyarray(py))?;
    for (name, rows) in [
        ("rpc_budgets", &mut cx.rpc_budgets),
        ("request_budgets", &mut cx.request_budgets),
        ("failure_budgets", &mut cx.failure_budgets),
    ] {
        result.set_item(name, budgets(py, std::mem::take(rows))?)?;
    }
    for (name, columns) in [
        ("rpcs", cx.rpcs.take_columns().into_iter().chain(cx.rpc_sizes.take_columns()).collect()),
        ("waits", cx.waits.take_columns()),
        ("record_waits", cx.record_waits.take_columns()),
        ("records", cx.records.take_columns()),
        ("directions", end.directions.take_columns()),
        ("turns", end.turns.take_columns()),
        ("setups", end.setups.take_columns()),
        ("lookups", end.lookups.take_columns()),
        ("lookup_addresses", end.lookup_addresses.take_columns()),
        ("icmp_errors", end.icmp_errors.take_columns()),
        ("idles", cx.idles.take_columns()),
        ("stalls", cx.stalls.take_columns()),
        ("unanswered", cx.unanswered.take_columns()),
        ("undelivered", cx.undelivered.take_columns()),
        ("closings", cx.closings.take_columns()),
        ("open_rpcs", cx.open_rpcs.take_columns()),
        ("pings", cx.pings.take_columns()),
        ("goaways", cx.goaways.take_columns()),
        ("delays", cx.delays.take_columns()),
        ("other_requests", cx.other_requests.take_columns()),
        ("queues", cx.queues.take_columns()),
        ("failures", cx.failures.take_columns()),
        ("repeats", cx.repeats.take_columns()),
        ("connection_methods", cx.connection_methods.take_columns()),
        ("acts", cx.acts.take_columns()),
        ("frames", cx.frames.take_columns()),
        ("messages", cx.messages.take_columns()),
        ("packets", cx.packets.take_columns()),
        ("in_flight", cx.selected.in_flight.take_columns()),
    ] {
        result.set_item(name, to_dict(py, columns)?)?;
    }
    let lengths: Vec<usize> = cx.selected.packets.iter().map(Vec::len).collect();
    result.set_item("listed_packets", (lengths.into_pyarray(py), cx.selected.packets.concat().into_pyarray(py)))?;
    result.set_item("goaway_reasons", std::mem::take(&mut cx.goaway_reasons))?;
    result.set_item("problems", problems(py, &mut cx.problems)?)?;
    result.set_item("methods", methods(py, &mut cx)?)?;
    result.set_item("paths", cx.strings.methods_from(0))?;
    result.set_item("agents", cx.strings.agents.texts())?;
    result.set_item("errors", cx.strings.errors.texts())?;
    result.set_item("frame_counts", cx.totals.frames.to_vec())?;
    result.set_item("acts_left_out", cx.acts_left_out)?;
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
        dict.set_item("end_missing", stats.end_missing)?;
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

pub(super) fn capture<'py>(
    py: Python<'py>,
    info: &CaptureInfo,
    counts: &CaptureCounts,
) -> PyResult<Bound<'py, PyDict>> {
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
    dict.set_item("left_out", info.left_out.iter().map(ToString::to_string).collect::<Vec<_>>())?;
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
    let steps: Vec<_> = counts.clock_steps.iter().map(|step| (step.packet, step.ns)).collect();
    dict.set_item("clock_steps", steps)?;
    dict.set_item("clock_steps_not_listed", counts.clock_steps_not_listed)?;
    dict.set_item("connections_not_listed", counts.connections_not_listed)?;
    dict.set_item("lookups_not_listed", counts.lookups_not_listed)?;
    dict.set_item("icmp_errors_not_listed", counts.icmp_errors_not_listed)?;
    dict.set_item("tunnelled_packets", counts.tunnelled)?;
    dict.set_item("link_types", counts.link_types.clone())
}
