"""A message needed extra round trips because idle time had reset the sender's TCP congestion window.

What it finds
-------------
The same call is slow after a pause and fast when it follows another call at once. The sender's TCP was idle for
longer than its retransmission timeout, so Linux restarted its congestion window
(`net.ipv4.tcp_slow_start_after_idle`, on by default).

The first 10 segments leave at once. The rest of the message waits one round trip for the first ACK. Nothing in gRPC
or HTTP/2 is involved.

How it is decided
-----------------
A burst counts when all of this holds:

- The sender had nothing in flight and had sent no data for longer than its retransmission timeout. The timeout is
  estimated as Linux does it: RFC 6298 with a variance term of at least 200 ms.
- The sender stopped inside a message, or before the frame that ends the stream. tonic's requests end with an empty
  frame, which waits for the window like any other byte.
- The bytes in flight filled the restarted window and no more. HTTP/2 and TCP receive windows were open.
- The sender resumed right after an ACK, at least a round trip after the burst began, and nothing was retransmitted in
  between.
- The congestion window before the idle time had room for more. It is followed from the connection's beginning.

Where the beginning is not in the capture, a sender's second such burst counts, and every later one, if the
connection lost nothing: the ACKs of the first burst had enlarged the window by then. The confidence is then medium.
Small frames in the idle time (PING, WINDOW_UPDATE) do not let a restarted window grow, and do not end the idle time
here. Round trips that the message would have needed with the earlier window as well are not counted as lost, nor are
intervals in which the sender's packets kept a queue on the path: the link was busy.

When it cannot tell
-------------------
When no round-trip time was measured. When the capture lacks the connection's opening, for a sender's first burst or
after losses: the window before the idle time is then not known. A sender on another operating system, or with a
pacing congestion control such as BBR, may behave differently. Its pauses stay unexplained.

What would refute it
--------------------
`net.ipv4.tcp_slow_start_after_idle` is 0 on the sender. Or `ss -ti` there shows a congestion window above 10 right
after the idle time. Or the same message needs one round trip when it follows another within the timeout but not
otherwise.

What to do
----------
Choose one:

- On the sending host: `sysctl -w net.ipv4.tcp_slow_start_after_idle=0`.
- Keep the connection warm with calls closer together than the retransmission timeout.
- Raise the initial window of the route: `ip route change ... initcwnd 32`.
- Send less than 10 segments per message.

No gRPC option changes it. gRPC's keepalive does not help: its shortest period, 10 s, is longer than the timeout.

References
----------
- RFC 5681 section 4.1, RFC 2861: restarting idle connections
- Linux net/ipv4/tcp_output.c, tcp_cwnd_restart; include/net/tcp.h, TCP_INIT_CWND
- https://github.com/grpc/grpc-go/issues/5599, https://github.com/grpc/grpc-go/issues/8436
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from ..facts import congestion, contradictions, hosts, methods, ratings, stalls
from ..model.budget import CAUSES
from ..model.detector import About, Requirement
from ..model.finding import Evidence, Finding, Remedy, Skipped
from ..model.text import count, duration, format_times
from ..software import intents, settings
from ..tables import Ints, Tables
from ..tables.durations import total_ns
from ..tables.grouping import distinct

ID = "slow-start-after-idle"
ABOUT = About(
    example="recorded/rtt205-go-16000.pcap",
    figure=contradictions.blocked_time("congestion_window"),
    requires=Requirement(
        "net.ipv4.tcp_slow_start_after_idle", "bursts stopped after idle time as with a restarted congestion window"
    ),
    picture="flight",
    explains=("congestion_window",),
)

_CONGESTION_WINDOW = CAUSES.index("congestion_window")


Limits = stalls.TimeLimits


class _Burst(Struct, frozen=True, eq=False):
    """One flight that a restarted window blocked; `waits` are rows of the waits table in the order of time."""

    waits: tuple[int, ...]
    lost_waits: int
    small: bool
    """Whether small frames were sent in the idle time."""

    @property
    def first(self) -> int:
        return self.waits[0]


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all bursts, or why some could not be judged."""
    waits = tables.waits
    blocked = (waits.cause == _CONGESTION_WINDOW) & (waits.after_loss == 0)  # the others are loss-recovery's
    unmeasured = blocked & (waits.idle_before_ns > 0) & (waits.rto_ns < 0)
    if unmeasured.any():
        yield Skipped(
            ID, f"no round-trip time was measured before {int(unmeasured.sum())} blocked intervals after idle time"
        )
    seen = congestion.find_restarts(tables)
    restarted = blocked & seen.after_idle
    late = restarted & mark_unknown_window(tables, restarted)
    if late.any():
        yield Skipped(
            ID, "the capture begins after the connection: its congestion window before some idle times is unknown"
        )
    known = replace(waits, idle_before_ns=seen.idle_ns, window_before_idle_bytes=seen.window_bytes)
    tables = replace(tables, waits=known)
    rows = np.flatnonzero(restarted & ~late & ~congestion.mark_in_queues(tables))
    bursts = [
        burst for burst in _find_bursts(tables, rows, seen.small) if burst.lost_waits > 0 and seen.stops[burst.first]
    ]
    if bursts:
        yield _make_finding(tables, bursts, limits)


