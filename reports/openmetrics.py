"""An analysis in the OpenMetrics text format, for Prometheus and Grafana.

https://prometheus.io/docs/specs/om/open_metrics_spec/: every figure is that of one capture, so all are gauges, but
latencies, which are summaries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ..analyzer.model.analysis import Analysis, MethodFacts
from ..analyzer.model.text import safe

METHODS = 50
"""Methods with series, those with the most RPC time; the others are together."""
OTHER = "other"
LONGEST = 128
"""Most characters of a label's value."""
QUANTILES = {"0": "min", "0.5": "p50", "0.9": "p90", "0.99": "p99", "0.999": "p999", "1": "max"}
NANOSECONDS = 1_000_000_000

Samples = Mapping[tuple[str, ...], int | float]
"""Values by the values of the labels."""


def render(analysis: Analysis) -> str:
    """Write the analysis as an OpenMetrics exposition."""
    return "\n".join([*_list_lines(analysis), "# EOF"]) + "\n"


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
