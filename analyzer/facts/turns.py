"""Which side each connection was waiting for; shared by the detectors of callers that wait for each other."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ..model.finding import Evidence
from ..model.text import duration
from ..tables import Ints, Mask, Tables
from ..tables.durations import total_ns
from . import evidence

Rows = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

_RARE_PAUSES = 0.02
"""Share of silences up to which pauses are rare (heuristic: a busy run pauses now and then, a timer makes every silence
a pause)."""
_BESIDE = 0.1
"""Share of the messages from which another connection takes part in the work (heuristic: one for service discovery or
health checks has next to none)."""


class GapLimits(Struct, frozen=True, eq=False):
    """The limits of detectors of idle clients."""

    held_share: float = 0.15
    """Share of the active time in which the client is idle (heuristic: below it another limit is more likely)."""
    gaps: int = 100
    """Times the client was idle (heuristic: fewer show no pattern)."""
    callers_per_round: float = 0.5
    """Requests per round for each caller (heuristic: callers in step reach one, independent timers nearly none)."""
    most_paused: float = 0.5
    """Share of the time in pauses (heuristic: from here on timers set the pace, not the callers)."""
    callers: int = 6
    """RPCs or streams open at once (heuristic: YDB's post shows the effect from about ten; small tests use four)."""
    request_ns: int = 5_000
    """Silence per request up to which separate connections would save nothing. Each request would then leave in a
    separate packet, which costs a system call and a wake-up, some microseconds (measured: 2 µs with streams of grpc-go,
    which are faster on one connection; 13 to 29 µs with C-core, which is slower)."""
    gap_ns: int = 2_000_000
    """Mean silence from which a timer or the application's own work is more likely than the library's delay (the
    longest reaction time that a host is allowed elsewhere too; a library takes tens or hundreds of microseconds)."""
    waiting_share: float = 0.5
    """Share of the idle time in which the client's threads waited for a processor, from which that is the cause, not
    the client's library (heuristic: most of it)."""
    dispersion: float = 0.25
    """Spread of the middle half of each caller's intervals, in medians, below which timers or pauses of their own set
    them (measured: 0.09 to 0.22 with timers and sleeps, 0.39 and more with eight callers in a loop)."""


class Turn(Struct, frozen=True, eq=False):
    """Activity and idle time of some connections, one element per element of `rows`."""

    rows: Rows
    """Rows of the connections table."""
    callers: Ints
    """Most RPCs open at once, unary calls or streams: the callers that may wait at the same time."""
    active_ns: Ints
    """From the first message to the last one, without the application's pauses."""
    held: Shares
    """Share of that time in which the connection was idle and waited for the client."""
    paused: Shares
    """Share of the time from the first message to the last one that was pauses; 0 when pauses are rare."""
    round_messages: Shares
    """Request messages per round: from one silence to the next."""
    request_ns: Shares
    """Idle time of the client per request message."""
    gap_ns: Shares
    """Mean length of these idle intervals, without pauses."""


def measure_turns(tables: Tables, rows: Rows) -> Turn:
    """Measure activity and idle time of the connections `rows`."""
    turns, directions = tables.turns, tables.directions
    begins = np.stack([directions.first_message_time_ns[2 * rows], directions.first_message_time_ns[2 * rows + 1]])
    ends = np.stack([directions.last_message_time_ns[2 * rows], directions.last_message_time_ns[2 * rows + 1]])
    first = np.where(begins > 0, begins, np.iinfo(np.int64).max).min(axis=0)
    span = np.maximum(ends.max(axis=0) - first, 1)
    active = np.maximum(span - turns.pause_ns[rows], 1)
    silences = turns.idles[rows].astype(np.int64) + turns.pauses[rows]
    return Turn(
        rows=rows,
        callers=tables.connections.max_concurrent_rpcs[rows].astype(np.int64),
        active_ns=active,
        held=np.minimum(turns.idle_ns[rows] / active, 1.0),
        paused=np.where(
            turns.pauses[rows] < _RARE_PAUSES * silences, 0.0, np.minimum(turns.pause_ns[rows] / span, 1.0)
        ),
        round_messages=turns.burst_messages[rows] / np.maximum(silences, 1),
        request_ns=turns.idle_ns[rows] / np.maximum(turns.burst_messages[rows], 1),
        gap_ns=turns.idle_ns[rows] / np.maximum(turns.idles[rows], 1),
    )


def mark_in_step(turn: Turn, limits: GapLimits) -> Mask:
    """Mark idle connections whose callers send again as soon as they have their responses, and not by timers.

    The client is idle only when every caller has its response. Callers that send again at once then send together: a
    round carries about as many requests as there are callers, and the connection seldom pauses. Timers make rounds of
    one or two requests, or pauses that fill most of the time.
    """
    together = turn.round_messages >= limits.callers_per_round * turn.callers
    return (turn.held >= limits.held_share) & together & (turn.paused < limits.most_paused)


def mark_costly(tables: Tables, turn: Turn, limits: GapLimits) -> Mask:
    """Mark connections whose silence is long enough to cost the callers time, and neither a timer's nor regular."""
    costly = (turn.request_ns >= limits.request_ns) & (turn.gap_ns < limits.gap_ns)
    return costly & ~mark_regular(tables, turn.rows, limits.dispersion)


def mark_regular(tables: Tables, rows: Rows, dispersion: float) -> Mask:
    """Mark connections whose callers send at regular intervals, so that it is open for what they wait.

    Timers and fixed pauses make the intervals of each caller alike. So do a client and a server that need the same time
    in each round.
    """
    interval, spread = tables.turns.interval_ns[rows], tables.turns.interval_spread_ns[rows]
    return np.asarray((interval > 0) & (spread < dispersion * interval))


def mark_measurable(tables: Tables, rows: Rows) -> Mask:
    """Mark connections whose gaps exceed the round trip from the capture to the client, so that jitter is no cause."""
    turns = tables.turns
    return turns.idle_ns[rows] >= tables.connections.near_client_rtt_ns[rows] * turns.idles[rows].astype(np.int64)


def find_with_gaps(tables: Tables, least: int) -> Rows:
    """Find connections on which the client was idle `least` times or more and that have more than one caller."""
    return np.flatnonzero((tables.turns.idles >= least) & (tables.connections.max_concurrent_rpcs > 1))


def mark_alone(tables: Tables, rows: Rows) -> Mask:
    """Mark connections without another one with RPCs at the same time between the same client and server.

    Another connection with hardly any of the messages does not count: it takes no share of the work.
    """
    if not len(rows):
        return np.zeros(0, dtype=bool)
    c = tables.connections
    used = np.flatnonzero(c.rpcs > 0)
    ends = np.stack([c.client_ip[used], c.server_ip[used], c.server_port[used]], axis=1)
    _, pair = np.unique(ends, axis=0, return_inverse=True)
    pair, messages = pair.reshape(-1), tables.directions.messages.astype(np.int64).reshape(-1, 2).sum(axis=1)[used]
    most = np.zeros(len(used), dtype=np.int64)
    np.maximum.at(most, pair, messages)
    busy = messages >= _BESIDE * most[pair]
    used, pair = used[busy], pair[busy]
    begin, end = c.first_time_ns[used] // 1000, c.last_time_ns[used] // 1000  # µs leave room for the pair's number
    begin, end = begin - begin.min(), end - begin.min()
    order = np.lexsort((begin, pair))
    apart = pair[order] * (int(end.max()) + 2)  # intervals of different pairs never overlap
    begin, end = begin[order] + apart, end[order] + apart
    shared = np.zeros(len(c.rpcs), dtype=bool)
    shared[used[order[1:]]] = np.maximum.accumulate(end)[:-1] > begin[1:]
    shared[used[order[:-1]]] |= begin[1:] < end[:-1]
    return ~shared[rows]


class Gaps(Struct, frozen=True, eq=False):
    """The distribution of the client's gaps on some connections."""

    count: int
    total_ns: int
    p50_ns: int
    """Median length, interpolated within its length class; a class is a factor of two wide."""
    p90_ns: int
    """Ninetieth percentile of the length, interpolated in the same way."""
    classes: str
    """`64-128 µs: 210, ...`."""

    def metrics(self) -> dict[str, int | float | str]:
        """Return the figures for a finding."""
        return {
            "gaps": self.count,
            "gap_p50_ns": self.p50_ns,
            "gap_p90_ns": self.p90_ns,
            "gap_mean_ns": self.total_ns // max(self.count, 1),
            "gap_distribution": self.classes,
        }


def measure_gaps(tables: Tables, rows: Rows) -> Gaps:
    """Measure the gaps of the connections `rows`."""
    idles = tables.idles
    mine = np.isin(idles.connection, rows)
    lengths = idles.length_class[mine].astype(np.int64)
    counts = np.bincount(lengths, weights=idles.count[mine], minlength=1).astype(np.int64)
    running = np.cumsum(counts)

    def quantile(share: float) -> int:
        if not running[-1]:
            return 0
        rank = share * float(running[-1])
        place = int(np.searchsorted(running, rank))
        inside = 1 - (float(running[place]) - rank) / float(counts[place])
        return int(1000 * 2 ** (place + inside))

    words = [f"{1 << n}-{2 << n} µs: {count:,}" for n, count in enumerate(counts.tolist()) if count]
    return Gaps(int(counts.sum()), total_ns(idles.total_ns[mine]), quantile(0.5), quantile(0.9), ", ".join(words))


def show_gaps(tables: Tables, row: int, examples: int = evidence.EXAMPLES) -> Iterator[Evidence]:
    """Yield both ends of gaps of one connection: one gap for each of the most frequent lengths."""
    idles = tables.idles
    mine = np.flatnonzero(idles.connection == row)
    most = mine[np.argsort(-idles.count[mine].astype(np.int64), kind="stable")][:examples]
    for one in sorted(most.tolist(), key=lambda place: int(idles.start_time_ns[place])):
        start, length = int(idles.start_time_ns[one]), int(idles.duration_ns[one])
        yield evidence.show_packet(
            idles,
            "before_packet",
            one,
            "the last outstanding response: nothing is in flight and no RPC waits for the server"
            + _describe_way(start - int(idles.before_time_ns[one])),
        )
        yield Evidence(
            int(idles.after_packet[one]),
            start + length,
            f"the client's next request, {duration(length)} later",
        )


def _describe_way(ns: int) -> str:
    """Say how far the capture point is from the client, which a gap does not include."""
    return f"; the client receives it about {duration(ns)} later" if ns else ""


def find_losing(tables: Tables, limits: GapLimits) -> Rows:
    """Find the connections on which sharing costs time, so that other findings there can refer to it."""
    rows = find_with_gaps(tables, limits.gaps)
    if not len(rows):
        return rows
    turn = measure_turns(tables, rows)
    held = mark_in_step(turn, limits) & mark_measurable(tables, rows)
    held &= mark_costly(tables, turn, limits)
    rows = rows[held & (turn.callers >= limits.callers)]
    return rows[mark_alone(tables, rows)]
