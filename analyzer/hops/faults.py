"""Find calls whose legs on both sides of a proxy ended differently, and say what the proxy did."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from .. import _core
from ..facts import failures
from ..model.detector import About, ProxyFault
from ..model.finding import Evidence, Finding
from ..model.text import count
from ..summary.hops import TRAILERS
from ..tables import COMPLETE, NOT_SEEN, Ints, Mask, Tables
from .dividing import Held
from .matching import AMBIGUOUS, Joined

_CUT = (failures.CLIENT_DEADLINE, failures.CLIENT_RESET)
_BY_SERVER = (TRAILERS, failures.HTTP_STATUS, _core.STATUS_SOURCES.index("server_reset"))
_EXAMPLES = 2
"""Calls shown as evidence (heuristic: enough to look one up)."""


class Fault(Struct, frozen=True, eq=False):
    """What a proxy did with calls whose legs ended differently, for the findings about one of these legs."""

    kind: ProxyFault
    connections: frozenset[int]
    """The connections of both legs."""
    text: str
    evidence: tuple[Evidence, ...]

    def explains(self, finding: Finding, about: About) -> bool:
        """Check whether a finding is about one of these legs."""
        return self.kind in about.proxy_faults and not self.connections.isdisjoint(finding.scope.connections)


class Ends(Struct, frozen=True, eq=False):
    """How both legs of the calls through a proxy ended: a mask over the calls each, and rows of attempts."""

    attempts: Ints
    """Rows of legs behind the proxy that failed before it retried the call."""
    again: Ints
    """Rows of the legs that began next."""
    went_on: Mask
    """Whether the client reset the call, and the leg behind went on for longer than a round trip."""
    lost: Mask
    """Whether the call failed although the server behind answered OK."""
    same: Mask
    """Whether it failed with the status of the server behind."""
    changed: Mask
    """Whether the leg behind ended with another status than the proxy gave, and not by the proxy's reset."""


def compare_ends(tables: Tables, held: Held, joined: Joined) -> Ends:
    """Compare how both legs of calls ended; none of the calls may be ambiguous."""
    rpcs, front, last = tables.rpcs, held.front, held.last
    ends = rpcs.start_time_ns + rpcs.duration_ns
    was_cut = np.isin(rpcs.status_source[front], _CUT)
    trip = np.maximum(tables.connections.min_rtt_ns[rpcs.connection[last]], 0)
    # the response may have been in transit when the reset arrived
    ended, open_yet = rpcs.status_source[last] == TRAILERS, rpcs.flags[last] & COMPLETE == 0
    until = np.where(open_yet, tables.capture["last_time_ns"] or 0, ends[last])
    status, behind = rpcs.status[front], rpcs.status[last]
    failed = (status != failures.OK) & (status != NOT_SEEN) & ~was_cut
    # an HTTP status instead of the trailers that the server behind sent has the same meaning at best
    replaced = (rpcs.status_source[front] == failures.HTTP_STATUS) & ended
    other = (behind != failures.OK) & (behind != NOT_SEEN) & ((behind != status) | replaced)
    other &= ~np.isin(rpcs.status_source[last], _CUT)
    # the end of a connection before the proxy may be the client's doing
    by_proxy = failed & np.isin(rpcs.status_source[front], _BY_SERVER) & (ends[last] <= ends[front])
    attempts, again = _find_attempts(tables, held, joined)
    return Ends(
        attempts=attempts,
        again=again,
        went_on=was_cut & (ended | open_yet) & (until > ends[front] + trip),
        lost=by_proxy & (behind == failures.OK),
        same=failed & (behind == status) & ~replaced,
        changed=by_proxy & other,
    )


def _find_attempts(tables: Tables, held: Held, joined: Joined) -> tuple[Ints, Ints]:
    """Find the legs that failed before the next leg of the same call began, and these next legs."""
    rpcs = tables.rpcs
    rows = np.flatnonzero(np.isin(joined.parent, held.front[held.legs > 1]) & (joined.how != AMBIGUOUS))
    rows = rows[np.lexsort((rpcs.start_time_ns[rows], joined.parent[rows]))]
    first, second = rows[:-1], rows[1:]
    retried = joined.parent[first] == joined.parent[second]
    retried &= (rpcs.status[first] != failures.OK) & (rpcs.flags[first] & COMPLETE != 0)
    retried &= rpcs.start_time_ns[first] + rpcs.duration_ns[first] <= rpcs.start_time_ns[second]
    return first[retried], second[retried]


