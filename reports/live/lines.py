"""One line of text per interval, where there is no terminal."""

from __future__ import annotations

from ...analyzer.model.text import duration, safe, utc
from .snapshot import SPANS_S, Snapshot


def describe_line(now: Snapshot) -> str:
    """Sum the last interval up: rates, the slowest method's latency, and findings that came or went in it."""
    last = str(SPANS_S[0])
    figures = [(row.method, row.windows[last]) for row in now.methods if last in row.windows]
    rate, failed = sum(f.rpcs_per_s for _, f in figures), sum(f.failed_per_s for _, f in figures)
    words = [f"{utc(now.time_ns)[:-3]}  {rate:,.1f} RPC/s, {failed:,.1f} failed/s, {now.packets_per_s:,.0f} packets/s"]
    slowest = max(figures, key=lambda one: one[1].p99_ns or 0, default=None)
    if slowest is not None and slowest[1].p99_ns is not None:
        words.append(f"p99 {duration(slowest[1].p99_ns)} ({safe(slowest[0])})")
    words += [f"lost {now.dropped_packets:,} packets"] if now.dropped_packets else []
    words += [f"begins: {one.severity} {one.id}" for one in now.findings if one.since_time_ns == now.time_ns]
    words += [f"gone: {one.id}" for one in now.findings if one.gone_time_ns == now.time_ns]
    return "; ".join(words)
