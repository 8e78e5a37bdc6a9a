"""Message bytes left the sender later than their HEADERS, or later than the first part of the message.

What it finds
-------------
HEADERS leave at once, and the DATA follows half a round trip later or more. Or a message begins, and its rest
follows after a pause.

Two causes look alike here. The transport may hold the bytes back, which begins inside a message: a congestion
window, a flow-control window, a loss. Or the sender's own side may be late between HEADERS and the first DATA: the
application had no message yet, or its library handed the message over late.

How it is decided
-----------------
Held inside a message by the transport: the sender stopped with bytes of a message still to come for at least 1 ms
and half a round trip, and the packets prove the cause. gRPC's length prefix says how many bytes. The finding of that
cause counts the time lost; here it is reported as `info`. Intervals of more than two round trips for a congestion
window are left out: their ACK itself was late.

Held by the client: the first message byte of a request left at least 1 ms and half a round trip after the HEADERS.
The transport blocked nothing in between, the connection has next to no retransmissions, and the RPCs of the method
carry one message each way. At least three calls must show it. That time is lost, and a tenth of all RPC time is a
warning.

HEADERS and DATA in separate packets microseconds apart cost a packet and no time. They are not reported.

When it cannot tell
-------------------
Streams of several messages are not judged: a late first message is the application's pace there. A streaming method
that happens to carry one message each way looks like a unary one. If its caller opens the call ahead of the message
on purpose, nothing is lost. A client that is a proxy passes on what its own client does. A response's HEADERS sent
early are the server's choice, and that time is the server's. On a connection with losses it is not known what held
the first DATA back.

What would refute it
--------------------
The client's own trace shows that it handed over the message together with the call, or that the caller meant to open
the call early.

What to do
----------
Held inside a message: see the finding of the cause.

Held by the client: make the message first, then start the call. With streaming interfaces write right after opening.
Where the message was ready, look at what else the client did meanwhile: libraries that write HEADERS and DATA apart
wait in between for their event loop.
Look for a lock, a serialisation, or credentials that are fetched between the two.

References
----------
- gRPC over HTTP/2, length-prefixed messages: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
- https://github.com/grpc/grpc-go/issues/8436
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..facts import congestion, hosts, ratings, stalls
from ..facts.methods import share_of_time
from ..model.budget import CAUSES
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Skipped
from ..model.text import count, duration
from ..tables import Ints, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct

ID = "delayed-data"
ABOUT = About(
    example="recorded/lab/delayed-data.pcap",
    caused_by=(
        "loss-recovery",
        "slow-start-after-idle",
        "stream-window-stall",
        "connection-window-stall",
        "receive-window-stall",
        "delayed-ack-nagle",
        "head-of-line-blocking",
        "initial-congestion-window",
    ),
    counts_own_time=True,
)

_HOLDERS = {
    "idle_restart": ("a congestion window that idle time had reset", "slow-start-after-idle"),
    "initial_window": ("the congestion window of a new connection", "initial-congestion-window"),
    "window_after_loss": ("a congestion window that a loss had reduced", "loss-recovery"),
    "congestion_window": ("a congestion window that was still growing", None),
    "receive_window": ("the TCP receive window", "receive-window-stall"),
    "stream_window": ("the HTTP/2 stream window", "stream-window-stall"),
    "connection_window": ("the HTTP/2 connection window", "connection-window-stall"),
    "loss_recovery": ("lost packets", "loss-recovery"),
    "delayed_ack": ("Nagle's algorithm and a delayed ACK", "delayed-ack-nagle"),
    "head_of_line": ("bytes of other streams", "head-of-line-blocking"),
}
"""What holds bytes back, in words, and the findings about it; congestion windows by what made them small."""

_HOLDING = [CAUSES.index(cause) for cause in _HOLDERS if cause in CAUSES]
_CONGESTION_WINDOW = CAUSES.index("congestion_window")


class Limits(Struct, frozen=True, eq=False):
    shortest_ns: int = 1_000_000
    """Shorter delays are a sender's own pace (heuristic: as in the tables `waits` and `delays`)."""
    round_trips: float = 0.5
    """Share of a round trip from which a delay counts (heuristic: less is hidden by the bytes' travel time)."""
    longest_round_trips: float = congestion.LATE_ACK
    """Round trips after which an ACK itself was late (heuristic: a congestion window frees after one)."""
    least_share: float = 0.01
    """Reported from this share of RPC time (heuristic: below it is the variation between equal runs)."""
    warning_share: float = 0.10
    """A warning from this share of RPC time held by clients (heuristic: high, because it may be on purpose)."""
    least_calls: int = 3
    """Fewest calls that clients held (heuristic: fewer show no pattern; a first call warms up)."""
    lossless: float = 0.001
    """Share of retransmitted packets up to which losses are not the cause (heuristic: one in a thousand)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about held messages and held calls."""
    if not len(tables.waits.cause) and not len(tables.delays.stream):
        return
    held = _find_held_inside(tables, limits)
    late = _find_held_by_client(tables, limits)
    if len(held) or len(late):
        yield _make_finding(tables, held, late, limits)


