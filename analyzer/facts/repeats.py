"""Requests that clients send again after they failed, without a number: by method, size, time and `x-request-id`."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..tables import Ints, Tables
from ..tables.grouping import group_rows

AGAIN_SHARE = 0.5
"""Part of the failed attempts without a number that are repeated, at least (heuristic: most of them)."""
ENDS_SHARE = 0.1
"""Part of the calls that ended after which the same request follows, at most (heuristic: no loop does that)."""
OK = _core.STATUSES.index("OK")
TRANSIENT = tuple(
    _core.STATUSES.index(name)
    for name in (
        "CANCELLED",
        "UNKNOWN",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "ABORTED",
        "INTERNAL",
        "UNAVAILABLE",
    )
)
"""Statuses after which the same call may succeed; others say what is wrong with it (grpc/grpc doc/statuscodes.md)."""


class Repeated(Struct, frozen=True, eq=False):
    """Calls of one method whose requests are repeated after a failure, and only then."""

    method: int
    failed: Ints
    """Rows of the repeats table: failed attempts that the same request followed."""
    tried: int
    """Failed attempts, other than last ones."""
    ends: Ints
    """Rows: attempts that ended their call, being answered or the last one."""
    ends_followed: int
    """Number of `ends` that the same request followed nevertheless."""
    by_id: bool = False
    """Whether the requests have the `x-request-id` of the failed ones."""


def find_repeats(tables: Tables, few: int, again_share: float, ends_share: float) -> Iterator[Repeated]:
    """Find methods whose failed requests are followed by the same request, while those that ended a call are not.

    A caller in a loop sends the same request after an answer as well. That is the control.
    """
    judged = set()
    for method, rows in group_rows(tables.repeats.method).items():
        same = _judge_by_id(tables, method, rows)
        if len(same.failed) >= few and same.ends_followed <= ends_share * len(same.failed):
            judged.add(method)
            yield same
    r, closed = tables.repeats, tables.connections.closed_time_ns
    last = int(tables.capture["last_time_ns"] or 0)
    until = np.where(closed >= 0, closed, last)[r.connection]
    known = (r.next_stream > 0) | (
        r.time_ns + _core.REPEATED_WITHIN_NS <= until
    )  # later on nothing may have had time to follow
    rows = np.flatnonzero(known)
    for method, places in group_rows(r.method[rows]).items():
        if method in judged:
            continue
        found = _judge(tables, method, rows[places])
        tried_again, ended = len(found.failed), len(found.ends)
        enough = min(tried_again, ended) >= few
        if enough and tried_again >= again_share * found.tried and found.ends_followed <= ends_share * ended:
            yield found


def _judge_by_id(tables: Tables, method: int, rows: Ints) -> Repeated:
    """Judge by `x-request-id` alone. One that a caller uses for many calls follows answers as well."""
    r = tables.repeats
    failed, again, answered = np.isin(r.status[rows], TRANSIENT), r.same_id[rows] == 1, r.status[rows] == OK
    ends = answered | (failed & ~again)
    return Repeated(
        method, rows[failed & again], int(failed.sum()), rows[ends], int((answered & again).sum()), by_id=True
    )


def _judge(tables: Tables, method: int, rows: Ints) -> Repeated:
    r = tables.repeats
    failed, followed = np.isin(r.status[rows], TRANSIENT), r.next_stream[rows] > 0
    last = r.attempt[rows] == r.attempt[rows].max(initial=0)
    tried = failed & ~last
    ends = (r.status[rows] == OK) | (failed & last)
    return Repeated(method, rows[tried & followed], int(tried.sum()), rows[ends], int((ends & followed).sum()))
