"""Which side broke HTTP/2: by what the packets show, and by what its peer says in a GOAWAY (RFC 9113 section 7)."""

import bisect
from collections.abc import Sequence

import numpy as np

from ..model.finding import Evidence, Remedy
from ..tables import Tables, error_name
from . import _failures as common
from ._shared import host, milliseconds, show_packet

_OF_PEER = {
    "PROTOCOL_ERROR": "broke the protocol",
    "FLOW_CONTROL_ERROR": "sent more than a window allowed",
    "FRAME_SIZE_ERROR": "sent a frame of a wrong size",
    "COMPRESSION_ERROR": "sent a header block that it could not decode",
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
    """Find the first of such bytes that `side` acts on, as they came from its peer shortly before; -1 for none."""
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
    later = milliseconds(ended_ns - int(tables.problems.time_ns[breach]))
    sender = _name_sender(tables, breach)
    return f"{describe_breach(tables, breach)}, {later} before that: look at the HTTP/2 library of {sender}."


def advise_by_code(tables: Tables, goaway: int, breach: int) -> str:
    """Name whose fault the sender of an error says it is, and whether the packets bear it out."""
    sender, connection = int(tables.goaways.direction[goaway]), int(tables.goaways.connection[goaway])
    did = _OF_PEER.get(error_name(int(tables.goaways.code[goaway])))
    if did is None:
        return "See the sender's log."
    blamed, other = host(tables, connection, 1 - sender), host(tables, connection, sender)
    seen = f" The packets bear it out: {describe_breach(tables, breach)}." if breach >= 0 else ""
    logs = f"look at the HTTP/2 library of {blamed}, and at both logs."
    return f"By that code {other} says that {blamed} {did}: {logs}{seen}"


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
