"""An analysis in the OpenMetrics text format, for Prometheus and Grafana.

https://prometheus.io/docs/specs/om/open_metrics_spec/: every figure is that of one capture, so all are gauges, but
latencies, which are summaries.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..analyzer.live.interval import RATES_S, SPANS_S, Interval
from ..analyzer.live.totals import OTHER as REST
from ..analyzer.live.totals import UNKNOWN, Totals
from ..analyzer.model.analysis import Analysis, MethodFacts
from ..analyzer.model.text import safe

METHODS = 50
"""Methods with series, those with the most RPC time; the others are together."""
OTHER = "other"
LONGEST = 128
"""Most characters of a label's value."""
QUANTILES = {"0": "min", "0.5": "p50", "0.9": "p90", "0.99": "p99", "0.999": "p999", "1": "max"}
NANOSECONDS = 1_000_000_000

Samples = Mapping[Any, int | float]
"""Values by the values of the labels, tuples of texts."""


def render(analysis: Analysis) -> str:
    """Write the analysis as an OpenMetrics exposition."""
    return "\n".join([*_list_lines(analysis), "# EOF"]) + "\n"


def render_live(interval: Interval, totals: Totals) -> str:
    """Write what `watch` shows: counters since its beginning, and gauges of the last seconds."""
    return "\n".join([*_list_live_lines(interval, totals), "# EOF"]) + "\n"


def _list_live_lines(interval: Interval, totals: Totals) -> Iterator[str]:
    rpcs: Samples = {(name, status): n for name, of in totals.methods.items() for status, n in of.items()}
    yield from _count("rpcs", "RPCs that ended, by gRPC status.", ("method", "status"), rpcs)
    yield from _count("packets", "Packets that were read.", (), {(): interval.packets})
    dropped = {} if interval.dropped_packets is None else {(): interval.dropped_packets}
    yield from _count("dropped_packets", "Packets that the kernel dropped.", (), dropped)
    about = "How often findings appeared."
    yield from _count("findings_appeared", about, ("finding", "severity"), totals.findings)
    yield from _count("captures", "Captures that were written for triggers.", (), {(): totals.captures})
    yield from _count("captures_refused", "Moments beyond the limits.", (), {(): interval.not_written})
    lost = {} if interval.ring_bytes is None else {(): interval.ring_lost_packets}
    yield from _count("ring_lost_packets", "Packets that the disk had no room for.", (), lost)
    gauge = ("gauge", "Findings of the last ten seconds.", ("finding", "severity"))
    found = Counter((one.id, one.severity) for one in interval.findings)
    yield from _write("grpcdiag_watch_findings", *gauge, found)
    yield from _list_live_methods(interval, totals)


def _list_live_methods(interval: Interval, totals: Totals) -> Iterator[str]:
    """Give the last seconds of the methods that are counted apart; those of the others are put together."""
    in_flight, times = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    quantiles: dict[tuple[str, ...], float] = {}
    longest = f"{SPANS_S[-1]}s"
    for one in interval.methods:
        is_named = one.method is not None and one.method.startswith("/")
        name = one.method if one.method in totals.methods else REST if is_named else UNKNOWN
        in_flight[name,] += one.in_flight
        times.update({(name, cause): ns for cause, ns in one.budget.items()})
        if name == one.method and longest in one.p50_ns:
            of = {"0.5": one.p50_ns, "0.99": one.p99_ns}
            quantiles |= {(name, quantile): by[longest] / NANOSECONDS for quantile, by in of.items()}
    yield from _write("grpcdiag_watch_in_flight", "gauge", "RPCs without an end.", ("method",), in_flight)
    seconds = {labels: ns / NANOSECONDS for labels, ns in times.items()}
    about = f"RPC time of the last {RATES_S} seconds by cause."
    yield from _write("grpcdiag_watch_rpc_time_seconds", "gauge", about, ("method", "cause"), seconds)
    about = f"Duration of the RPCs that ended in the last {SPANS_S[-1]} seconds."
    yield from _write("grpcdiag_watch_rpc_latency_seconds", "summary", about, ("method", "quantile"), quantiles)


def _count(name: str, about: str, labels: Sequence[str], samples: Samples) -> Iterator[str]:
    yield from _write(f"grpcdiag_watch_{name}", "counter", about, labels, samples, "_total")