def _is_enough(tables: Tables, time_ns: int, limits: Limits) -> bool:
    return time_ns > 0 and share_of_time(tables, time_ns) >= limits.least_share


def _no_rows() -> Ints:
    return np.zeros(0, dtype=np.int64)


# Inside a message, by the transport


def _find_held_inside(tables: Tables, limits: Limits) -> Ints:
    """Find blocked intervals that held back the rest of a message, by stream and time."""
    waits = tables.waits
    rows = np.flatnonzero((waits.owed_bytes > 0) & np.isin(waits.cause, _HOLDING))
    waited, rtt = waits.duration_ns[rows], waits.rtt_ns[rows]
    prompt = (waits.cause[rows] != _CONGESTION_WINDOW) | (waited <= limits.longest_round_trips * rtt)
    rows = rows[(waited >= limits.shortest_ns) & (waited >= limits.round_trips * rtt) & prompt]
    if not len(rows) or not _is_enough(tables, total_ns(waits.duration_ns[rows]), limits):
        return _no_rows()
    columns = (waits.start_time_ns[rows], waits.stream[rows], waits.direction[rows], waits.connection[rows])
    return np.asarray(rows[np.lexsort(columns)])


def _mark_first_of_message(tables: Tables, rows: Ints) -> npt.NDArray[np.bool_]:
    """Mark the first of the sorted intervals of each message: another stream, or more owed than before."""
    waits = tables.waits
    keys = np.stack([waits.connection[rows], waits.direction[rows], waits.stream[rows]], axis=1)
    owed = waits.owed_bytes[rows].astype(np.int64)
    return np.asarray(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1) | (owed[1:] >= owed[:-1])])


def _split_by_kind(tables: Tables, rows: Ints) -> Iterator[tuple[str, Ints]]:
    """Yield the intervals by what blocked the sender: their cause, for congestion windows what made them small."""
    waits = tables.waits
    loss = waits.after_loss[rows] != 0
    restarts = congestion.find_restarts(tables)
    idle = restarts.after_idle[rows] & restarts.stops[rows]
    idle &= ~loss
    new = congestion.mark_initial_window(tables, rows) & ~restarts.small[rows] & ~loss
    for number in distinct(waits.cause[rows]).tolist():
        mine = waits.cause[rows] == number
        if number == _CONGESTION_WINDOW:
            yield "window_after_loss", rows[mine & loss]
            yield "initial_window", rows[mine & new]
            yield "idle_restart", rows[mine & idle]
            mine = mine & ~idle & ~new & ~loss
        yield CAUSES[number], rows[mine]


def _sum_by_kind(tables: Tables, rows: Ints) -> list[tuple[str, int, int]]:
    """Sum up the sorted intervals as (kind, messages, nanoseconds), the longest first; a message may have several."""
    message: Ints = np.cumsum(_mark_first_of_message(tables, rows), dtype=np.int64)[: len(rows)]
    found = [
        (kind, len(distinct(message[np.isin(rows, chosen)])), total_ns(tables.waits.duration_ns[chosen]))
        for kind, chosen in _split_by_kind(tables, rows)
        if len(chosen)
    ]
    return sorted(found, key=lambda item: -item[2])


