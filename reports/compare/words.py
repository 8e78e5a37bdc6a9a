"""Format the figures of a comparison in words, for all reports."""

from ...analyzer.model.finding import Finding
from ...analyzer.model.text import count, duration, format_number, size
from .figures import Changed, Figure, Shift
from .run import Run

SECTIONS = {"work": "work", "rates": "rates", "packets": "packets, both directions"}
KINDS = {"latency": "latency", "turnaround": "response time"}
_ALIKE = 0.005
"""Largest difference of a ratio from 1 that is shown as `=`."""


def format_value(figure: Figure, value: float | None) -> str:
    """Format a figure of one capture with its unit."""
    if value is None:
        return "-"
    if figure.unit == "ns":
        return duration(value)
    if figure.name.endswith("share"):
        return f"{value:.1%}"
    if figure.unit == "B" or figure.name == "message_bytes_per_s":
        return size(value)
    return format_number(value)


def format_ratio(ratio: float | None) -> str:
    """Format a ratio as `3.20x`, or `=` where both are alike."""
    if ratio is None:
        return "-"
    return "=" if abs(ratio - 1) < _ALIKE else f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.2f}x"


def format_signed(ns: int | None) -> str:
    """Format a shift with its sign, `?` where it is unknown."""
    return "?" if ns is None else ("+" if ns > 0 else "") + duration(ns)


def format_severity(changed: Changed) -> str:
    """Say how severe a finding is and what it lost, before and after."""
    before, after = (f"{f.severity}{format_lost(f)}" if f else None for f in (changed.before, changed.after))
    if before == after or before is None or after is None:
        return before or after or ""
    if changed.before and changed.after and changed.before.severity == changed.after.severity:
        return f"{before.removesuffix(' lost')} -> {after.split(', ')[-1]}"
    return f"{before} -> {after}"


def format_lost(finding: Finding) -> str:
    """Say what a finding lost."""
    return "" if finding.lost_ns is None else f", {duration(finding.lost_ns)} lost"


def describe_interval(shift: Shift) -> str:
    """Describe the 95 % confidence interval of a shift."""
    if shift.low_ns is None and shift.high_ns is None:
        return "too few RPCs" if shift.kind == "latency" else "too few messages"
    chance = " (chance)" if shift.certain is False else ""
    return f"{format_signed(shift.low_ns)} to {format_signed(shift.high_ns)}{chance}"


def describe_work(run: Run) -> str:
    """Describe how much work a capture shows."""
    work = (count(run.rpcs, "RPC"), count(run.messages, "message"), count(run.connections, "connection"))
    return f"{', '.join(work)} in {duration(run.span_ns)}"
