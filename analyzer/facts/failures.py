"""RPCs that ended with a status other than OK; shared by the detectors that each report one kind of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from .. import _core
from ..model.budget import named
from ..model.finding import Evidence, Severity
from ..model.text import duration, safe
from ..summary import figures
from ..tables import BEGUN_BEFORE, NO_AGENT, NOT_SEEN, Codes, Counts, Ints, Mask, Shorts, Tables, error_name
from ..tables.durations import totals_ns
from ..tables.grouping import distinct, take_rows
from .hosts import pick_apart
from .ratings import severity

OK, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE = (
    _core.STATUSES.index(name) for name in ("OK", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE")
)
FAILURES_KEPT = 100_000
"""Rows of the failures table at most (limits.rs)."""
HTTP_OK = 200
"""The HTTP status of every response of gRPC (PROTOCOL-HTTP2.md, Responses)."""
HTTP_STATUS = _core.STATUS_SOURCES.index("http_status")
"""`Failed.source` of an RPC that ended without a status of its own."""
NO_MESSAGE, OTHER_TRAILERS = (_core.STATUS_SOURCES.index(name) for name in ("no_message", "other_trailers"))
"""`Failed.source` of an RPC whose status is hidden and which ended without a response message, as unary ones do that
failed; the second where the end of its response differs from those of answered RPCs, too."""
TRAILERS, SERVER_RESET, CLIENT_DEADLINE, CLIENT_RESET, CONNECTION = (
    _core.STATUS_SOURCES.index(name)
    for name in ("trailers", "server_reset", "client_deadline", "client_reset", "connection")
)
"""`Failed.source` of an RPC with a status of its own, of one that its server reset, of one that its client's deadline
ended, of one that its client reset before any deadline that is known, and of one that the end of its connection
ended."""
NOBODY = 2
"""`Failures.reset_by` when no RST_STREAM ended the RPC."""
NOT_KEPT = 3
"""Stands for `Failures.reset_by` of RPCs beyond those that the failures table keeps."""
CANCEL = 8
"""The error code of a RST_STREAM that gives up an RPC (RFC 9113 section 7)."""


FEW = 3
"""Fewest RPCs that show a pattern (heuristic: one or two show none)."""
ERROR_RATE = 0.01
"""Share of RPCs from which failures are a warning (heuristic: an error rate of 1 % misses usual objectives)."""
MANY = 0.10
"""Share of RPCs from which failures are critical (heuristic: one call in ten)."""


class Rates(Struct, frozen=True, eq=False):
    """Shares of RPCs that ended in some way, from which it matters."""

    warning_share: float = ERROR_RATE
    """A warning from this share of RPCs (heuristic: an error rate of 1 % misses usual objectives)."""
    critical_share: float = MANY
    """Critical from this share of RPCs (heuristic: one call in ten)."""
    few: int = FEW
    """Fewer such RPCs are `info` (heuristic: one or two show no pattern), or a warning if they are all RPCs."""


class LossLimits(Struct, frozen=True, eq=False):
    """How many lost RPCs are critical."""

    critical_share: float = MANY
    """Critical from this share of RPCs lost (heuristic: one call in ten)."""
    few: int = FEW
    """Fewer lost RPCs are not critical by their share (heuristic: one or two show no pattern)."""


class Failed(Struct, frozen=True, eq=False):
    """Some rows of the failures table, with data of their RPCs; all columns are equally long."""

    row: Ints
    """Row of the failures table, -1 for RPCs beyond those it keeps."""
    rpc: Counts
    """Row of the RPC."""
    status: Codes
    duration_ns: Ints
    deadline_ns: Ints
    """-1 without a deadline."""
    source: Codes
    """Index into `_core.STATUS_SOURCES`."""
    http_status: Shorts
    reset_by: Codes
    reset_code: Counts
    answered_by: Counts
    """Index into `Tables.agents`, `NO_AGENT` for none."""
    foreign: Codes

    def where(self, mask: Mask | Ints) -> Failed:
        """Select the rows for which `mask` holds, or the rows that it lists, in its order."""
        return take_rows(self, mask)

    def __len__(self) -> int:
        """Return the number of RPCs."""
        return len(self.rpc)


_FOUND: WeakKeyDictionary[Tables, Failed] = WeakKeyDictionary()
"""What several detectors ask for, found once."""


def failed(tables: Tables) -> Failed:
    """Find all RPCs that ended with a status other than OK, in the order in which they began.

    Statuses that a server sent after its client's FIN or RST are left out: the client had gone, and did not read them.
    The table keeps a limited number of rows; for other RPCs the sender of the RST_STREAM is unknown.
    """
    if tables not in _FOUND:
        _FOUND[tables] = _find_failed(tables)
    return _FOUND[tables]


def _find_failed(tables: Tables) -> Failed:
    failures, rpcs, rpc = tables.failures, tables.rpcs, tables.failures.rpc
    row, reset_by, reset_code = np.arange(len(rpc)), failures.reset_by, failures.reset_code
    answered_by, foreign = failures.answered_by, failures.foreign
    every = tables.before.tables if tables.before else tables
    if len(every.failures.rpc) >= FAILURES_KEPT:
        more = np.setdiff1d(np.flatnonzero(rpcs.status != OK), rpc)
        rpc = np.r_[rpc, more].astype(np.uint32)
        row = np.r_[row, np.full(len(more), -1)]
        reset_by = np.r_[reset_by, np.full(len(more), NOT_KEPT, dtype=np.uint8)]
        reset_code = np.r_[reset_code, np.full(len(more), CANCEL, dtype=np.uint32)]
        answered_by = np.r_[answered_by, np.full(len(more), NO_AGENT, dtype=np.uint32)]
        foreign = np.r_[foreign, rpcs.http_status[more] != HTTP_OK]
    everything = Failed(
        row,
        rpc,
        rpcs.status[rpc],
        rpcs.duration_ns[rpc],
        tables.deadlines[rpc],
        rpcs.status_source[rpc],
        rpcs.http_status[rpc],
        reset_by,
        reset_code,
        answered_by,
        foreign,
    )
    order = np.lexsort((rpcs.stream[rpc], rpcs.connection[rpc], rpcs.start_time_ns[rpc]))
    return everything.where(order[~_is_unread(tables, rpc)[order]])


def list_unread(tables: Tables) -> Counts:
    """List the failed RPCs whose trailers came after their client's FIN or RST."""
    rpc = tables.failures.rpc
    return rpc[_is_unread(tables, rpc)]


