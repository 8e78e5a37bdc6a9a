"""Figures of the last 1, 10 and 60 seconds: by method, by connection, and findings as they come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ...analyzer.model.analysis import Analysis, Budget, ConnectionFacts, MethodFacts
from ...analyzer.model.finding import Finding

SCHEMA = "grpcdiag.watch/1"
"""Name and version of a line's structure."""
SPANS_S = (1, 10, 60)
"""Lengths of the windows in seconds. Findings are those of the second one."""
JUDGED_S = SPANS_S[1]
_OK = ("OK", "not_seen")
_NS = 1_000_000_000


class Figures(Struct, frozen=True):
    """RPCs of a window."""

    rpcs_per_s: float
    """RPCs that ended, per second."""
    failed_per_s: float
    """Of them, those with a status other than OK."""
    p50_ns: int | None
    """Of RPCs that ended; None without any."""
    p99_ns: int | None
    budget: Budget
    """Their time by cause."""


class MethodRow(Struct, frozen=True):
    """A method now."""

    method: str
    in_flight: int
    windows: Mapping[str, Figures]
    """By length in seconds, without windows in which it had no RPC."""


class ConnectionRow(Struct, frozen=True):
    """A connection now. Latencies are by method alone."""

    client: str
    server: str
    in_flight: int
    rpcs_per_s: Mapping[str, float]
    """RPCs per second, by the window's length in seconds."""
    packets_per_s: float
    """Of both sides, in the last 10 seconds."""
    retransmitted_packets: int
    """In the last 10 seconds."""
    budget: Budget
    """Time of its RPCs by cause, in the last 10 seconds."""


class Shown(Struct, frozen=True):
    """A finding of the last 10 seconds, or one that has just gone."""

    id: str
    title: str
    severity: str
    confidence: str
    since_time_ns: int
    """When it was first there."""
    gone_time_ns: int | None
    """When it was gone; None while it lasts."""
    packets: tuple[int, ...]
    """Its evidence; packets count from the first one that `watch` read."""


class Snapshot(Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """What is known at one moment."""

    time_ns: int
    """The end of the windows, nanoseconds since the epoch."""
    seconds: Mapping[str, float]
    """What each window really covers: less at the beginning."""
    verdict: str
    packets: int
    """Since the beginning."""
    dropped_packets: int | None
    """Packets that the recording lost since the beginning; None when that is unknown."""
    packets_per_s: float
    """In the last second, as `bytes_per_s`."""
    bytes_per_s: float
    missing_bytes: int
    """Payload that the capture lacks, of the last 10 seconds."""
    methods: tuple[MethodRow, ...]
    """The one with the most RPC time of the last 10 seconds first."""
    connections: tuple[ConnectionRow, ...]
    findings: tuple[Shown, ...]
    """The gravest first; those that are gone at the end, for a minute."""


class Part(Struct, frozen=True):
    """The analysis of one window."""

    analysis: Analysis
    seconds: float
    """What it covers."""
    open_rpcs: Mapping[str, int]
    """RPCs without an end, by method."""


class History:
    """Remembers when findings came and went."""

    def __init__(self) -> None:
        """Begin without any."""
        self._shown: dict[str, Shown] = {}

    def add(self, findings: Sequence[Finding], now_ns: int) -> tuple[Shown, ...]:
        """Add the findings of a window, and list them with those that have gone since a minute or less."""
        here = {finding.id: finding for finding in findings}
        kept: dict[str, Shown] = {}
        for id_, before in self._shown.items():
            if id_ in here:
                continue
            gone = before.gone_time_ns or now_ns
            if now_ns - gone <= SPANS_S[-1] * _NS:
                kept[id_] = _show(before, before.since_time_ns, gone)
        for id_, finding in here.items():
            old = self._shown.get(id_)
            kept[id_] = _show(finding, old.since_time_ns if old and old.gone_time_ns is None else now_ns, None)
        self._shown = kept
        order = ("critical", "warning", "info")
        return tuple(
            sorted(kept.values(), key=lambda s: (s.gone_time_ns is not None, order.index(s.severity), s.since_time_ns))
        )


def _show(one: Finding | Shown, since_ns: int, gone_ns: int | None) -> Shown:
    packets = one.packets if isinstance(one, Shown) else tuple(evidence.packet for evidence in one.evidence)
    return Shown(one.id, one.title, one.severity, one.confidence, since_ns, gone_ns, packets)


def take_snapshot(
    parts: Mapping[int, Part], history: History, *, time_ns: int, packets: int, dropped: int | None
) -> Snapshot:
    """Put together what the windows show, by their length in seconds."""
    judged, last = parts[JUDGED_S], parts[SPANS_S[0]]
    return Snapshot(
        time_ns=time_ns,
        seconds={str(length): part.seconds for length, part in parts.items()},
        verdict=judged.analysis.verdict.text,
        packets=packets,
        dropped_packets=dropped,
        packets_per_s=_rate(last.analysis.capture.packets, last),
        bytes_per_s=_rate(last.analysis.capture.bytes, last),
        missing_bytes=judged.analysis.quality.missing_bytes,
        methods=tuple(_list_methods(parts)),
        connections=tuple(_list_connections(parts)),
        findings=history.add(judged.analysis.findings, time_ns),
    )


def _rate(number: int, part: Part) -> float:
    return round(number / part.seconds, 3) if part.seconds > 0 else 0.0


def _name(method: MethodFacts) -> str:
    return method.method or method.label or "unknown"


def _list_methods(parts: Mapping[int, Part]) -> Iterable[MethodRow]:
    rows: dict[str, dict[str, Figures]] = {}
    for length in (JUDGED_S, *parts):
        for method in parts[length].analysis.methods:
            rows.setdefault(_name(method), {})[str(length)] = _measure(method, parts[length])
    for name, windows in rows.items():
        in_flight = parts[JUDGED_S].open_rpcs.get(name, 0)
        yield MethodRow(
            name, in_flight, {str(length): windows[str(length)] for length in parts if str(length) in windows}
        )


def _measure(method: MethodFacts, part: Part) -> Figures:
    ended = sum(method.statuses.values())
    failed = ended - sum(method.statuses.get(status, 0) for status in _OK)
    latency = method.latency_ns
    return Figures(
        rpcs_per_s=_rate(method.rpcs - part.open_rpcs.get(_name(method), 0), part),
        failed_per_s=_rate(failed, part),
        p50_ns=latency.p50 if latency else None,
        p99_ns=latency.p99 if latency else None,
        budget=method.budget,
    )


def _list_connections(parts: Mapping[int, Part]) -> Iterable[ConnectionRow]:
    ends = lambda c: (c.client, c.server)  # noqa: E731
    rates: dict[tuple[str, str], dict[str, float]] = {}
    for length, part in parts.items():
        for connection in part.analysis.connections:
            rates.setdefault(ends(connection), {})[str(length)] = _rate(connection.rpcs, part)
    judged = parts[JUDGED_S]
    for connection in sorted(judged.analysis.connections, key=_weigh):
        packets = connection.packets_client + connection.packets_server
        yield ConnectionRow(
            client=connection.client,
            server=connection.server,
            in_flight=0,
            rpcs_per_s=rates[ends(connection)],
            packets_per_s=_rate(packets, judged),
            retransmitted_packets=connection.retransmitted_packets,
            budget=connection.budget,
        )


def _weigh(connection: ConnectionFacts) -> tuple[int, int]:
    return -sum(connection.budget.values()), connection.connection
