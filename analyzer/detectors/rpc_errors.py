"""RPCs ended with an error status.

What it finds
-------------
Calls fail: their status is not OK. The report counts them by status and by method.

The status is what the client sees: the `grpc-status` of the trailers, or what gRPC derives from an RST_STREAM of the
server, from END_STREAM without trailers, or from a connection that the server closed. `DEADLINE_EXCEEDED`,
`CANCELLED`, and RPCs that got an HTTP status have findings of their own (`deadline-exceeded`, `cancelled`,
`proxy-error`) and are left out. The text of the error (`grpc-message`) may hold anything: it is shown with
`--show-messages` only. Texts that a gRPC implementation or Envoy writes itself are always shown. Where most failures
have one, the report says what it means and names the setting.

How it is decided
-----------------
By the status on the wire. The severity follows the share of all RPCs that failed; one or two errors alone are
`info`, unless all RPCs failed. A status is a fact; only the application knows whether it is a fault. `NOT_FOUND` may
be an ordinary result.
Where most ended right after bytes of their client that break HTTP/2, the finding says so: some servers answer these in
trailers and without a GOAWAY, as C-core does.

Where a capture begins in the middle of a connection, the status is hidden in header fields that were sent before. A
unary call that ends with OK has a response message. So calls with one request message and no response message most
probably failed. They are reported with low confidence, because a server stream may be empty, and with medium confidence
where their last header fields are not those of answered calls. Methods with more messages than unary calls have are
streams and are left out.

When it cannot tell
-------------------
Other RPCs whose status is not in the capture are counted neither as failed nor as good. The reason may be cut packets,
missing packets, or header fields sent before the capture began. What an interceptor made of the error is not on the
wire. A server may pass on the text that it got from a server behind it.

Where an application sends the same request again after failures, and not after answers, the report says so (as in
`retry-storm`). Among callers who send equal requests all the time that does not show, and each failure counts.

What would refute it
--------------------
The client's own count of statuses differs, although the capture has all RPCs with their status.

What to do
----------
Look for the status in the server's log at the times given.

- `UNAVAILABLE` and `RESOURCE_EXHAUSTED`: the path or limits.
- `UNAVAILABLE` by REFUSED_STREAM: the client had more streams open than the server allows, as before it has the
  server's SETTINGS, or the server stops. Run these calls again: the server has not begun them.
- `UNIMPLEMENTED`: the server does not have the method; different versions, or the wrong port or proxy.
- `INTERNAL` and `UNKNOWN`: a fault in the server's code, or of a proxy between.
- `UNAUTHENTICATED` and `PERMISSION_DENIED`: credentials.

A retry policy in the service config hides `UNAVAILABLE`, at the price of more load.

References
----------
- https://grpc.io/docs/guides/status-codes/, grpc/grpc doc/statuscodes.md
- grpc/grpc doc/PROTOCOL-HTTP2.md, sections Responses and Errors; doc/http-grpc-status-mapping.md
- gRFC A6: client retries, retryPolicy in the service config
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from .. import _core
from ..facts import breaches as http2_breaches
from ..facts import draining, failures, repeats, software_at
from ..facts.evidence import FEW_EXAMPLES
from ..facts.failures import Failed
from ..facts.hosts import host
from ..facts.ratings import quality_allows
from ..facts.vantage import reaction_ns
from ..model.analysis import Analysis
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Severity, Skipped
from ..model.text import count, duration
from ..software import texts as known_texts
from ..tables import ERROR_CODES, NOT_SEEN, Ints, Tables
from ..tables.durations import total_ns

ID = "rpc-errors"


def _write_figure(analysis: Analysis) -> str:
    ok = sum(method.statuses.get("OK", 0) for method in analysis.methods)
    unseen = sum(method.statuses.get("not_seen", 0) for method in analysis.methods)
    text = f"{ok:,} of {count(analysis.totals.rpcs, 'RPC')} ended with OK"
    return text + (f"; the status of {unseen:,} is not in the capture" if unseen else "")


ABOUT = About(
    example="recorded/rpc-errors.pcap",
    figure=_write_figure,
    caused_by=(
        "message-too-large",
        "peer-unreachable",
        "idle-connection-cut",
        "forged-reset",
        "keepalive-timeout",
        "too-many-pings",
        "connection-closed-early",
        "abrupt-goaway",
        "lost-answer",
        "stream-timeout",
        "retry-storm",
    ),
    precedence=4,
    weight="failed_share",
    one_direction=True,
    costs=(Cost("failed_rpcs", "{} failed"),),
    explains=("other_statuses",),
    proxy_faults=("changed_status",),
)
_STATUSES = 5
"""Statuses shown, the most frequent first."""


Limits = failures.Rates


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all RPCs that ended with an error status, or most probably did so."""
    every = failures.failed(tables)
    if not len(every):
        return
    others = (failures.OK, failures.CANCELLED, failures.DEADLINE_EXCEEDED, NOT_SEEN)
    rows = every.where(~np.isin(every.status, others) & ~failures.refused(every))
    unreadable = failures.find_unreadable(tables, every)
    if len(unreadable) > len(rows):
        yield _make_unreadable(tables, unreadable, len(rows), limits)
    elif len(rows):
        yield _make_finding(tables, rows, limits)


