"""A proxy or a web server answered RPCs with an HTTP status.

What it finds
-------------
Calls fail because somebody answered them with an HTTP status or a web page instead of a gRPC response: 502 when the
backend is down, 504 when it took too long, 401 without valid credentials. The report names the status, the software
that answered, and what gRPC makes of it.

How it is decided
-----------------
A response of gRPC has `:status` 200 and a `content-type` that begins with `application/grpc`. Counted are responses
without `grpc-status` that have another `:status` or another `content-type`. The software is the first product of the
response's `server` field, a known proxy in `via`, or a proxy that the server's SETTINGS look like. gRPC's specification
maps each HTTP status to a gRPC status. The client may reset the stream before the page arrives: the status counts, not
the reset.

When it cannot tell
-------------------
Whether a proxy or the server itself answered, if the response names no software. Why: the reason stands in the log of
the software that answered.

What would refute it
--------------------
`:status` 200 and a `content-type` of gRPC in these responses, as Wireshark shows them.

What to do
----------
Look in the log of the software that answered, at the times of the evidence.

- 502, 503: its backend is down, refuses connections, or does not speak HTTP/2 on that port.
- 504, 408: its backend did not respond in time; compare its timeout with the time that the RPCs took.
- 401, 403, redirects: authentication.
- 404, 405, 415: no route for this path, or a server that does not speak gRPC.
- 413, 431: a limit on the size of bodies or of header fields; 429: a limit on the rate.

References
----------
- grpc/grpc doc/http-grpc-status-mapping.md
- grpc/grpc doc/PROTOCOL-HTTP2.md, section Responses
- RFC 9110 section 15: HTTP status codes
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from .. import _core
from ..facts import failures as common
from ..facts import software_at
from ..facts.evidence import FEW_EXAMPLES
from ..facts.failures import Failed
from ..facts.hosts import name_hosts
from ..facts.ratings import quality_allows
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import duration
from ..software import intents, settings, timers
from ..software.recognise import recognise
from ..tables import NO_AGENT, Tables
from ..tables.durations import total_ns

ID = "proxy-error"
ABOUT = About(
    example="recorded/wild/nginx-http-statuses.pcap.zst",
    precedence=2,
    weight="refused_share",
    costs=(Cost("refused_rpcs", "{} refused"),),
    proxy_faults=("changed_status",),
)
_STATUSES = 5
"""HTTP statuses shown, the most frequent first."""


Limits = common.Rates


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all RPCs that got an HTTP status instead of a response of their protocol."""
    rows = common.failed(tables)
    rows = rows.where(common.refused(rows))
    if len(rows):
        yield _make_finding(tables, rows, limits)


def _make_finding(tables: Tables, rows: Failed, limits: Limits) -> Finding:
    everything, share = tables.rpc_count, len(rows) / tables.rpc_count
    statuses = Counter(int(code) for code in rows.http_status.tolist())
    connections = common.connections_of(tables, rows.rpc)
    who = _name_answerers(tables, rows, connections)
    by = " and ".join(who) or name_hosts(tables, connections, 1)
    answers = ", ".join(f"{code} {n:,} times" for code, n in statuses.most_common(_STATUSES))
    ((most, number),) = statuses.most_common(1)
    mostly = common.name_most(str(most), number, len(rows)) if 2 * number > len(rows) else ""
    median = float(np.median(rows.duration_ns))
    read_as = ", ".join(_core.STATUSES[code] for code, _ in Counter(rows.status.tolist()).most_common())
    reason, named = _explain_status(most), (rows.answered_by != NO_AGENT).any()
    return Finding(
        id=ID,
        title=f"{len(rows):,} of {everything:,} RPCs got an HTTP status from {by}{mostly}",
        severity=common.severity_of_count(len(rows), everything, limits),
        confidence=quality_allows(tables),
        scope=Scope(connections, common.methods_of(tables, rows.rpc)),
        metrics=_measure(tables, rows, statuses) | {"answered_by": ", ".join(who) or "unknown"},
        evidence=tuple(_show_examples(tables, rows, statuses)),
        explanation=(
            f"{len(rows):,} of {everything:,} RPCs ({share:.1%}) got an HTTP status instead of a gRPC response from "
            f"{by}: {answers}. {reason} gRPC reads these statuses as {read_as}. "
            f"The RPCs took {duration(median)} (median)."
            + ("" if named else " The responses do not name the software that sent them.")
        ),
        remedies=_list_remedies(most, who, median, software_at.recognise_server(tables, connections)),
        references=("grpc/grpc doc/http-grpc-status-mapping.md", "RFC 9110 section 15"),
        verdict=(
            f"{len(rows):,} of {everything:,} RPCs ({share:.1%}) got HTTP {_list_codes(statuses)} from {by}. {reason}"
        ),
    )


