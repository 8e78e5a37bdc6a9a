"""RPCs that ended with a status other than OK; shared by the detectors that each report one kind of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from .. import _core
from ..model.budget import named
from ..model.finding import Evidence, Remedy, Severity
from ..tables import Codes, Counts, Ints, Tables
from ..tables.durations import totals_ns
from ._shared import distinct, milliseconds, severity
from ._software import is_of, recognise_end

Mask = npt.NDArray[np.bool_]

OK, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE = (
    _core.STATUSES.index(name) for name in ("OK", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE")
)
FAILURES_KEPT = 100_000
"""Rows of the failures table at most (limits.rs)."""
NOBODY = 2
"""`Failures.reset_by` when no RST_STREAM ended the RPC."""
NOT_KEPT = 3
"""Stands for `Failures.reset_by` of RPCs beyond those that the failures table keeps."""
CANCEL = 8
"""The error code of a RST_STREAM that gives up an RPC (RFC 9113 section 7)."""
ERROR_CODES = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)
"""Names of HTTP/2 error codes (RFC 9113 section 7)."""


class Failed(Struct, frozen=True, eq=False):
    """Some rows of the failures table, with data of their RPCs; all columns are equally long."""

    row: Ints
    """Row of the failures table, -1 for RPCs beyond those it keeps."""
    rpc: Counts
    """Row of the RPC."""
    status: Codes
    duration_ns: Ints
    deadline_ns: Ints
    """-1 without a deadline."""
    reset_by: Codes
    reset_code: Counts

    def where(self, mask: Mask | Ints) -> Failed:
        """Select the rows for which `mask` holds, or the rows that it lists, in its order."""
        return Failed(
            self.row[mask],
            self.rpc[mask],
            self.status[mask],
            self.duration_ns[mask],
            self.deadline_ns[mask],
            self.reset_by[mask],
            self.reset_code[mask],
        )

    def __len__(self) -> int:
        """Return the number of RPCs."""
        return len(self.rpc)


def failed(tables: Tables) -> Failed:
    """Find all RPCs that ended with a status other than OK, in the order in which they began.

    The table keeps a limited number of rows; for other RPCs the sender of the RST_STREAM is unknown.
    """
    failures, rpcs, rpc = tables.failures, tables.rpcs, tables.failures.rpc
    row, reset_by, reset_code = np.arange(len(rpc)), failures.reset_by, failures.reset_code
    every = tables.before.tables if tables.before else tables
    if len(every.failures.rpc) >= FAILURES_KEPT:
        more = np.setdiff1d(np.flatnonzero(rpcs.status != OK), rpc)
        rpc = np.r_[rpc, more].astype(np.uint32)
        row = np.r_[row, np.full(len(more), -1)]
        reset_by = np.r_[reset_by, np.full(len(more), NOT_KEPT, dtype=np.uint8)]
        reset_code = np.r_[reset_code, np.full(len(more), CANCEL, dtype=np.uint32)]
    deadline = np.full(len(rpc), -1, dtype=np.int64)
    known = rpc < len(tables.deadlines)
    deadline[known] = tables.deadlines[rpc[known]]
    everything = Failed(row, rpc, rpcs.status[rpc], rpcs.duration_ns[rpc], deadline, reset_by, reset_code)
    return everything.where(np.lexsort((rpcs.stream[rpc], rpcs.connection[rpc], rpcs.start_time_ns[rpc])))


def missed(rows: Failed, early_share: float, early_ns: int) -> Mask:
    """Mark RPCs that ended by their deadline: by status, or given up when it had passed or was about to."""
    early = np.minimum(np.maximum(rows.deadline_ns * early_share, early_ns), rows.deadline_ns / 2)
    over = (rows.deadline_ns > 0) & (rows.duration_ns >= rows.deadline_ns - early)
    given_up = (rows.status == CANCELLED) & (rows.reset_by != NOBODY) & (rows.reset_code == CANCEL)
    ended_so: Mask = (rows.status == DEADLINE_EXCEEDED) | (given_up & over)
    return ended_so


def by_method(tables: Tables, rpcs: Counts) -> Mapping[str, int]:
    """Count some RPCs by method, the method with the most first; `unknown` for names not seen."""
    names = {method.number: method.name or "unknown" for method in tables.methods}
    counts = Counter(names.get(int(number), "unknown") for number in tables.rpcs.method[rpcs].tolist())
    return dict(counts.most_common())


def listed(counts: Mapping[str, int], limit: int = 5) -> str:
    """Format counts as `a 3, b 2 and 4 others`."""
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:limit])
    return shown if len(counts) <= limit else f"{shown} and {len(counts) - limit} others"


def connections_of(tables: Tables, rpcs: Counts) -> tuple[int, ...]:
    """List the connections of some RPCs."""
    return tuple(int(c) for c in distinct(tables.rpcs.connection[rpcs]))


def methods_of(tables: Tables, rpcs: Counts) -> tuple[str, ...]:
    """List the names of the methods of some RPCs, as far as they are known."""
    return tuple(sorted(name for name in by_method(tables, rpcs) if name != "unknown"))


def severity_of_count(count: int, of: int, few: int, warning: float, critical: float) -> Severity:
    """Rate the severity of a share of RPCs; fewer than `few` prove no pattern."""
    return "info" if count < few else severity(count / max(of, 1), warning, critical)


def where_time_went(tables: Tables, rows: Failed) -> Mapping[str, int]:
    """Sum up the time of some failed RPCs by cause, the largest first; empty when there are no budgets."""
    budgets = tables.failure_budgets
    if not len(rows) or len(budgets) != len(tables.failures.rpc):
        return {}
    kept = rows.row[rows.row >= 0]
    return dict(sorted(named(totals_ns(budgets[kept])).items(), key=lambda item: -item[1]))


def reset_words(tables: Tables, rows: Failed, place: int) -> str:
    """Say what ended the RPC: `RST_STREAM CANCEL from the client`, or `trailers with status NOT_FOUND`."""
    by, code = int(rows.reset_by[place]), int(rows.reset_code[place])
    status = _core.STATUSES[rows.status[place]] if rows.status[place] < len(_core.STATUSES) else "unknown"
    if by < NOBODY:
        return f"RST_STREAM {error_name(code)} from the {('client', 'server')[by]}, which gRPC reads as {status}"
    rpc, rpcs = rows.rpc[place], tables.rpcs
    end = int(rpcs.start_time_ns[rpc]) + int(rpcs.duration_ns[rpc])
    closed = int(tables.connections.closed_time_ns[rpcs.connection[rpc]])
    if 0 <= closed <= end:
        return f"the connection's end, which gRPC reads as {status}"
    return f"trailers with status {status}"


def counted(count: int, noun: str) -> str:
    """Format a number with its noun: `1 RPC`, `2 RPCs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def error_name(code: int) -> str:
    """Return the name of an HTTP/2 error code."""
    return ERROR_CODES[code] if code < len(ERROR_CODES) else f"error {code}"


def began(tables: Tables, rpc: int) -> Evidence:
    """Show the packet with which an RPC began."""
    rpcs = tables.rpcs
    name = tables.method_name(int(rpcs.method[rpc])) or "an RPC whose method is unknown"
    where = f"connection {rpcs.connection[rpc]}, stream {rpcs.stream[rpc]}"
    return Evidence(int(rpcs.first_packet[rpc]), int(rpcs.start_time_ns[rpc]), f"{name} begins ({where})")


def ended(tables: Tables, rpc: int, what: str) -> Evidence:
    """Show the packet with which an RPC ended, with its duration."""
    rpcs = tables.rpcs
    duration = int(rpcs.duration_ns[rpc])
    end = int(rpcs.start_time_ns[rpc]) + duration
    where = f"connection {rpcs.connection[rpc]}, stream {rpcs.stream[rpc]}"
    packet = int(rpcs.last_packet[rpc]) or int(rpcs.first_packet[rpc])
    return Evidence(packet, end, f"{what}, {milliseconds(duration)} after the RPC began ({where})")


def spans(tables: Tables, rows: Failed, limit: int) -> Iterator[Evidence]:
    """Yield begin and end of the first RPCs."""
    for place in range(min(limit, len(rows))):
        rpc = int(rows.rpc[place])
        yield began(tables, rpc)
        yield ended(tables, rpc, reset_words(tables, rows, place))


def seen_first(
    tables: Tables, connections: Iterable[int], direction: int, remedies: Iterable[Remedy]
) -> tuple[Remedy, ...]:
    """Sort remedies so that those of the implementations seen at that end of the connections come first."""
    seen = {recognise_end(tables, connection, direction) for connection in connections}
    return tuple(sorted(remedies, key=lambda remedy: not any(is_of(remedy.implementation, one) for one in seen)))
