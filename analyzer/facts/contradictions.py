"""Figures that a report shows for a finding that was not found."""

from collections.abc import Callable

from ..model.analysis import Analysis, Traffic
from ..model.budget import of_cause
from ..model.text import count, duration

LITTLE = 0.01
"""Share of RPC time below which a cause does not matter (heuristic: below the variation between equal runs)."""

Figure = Callable[[Analysis], str]
"""Writes a figure of an analysis as Markdown."""


def blocked_time(cause: str) -> Figure:
    """Give the RPC time of one cause."""

    def write(analysis: Analysis) -> str:
        total, ns = sum(analysis.budget.values()), of_cause(analysis.budget, cause)
        if not ns:
            return f"`{cause}`: no RPC time"
        share = f"`{cause}`: {duration(ns)} of {duration(total)} of RPC time ({ns / total:.1%})"
        return f"{share}, too little to matter" if ns < LITTLE * total else f"{share}, but in another pattern"

    return write


def thread_time(*parts: str) -> Figure:
    """Give the share of some parts in what led to the sends of recorded threads."""

    def write(analysis: Analysis) -> str:
        whole = sum(one.total_ns for one in analysis.processes)
        ns = sum(getattr(one, f"{part}_ns") for one in analysis.processes for part in parts)
        return f"{ns / max(whole, 1):.1%} of the {duration(whole)} in which recorded threads had to act"

    return write


def add_up(analysis: Analysis, column: Callable[[Traffic], int]) -> int:
    """Add up a figure of both sides' traffic."""
    return sum(column(side) for side in analysis.traffic)


def packets_alone(packets: Callable[[Traffic], int], noun: str) -> Figure:
    """Give the number of packets that carry one kind of control frame and no data."""

    def write(analysis: Analysis) -> str:
        own, payload = add_up(analysis, packets), add_up(analysis, lambda side: side.payload_packets)
        return f"{own:,} of {count(payload, 'packet')} with payload carry {noun} and no data"

    return write


def statuses(*names: str) -> Figure:
    """Give the number of RPCs that ended with one of some statuses."""

    def write(analysis: Analysis) -> str:
        number = sum(method.statuses.get(name, 0) for method in analysis.methods for name in names)
        return f"{number:,} of {count(analysis.totals.rpcs, 'RPC')} ended with {' or '.join(names)}"

    return write


def calls_at_once(analysis: Analysis) -> str:
    """Give the number of RPCs that were open on one connection at once."""
    most = max((c.max_concurrent_rpcs for c in analysis.connections), default=0)
    return f"at most {count(most, 'RPC')} at once on a connection, of {analysis.totals.connections:,}"