# Between HEADERS and DATA, by the client


def _find_held_by_client(tables: Tables, limits: Limits) -> Ints:
    """Find delays that neither the transport nor a stream's pace explains."""
    delays, connections = tables.delays, tables.connections
    rtt = connections.min_rtt_ns[delays.connection]
    lossless = connections.retransmitted_packets <= limits.lossless * connections.packets_client
    rows = np.flatnonzero(
        (delays.direction == 0)
        & (delays.duration_ns >= limits.shortest_ns)
        & (delays.duration_ns >= limits.round_trips * rtt)
        & lossless[delays.connection]
    )
    rows = rows[~_overlap_blocked(tables, rows)]
    unary = [method.number for method in tables.methods if method.messages <= 2 * method.rpcs]
    rows = rows[np.isin(tables.delays.method[rows], unary)]
    if len(rows) < limits.least_calls or not _is_enough(tables, total_ns(delays.duration_ns[rows]), limits):
        return _no_rows()
    return rows


def _overlap_blocked(tables: Tables, rows: Ints) -> npt.NDArray[np.bool_]:
    """Mark delays that overlap a blocked interval of the same end: bytes of another stream waited as well."""
    delays, waits = tables.delays, tables.waits
    mine = np.flatnonzero(waits.direction == 0)
    if not len(mine):
        return np.zeros(len(rows), dtype=bool)
    begin, end = delays.headers_time_ns[rows], delays.headers_time_ns[rows] + delays.duration_ns[rows]
    times, place = np.unique(np.r_[waits.start_time_ns[mine], end], return_inverse=True)
    connection = np.r_[waits.connection[mine], delays.connection[rows]].astype(np.int64)
    keys = connection * len(times) + place
    order = np.argsort(keys[: len(mine)], kind="stable")
    before = np.searchsorted(keys[: len(mine)][order], keys[len(mine) :]) - 1
    last = mine[order][np.maximum(before, 0)]
    same = (before >= 0) & (waits.connection[last] == delays.connection[rows])
    return np.asarray(same & (waits.start_time_ns[last] + waits.duration_ns[last] > begin))


# The finding


def _make_finding(tables: Tables, held: Ints, late: Ints, limits: Limits) -> Finding:
    lost = total_ns(tables.delays.duration_ns[late]) if len(late) else None
    share = None if lost is None else share_of_time(tables, lost)
    messages = int(_mark_first_of_message(tables, held).sum()) if len(held) else 0
    waits, delays = tables.waits, tables.delays
    connections = np.r_[waits.connection[held], delays.connection[late]]
    methods = np.r_[waits.method[held], delays.method[late]]
    return Finding(
        id=ID,
        title=f"{count(messages + len(late), 'message')} held back after the first bytes",
        severity=ratings.severity(share or 0.0, limits.warning_share, 1.1),
        confidence=ratings.lower(ratings.quality_allows(tables), "medium" if len(late) else "high"),
        scope=stalls.make_scope(tables, connections, methods),
        lost_ns=lost,
        share=share,
        metrics=_measure(tables, held, late, messages),
        evidence=(
            *_show_late(tables, late[hosts.pick_apart(tables, delays.connection[late])]),
            *_show_held(tables, held),
        ),
        explanation=" ".join([*_explain_late(tables, late), *_explain_held(tables, held, messages)]),
        remedies=tuple(_list_remedies(tables, held, late)),
        references=(
            "https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md",
            "https://github.com/grpc/grpc-go/issues/8436",
        ),
        verdict=_write_verdict(tables, held, late, messages),
    )