def list_faults(tables: Tables, proxy: str, held: Held, ends: Ends) -> Iterator[Fault]:
    """List what a proxy did with calls whose legs ended differently, with packets of both legs."""
    for mask, what in (
        (ends.changed, "changed the status of {}"),
        (ends.lost, "failed {} that the server behind answered"),
    ):
        front, last = held.front[mask], held.last[mask]
        if len(front):
            text = f"The proxy {proxy} {what.format(count(len(front), 'call'))}: {_name_changes(tables, last, front)}."
            yield _make_fault(tables, "changed_status", text, _show_ends(tables, last, front), (front, last))
    front, last = held.front[ends.went_on], held.last[ends.went_on]
    if len(front):
        resets = count(len(front), "reset")
        text = f"The proxy {proxy} did not pass on {resets} of the client: the server behind went on."
        yield _make_fault(tables, "ignored_reset", text, _show_resets(tables, front, last), (front, last))
    if len(ends.attempts):
        statuses = Counter(_name_status(tables, row) for row in ends.attempts.tolist())
        text = (
            f"{count(len(ends.attempts), 'attempt')} behind the proxy {proxy} failed before it retried: "
            f"{failures.listed(dict(statuses.most_common()))}."
        )
        yield _make_fault(tables, "failed_attempt", text, _show_retries(tables, ends), (ends.attempts, ends.again))


def _make_fault(
    tables: Tables, kind: ProxyFault, text: str, evidence: Iterator[Evidence], legs: tuple[Ints, Ints]
) -> Fault:
    connections = frozenset(tables.rpcs.connection[np.concatenate(legs)].tolist())
    return Fault(kind, connections, text, tuple(evidence))


def _name_status(tables: Tables, row: int) -> str:
    status = int(tables.rpcs.status[row])
    return _core.STATUSES[status] if status < len(_core.STATUSES) else "unknown status"


def _name_changes(tables: Tables, behind: Ints, before: Ints) -> str:
    """Name the most frequent change: `PERMISSION_DENIED became CANCELLED`; with the HTTP status, if that is new."""
    source, http = tables.rpcs.status_source, tables.rpcs.http_status
    changes = Counter(
        f"{_name_status(tables, a)} became {_name_status(tables, b)}"
        + f" (HTTP status {http[b]})" * bool(source[b] == failures.HTTP_STATUS and http[b] != failures.HTTP_OK)
        for a, b in zip(behind.tolist(), before.tolist(), strict=True)
    )
    (most, _), *others = changes.most_common()
    return f"{most}, and others" if others else most


def _show_ends(tables: Tables, behind: Ints, before: Ints) -> Iterator[Evidence]:
    for leg, call in zip(behind[:_EXAMPLES].tolist(), before[:_EXAMPLES].tolist(), strict=True):
        yield failures.ended(tables, leg, f"behind the proxy: {_describe_end(tables, leg)}")
        yield failures.ended(tables, call, f"before it: {_describe_end(tables, call)}")


def _show_resets(tables: Tables, before: Ints, behind: Ints) -> Iterator[Evidence]:
    rpcs = tables.rpcs
    for call, leg in zip(before[:_EXAMPLES].tolist(), behind[:_EXAMPLES].tolist(), strict=True):
        yield failures.ended(tables, call, f"before the proxy: {_describe_end(tables, call)}")
        if rpcs.last_packet[leg]:
            yield failures.ended(tables, leg, f"behind it: {_describe_end(tables, leg)}")
        else:
            what = f"behind it the RPC begins, and is open at the end (connection {rpcs.connection[leg]}, "
            yield Evidence(
                int(rpcs.first_packet[leg]), int(rpcs.start_time_ns[leg]), f"{what}stream {rpcs.stream[leg]})"
            )


def _show_retries(tables: Tables, ends: Ends) -> Iterator[Evidence]:
    for attempt, leg in zip(ends.attempts[:_EXAMPLES].tolist(), ends.again[:_EXAMPLES].tolist(), strict=True):
        yield failures.ended(tables, attempt, f"an attempt behind the proxy: {_describe_end(tables, attempt)}")
        began = failures.began(tables, leg)
        yield Evidence(began.packet, began.time_ns, f"the proxy retries: {began.what}")


def _describe_end(tables: Tables, row: int) -> str:
    """Say what ended a leg: `RST_STREAM CANCEL from the client`, or `trailers with status OK`."""
    rows = failures.failed(tables)
    place = np.flatnonzero(rows.rpc == row)
    if len(place):
        return failures.reset_words(tables, rows, int(place[0]))
    return f"it ends with status {_name_status(tables, row)}"