def _make_unreadable(tables: Tables, rows: Failed, others: int, limits: Limits) -> Finding:
    """Report RPCs that ended as failed ones do, with a hidden status; `others` ended with the status of an error."""
    methods = failures.by_method(tables, rows.rpc)
    ended = f"{len(rows):,} of {count(tables.rpc_count, 'RPC')} ended without a response message"
    differ = int((rows.source == failures.OTHER_TRAILERS).sum())
    of_answered = f" {differ:,} of them ended with other header fields than those that were answered." if differ else ""
    more = f" {others:,} more ended with the status of an error." if others else ""
    known = failures.methods_of(tables, rows.rpc)
    named = f" ({next(iter(methods))})" if next(iter(methods)) in known else ""
    severity = failures.severity_of_count(len(rows) + others, tables.rpc_count, limits)
    return Finding(
        id=ID,
        title=f"{ended}, most probably with an error",
        severity="warning" if severity == "critical" and not differ else severity,
        confidence="medium" if differ else "low",
        scope=Scope(failures.connections_of(tables, rows.rpc), known),
        metrics={
            "failed_rpcs": len(rows) + others,
            "unreadable_rpcs": len(rows),
            "rpcs": tables.rpc_count,
            "failed_share": (len(rows) + others) / tables.rpc_count,
            "failed_by_method": failures.listed(methods),
            "failed_rpc_time_ns": total_ns(rows.duration_ns),
        },
        evidence=tuple(
            failures.ended(tables, int(rpc), failures.reset_words(tables, rows, place))
            for place, rpc in enumerate(rows.rpc[:FEW_EXAMPLES])
        ),
        explanation=(
            f"{ended}. A unary call that ends with OK has one, so these failed, unless they are server streams without "
            f"a message.{of_answered} Their status stands in header fields that were sent before the capture. "
            f"By method: {failures.listed(methods)}.{more}"
        ),
        remedies=(
            Remedy("tcpdump", "start it before the client", "the capture then has each status; costs nothing"),
            Remedy("application", "the server's log at the times of the evidence", "says what failed; costs nothing"),
        ),
        references=("grpc/grpc doc/PROTOCOL-HTTP2.md, Responses", "RFC 7541 section 2.3.2 (the dynamic table)"),
        verdict=f"{ended}, most probably with an error{named}: look in the server's log, or start the capture before "
        "the client.",
    )


