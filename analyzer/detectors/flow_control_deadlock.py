"""RPCs stop inside a message for good: a window stays used up, or the client keeps back what the windows allow.

What it finds
-------------
RPCs stop in the middle of a message and do not go on until their deadline. An HTTP/2 window is used up, and no
WINDOW_UPDATE comes.

The receiver's TCP acknowledged every byte, but its application does not read the stream, or its library sends no
WINDOW_UPDATE for them. The report says which window it is, who should refill it, and since when.

Or both windows are open, and the client sends nothing all the same, in any of the streams that the server allows. Then
the server owes nothing: the client's library has set the window aside for calls that wait for a free stream.

How it is decided
-----------------
The RPC is open when the capture ends, or when its client gives it up or closes the connection. If it was given up, for
example at its deadline, one of its messages is incomplete. The sender's stream window or connection window is used up,
or has less than 1 KiB left while more is owed, by all SETTINGS, WINDOW_UPDATE and DATA frames of all streams up to the
RPC's end. That has lasted for 1 s or longer, and for five times the longest earlier wait for a WINDOW_UPDATE on that
connection. The receiver sent packets after the sender's last DATA, so its host is up.

RFC 9113 has no timer for this: without a WINDOW_UPDATE the RPC waits for ever.

Where no window is used up: the client had as many streams open as the server allows, ten or more, all inside a message
of its own. It sent nothing for 1 s or longer with both windows open, and nothing on the way held it.

When it cannot tell
-------------------
Whether the application will read: a slow reader looks the same until its next WINDOW_UPDATE. Its earlier waits show
it. Windows are unknown where the connection's beginning or other bytes are missing. A client whose process is paused
looks like one whose library keeps window back.

What would refute it
--------------------
A longer capture has a WINDOW_UPDATE for this window.

What to do
----------
Look at the receiver: a handler that does not read its stream, or that waits for something else while it holds
unread messages. A larger window only delays the stop. If the connection window is used up, a stream that nobody reads
blocks all others: read every stream to its end, or cancel it.

If the windows are open: update the client's HTTP/2 library, or make no more calls at once than the server allows
streams. h2, which hyper, tonic and reqwest use, gave window to calls without a stream up to version 0.4.12.

References
----------
- RFC 9113 section 5.2 (flow control), section 6.9 (WINDOW_UPDATE)
- hyperium/h2 pull request 860: do not assign capacity for pending streams
- https://grpc.io/docs/guides/flow-control/
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import evidence, hosts, methods, ratings, unanswered
from ..facts.groups import Case, Group, put_together
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration
from ..model.thresholds import CRITICAL_SHARE
from ..tables import DIRECTIONS, Tables
from ..tables.durations import clip_ns

ID = "flow-control-deadlock"
ABOUT = About(
    example="recorded/wild/window-deadlock.pcap.zst",
    precedence=1,
    picture="used_up_window",
)

_ENDS = ("the end", "the client closed the connection", "the client reset the stream")
_WINDOWS = {CAUSES.index("stream_window"): "stream window", CAUSES.index("connection_window"): "connection window"}


class Limits(Struct, frozen=True, eq=False):
    least_ns: int = 1_000_000_000
    """Shortest time without a WINDOW_UPDATE (heuristic: a shorter one may be a slow reader)."""
    factor: float = 5.0
    """The same, in longest earlier waits for one on that connection (heuristic: slow readers are regular)."""
    streams: int = 10
    """Fewest streams that a client leaves inside a message (heuristic: of fewer, each may have a reason of its own)."""
    critical_share: float = CRITICAL_SHARE
    """Critical from this share of RPC time (heuristic: a fifth of all RPC time)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about RPCs that wait until the end for servers, and one about those that wait for clients."""
    stuck: dict[str, list[int]] = {}
    for row in _find_stuck(tables, limits):
        receiver = hosts.host(tables, int(tables.open_rpcs.connection[row]), int(tables.open_rpcs.waits_for[row]))
        stuck.setdefault(receiver, []).append(row)
    if stuck:
        cases = [_make_case(tables, rows) for rows in stuck.values()]
        yield from put_together(tables, cases, lambda group: _make_finding(tables, group, limits))
        return
    pauses = [_make_case_of_pause(tables, row) for row in _find_kept_back(tables, limits)]
    yield from put_together(tables, pauses, lambda group: _make_finding_of_pause(tables, group, limits))


def _make_case_of_pause(tables: Tables, row: int) -> Case[int]:
    lost = clip_ns(int(tables.waits.duration_ns[row]) * int(tables.waits.streams[row]))
    return Case(row, (int(tables.waits.connection[row]),), 0, lost, lost)


def _make_case(tables: Tables, rows: list[int]) -> Case[list[int]]:
    o, receiver = tables.open_rpcs, int(tables.open_rpcs.waits_for[rows[0]])
    connections = tuple(sorted({int(o.connection[row]) for row in rows}))
    lost = clip_ns(sum(_get_wait(tables, row) for row in rows))
    return Case(rows, connections, receiver, len(rows), lost, DIRECTIONS[receiver])


def _find_kept_back(tables: Tables, limits: Limits) -> list[int]:
    """Find where clients kept back what the windows allow, in all streams that the server allows: once a connection."""
    w = tables.waits
    allowed = tables.connections.peer_max_concurrent_streams[w.connection]
    kept = (w.cause == CAUSES.index("client")) & (w.duration_ns >= limits.least_ns)
    kept &= (allowed >= limits.streams) & (w.streams >= allowed)
    kept &= (w.stream_window_bytes > 0) & (w.connection_window_bytes > 0)
    order = np.argsort(-w.duration_ns, kind="stable")
    rows = order[kept[order]]
    return [int(row) for row in rows[np.sort(np.unique(w.connection[rows], return_index=True)[1])]]


def _make_finding_of_pause(tables: Tables, group: Group[int], limits: Limits) -> Finding:
    row = group.facts[0]
    w, connection, streams = tables.waits, int(tables.waits.connection[row]), int(tables.waits.streams[row])
    client, server = group.who, hosts.host(tables, connection, 1)
    wait = duration(int(w.duration_ns[row]))
    left = {name: int(getattr(w, name)[row]) for name in ("stream_window_bytes", "connection_window_bytes")}
    return Finding(
        id=ID,
        title=f"{client} stopped for {wait} inside {streams:,} RPCs although both windows are open",
        severity="critical" if (group.share or 0.0) >= limits.critical_share else "warning",
        confidence=ratings.lower("medium", ratings.quality_allows(tables)),
        scope=Scope(group.connections, methods.names(tables, (int(w.method[one]) for one in group.facts))),
        lost_ns=group.lost_ns,
        share=group.share,
        metrics={"blocked_rpcs": streams, "longest_wait_ns": int(w.duration_ns[row])} | left,
        evidence=tuple(item for one in group.shown for item in _show_pause(tables, one)),
        explanation=(
            f"{client} had {streams:,} streams open on connection {connection}, as many as {server} allows, each "
            f"inside a message. It sent nothing for {wait}, though the windows had room (left: stream "
            f"{left['stream_window_bytes']:,} bytes, connection {left['connection_window_bytes']:,} bytes). {server} "
            "owed nothing. The client's library may have set window aside for calls that wait for a free stream, as h2 "
            "does before 0.4.13. A paused process looks the same."
        ),
        remedies=(
            Remedy("h2 of hyper, tonic and reqwest", "0.4.13 or later", "gives no window to calls without a stream"),
            Remedy("application", f"at most {streams:,} calls at once per connection", "none waits for a stream"),
        ),
        references=("RFC 9113 section 5.2", "hyperium/h2 pull request 860"),
        verdict=(
            f"{client} stopped for {wait} although the windows are open: update its HTTP/2 library (h2 before 0.4.13), "
            f"or make at most {streams:,} calls at once."
        ),
    )


def _find_stuck(tables: Tables, limits: Limits) -> list[int]:
    """Find the RPCs that wait longer than their connection ever did, the first to stop first."""
    o, waits = tables.open_rpcs, tables.waits
    if not len(o.stream):
        return []
    before = np.isin(waits.cause, list(_WINDOWS))
    longest = np.zeros(len(tables.connections.rpcs), dtype=np.int64)
    np.maximum.at(longest, waits.connection[before], waits.duration_ns[before])
    stuck = np.isin(o.cause, list(_WINDOWS)) & (o.heard_time_ns > o.since_time_ns)
    stuck &= ~np.isin(o.connection, tables.unanswered.connection)
    stuck &= o.end_time_ns - o.since_time_ns >= np.maximum(limits.least_ns, limits.factor * longest[o.connection])
    order = np.argsort(o.since_time_ns, kind="stable")
    return [int(row) for row in order[stuck[order]]]


def _show_pause(tables: Tables, row: int) -> tuple[Evidence, Evidence]:
    w, wait = tables.waits, int(tables.waits.duration_ns[row])
    return (
        Evidence(
            int(w.stopped_at_packet[row]),
            int(w.stopped_time_ns[row]),
            "the last bytes of the client; both windows are open",
        ),
        Evidence(
            int(w.resumed_at_packet[row]), int(w.start_time_ns[row]) + wait, f"its next bytes, {duration(wait)} later"
        ),
    )


def _get_wait(tables: Tables, row: int) -> int:
    o = tables.open_rpcs
    return int(o.end_time_ns[row]) - int(o.since_time_ns[row])


def _make_finding(tables: Tables, group: Group[list[int]], limits: Limits) -> Finding:
    o, receiver = tables.open_rpcs, group.who
    rows = sorted((row for fact in group.facts for row in fact), key=lambda row: int(o.since_time_ns[row]))
    first = rows[0]
    window, rpcs = _WINDOWS[int(o.cause[first])], count(len(rows), "RPC")
    most = max(_get_wait(tables, row) for row in rows)
    wait = group.write_each(lambda fact: _get_wait(tables, fact[0]), duration)
    reads = group.say("its application reads the stream, and what it waits for", "their applications read the streams")
    return Finding(
        id=ID,
        title=f"{receiver} sent no WINDOW_UPDATE for {wait}; the {window} {_describe_rest(tables, first)}",
        severity="critical" if (group.share or 0.0) >= limits.critical_share else "warning",
        confidence=ratings.quality_allows(tables),
        scope=Scope(group.connections, methods.names(tables, (int(o.method[row]) for row in rows))),
        lost_ns=group.lost_ns,
        share=group.share,
        metrics={
            "blocked_rpcs": len(rows),
            "longest_wait_ns": most,
            "stream_window_bytes": int(o.stream_window_bytes[first]),
            "connection_window_bytes": int(o.connection_window_bytes[first]),
        },
        evidence=tuple(
            item
            for fact in group.shown
            for row in fact[: group.limit_moments(evidence.FEW_EXAMPLES)]
            for item in _show(tables, row)
        ),
        explanation=_explain(tables, rows, receiver, window),
        remedies=_list_remedies(receiver),
        references=("RFC 9113 section 5.2", "RFC 9113 section 6.9", "https://grpc.io/docs/guides/flow-control/"),
        verdict=(
            f"{rpcs} waited up to {duration(most)} in vain for a WINDOW_UPDATE of {receiver}: check whether {reads}."
        ),
    )


def _describe_rest(tables: Tables, row: int) -> str:
    o = tables.open_rpcs
    left = o.stream_window_bytes if _WINDOWS[int(o.cause[row])] == "stream window" else o.connection_window_bytes
    return "is used up" if left[row] <= 0 else f"has {count(int(left[row]), 'byte')} left"


def _explain(tables: Tables, rows: list[int], receivers: str, window: str) -> str:
    o, row = tables.open_rpcs, rows[0]
    connection, waits_for = int(o.connection[row]), int(o.waits_for[row])
    sender, receiver = (hosts.host(tables, connection, side) for side in (1 - waits_for, waits_for))
    where = f"connection {connection}, stream {o.stream[row]}"
    left = f"stream {o.stream_window_bytes[row]:,} bytes, connection {o.connection_window_bytes[row]:,} bytes"
    heard = unanswered.format_instant(tables, int(o.heard_time_ns[row]))
    wait = duration(_get_wait(tables, row))
    parts = [
        f"The last bytes on {where} were sent at {unanswered.format_instant(tables, int(o.since_time_ns[row]))}. The "
        f"{window} of {sender} {_describe_rest(tables, row)} (left: {left}). No WINDOW_UPDATE that would enlarge it "
        f"came until {_ENDS[o.closed[row]]}, {wait} later.",
        f"{receiver} still sent packets until {heard}, so its host and the path "
        "work: its application did not read the stream, or its library did not enlarge the window.",
    ]
    if len(rows) > 1:
        parts.append(f"{len(rows):,} RPCs wait like this{f' for {receivers}' if receivers != receiver else ''}.")
    return " ".join(parts)


def _show(tables: Tables, row: int) -> Iterator[Evidence]:
    o = tables.open_rpcs
    where = f"connection {o.connection[row]}, stream {o.stream[row]}"
    receiver = hosts.host(tables, int(o.connection[row]), int(o.waits_for[row]))
    window = _WINDOWS[int(o.cause[row])]
    yield Evidence(int(o.first_packet[row]), int(o.start_time_ns[row]), f"the RPC begins ({where})")
    state = f"the {window} {_describe_rest(tables, row)}"
    yield evidence.show_packet(o, "last_packet", row, f"its last bytes; {state} ({where})")
    yield evidence.show_packet(o, "heard_packet", row, f"{receiver} is still there, but sends no WINDOW_UPDATE")


def _list_remedies(receiver: str) -> tuple[Remedy, ...]:
    return (
        Remedy(
            "application", "read the stream to its end, or cancel it", f"on {receiver}: reading enlarges the window"
        ),
        Remedy(
            "application", "a dump of all stacks", f"on {receiver}, while it hangs: shows what the handler waits for"
        ),
        Remedy("any gRPC implementation", "none", "a larger window does not help: it is used up a little later"),
    )