def list_leavings(tables: Tables) -> Ints:
    """List when the client of each connection left it, by FIN or RST; far in the future if it did not."""
    c = tables.closings
    left = np.full(len(tables.connections.first_time_ns), np.iinfo(np.int64).max)
    by_client = c.direction == 0
    np.minimum.at(left, c.connection[by_client], c.time_ns[by_client])
    return left


def _is_unread(tables: Tables, rpc: Counts) -> Mask:
    rpcs, left = tables.rpcs, list_leavings(tables)
    ends = rpcs.start_time_ns[rpc] + rpcs.duration_ns[rpc]
    return np.asarray((rpcs.status_source[rpc] == TRAILERS) & (ends > left[rpcs.connection[rpc]]))


def past_deadline(rows: Failed) -> Mask:
    """Mark RPCs that lasted until their deadline, or so nearly that a reset of theirs has DEADLINE_EXCEEDED."""
    return np.asarray((rows.deadline_ns > 0) & (rows.duration_ns >= _core.earliest_deadlines(rows.deadline_ns)))


def refused(rows: Failed) -> Mask:
    """Mark RPCs that got an HTTP status or a page instead of a response of their protocol."""
    return np.asarray((rows.source == HTTP_STATUS) & (rows.foreign == 1))


def mark_refused_responses(tables: Tables, rows: Failed) -> Mask:
    """Mark RPCs whose response their client refused although it was complete here."""
    kept = rows.row >= 0
    kept[kept] = tables.failures.refused_packet[rows.row[kept]] > 0
    return kept


def without_trailers(rows: Failed) -> Mask:
    """Mark RPCs whose server ended the stream without a status."""
    return np.asarray((rows.source == HTTP_STATUS) & (rows.foreign == 0))