def _list_lines(analysis: Analysis) -> Iterator[str]:
    capture, totals, quality = analysis.capture, analysis.totals, analysis.quality
    first, last = capture.first_time_ns, capture.last_time_ns
    yield from _write("grpcdiag", "info", "Version of grpcdiag.", ("version",), {(analysis.version,): 1}, "_info")
    if first is not None and last is not None:
        yield from _gauge("start_timestamp_seconds", "Time of the first packet.", first / NANOSECONDS)
        yield from _gauge("duration_seconds", "From the first packet to the last.", (last - first) / NANOSECONDS)
    yield from _gauge("packets", "Packets of the capture.", capture.packets)
    yield from _gauge("size_bytes", "Bytes on the wire.", capture.bytes)
    yield from _gauge("dropped_packets", "Packets not recorded, if the file says so.", capture.dropped_packets)
    yield from _gauge("missing_bytes", "Payload bytes that the capture lacks.", quality.missing_bytes)
    yield from _gauge("connections", "HTTP/2 connections.", totals.connections)
    yield from _gauge("messages", "gRPC messages.", totals.messages)
    retransmitted = sum(connection.retransmitted_packets for connection in analysis.connections)
    yield from _gauge("retransmitted_packets", "Retransmitted packets of the connections.", retransmitted)
    yield from _list_methods(analysis.methods)
    yield from _list_findings(analysis)


def _list_methods(methods: Sequence[MethodFacts]) -> Iterator[str]:
    rpcs, times = defaultdict[tuple[str, ...], int](int), defaultdict[tuple[str, ...], int](int)
    latencies: dict[str, MethodFacts] = {}
    for number, method in enumerate(methods):
        name = _limit(method.method or method.label or "unknown") if number < METHODS else OTHER
        for status, count in method.statuses.items():
            rpcs[name, status] += count
        for cause, ns in method.budget.items():
            times[name, cause] += ns
        if number < METHODS and method.latency_ns is not None:
            latencies.setdefault(name, method)
    yield from _write("grpcdiag_rpcs", "gauge", "RPCs by gRPC status.", ("method", "status"), rpcs)
    seconds = {labels: ns / NANOSECONDS for labels, ns in times.items()}
    yield from _write("grpcdiag_rpc_time_seconds", "gauge", "RPC time by cause.", ("method", "cause"), seconds)
    quantiles: Samples = {
        (name, quantile): getattr(method.latency_ns, field) / NANOSECONDS
        for name, method in latencies.items()
        for quantile, field in QUANTILES.items()
    }
    about = "Duration of complete RPCs."
    yield from _write("grpcdiag_rpc_latency_seconds", "summary", about, ("method", "quantile"), quantiles)


def _list_findings(analysis: Analysis) -> Iterator[str]:
    found, lost = defaultdict[tuple[str, ...], int](int), defaultdict[tuple[str, ...], float](float)
    for finding in analysis.findings:
        found[finding.id, finding.severity, finding.confidence] += 1
        if finding.lost_ns is not None and finding.part_of is None:
            lost[finding.id, finding.severity] += finding.lost_ns / NANOSECONDS
    labels = ("finding", "severity", "confidence")
    yield from _write("grpcdiag_findings", "gauge", "Findings.", labels, found)
    about = "Time that the RPCs would not have needed, without findings that are part of others."
    yield from _write("grpcdiag_finding_lost_seconds", "gauge", about, labels[:2], lost)


def _limit(text: str) -> str:
    text = safe(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _gauge(name: str, about: str, value: float | None) -> Iterator[str]:
    samples: Samples = {} if value is None else {(): value}
    yield from _write(f"grpcdiag_capture_{name}", "gauge", about, (), samples)


def _write(
    name: str, kind: str, about: str, labels: Sequence[str], samples: Samples, suffix: str = ""
) -> Iterator[str]:
    """Write a family of metrics, unless it has no samples."""
    if not samples:
        return
    yield f"# TYPE {name} {kind}"
    unit = next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {about}"
    for values, value in samples.items():
        pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in zip(labels, values, strict=True))
        yield f"{name}{suffix}{{{pairs}}} {value}" if pairs else f"{name}{suffix} {value}"


def _escape(text: str) -> str:
    """Escape a label's value; no line breaks are left in it."""
    return _limit(text).replace("\\", "\\\\").replace('"', '\\"')