def _list_codes(statuses: Counter[int]) -> str:
    codes = [str(code) for code, _ in statuses.most_common(3)]
    return codes[0] if len(codes) == 1 else f"{', '.join(codes[:-1])} and {codes[-1]}"


def _name_answerers(tables: Tables, rows: Failed, connections: tuple[int, ...]) -> list[str]:
    """Name the software that answered, the most frequent first; by its SETTINGS where the responses do not name it."""
    names = Counter(common.software(tables, int(agent)) for agent in rows.answered_by.tolist())
    named = [name for name, _ in names.most_common(3) if name]
    inferred = software_at.recognise_proxy(tables, connections)
    return named or ([f"{inferred} (by its SETTINGS)"] if inferred else [])


def _measure(tables: Tables, rows: Failed, statuses: Counter[int]) -> dict[str, int | float | str]:
    return {
        "refused_rpcs": len(rows),
        "rpcs": tables.rpc_count,
        "refused_share": len(rows) / tables.rpc_count,
        **{f"http_{code}_rpcs": n for code, n in statuses.most_common(10)},
        "refused_by_method": common.listed(common.by_method(tables, rows.rpc)),
        "refused_rpc_time_ns": total_ns(rows.duration_ns),
    }


def _show_examples(tables: Tables, rows: Failed, statuses: Counter[int]) -> Iterator[Evidence]:
    """Yield the packets of some RPCs of each HTTP status."""
    for code, _ in statuses.most_common(_STATUSES):
        for place in np.flatnonzero(rows.http_status == code)[:FEW_EXAMPLES]:
            rpc = int(rows.rpc[place])
            yield common.began(tables, rpc)
            yield common.ended(tables, rpc, common.reset_words(tables, rows, int(place)))


_REASONS = {
    400: "400 means that the request was malformed for it, often a header field that is too large.",
    401: "401 means that it wants valid credentials.",
    403: "403 means that it forbids the request.",
    404: "404 means that it has no route for this path.",
    405: "405 means that it does not allow POST on this path: it serves no gRPC there.",
    408: "408 means that it did not receive the request in time.",
    413: "413 means that the request body is larger than its limit.",
    415: "415 means that it does not take application/grpc: it serves no gRPC there.",
    429: "429 means that it limits the rate of requests.",
    431: "431 means that the header fields are larger than its limit.",
    464: "464 means that the versions of HTTP do not match (AWS load balancers).",
    502: "502 means that its backend refused, closed, did not speak the protocol, or did not respond in time.",
    503: "503 means that it was overloaded or out of service; from a proxy, that no backend was there or answered.",
    504: "504 means that its backend did not respond in time.",
}
"""What HTTP statuses mean (RFC 9110 section 15, RFC 6585; 464 as AWS documents it)."""


def _explain_status(code: int) -> str:
    if code == common.HTTP_OK:
        return "200 with a media type that is not gRPC's means a page, often of a login or of an error."
    if 300 <= code < 400:
        return f"{code} is a redirect, often to a login; gRPC clients do not follow it."
    return _REASONS.get(code, f"Its log says what {code} means there.")


_TOO_LARGE = 431
_INTENTS = {413: intents.BODY_SIZE, 502: intents.BACKEND, 503: intents.HEALTH}
"""What to set for HTTP statuses, besides timers."""


def _list_remedies(code: int, who: list[str], time_ns: float, server: str | None) -> tuple[Remedy, ...]:
    """List the log first, then the settings of the software that answered, or of all if it is unknown.

    The responses name it, or its SETTINGS show it.
    """
    name = who[0].partition(" (")[0] if who else "the software that answered"
    log = Remedy(
        "application", f"the log of {name}", f"says at the times of the evidence why it answered {code}; costs nothing"
    )
    software = recognise(*who[:1]) if who else server
    found = list(settings.list_metadata(software) if code == _TOO_LARGE else settings.list_all(_INTENTS.get(code, "")))
    found += timers.list_answering_timers(code, time_ns, software)
    own = [remedy for remedy in found if remedy.implementation == software]
    return (log, *(own if who or own else found))
