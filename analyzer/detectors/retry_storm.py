"""Retries are a large part of the load.

What it finds
-------------
A server in trouble gets more requests than its clients have calls. Clients retry failed calls so often that the retries
are a large part of all requests.

The report says how many attempts a call takes, how long clients wait between them, and how many calls failed in the
end.

How it is decided
-----------------
gRPC libraries number the attempts of a call: a retry carries `grpc-previous-rpc-attempts` with 1 or more (gRFC A6).
Such a request is a retry if an attempt of the same client and method with the number before had failed. The back-off
is the time from the end of that attempt to the retry.

A request that began while the attempt before it was open is hedged, which is no retry, and so are the other ones of
its client and method. Hedging sends more requests, too, but by choice, and it is not counted here.

Retries of an application carry no number. They show by what follows a failure: within a second the client sends a
request of the same method with equally many message bytes, on the same connection. After an answer, or after the last
attempt that it makes, it does not. A caller in a loop sends the same in both cases, so it is not counted. Statuses that
no repetition mends, such as `NOT_FOUND`, do not count. Envoy, and clients like it, keep the `x-request-id` of a call in
its next attempt. Then requests with another id are other calls, and a caller in a loop does not hide the retries.

When it cannot tell
-------------------
Requests whose header fields are not all known, as after a late begin of the capture, may have a number, and are not
compared. Without numbers, retries on another connection or after more than a second look like new calls, and the
finding understates. So do those of a client that never succeeds and never gives up. Many callers whose requests all
have the same size hide retries. A long poll that its deadline ends looks like a retry: the confidence is low then.
Calls with the same `x-request-id` and size that all fail look like attempts of one call. With many calls of one method
at once, the capture does not say which attempt belongs to which call. Then back-offs are taken from the failures in
their order, and calls that failed in the end are counted, not named. An earlier attempt that is not in the capture may
have gone to another server: such requests count as retries. If fewer than ten retries follow a failed attempt in the
capture, these requests may be hedged calls, and the finding is `info`.

What would refute it
--------------------
The client's service config has no `retryPolicy`, and no proxy or application sets `grpc-previous-rpc-attempts`. Or,
without numbers: the application's own count of attempts is one per call.

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

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..facts import evidence, failures, ratings
from ..facts.methods import names
from ..facts.repeats import AGAIN_SHARE, ENDS_SHARE, Repeated, find_repeats
from ..facts.retries import Retries, find_retries
from ..model.detector import About, Cost
from ..model.finding import Confidence, Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..software import intents, settings
from ..tables import Ints, Tables
from ..tables.grouping import distinct

ID = "retry-storm"
ABOUT = About(
    example="recorded/wild/retry-storm.pcap.zst",
    precedence=3,
    weight="retried_share",
    costs=(Cost("retries", "{} sent", "retry"),),
)


class Limits(Struct, frozen=True, eq=False):
    few: int = 10
    """Fewest retries (heuristic: fewer are no storm)."""
    warning_share: float = 0.10
    """A warning from this share of requests (gRFC A6: with its tokenRatio of 0.1, retries stop at about a tenth)."""
    critical_share: float = 0.50
    """Critical from this share (heuristic: more retries than calls)."""
    again_share: float = AGAIN_SHARE
    """Part of the failed attempts without a number that are repeated, at least (heuristic: most of them)."""
    ends_share: float = ENDS_SHARE
    """Part of the calls that ended after which the same request follows, at most (heuristic: no loop does that)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the retries of all connections."""
    if int(tables.connections.retries.sum()) >= limits.few:
        found = find_retries(tables)
        if len(found.retries) + len(found.unpaired) >= limits.few:
            yield _make_finding(tables, found, limits)
            return
    repeats = list(find_repeats(tables, limits.few, limits.again_share, limits.ends_share))
    if repeats:
        yield _report_repeats(tables, repeats, limits)


def _make_finding(tables: Tables, found: Retries, limits: Limits) -> Finding:
    rpcs, again = tables.rpcs, np.r_[found.retries, found.unpaired].astype(np.uint32)
    # rows are limited, the connections' counts are not
    numbered = int(tables.connections.retries.sum())
    retries = round(numbered * len(again) / (len(again) + len(found.hedges)))
    used = set(rpcs.method[again].tolist())
    requests = sum(m.rpcs for m in tables.methods if m.number in used)
    share, attempts = retries / max(tables.rpc_count, 1), requests / max(requests - retries, 1)
    proven, per_call = len(found.retries) >= limits.few, f", {attempts:.1f} attempts per call"
    are = "retries" if proven else "retries or hedged attempts"
    advice = "Find out why attempts fail"
    if len(found.failed):
        advice += f" with {_name_most_frequent(tables, found)}"
    return Finding(
        id=ID,
        title=f"{retries:,} of {tables.rpc_count:,} requests are {are}" + per_call * (not len(found.unpaired)),
        severity=ratings.severity(share, limits.warning_share, limits.critical_share) if proven else "info",
        confidence=ratings.lower("medium" if len(found.unpaired) else "high", ratings.quality_allows(tables)),
        scope=Scope(tuple(distinct(rpcs.connection[again]).tolist()), failures.methods_of(tables, again)),
        metrics=_measure(tables, found, retries, requests) | {"retried_share": share},
        evidence=tuple(_show_retries(tables, found)),
        explanation=" ".join(_explain(tables, found, requests, retries, are)),
        remedies=_REMEDIES,
        references=("gRFC A6", "https://grpc.io/docs/guides/retry/"),
        verdict=(
            f"{_describe_growth(found, requests, retries, are)}: retries are {share:.0%} of the load. {advice}, and "
            "limit retries (retryThrottling)."
            if proven
            else f"{_describe_growth(found, requests, retries, are)}, {share:.0%} of the load: look where the attempts "
            "before went, and why they were not enough."
        ),
    )


def _describe_growth(found: Retries, requests: int, retries: int, are: str) -> str:
    """Say how many calls caused how many requests, if the first attempts are in the capture."""
    if len(found.unpaired):
        return f"{retries:,} of {requests:,} requests are {are}"
    return f"{count(max(requests - retries, 1), 'call')} caused {requests:,} requests"


def _explain(tables: Tables, found: Retries, requests: int, retries: int, are: str) -> Iterator[str]:
    again = np.r_[found.retries, found.unpaired].astype(np.uint32)
    methods, unpaired = failures.by_method(tables, again), len(found.unpaired)
    yield (
        f"{_describe_growth(found, requests, retries, are)} of {next(iter(methods))}"
        f"{' and other methods' * (len(methods) > 1)}{'' if unpaired else f': {retries:,} of them are {are}'}, up to "
        f"{int(tables.rpcs.previous_attempts[again].max()) + 1} attempts of a call."
    )
    if len(found.retries):
        yield (
            f"The attempts before them had mostly failed with {_name_most_frequent(tables, found)}. "
            f"{_describe_back_off(tables, found)} {_describe_outcome(tables, found)}"
        )
    if unpaired:
        yield (
            f"For {count(unpaired, 'request')} no failed or open attempt before is known: it may have gone to another "
            "server."
        )


def _name_most_frequent(tables: Tables, found: Retries) -> str:
    """Name the status with which most attempts failed."""
    return _name_status(Counter(tables.rpcs.status[found.failed].tolist()).most_common(1)[0][0])


def _name_status(status: int) -> str:
    return _core.STATUSES[status] if status < len(_core.STATUSES) else "an unknown status"


def _measure(tables: Tables, found: Retries, retries: int, requests: int) -> dict[str, int | float | str]:
    again, back_offs = np.r_[found.retries, found.unpaired], _list_back_offs(tables, found)
    attempts = round(requests / max(requests - retries, 1), 2)
    return {
        "requests": requests,
        "retries": retries,
        "hedges": len(found.hedges),
        **({"unpaired": len(found.unpaired)} if len(found.unpaired) else {"attempts_per_call": attempts}),
        "most_attempts": int(tables.rpcs.previous_attempts[again].max()) + 1,
        "retries_answered_ok": int((tables.rpcs.status[again] == failures.OK).sum()),
        **{f"back_off_{number}_p50_ns": int(np.median(ns)) for number, ns in back_offs.items()},
    }


def _list_back_offs(tables: Tables, found: Retries) -> dict[int, Ints]:
    """List the times from a failed attempt to the next one, by the number of the retry."""
    rpcs = tables.rpcs
    number = rpcs.previous_attempts[found.retries]
    waits = rpcs.start_time_ns[found.retries] - rpcs.start_time_ns[found.failed] - rpcs.duration_ns[found.failed]
    return {int(one): waits[number == one] for one in distinct(number).tolist()}


def _describe_back_off(tables: Tables, found: Retries) -> str:
    back_offs = _list_back_offs(tables, found)
    medians = [duration(float(np.median(ns))) for ns in back_offs.values()]
    return f"The median back-off before retry {', '.join(map(str, back_offs))} was {', '.join(medians)}."


def _describe_outcome(tables: Tables, found: Retries) -> str:
    """Say how many calls failed after their last retry: failed retries that no other one follows."""
    rpcs = tables.rpcs
    last = found.retries[~np.isin(found.retries, found.failed)]
    failed = int((rpcs.status[last] != failures.OK).sum())
    return f"{failed:,} of {count(len(last), 'retried call')} failed in the end."


def _show_retries(tables: Tables, found: Retries) -> Iterator[Evidence]:
    rpcs = tables.rpcs
    order = np.argsort(-rpcs.previous_attempts[found.retries].astype(np.int64), kind="stable")[: evidence.FEW_EXAMPLES]
    for place in order.tolist():
        row, before = int(found.retries[place]), int(found.failed[place])
        status = _name_status(int(rpcs.status[before]))
        yield failures.ended(tables, before, f"attempt {rpcs.previous_attempts[row]} fails with {status}")
        what = f"attempt {int(rpcs.previous_attempts[row]) + 1} (grpc-previous-rpc-attempts: "
        what += f"{rpcs.previous_attempts[row]}, connection {rpcs.connection[row]}, stream {rpcs.stream[row]})"
        yield Evidence(int(rpcs.first_packet[row]), int(rpcs.start_time_ns[row]), what)
    for row in found.unpaired[: evidence.FEW_EXAMPLES].tolist():
        what = f"attempt {int(rpcs.previous_attempts[row]) + 1}, and no failed or open one before it is known"
        yield Evidence(int(rpcs.first_packet[row]), int(rpcs.start_time_ns[row]), what)


def _report_repeats(tables: Tables, found: list[Repeated], limits: Limits) -> Finding:
    """Report retries without numbers."""
    r, rows = tables.repeats, np.sort(np.concatenate([one.failed for one in found]))
    methods = {one.method for one in found}
    requests = sum(m.rpcs for m in tables.methods if m.number in methods)
    share, calls = len(rows) / max(tables.rpc_count, 1), max(requests - len(rows), 1)
    ends, followed = sum(len(one.ends) for one in found), sum(one.ends_followed for one in found)
    failed = sum(one.tried for one in found)
    commonest, most = Counter(r.status[rows].tolist()).most_common(1)[0]
    confidence: Confidence = "low" if commonest == failures.DEADLINE_EXCEEDED else "medium"
    status, back_off = _name_status(commonest), int(np.median(r.next_time_ns[rows] - r.time_ns[rows]))
    with_status = failures.name_most(f"with {status}", most, len(rows))
    caused = f"{count(calls, 'call')} caused {requests:,} requests"
    by_id = all(one.by_id for one in found)
    alike = "method, size and x-request-id" if by_id else "method and size"
    return Finding(
        id=ID,
        title=(
            f"{len(rows):,} of {tables.rpc_count:,} requests repeat a failed one, "
            f"{requests / calls:.1f} attempts per call"
        ),
        severity=ratings.severity(share, limits.warning_share, limits.critical_share),
        confidence=ratings.lower(confidence, ratings.quality_allows(tables)),
        scope=Scope(tuple(distinct(r.connection[rows]).tolist()), names(tables, sorted(methods))),
        metrics={
            "requests": requests,
            "retries": len(rows),
            "attempts_per_call": round(requests / calls, 2),
            "most_attempts": int(r.attempt[rows].max()) + 1,
            "back_off_p50_ns": back_off,
            "calls_failed": int((r.status[np.concatenate([one.ends for one in found])] != failures.OK).sum()),
            "retried_share": share,
        },
        evidence=tuple(
            _show_repeats(tables, rows[np.argsort(-r.attempt[rows], kind="stable")][: evidence.FEW_EXAMPLES])
        ),
        explanation=(
            f"After {len(rows):,} of {count(failed, 'failed attempt')}{with_status}, the client sent a "
            f"request of the same {alike} again, after {duration(back_off)} in the median. After the end "
            f"of a retried call it did so {followed:,} of {ends:,} times. So {caused}. They carry no "
            "grpc-previous-rpc-attempts, so no retryPolicy of the gRPC library makes them."
        ),
        remedies=(*(settings.list_common(intents.RETRIES) if by_id else ()), _APPLICATION),
        references=("gRFC A6", "https://grpc.io/docs/guides/retry/"),
        verdict=(
            f"{caused}: retries are {share:.0%} of the load. Find out why attempts fail with {status}, and limit the "
            "client's retries."
        ),
    )


def _show_repeats(tables: Tables, rows: Ints) -> Iterator[Evidence]:
    r = tables.repeats
    for row in rows.tolist():
        where, attempt = f"connection {r.connection[row]}, stream", int(r.attempt[row])
        what = f"attempt {attempt} fails with {_name_status(int(r.status[row]))} ({where} {r.stream[row]})"
        yield evidence.show_packet(r, "packet", row, what)
        what = f"attempt {attempt + 1} of the same method and size ({where} {r.next_stream[row]})"
        yield evidence.show_packet(r, "next_packet", row, what)


_APPLICATION = Remedy(
    "application",
    "fewer attempts, a back-off that doubles and varies, and a limit on the share of retries",
    "client: no setting of the library limits retries that the application makes itself",
)
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