def _make_finding(tables: Tables, rows: Failed, limits: Limits) -> Finding:
    counts = Counter(int(code) for code in rows.status.tolist())
    statuses = {_core.STATUSES[code]: count for code, count in counts.most_common()}
    first = next(iter(statuses))
    methods = failures.by_method(tables, rows.rpc)
    retries = int(tables.connections.retries.sum())
    # of a call that failed in the end one attempt more failed than was retried
    again = _find_sent_again(tables)
    left = max(len(failures.failed(tables)) - retries - len(again), 0)
    texts = failures.count_texts(tables, rows.rpc)
    known = known_texts.find_most_frequent(texts)
    refused = _explain_refused(tables, rows)
    counted = _count_calls(retries, left) or _count_sent_again(tables, again, left)
    connections = failures.connections_of(tables, rows.rpc)
    log = _name_log(tables, rows, connections)
    breach, by_breach = _find_breach(tables, rows)
    advice = (
        by_breach
        or known_texts.advise(known, len(rows))
        or refused
        or _say_text(tables, rows, texts)
        or f"Look in {log} at the times of the evidence."
    )
    mostly = _name_endings(rows) or _name_most(statuses, len(rows))
    failed = f"{len(rows):,} of {tables.rpc_count:,} RPCs"
    share = len(rows) / tables.rpc_count
    return Finding(
        id=ID,
        title=f"{failed} ended with an error status{mostly}",
        severity=_judge(tables, rows, (left, tables.rpc_count - retries - len(again)), limits),
        confidence=quality_allows(tables),
        scope=Scope(connections, failures.methods_of(tables, rows.rpc)),
        metrics=_measure(tables, rows, statuses, methods),
        evidence=(
            *((http2_breaches.show_breach(tables, breach),) if by_breach else ()),
            *_show_examples(tables, rows, statuses),
        ),
        explanation=(
            f"{failed} ({share:.1%}) ended with a status other than OK: {failures.listed(statuses, len(statuses))}. "
            f"By method: {failures.listed(methods)}. Together they took {duration(total_ns(rows.duration_ns))}. "
            f"{refused or _explain_endings(rows, first)}{_quote_texts(texts)}{counted} RPCs that "
            "missed a deadline, were cancelled, or got an HTTP status are not counted."
        ),
        remedies=(
            *((http2_breaches.make_remedy(tables, breach),) if by_breach else ()),
            *((known_texts.make_remedy(known[0]),) if known else ()),
            *((_AGAIN,) if refused else ()),
            *_list_remedies(first, _look_into(tables, rows, log, first), again=retries > 0 or len(again) > 0),
        ),
        references=(
            "https://grpc.io/docs/guides/status-codes/",
            "grpc/grpc doc/PROTOCOL-HTTP2.md, Errors",
            "gRFC A6 (client retries)",
        ),
        verdict=f"{failed} ({share:.1%}) failed{mostly} ({next(iter(methods))}).{counted} {advice}",
    )


def _say_text(tables: Tables, rows: Failed, texts: dict[str, int]) -> str:
    """Quote the server's own text where it is shown, or say where it is."""
    if not texts:
        return failures.announce_withheld(tables, rows.rpc)
    text, times = next(iter(texts.items()))
    return f'The server says: "{text}" ({times:,} of {len(rows):,}).'


def _judge(tables: Tables, rows: Failed, left_of: tuple[int, int], limits: Limits) -> Severity:
    """Judge by the share that failed: `info` if GOAWAY refused all, `critical` only if so many failed in the end.

    `left_of` has these calls and all calls, each counted once however often it was repeated.
    """
    if draining.mark_refused(tables, rows.rpc).all():  # `abrupt-goaway` says how severe that is
        return "info"
    severity = failures.severity_of_count(len(rows), tables.rpc_count, limits)
    is_critical = failures.severity_of_count(*left_of, limits) == "critical"
    return "warning" if severity == "critical" and not is_critical else severity


def _measure(
    tables: Tables, rows: Failed, statuses: dict[str, int], methods: Mapping[str, int]
) -> dict[str, int | float | str]:
    return {
        "failed_rpcs": len(rows),
        "rpcs": tables.rpc_count,
        "failed_share": len(rows) / tables.rpc_count,
        **{f"{status.lower()}_rpcs": count for status, count in statuses.items()},
        "failed_by_method": failures.listed(methods),
        "failed_rpc_time_ns": total_ns(rows.duration_ns),
    }


def _name_log(tables: Tables, rows: Failed, connections: tuple[int, ...]) -> str:
    """Name the log to look in: a proxy's, if a known one ended most streams without a status."""
    proxy = software_at.recognise_proxy(tables, connections) if _are_broken_off(rows) else None
    return f"the log of {proxy}" if proxy else "the server's log"