def find_unreadable(tables: Tables, rows: Failed) -> Failed:
    """Find the RPCs that most probably failed, though the capture does not show their status.

    A server stream may end with OK and without a message: where a method has more messages than unary calls have, only
    an end unlike those of answered RPCs shows an error.
    """
    streams = [method.number for method in tables.methods if method.messages > 2 * method.rpcs]
    unary = (rows.source == NO_MESSAGE) & ~np.isin(tables.rpcs.method[rows.rpc], streams)
    return rows.where(unary | (rows.source == OTHER_TRAILERS))


def by_method(tables: Tables, rpcs: Counts) -> Mapping[str, int]:
    """Count some RPCs by method, the method with the most first; `unknown` for names not seen."""
    names = {method.number: method.name or "unknown" for method in tables.methods}
    counts = Counter(names.get(int(number), "unknown") for number in tables.rpcs.method[rpcs].tolist())
    return dict(counts.most_common())


def listed(counts: Mapping[str, int], limit: int = 5) -> str:
    """Format counts as `a 3, b 2 and 4 others`."""
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:limit])
    return shown if len(counts) <= limit else f"{shown} and {len(counts) - limit} others"


def name_most(what: str, number: int, of: int) -> str:
    """Name what most of the RPCs of a title got: `, most with UNAVAILABLE`, `, all with UNAVAILABLE`."""
    return f", {'' if of == 1 else 'all ' if number == of else 'most '}{what}"


def connections_of(tables: Tables, rpcs: Counts) -> tuple[int, ...]:
    """List the connections of some RPCs."""
    return tuple(int(c) for c in distinct(tables.rpcs.connection[rpcs]))


def methods_of(tables: Tables, rpcs: Counts) -> tuple[str, ...]:
    """List the names of the methods of some RPCs, as far as they are known."""
    return tuple(sorted(name for name in by_method(tables, rpcs) if name != "unknown"))


def severity_of_count(count: int, of: int, rates: Rates) -> Severity:
    """Rate the severity of a share of RPCs; fewer than `few` prove no pattern, unless they are all there are."""
    if count < rates.few:
        return "warning" if 0 < count == of else "info"
    return severity(count / max(of, 1), rates.warning_share, rates.critical_share)


def are_many_lost(lost: int, of: int, limits: LossLimits) -> bool:
    """Check whether lost RPCs are critical by their share."""
    return lost >= limits.few and lost / max(of, 1) >= limits.critical_share


def severity_of_loss(lost: int, of: int, limits: LossLimits) -> Severity:
    """Rate the severity of RPCs that were lost."""
    return "info" if not lost else "critical" if are_many_lost(lost, of, limits) else "warning"


def where_time_went(tables: Tables, rows: Failed) -> Mapping[str, int]:
    """Sum up the time of some failed RPCs by cause, the largest first; empty when there are no budgets."""
    budgets = tables.failure_budgets
    if not len(rows) or len(budgets) != len(tables.failures.rpc):
        return {}
    kept = rows.row[rows.row >= 0]
    return dict(sorted(named(totals_ns(budgets[kept])).items(), key=lambda item: -item[1]))