def _measure(tables: Tables, held: Ints, late: Ints, messages: int) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {
        "messages_held": messages,
        "messages_held_ns": total_ns(tables.waits.duration_ns[held]),
        "calls_held_by_client": len(late),
        "calls_held_by_client_ns": total_ns(tables.delays.duration_ns[late]),
    }
    for kind, number, time in _sum_by_kind(tables, held):
        found |= {f"{kind}_messages": number, f"{kind}_ns": time}
    return found


def _explain_held(tables: Tables, held: Ints, messages: int) -> Iterator[str]:
    if not len(held):
        return
    sums = _sum_by_kind(tables, held)
    parts = [f"{number:,} by {_HOLDERS[kind][0]} for {duration(time)}{_refer(kind)}" for kind, number, time in sums]
    several = ", some by several causes" if sum(number for _, number, _ in sums) > messages else ""
    messages_were = count(messages, "message was", "messages were")
    yield f"At least {messages_were} held back after the first bytes{several}: {'; '.join(parts)}."
    yield "The findings of these causes count that time; it is not counted here."


def _refer(kind: str) -> str:
    return f" (see {_HOLDERS[kind][1]})" if _HOLDERS[kind][1] else ""


def _explain_late(tables: Tables, late: Ints) -> Iterator[str]:
    if not len(late):
        return
    delays = tables.delays
    each = duration(float(np.median(delays.duration_ns[late])))
    client = hosts.host(tables, int(delays.connection[late[0]]), 0)
    yield (
        f"In {len(late):,} calls {client} sent the HEADERS of a request, and its message {each} later (median). No "
        "window, loss or other stream delayed it: the client's application or library had not handed it over. The "
        "packets do not show whether the call was opened early on purpose."
    )


def _show_late(tables: Tables, late: Ints) -> Iterator[Evidence]:
    delays = tables.delays
    for row in late.tolist():
        begin, waited = int(delays.headers_time_ns[row]), int(delays.duration_ns[row])
        yield Evidence(
            int(delays.headers_packet[row]), begin, f"HEADERS of the request on stream {int(delays.stream[row])}"
        )
        yield Evidence(
            int(delays.data_packet[row]),
            begin + waited,
            f"its message begins, {duration(waited)} later",
        )


def _show_held(tables: Tables, held: Ints) -> Iterator[Evidence]:
    waits = tables.waits
    for row in stalls.sort_longest(tables, held) if len(held) else []:
        kind = _sum_by_kind(tables, np.array([row]))[0][0]
        sender = hosts.host(tables, int(waits.connection[row]), int(waits.direction[row]))
        yield from stalls.show_interval(
            tables,
            row,
            f"{sender} stops inside the message on stream {int(waits.stream[row])}, held back by {_HOLDERS[kind][0]}; "
            f"{int(waits.owed_bytes[row]):,} bytes are still to send",
            "the last packet from the peer before the sender resumed",
            f"the message continues, {duration(int(waits.duration_ns[row]))} later",
        )


def _list_remedies(tables: Tables, held: Ints, late: Ints) -> Iterator[Remedy]:
    if len(late):
        yield Remedy("application", "make the message first, then start the call", "on the client; costs nothing")
        yield Remedy(
            "application",
            "prepare credentials and compression ahead",
            "work between opening a call and its first message delays the call",
        )
    for kind, _, _ in _sum_by_kind(tables, held):
        if finding := _HOLDERS[kind][1]:
            yield Remedy("any gRPC implementation", f"grpcdiag explain {finding}", "that finding lists the settings")


def _write_verdict(tables: Tables, held: Ints, late: Ints, messages: int) -> str:
    if len(late):
        time = total_ns(tables.delays.duration_ns[late])
        return (
            f"{count(len(late), 'call')} lost {duration(time)} "
            f"({share_of_time(tables, time):.0%} of all RPC time) because the client sent the message later "
            "than its HEADERS: make the message before starting the call. Where it was ready, its library or event "
            "loop was busy."
        )
    kind = _sum_by_kind(tables, held)[0][0]
    messages_were = count(messages, "message was", "messages were")
    return f"{messages_were} held back after the first bytes, mostly by {_HOLDERS[kind][0]}{_refer(kind)}."