def _name_endings(rows: Failed) -> str:
    """Name END_STREAM without trailers, if most of the RPCs ended so; nothing otherwise."""
    ended = int(failures.without_trailers(rows).sum())
    return failures.name_most("by END_STREAM without trailers", ended, len(rows)) if _are_broken_off(rows) else ""


def _find_breach(tables: Tables, rows: Failed) -> tuple[int, str]:
    """Find the client's bytes that break HTTP/2 behind which most of the RPCs ended, and say so; -1 and "" for none."""
    breaches = http2_breaches.find_breaches(tables)
    if not breaches:
        return -1, ""
    on = tables.rpcs.connection[rows.rpc]
    within = reaction_ns(tables, on, 1, http2_breaches.ANSWERED_NS).tolist()
    ends = (tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns).tolist()
    found = [
        (http2_breaches.find_answered(tables, breaches.get(one, ()), 1, end, most), end)
        for one, end, most in zip(on.tolist(), ends, within, strict=True)
    ]
    behind = [(breach, end) for breach, end in found if breach >= 0]
    if 2 * len(behind) <= len(rows):
        return -1, ""
    return behind[0][0], http2_breaches.advise_after_breach(tables, *behind[0])


def _quote_texts(texts: dict[str, int]) -> str:
    """Quote the most frequent texts of errors."""
    if not texts:
        return ""
    return " Most frequent texts: " + ", ".join(f'"{text}" ({n:,})' for text, n in list(texts.items())[:3]) + "."


def _name_most(statuses: dict[str, int], failed: int) -> str:
    """Name the status of most, or the two most frequent ones: `: NOT_FOUND, INTERNAL and others`."""
    first, *others = statuses
    if 2 * statuses[first] > failed:
        return failures.name_most(f"with {first}", statuses[first], failed)
    second, *more = others
    return f": {first}, {second} and others" if more else f": {first} and {second}"


def _show_examples(tables: Tables, rows: Failed, statuses: dict[str, int]) -> Iterator[Evidence]:
    """Yield the last packets of some RPCs of each status."""
    for name in list(statuses)[:_STATUSES]:
        for place in np.flatnonzero(rows.status == _core.STATUSES.index(name))[:FEW_EXAMPLES]:
            yield failures.ended(tables, int(rows.rpc[place]), failures.reset_words(tables, rows, int(place)))


_HINTS = {
    "UNAVAILABLE": "UNAVAILABLE means that the server or the path to it was not available; such calls may be retried.",
    "RESOURCE_EXHAUSTED": "RESOURCE_EXHAUSTED means a quota, a limit on message size, or a server that sheds load.",
    "OUT_OF_RANGE": "OUT_OF_RANGE is set by the application itself, or by tonic for a message above a limit.",
    "UNIMPLEMENTED": "UNIMPLEMENTED means that the server lacks the method or the request's compression: "
    "different versions, or a wrong address.",
    "INTERNAL": "INTERNAL means a broken invariant in the server, a library or a proxy between.",
    "UNKNOWN": "UNKNOWN is the status of a server exception that carries none.",
    "UNAUTHENTICATED": "UNAUTHENTICATED means that credentials were missing or no longer valid.",
    "PERMISSION_DENIED": "PERMISSION_DENIED means that the caller is known but not allowed to make the call.",
}


def _explain_refused(tables: Tables, rows: Failed) -> str:
    """Say why the server refused most of the streams, as far as that is on the wire; nothing if it did not."""
    refused = rows.where((rows.reset_by == 1) & (rows.reset_code == ERROR_CODES.index("REFUSED_STREAM")))
    if 2 * len(refused) <= len(rows):
        return ""
    c, connection = tables.connections, int(np.bincount(tables.rpcs.connection[refused.rpc]).argmax())
    limit, most = int(c.peer_max_concurrent_streams[connection]), int(c.max_concurrent_rpcs[connection])
    client, server = host(tables, connection, 0), host(tables, connection, 1)
    words = f"{server} refused {len(refused):,} of them with REFUSED_STREAM and had not begun them"
    if not 0 <= limit < most:
        fields = software_at.recognise_end(tables, connection, 1) == "haproxy"
        also = " HAProxy does so, too, if a request has too many header fields: look at tune.http.maxhdr."
        return f"{words}, as servers do that stop or have too much to do.{also if fields else ''}"
    return f"{words}: it allows {count(limit, 'stream')} at once, and {client} had {most:,} open."