def reset_words(tables: Tables, rows: Failed, place: int) -> str:
    """Say what ended the RPC: `RST_STREAM CANCEL from the client`, `trailers with status NOT_FOUND`."""
    code, status = int(rows.reset_code[place]), "unknown"
    if rows.status[place] < len(_core.STATUSES):
        status = _core.STATUSES[rows.status[place]]
    match _core.STATUS_SOURCES[rows.source[place]]:
        case "http_status" if rows.foreign[place]:
            name = software(tables, int(rows.answered_by[place]))
            what = f"HTTP status {rows.http_status[place]}{f' from {name}' if name else ''}"
        case "http_status":
            what = "END_STREAM without trailers"
        case "server_reset":
            what = f"RST_STREAM {error_name(code)} from the server"
        case "client_deadline":
            rpc = int(rows.rpc[place])
            if find_unreceived(tables, rpc) is not None:
                return "the last retransmission of its response, which the client never acknowledged"
            if _is_given_up(tables, rows, place):
                came = "the client's close"
            else:
                came = "a response that came" if _find_closing(tables, rpc) is None else "its connection's end"
            ended = {NOBODY: came, NOT_KEPT: "an end"}.get(int(rows.reset_by[place]))
            sender = "server" if rows.reset_by[place] else "client"
            early = rows.duration_ns[place] < rows.deadline_ns[place]
            when = "when its grpc-timeout was about to pass" if early else "after its grpc-timeout"
            return f"{ended or f'RST_STREAM {error_name(code)} from the {sender}'} {when}"
        case "client_reset" if mark_refused_responses(tables, rows)[place]:
            time = int(tables.failures.refused_time_ns[rows.row[place]])
            after = duration(time - int(tables.rpcs.start_time_ns[rows.rpc[place]] + rows.duration_ns[place]))
            return f"RST_STREAM {error_name(code)} from the client, {after} after the complete response"
        case "client_reset":
            return f"RST_STREAM {error_name(code)} from the client"
        case "no_message" | "other_trailers":
            return "the end of a response without a message, whose status is not in the capture"
        case "connection":
            what = "the connection's end"
        case _ if _core.RPC_PROTOCOLS[tables.rpcs.protocol[rows.rpc[place]]] == "connect":
            return f"Connect's error {status}"  # in JSON: a response body, or the last message of a stream
        case _:
            return f"trailers with status {status}"
    return f"{what}, which gRPC reads as {status}"


def _is_given_up(tables: Tables, rows: Failed, place: int) -> bool:
    """Check whether a client closed its connection of HTTP/1.1 before the RPC ended: it has no RST_STREAM."""
    c, rpc = tables.connections, int(rows.rpc[place])
    on, end = int(tables.rpcs.connection[rpc]), int(tables.rpcs.start_time_ns[rpc] + rows.duration_ns[place])
    return bool(c.protocol[on] == figures.HTTP1 and c.closed_by[on] == 0 and 0 <= c.closed_time_ns[on] <= end)


def software(tables: Tables, agent: int) -> str | None:
    """Return the name of the software that answered, None when its response does not name it."""
    return (tables.agents[agent] or None) if agent != NO_AGENT else None


def began(tables: Tables, rpc: int) -> Evidence:
    """Show the packet with which an RPC began."""
    rpcs = tables.rpcs
    name = tables.method_name(int(rpcs.method[rpc])) or "an RPC whose method is unknown"
    where = f"connection {rpcs.connection[rpc]}, stream {rpcs.stream[rpc]}"
    begins = "began before the capture; its first packet here" if rpcs.flags[rpc] & BEGUN_BEFORE else "begins"
    return Evidence(int(rpcs.first_packet[rpc]), int(rpcs.start_time_ns[rpc]), f"{name} {begins} ({where})")


def ended(tables: Tables, rpc: int, what: str) -> Evidence:
    """Show the packet that ended an RPC, and when."""
    rpcs = tables.rpcs
    packet, time = _find_end(tables, rpc)
    where = f"connection {rpcs.connection[rpc]}, stream {rpcs.stream[rpc]}"
    after = duration(time - int(rpcs.start_time_ns[rpc]))
    text = error_text(tables, int(rpcs.grpc_message[rpc]))
    said = f': "{text}"' if text else ""
    return Evidence(packet, time, f"{what}, {after} after the RPC began ({where}){said}")


def find_unreceived(tables: Tables, rpc: int) -> int | None:
    """Find the row of the undelivered table with the response that an RPC's client had not received at its deadline.

    Its time ends there; one that a later response ended goes on for `LATE_NS`.
    """
    rpcs, u = tables.rpcs, tables.undelivered
    if rpc >= len(tables.deadlines) or rpcs.status_source[rpc] != CLIENT_DEADLINE:
        return None
    mine = (u.connection == rpcs.connection[rpc]) & (u.direction == 1)
    rows = np.flatnonzero(mine & (u.last_time_ns > rpcs.start_time_ns[rpc]))
    reset = tables.failures.reset_by[tables.failures.rpc == rpc]
    never = (reset == NOBODY).any() and rpcs.duration_ns[rpc] < tables.deadlines[rpc] + _core.LATE_NS
    return int(rows[0]) if never and len(rows) else None