def mark_unknown_window(tables: Tables, restarted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mark intervals before which the window may never have been larger: their connection began before the capture.

    Each acknowledged round adds at least a segment (RFC 5681 section 3.1). A later burst of the same sender that stops
    at the initial window again had a larger window before, unless a loss had reduced it.
    """
    waits, connections = tables.waits, tables.connections
    rows = np.flatnonzero(restarted)
    rows = rows[connections.complete[waits.connection[rows]] == 0]
    ends = waits.connection[rows].astype(np.int64) * 2 + waits.direction[rows]
    place = np.searchsorted(distinct(ends), ends)
    first = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(first, place, waits.flight[rows].astype(np.int64))
    lossy = connections.retransmitted_packets[waits.connection[rows]] > 0
    unknown = np.zeros(len(restarted), dtype=bool)
    unknown[rows[lossy | (waits.flight[rows] == first[place])]] = True
    return unknown


def _find_bursts(tables: Tables, rows: Ints, small: npt.NDArray[np.bool_]) -> Iterator[_Burst]:
    if not len(rows):
        return
    waits = tables.waits
    order = rows[
        np.lexsort((waits.start_time_ns[rows], waits.flight[rows], waits.direction[rows], waits.connection[rows]))
    ]
    keys = np.stack([waits.connection[order], waits.direction[order], waits.flight[order]], axis=1).astype(np.int64)
    starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1)])
    for start, end in zip(starts, np.r_[starts[1:], len(order)], strict=True):
        flight = tuple(int(row) for row in order[start:end])
        yield _Burst(flight, max(0, len(flight) - _count_needed_intervals(tables, flight[0])), bool(small[flight[0]]))


def _count_needed_intervals(tables: Tables, wait: int) -> int:
    """Count the round trips that the burst would have needed with its window before the idle time, in slow start."""
    waits = tables.waits
    window = int(waits.window_before_idle_bytes[wait])
    sent, size = window, int(waits.in_flight_bytes[wait]) + int(waits.owed_bytes[wait])
    if window <= int(waits.in_flight_bytes[wait]):
        return 1 << 30  # the window was no larger before: the restart cost nothing
    rounds = 0
    while sent < size:
        window *= 2
        sent += window
        rounds += 1
    return rounds


def _make_finding(tables: Tables, bursts: list[_Burst], limits: Limits) -> Finding:
    waits = tables.waits
    lost_rows = np.array([row for burst in bursts for row in burst.waits[: burst.lost_waits]])
    first_rows = np.array([burst.first for burst in bursts])
    lost = total_ns(waits.duration_ns[lost_rows])
    share = methods.share_of_time(tables, lost)
    whole = bool((tables.connections.complete[waits.connection[first_rows]] == 1).all())
    example = _format_figures(tables, bursts[0])
    each = duration(lost / len(bursts))
    named = name_hosts(tables, first_rows)
    rounds = "an extra round trip" if len(lost_rows) == len(bursts) else "for extra round trips"
    alike = " each" if len(bursts) > 1 else ""
    restarts = "restarts its" if len(named) == 1 else "restart their"
    return Finding(
        id=ID,
        title=(f"{count(len(bursts), 'message burst')} waited for a congestion window that idle time had reset"),
        severity=ratings.severity(share, limits.warning_share, limits.critical_share),
        confidence=ratings.lower(
            "medium" if any(burst.small for burst in bursts) or not whole else "high",
            stalls.rate_confidence(tables, first_rows),
        ),
        scope=stalls.find_scope(tables, first_rows),
        lost_ns=lost,
        share=share,
        metrics=_measure(tables, first_rows, lost_rows),
        evidence=tuple(
            item
            for place in hosts.pick_apart(tables, waits.connection[first_rows])
            for item in _show_burst(tables, bursts[place])
        ),
        explanation=_explain(example, len(bursts), each, named),
        remedies=list_remedies(" and ".join(named)),
        references=(
            "RFC 5681 section 4.1",
            "Linux net/ipv4/tcp_output.c tcp_cwnd_restart",
            "https://github.com/grpc/grpc-go/issues/5599",
            "https://github.com/grpc/grpc-go/issues/8436",
        ),
        verdict=(
            f"{count(len(bursts), 'message')} waited {rounds} ({each}{alike}, {share:.0%} of RPC time) because "
            f"{' and '.join(named)} {restarts} TCP congestion window after idle time: set "
            "net.ipv4.tcp_slow_start_after_idle=0 there."
        ),
    )


def name_hosts(tables: Tables, rows: Ints) -> tuple[str, ...]:
    """Name the ends whose bursts waited, the one with the most first."""
    waits = tables.waits
    ends = zip(waits.connection[rows].tolist(), waits.direction[rows].tolist(), strict=True)
    counts = Counter(hosts.host(tables, connection, direction) for connection, direction in ends)
    return tuple(name for name, _ in counts.most_common(3))


def _measure(tables: Tables, first: Ints, lost: Ints) -> dict[str, int | float | str]:
    waits = tables.waits

    def median(column: Ints, rows: Ints) -> int:
        return int(np.median(column[rows]))

    metrics: dict[str, int | float | str] = {
        "bursts": len(first),
        "lost_per_burst_ns": total_ns(waits.duration_ns[lost]) // len(first),
        "round_trip_ns": median(waits.rtt_ns, first),
        "idle_before_ns": median(waits.idle_before_ns, first),
        "retransmission_timeout_ns": median(waits.rto_ns, first),
        "segments_in_first_burst": int(np.median(waits.in_flight_bytes[first] // np.maximum(waits.mss[first], 1))),
        "bytes_in_first_burst": median(waits.in_flight_bytes, first),
        "segment_bytes": int(np.median(waits.mss[first])),
        "congestion_window_before_idle_bytes": median(waits.window_before_idle_bytes, first),
        "owed_bytes_at_stop": int(np.median(waits.owed_bytes[first])),
    }
    if tables.measured is not None:
        metrics["congestion_windows_measured"] = int(tables.measured.before_idle[first].sum())
    return metrics


def _format_figures(tables: Tables, burst: _Burst) -> dict[str, str]:
    """Format the figures of one burst."""
    waits, wait = tables.waits, burst.first
    connection, direction = int(waits.connection[wait]), int(waits.direction[wait])
    in_flight, mss = int(waits.in_flight_bytes[wait]), max(1, int(waits.mss[wait]))
    resumed = int(waits.start_time_ns[wait]) + int(waits.duration_ns[wait])
    return {
        "host": hosts.host(tables, connection, direction),
        "nothing": "only small frames" if burst.small else "nothing",
        "idle": duration(int(waits.idle_before_ns[wait])),
        "rto": duration(int(waits.rto_ns[wait])),
        "segments": f"{in_flight // mss:,}",
        "mss": f"{mss:,}",
        "in_flight": f"{in_flight:,}",
        "owed": stalls.describe_owed(tables, wait),
        "rest": "the remaining " * bool(waits.owed_bytes[wait]) + stalls.describe_owed(tables, wait),
        "waited": duration(int(waits.duration_ns[wait])),
        "after_ack": duration(resumed - int(waits.released_time_ns[wait])),
        "window_before": f"{int(waits.window_before_idle_bytes[wait]):,}",
        "known": "was" if _is_measured(tables, wait) else "is estimated at",
        "source": " (reported by its kernel)" if _is_measured(tables, wait) else "",
    }


def _is_measured(tables: Tables, wait: int) -> bool:
    """Check whether the sender's kernel reported its window before the idle time."""
    return tables.measured is not None and bool(tables.measured.before_idle[wait])


def _show_burst(tables: Tables, burst: _Burst) -> Iterator[Evidence]:
    waits, wait, words = tables.waits, burst.first, _format_figures(tables, burst)
    start, duration = int(waits.start_time_ns[wait]), int(waits.duration_ns[wait])
    yield Evidence(
        int(waits.flight_first_packet[wait]),
        int(waits.flight_start_time_ns[wait]),
        f"first data of {words['host']} after {words['idle']} in which it sent {words['nothing']}; its retransmission "
        f"timeout is about {words['rto']}",
    )
    yield Evidence(
        int(waits.stopped_at_packet[wait]),
        start,
        f"{words['segments']} segments of {words['mss']} bytes ({words['in_flight']} bytes) are in flight; the sender "
        f"stops with {words['owed']} still to send",
    )
    released = int(waits.released_time_ns[wait])
    seen = released >= start  # where the receiver captured, its ACK may have left before the stop is seen
    if seen:
        yield Evidence(int(waits.released_by_packet[wait]), released, "the ACK that opens the congestion window")
    after = f"{words['after_ack']} after that ACK was captured, " if seen else ""
    yield Evidence(
        int(waits.resumed_at_packet[wait]),
        start + duration,
        f"the rest follows {after}{words['waited']} after the stop",
    )


def _explain(example: dict[str, str], bursts: int, each: str, named: tuple[str, ...]) -> str:
    also = f", at {' and '.join(named)}" if len(named) > 1 else ""
    return (
        f"{example['host']} had sent {example['nothing']} for {example['idle']}, longer than its retransmission "
        f"timeout of about {example['rto']}. Its TCP therefore reduced the congestion window towards the initial one: "
        f"{example['segments']} segments of {example['mss']} bytes ({example['in_flight']} bytes) were in flight, and "
        f"{example['rest']} waited {example['waited']} for the first ACK. HTTP/2 "
        "and TCP receive windows had room. "
        f"Before the idle time the congestion window {example['known']} {example['window_before']} bytes"
        f"{example['source']}. This happened "
        f"{format_times(bursts)}{also} and cost {each}{' each on average' if bursts > 1 else ''}."
    )


_KEEPS = (
    "keeps the congestion window during idle time; applies to all connections of the host's network namespace, new and "
    "open"
)
_LARGER = "a larger initial window, also after idle time; helps the first call of a connection too"


def list_remedies(host: str) -> tuple[Remedy, ...]:
    """List the settings that avoid a restarted window on a host."""
    return (
        *settings.list_own(intents.CONGESTION_WINDOW, "linux", _KEEPS, where=f"on {host}"),
        Remedy(
            "application",
            "a small call more often than the retransmission timeout",
            "keeps the connection from becoming idle; gRPC keepalive is too rare for this (10 s at least)",
        ),
        *settings.list_own(intents.INITIAL_WINDOW, "linux", _LARGER, where=f"on {host}"),
        Remedy("any gRPC implementation", "none", "no gRPC or HTTP/2 window or buffer option changes this"),
    )
