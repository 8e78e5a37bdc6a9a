"""Retries are a large part of the load.

What it finds
-------------
Clients that send failed calls again, so often that the retries are a large part of all requests. A server in trouble
gets more load by them, not less. The report says how many attempts a call takes, how long clients wait between them,
and how many calls failed in the end.

How it is decided
-----------------
gRPC libraries number the attempts of a call: a retry carries `grpc-previous-rpc-attempts` with 1 or more (gRFC A6).
Such a request is a retry if an attempt of the same client and method with the number before had failed. The back-off
is the time from the end of that attempt to the retry.

A request that began before the attempt before it had failed is hedged, which is no retry. Hedging sends more requests,
too, but by choice, and it is not counted here.

When it cannot tell
-------------------
Retries of an application, of a proxy, and transparent retries of the library carry no number: they look like new
calls, and the finding understates. With many calls of one method at once the capture does not say which attempt
belongs to which call. Then back-offs are taken from the failures in their order, and calls that failed in the end are
counted, not named.

What would refute it
--------------------
The client's service config has no `retryPolicy`, and no proxy or application sets `grpc-previous-rpc-attempts`.

What to do
----------
Find out why the first attempts fail: the status is in the finding. Then limit what retries may add: `retryThrottling`
in the service config stops them when too many fail, fewer `maxAttempts`, a longer back-off. A server can ask clients
to wait or to stop with `grpc-retry-pushback-ms`.

References
----------
- gRFC A6 (client retries): retryPolicy, retryThrottling, grpc-previous-rpc-attempts, hedging
- https://grpc.io/docs/guides/retry/
- Google SRE book, chapter 22 (Addressing Cascading Failures)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count
from ..tables import Ints, Tables
from . import _failures, _figures, _retries, _shared
from ._retries import Retries

ID = "retry-storm"
ABOUT = About(
    example="recorded/wild/retry-storm.pcap.zst",
    figure=_figures.nothing_seen,
    precedence=3,
    weight="retried_share",
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    few: int = 10
    """Fewest retries (heuristic: fewer are no storm)."""
    warning_share: float = 0.10
    """A warning from this share of requests (gRFC A6: with its tokenRatio of 0.1, retries stop at about a tenth)."""
    critical_share: float = 0.50
    """Critical from this share (heuristic: more retries than calls)."""
    examples: int = 2
    """Retries shown as evidence (heuristic: enough to look one up)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the retries of all connections."""
    if int(tables.connections.retries.sum()) < limits.few:
        return
    found = _retries.find_retries(tables)
    if len(found.retries) >= limits.few:
        yield _make_finding(tables, found, limits)


def _make_finding(tables: Tables, found: Retries, limits: Limits) -> Finding:
    rpcs, methods = tables.rpcs, _failures.by_method(tables, found.retries.astype(np.uint32))
    # rows are limited, the connections' counts are not
    retries = int(tables.connections.retries.sum()) - len(found.hedges)
    requests = sum(m.rpcs for m in tables.methods if m.number in set(rpcs.method[found.retries].tolist()))
    calls = max(requests - retries, 1)
    share, attempts = retries / max(tables.rpc_count, 1), requests / calls
    connections = tuple(_shared.distinct(rpcs.connection[found.retries]).tolist())
    statuses = Counter(rpcs.status[found.failed].tolist())
    status = _name_status(statuses.most_common(1)[0][0])
    grew = f"{count(calls, 'call')} caused {requests:,} requests"
    return Finding(
        id=ID,
        title=f"{retries:,} of {tables.rpc_count:,} requests are retries, {attempts:.1f} attempts per call",
        severity=_shared.severity(share, limits.warning_share, limits.critical_share),
        confidence=_shared.quality_allows(tables),
        scope=Scope(connections, _failures.methods_of(tables, found.retries.astype(np.uint32))),
        metrics=_measure(tables, found, retries, requests)
        | {"attempts_per_call": round(attempts, 2), "retried_share": share},
        evidence=tuple(_show_retries(tables, found, limits)),
        explanation=(
            f"{grew} of {next(iter(methods))}"
            f"{' and other methods' * (len(methods) > 1)}: {retries:,} of them are retries, up to "
            f"{int(rpcs.previous_attempts[found.retries].max()) + 1} attempts of a call. The attempts before had "
            f"mostly failed with {status}. {_describe_back_off(tables, found)} {_describe_outcome(tables, found)}"
        ),
        remedies=_REMEDIES,
        references=("gRFC A6", "https://grpc.io/docs/guides/retry/"),
        verdict=(
            f"{grew}: retries are {share:.0%} of the load. Find out why attempts fail with {status}, and limit retries "
            "(retryThrottling)."
        ),
    )


def _name_status(status: int) -> str:
    return _core.STATUSES[status] if status < len(_core.STATUSES) else "an unknown status"


def _measure(tables: Tables, found: Retries, retries: int, requests: int) -> dict[str, int | float | str]:
    back_offs = _list_back_offs(tables, found)
    return {
        "requests": requests,
        "retries": retries,
        "hedges": len(found.hedges),
        "most_attempts": int(tables.rpcs.previous_attempts[found.retries].max()) + 1,
        "retries_answered_ok": int((tables.rpcs.status[found.retries] == _failures.OK).sum()),
        **{f"back_off_{number}_p50_ns": int(np.median(ns)) for number, ns in back_offs.items()},
    }


def _list_back_offs(tables: Tables, found: Retries) -> dict[int, Ints]:
    """List the times from a failed attempt to the next one, by the number of the retry."""
    rpcs = tables.rpcs
    number = rpcs.previous_attempts[found.retries]
    waits = rpcs.start_time_ns[found.retries] - rpcs.start_time_ns[found.failed] - rpcs.duration_ns[found.failed]
    return {int(one): waits[number == one] for one in _shared.distinct(number).tolist()}


def _describe_back_off(tables: Tables, found: Retries) -> str:
    medians = [_shared.milliseconds(float(np.median(ns))) for ns in _list_back_offs(tables, found).values()]
    return f"The median back-off before retry 1{f' to {len(medians)}' * (len(medians) > 1)} was {', '.join(medians)}."


def _describe_outcome(tables: Tables, found: Retries) -> str:
    """Say how many calls failed after their last retry: failed retries that no other one follows."""
    rpcs = tables.rpcs
    last = found.retries[~np.isin(found.retries, found.failed)]
    failed = int((rpcs.status[last] != _failures.OK).sum())
    return f"{failed:,} of {count(len(last), 'retried call')} failed after the last attempt as well."


def _show_retries(tables: Tables, found: Retries, limits: Limits) -> Iterator[Evidence]:
    rpcs = tables.rpcs
    order = np.argsort(-rpcs.previous_attempts[found.retries].astype(np.int64), kind="stable")[: limits.examples]
    for place in order.tolist():
        row, before = int(found.retries[place]), int(found.failed[place])
        status = _name_status(int(rpcs.status[before]))
        yield _failures.ended(tables, before, f"attempt {rpcs.previous_attempts[row]} fails with {status}")
        what = f"attempt {int(rpcs.previous_attempts[row]) + 1} (grpc-previous-rpc-attempts: "
        what += f"{rpcs.previous_attempts[row]}, connection {rpcs.connection[row]}, stream {rpcs.stream[row]})"
        yield Evidence(int(rpcs.first_packet[row]), int(rpcs.start_time_ns[row]), what)


_REMEDIES = (
    Remedy(
        "any gRPC implementation",
        '"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1} in the service config',
        "client: stops retries while many attempts fail; then calls fail at once",
    ),
    Remedy(
        "any gRPC implementation",
        '"retryPolicy" with fewer "maxAttempts" and a longer "initialBackoff"',
        "client: less load; a call that would have succeeded later fails",
    ),
    Remedy(
        "application",
        "the trailer grpc-retry-pushback-ms",
        "server: tells clients how long to wait, or, when negative, not to retry",
    ),
)