def _explain_endings(rows: Failed, first: str) -> str:
    """Explain the most frequent status, or that the server sent none."""
    without = int(failures.without_trailers(rows).sum())
    if not without:
        return _HINTS.get(first, f"{first} is set by the application itself.")
    return (
        f"{without:,} of them ended with END_STREAM without trailers, so without a status: a proxy gave up its "
        "backend or dropped its trailers, or a server broke off. gRPC reads this as UNKNOWN, grpc-go as INTERNAL."
    )


def _count_calls(retries: int, left: int) -> str:
    """Say how few calls failed for their application, where libraries retried some; nothing where they did not."""
    if not retries:
        return ""
    few = f"as few as {count(left, 'call')} may have failed in the end" if left else "perhaps no call failed in the end"
    return f" {count(retries, 'RPC')} {'is a retry' if retries == 1 else 'are retries'}: {few}."


def _are_broken_off(rows: Failed) -> bool:
    """Check whether most streams ended without a status, so that the status is the client's reading of that."""
    return 2 * int(failures.without_trailers(rows).sum()) > len(rows)


def _say_why(rows: Failed, status: str) -> str:
    """Say what a log may tell about the failures."""
    if _are_broken_off(rows):
        return "may say why it ended streams without a status, often because it lost its backend"
    if (rows.source != failures.CONNECTION).any():
        return f"says why it responded with {status}"
    return "may say why the connection ended before a response"


_AGAIN = Remedy(
    "any gRPC implementation",
    "a retry of calls that end with REFUSED_STREAM",
    "safe for all methods; most libraries do it, as the server has not begun them (RFC 9113 section 8.7)",
)


def _find_sent_again(tables: Tables) -> Ints:
    """Find the failures, rows of the repeats table, after which the application itself sent the same request again."""
    found = [
        repeated.failed
        for repeated in repeats.find_repeats(tables, failures.FEW, repeats.AGAIN_SHARE, repeats.ENDS_SHARE)
    ]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _count_sent_again(tables: Tables, again: Ints, left: int) -> str:
    """Say after how many failures the same request followed, which is why fewer calls failed; nothing for none."""
    if not len(again):
        return ""
    r = tables.repeats
    after = duration(float(np.median(r.next_time_ns[again] - r.time_ns[again])))
    few = f"as few as {count(left, 'call')} may have failed in the end" if left else "perhaps no call failed in the end"
    return f" After {count(len(again), 'failure')} the same request came again, {after} later (median): {few}."


def _look_into(tables: Tables, rows: Failed, log: str, status: str) -> Remedy:
    """Say where the reason stands: in the server's own texts, or in a log."""
    if len(failures.find_withheld(tables, rows.rpc)):
        return Remedy(
            "application", "grpcdiag analyze FILE --show-messages", "the server's texts, which may hold secrets"
        )
    return Remedy("application", f"{log} at the times of the evidence", f"{_say_why(rows, status)}; costs nothing")


def _list_remedies(status: str, look: Remedy, *, again: bool) -> tuple[Remedy, ...]:
    """List the log first, or what limits the server; a retry policy only where nobody retries yet."""
    retry = Remedy(
        "any gRPC implementation",
        '"retryPolicy" with "retryableStatusCodes": ["UNAVAILABLE"] in the service config',
        "the library retries the call; only for methods that may run twice; more load on a server in trouble",
    )
    size = Remedy(
        "any gRPC implementation",
        "the server's quota or thread pool, or its limit on received messages (4 MiB by default)",
        "the log says which; a larger one costs memory per call",
    )
    more = {"UNAVAILABLE": () if again else (retry,), "RESOURCE_EXHAUSTED": (size,)}
    return (*more.get(status, ()), look) if status == "RESOURCE_EXHAUSTED" else (look, *more.get(status, ()))
