"""RPCs were cancelled before their end.

What it finds
-------------
RPCs that were given up before their deadline: with RST_STREAM CANCEL from the client or the server, or with status
`CANCELLED` in the trailers. It tells how long they had lasted, who cancelled them, and whether they all lasted
equally long, which is the mark of a timer that `grpc-timeout` does not show.

How it is decided
-----------------
By the RST_STREAM or the status. RPCs cancelled at their deadline are left out: they are `deadline-exceeded`. Clients
cancel for good reasons (a stream no longer wanted, a hedged call that lost, a user who left), so this is for
information only. It is a warning when many RPCs were cancelled after the same time although they ended at different
moments: then it was a timer, of the client or of a proxy, and the callers lost their answers.

When it cannot tell
-------------------
A deadline that the client kept to itself looks like a cancel. So does one on a connection that began before the
capture, where the name of `grpc-timeout` may not be known: the finding says so, and its confidence is low. RPCs whose
headers are in a hole of the capture are not told. Why the application cancelled is not on the wire.

What would refute it
--------------------
The application counts fewer cancelled calls; or for a timer, nothing between client and server has a timeout of the
time given.

What to do
----------
Nothing, if the application meant it. Where all last equally long, find the timer: a deadline in the client's code, a
timeout of a proxy (Envoy's route timeout is 15 s by default), an idle timeout. Let handlers look at cancellation, or
the server works on in vain.

References
----------
- https://grpc.io/docs/guides/cancellation/
- grpc/grpc doc/PROTOCOL-HTTP2.md: RST_STREAM CANCEL is CANCELLED
- Envoy route.proto: RouteAction.timeout
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Severity, Skipped
from ..tables import HEADERS_UNKNOWN, METHOD_UNKNOWN, Tables
from ..tables.durations import total_ns
from . import _failures as common
from . import _figures
from ._failures import Failed
from ._shared import lower, milliseconds, quality_allows

ID = "cancelled"
ABOUT = About(
    example="recorded/lab/cancelled.pcap",
    figure=_figures.statuses("CANCELLED"),
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    early_share: float = 0.05
    """As in `deadline-exceeded` (C-core rounds grpc-timeout up, by some per cent)."""
    early_ns: int = 1_000_000
    """As in `deadline-exceeded` (own choice: a timer's and a packet's delay, 1 ms)."""
    warning_share: float = 0.10
    """Share of RPCs that one timer cancelled from which it is a warning (own choice: one call in ten)."""
    same_time: float = 0.05
    """Spread of the middle four fifths of durations, of their median, up to which a timer did it (own choice)."""
    timer_ns: int = 10_000_000
    """Shortest median duration of which a timer is said (own choice: shorter ones are alike by chance)."""
    timer_rpcs: int = 5
    """Fewest RPCs of which a timer is said (own choice: fewer may be alike by chance)."""
    apart: float = 3.0
    """How many times farther apart than the durations differ the ends must be (own choice: no common stop)."""
    examples: int = 3
    """RPCs shown as evidence (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over all RPCs that were cancelled and not by their deadline."""
    if not len(tables.failures.rpc):
        return
    rows = common.failed(tables)
    given_up = (rows.status == common.CANCELLED) & ~common.missed(rows, limits.early_share, limits.early_ns)
    rows = rows.where(given_up)
    unknown = (tables.rpcs.flags[rows.rpc] & HEADERS_UNKNOWN != 0) & (rows.deadline_ns < 0)
    unknown &= tables.connections.complete[tables.rpcs.connection[rows.rpc]] == 1
    if unknown.any():
        count = common.counted(int(unknown.sum()), "RPC")
        yield Skipped(ID, f"{count} may have ended by a deadline: the capture lacks the headers that would tell")
    rows = rows.where(~unknown)
    if len(rows):
        yield _finding(tables, rows, limits)


def _finding(tables: Tables, rows: Failed, limits: Limits) -> Finding:
    everything = tables.rpc_count
    share, timer = len(rows) / everything, _one_timer(tables, rows, limits)
    median = milliseconds(float(np.median(rows.duration_ns)))
    methods = common.by_method(tables, rows.rpc)
    hidden = _deadlines_hidden(tables, rows)
    grave: Severity = "warning" if timer and not hidden and share >= limits.warning_share else "info"
    same = f" They all lasted about {median} and ended at different moments: a timer ended them" if timer else ""
    if timer:
        same += ", which is not in their grpc-timeout." if not hidden else "."
    if hidden:
        same += " It may have been their deadline: names of header fields were sent before the capture."
    return Finding(
        id=ID,
        title=f"{len(rows):,} of {everything:,} RPCs were cancelled" + (f" after {median}" if timer else ""),
        severity=grave,
        confidence=lower("low" if hidden else "medium" if timer else "high", quality_allows(tables)),
        scope=Scope(common.connections_of(tables, rows.rpc), common.methods_of(tables, rows.rpc)),
        lost_ns=None,
        share=None,
        metrics=_metrics(rows, everything) | {"cancelled_by_method": common.listed(methods)},
        evidence=tuple(common.spans(tables, rows, limits.examples)),
        explanation=(
            f"{len(rows):,} of {everything:,} RPCs ({share:.1%}) were cancelled, {_who(rows)}: "
            f"{common.listed(methods)}. The median lasted {median}.{same}"
            + ("" if timer else " Whether the application meant it is not on the wire.")
        ),
        remedies=_remedies(timer),
        references=("https://grpc.io/docs/guides/cancellation/", "grpc/grpc doc/PROTOCOL-HTTP2.md, Errors"),
        verdict=f"{len(rows):,} of {everything:,} RPCs ({share:.1%}) were cancelled, {_who(rows)}.{same}",
    )


def _deadlines_hidden(tables: Tables, rows: Failed) -> bool:
    """Whether a `grpc-timeout` may be among the fields that connections begun before the capture do not show."""
    unnamed = tables.rpcs.flags[rows.rpc] & METHOD_UNKNOWN != 0
    late = tables.connections.complete[tables.rpcs.connection[rows.rpc]] == 0
    return bool(((unnamed | late) & (rows.deadline_ns < 0)).any())


def _one_timer(tables: Tables, rows: Failed, limits: Limits) -> bool:
    """Whether they lasted equally long but ended apart: calls begun together and stopped together do not count."""
    if len(rows) < limits.timer_rpcs:
        return False
    low, median, high = (float(value) for value in np.quantile(rows.duration_ns, (0.1, 0.5, 0.9)))
    first, last = np.quantile(tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns, (0.1, 0.9))
    alike = median >= limits.timer_ns and high - low <= limits.same_time * median
    return bool(alike and last - first >= limits.apart * max(high - low, limits.timer_ns))


def _who(rows: Failed) -> str:
    counts = [int((rows.reset_by == side).sum()) for side in (0, 1, common.NOBODY)]
    texts = ("by the client", "by the server", "with status CANCELLED")
    return ", ".join(f"{count:,} {text}" for count, text in zip(counts, texts, strict=True) if count)


def _metrics(rows: Failed, everything: int) -> dict[str, int | float | str]:
    return {
        "cancelled_rpcs": len(rows),
        "rpcs": everything,
        "cancelled_share": len(rows) / everything,
        "reset_by_client_rpcs": int((rows.reset_by == 0).sum()),
        "reset_by_server_rpcs": int((rows.reset_by == 1).sum()),
        "with_deadline_rpcs": int((rows.deadline_ns > 0).sum()),
        "duration_p50_ns": int(np.median(rows.duration_ns)),
        "cancelled_rpc_time_ns": total_ns(rows.duration_ns),
    }


def _remedies(timer: bool) -> tuple[Remedy, ...]:
    stop = Remedy(
        "application",
        "look at cancellation in the handler",
        "stops work that nobody waits for; Go ctx.Done(), C++ ServerContext::IsCancelled(), Java "
        "Context.current().isCancelled(), Python context.is_active()",
    )
    if not timer:
        return (stop,)
    find = Remedy(
        "application", "find the timer of that length in the client", "as a gRPC deadline it reaches the server, too"
    )
    envoy = Remedy(
        "Envoy", "route.timeout: 0s, or max_stream_duration", "for long calls: 15 s is the default of a route's timeout"
    )
    return (find, envoy, stop)