def _find_closing(tables: Tables, rpc: int) -> int | None:
    """Find the FIN or RST with which an RPC ended."""
    rpcs, closings = tables.rpcs, tables.closings
    end = int(rpcs.start_time_ns[rpc]) + int(rpcs.duration_ns[rpc])
    rows = np.flatnonzero((closings.connection == rpcs.connection[rpc]) & (closings.time_ns == end))
    return int(rows[0]) if len(rows) else None


def _find_end(tables: Tables, rpc: int) -> tuple[int, int]:
    """Find the packet that ended an RPC, and its time.

    It is the RPC's last packet, the response's HEADERS for an HTTP status, or the first FIN or RST of the side that
    closed the connection.
    """
    rpcs, failures, closings = tables.rpcs, tables.failures, tables.closings
    begin, source = int(rpcs.start_time_ns[rpc]), int(rpcs.status_source[rpc])
    places: list[tuple[int, int]] = []
    if source == HTTP_STATUS:
        rows = np.flatnonzero((failures.rpc == rpc) & (failures.foreign == 1) & (failures.headers_packet > 0))
        places = [(int(failures.headers_packet[row]), int(failures.headers_time_ns[row])) for row in rows[:1]]
    elif source == CONNECTION or rpcs.status[rpc] == NOT_SEEN:
        connection = int(rpcs.connection[rpc])
        closes = (closings.connection == connection) & (closings.time_ns >= begin)
        closes &= closings.time_ns <= begin + rpcs.duration_ns[rpc]  # it may have ended before
        rows = np.flatnonzero(closes & (closings.direction == tables.connections.closed_by[connection]))
        places = [(int(closings.packet[row]), int(closings.time_ns[row])) for row in rows[:1]]
    elif (row := find_unreceived(tables, rpc)) is not None:
        places = [(int(tables.undelivered.last_packet[row]), int(tables.undelivered.last_time_ns[row]))]
    elif len(rows := np.flatnonzero((failures.rpc == rpc) & (failures.refused_packet > 0))):
        places = [(int(failures.refused_packet[rows[0]]), int(failures.refused_time_ns[rows[0]]))]
    last = int(rpcs.last_packet[rpc]) or int(rpcs.first_packet[rpc])
    return places[0] if places else (last, begin + int(rpcs.duration_ns[rpc]))


def error_text(tables: Tables, number: int) -> str | None:
    """Decode a text of `grpc-message`, cut to 200 characters; None without one, and where it was not asked for."""
    return safe(unquote(tables.errors[number]))[:200] if number < len(tables.errors) else None


def find_withheld(tables: Tables, rpc: Counts) -> Ints:
    """Find the RPCs whose server sent a text that is not shown unless it is asked for."""
    return np.flatnonzero(tables.rpcs.grpc_message[rpc] == _core.WITHHELD)


def announce_withheld(tables: Tables, rpc: Counts) -> str:
    """Say which packet has a text of the server that is not shown; nothing for none."""
    withheld = find_withheld(tables, rpc)
    if not len(withheld):
        return ""
    packet, _ = _find_end(tables, int(rpc[withheld[0]]))
    more = f", and {len(withheld) - 1:,} others have one" if len(withheld) > 1 else ""
    return f"Packet {packet:,} has the server's text{more}: --show-messages shows it (it may hold secrets)."


def spans(tables: Tables, rows: Failed) -> Iterator[Evidence]:
    """Yield begin and end of the first RPCs, of different hosts if there are."""
    for place in pick_apart(tables, tables.rpcs.connection[rows.rpc]):
        rpc = int(rows.rpc[place])
        yield began(tables, rpc)
        yield ended(tables, rpc, reset_words(tables, rows, place))


def count_texts(tables: Tables, rpc: Counts) -> dict[str, int]:
    """Count the texts of errors that are kept, the most frequent first."""
    counts = Counter(tables.rpcs.grpc_message[rpc].tolist())
    texts = ((error_text(tables, number), count) for number, count in counts.most_common())
    return {text: count for text, count in texts if text}
