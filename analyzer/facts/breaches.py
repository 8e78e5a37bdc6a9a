"""Which side broke HTTP/2: by what the packets show, and by what its peer says in a GOAWAY (RFC 9113 section 7)."""

import bisect
from collections.abc import Sequence

import numpy as np

from ..model.finding import Evidence, Remedy
from ..model.text import count, duration
from ..software import intents, settings
from ..tables import Tables, error_name
from . import failures as common
from .evidence import show_packet
from .hosts import host, implementation

ANSWERED_NS = 20_000_000
"""A side answers so soon to bytes that break HTTP/2 (heuristic: libraries take a few milliseconds)."""
_OF_PEER = {
    "PROTOCOL_ERROR": "broke the protocol",
    "FLOW_CONTROL_ERROR": "sent more than a window allowed",
    "FRAME_SIZE_ERROR": "sent a frame of a wrong size",
    "COMPRESSION_ERROR": "sent a header block that it could not decode",
    "SETTINGS_TIMEOUT": "did not acknowledge its SETTINGS in time",
}
"""What the sender of a GOAWAY says with its code that its peer did."""


def find_breaches(tables: Tables) -> dict[int, list[int]]:
    """Find the bytes that break HTTP/2, as rows of the problems table by connection, in the order of time.

    Only what a side is known to have sent counts, so none where bytes before it are missing.
    """
    problems = tables.problems
    rows = np.flatnonzero(problems.broken_by < common.NOBODY)
    found: dict[int, list[int]] = {}
    for row in rows[np.argsort(problems.time_ns[rows], kind="stable")].tolist():
        found.setdefault(int(problems.connection[row]), []).append(row)
    return found


def find_answered(tables: Tables, breaches: Sequence[int], side: int, acts_ns: int, within_ns: int) -> int:
    """Find the first breach of its peer up to `within_ns` before `side` acts at `acts_ns`: row of `problems`, or -1."""
    problems = tables.problems
    first = bisect.bisect_left(breaches, acts_ns - within_ns, key=lambda row: int(problems.time_ns[row]))
    for row in breaches[first:]:
        if problems.time_ns[row] > acts_ns:
            break
        if int(problems.broken_by[row]) == 1 - side:
            return row
    return -1


def describe_breach(tables: Tables, breach: int) -> str:
    """Say who broke HTTP/2, in which packet, and by what."""
    problems = tables.problems
    what = tables.problem_kinds[problems.kind[breach]]
    return f"{_name_sender(tables, breach)} broke HTTP/2 in packet {int(problems.packet[breach]):,} ({what})"


def show_breach(tables: Tables, breach: int) -> Evidence:
    """Show the packet in which a side broke HTTP/2."""
    what = tables.problem_kinds[tables.problems.kind[breach]]
    return show_packet(tables.problems, "packet", breach, f"{_name_sender(tables, breach)} breaks HTTP/2: {what}")


def advise_after_breach(tables: Tables, breach: int, ended_ns: int) -> str:
    """Say what to look at where a connection ended after such bytes, without a GOAWAY that says why."""
    later = duration(ended_ns - int(tables.problems.time_ns[breach]))
    sender = _name_sender(tables, breach)
    return f"{describe_breach(tables, breach)}, {later} before that: look at the HTTP/2 library of {sender}."


def advise_by_code(tables: Tables, goaway: int, breach: int) -> str:
    """Name whose fault the sender of an error says it is, and whether the packets bear it out."""
    sender, connection = int(tables.goaways.direction[goaway]), int(tables.goaways.connection[goaway])
    did = _OF_PEER.get(error_name(int(tables.goaways.code[goaway])))
    if did is None:
        return "See the sender's log."
    if breach < 0 and (limit := find_stream_limit(tables, goaway)):
        return describe_stream_limit(tables, goaway, limit)
    blamed, other = host(tables, connection, 1 - sender), host(tables, connection, sender)
    seen = f" The packets bear it out: {describe_breach(tables, breach)}." if breach >= 0 else ""
    logs = f"look at the HTTP/2 library of {blamed}, and at both logs."
    return f"By that code {other} says that {blamed} {did}: {logs}{seen}"


def find_stream_limit(tables: Tables, goaway: int) -> int:
    """Find the limit of streams on which a server's GOAWAY PROTOCOL_ERROR may act; 0 for none.

    More were open than it allows, and its last stream is the one that reached the limit.
    """
    g, rpcs = tables.goaways, tables.rpcs
    connection, limit = (
        int(g.connection[goaway]),
        int(tables.connections.peer_max_concurrent_streams[g.connection[goaway]]),
    )
    code = error_name(int(g.code[goaway]))
    if g.direction[goaway] != 1 or code != "PROTOCOL_ERROR" or not 0 < limit < g.open_rpcs[goaway]:
        return 0
    begun = (rpcs.connection == connection) & (rpcs.start_time_ns <= g.time_ns[goaway])
    still = begun & (rpcs.start_time_ns + rpcs.duration_ns >= g.time_ns[goaway])
    accepted = int((still & (rpcs.stream <= g.last_stream[goaway])).sum())
    return limit if accepted == limit else 0


def describe_stream_limit(tables: Tables, goaway: int, limit: int) -> str:
    """Say that a client had more streams open than the server allows, and whether it could know that."""
    connection = int(tables.goaways.connection[goaway])
    on = tables.rpcs.connection == connection
    on &= tables.rpcs.start_time_ns <= tables.goaways.time_ns[goaway]
    known = int(tables.setups.server_settings_time_ns[connection])
    in_time = known >= 0 and bool((tables.rpcs.start_time_ns[on] < known).all())
    before = ", all opened before it had the server's SETTINGS" if in_time else ""
    return (
        f"The server allows {count(limit, 'stream')} at once, and {host(tables, connection, 0)} had "
        f"{tables.goaways.open_rpcs[goaway]:,} open{before}: raise that limit."
    )


def list_stream_limits(tables: Tables, goaway: int) -> tuple[Remedy, ...]:
    """List the setting of the limit on which a server's error may act; none for another error."""
    server = implementation(tables, int(tables.goaways.connection[goaway]), 1)
    return settings.list_windows(intents.STREAM_LIMIT, server, 1)[:1] if find_stream_limit(tables, goaway) else ()


def make_remedy(tables: Tables, breach: int) -> Remedy:
    """Say where to look for the fault of a library."""
    return Remedy(
        "application",
        f"the HTTP/2 library of {_name_sender(tables, breach)}: its version, and its log at the times of the evidence",
        "the fault is in what it sends; a connection that lives longer, or a retry, does not change that",
    )


def _name_sender(tables: Tables, breach: int) -> str:
    problems = tables.problems
    return host(tables, int(problems.connection[breach]), int(problems.broken_by[breach]))
