"""Two captures put together: the analysis of the client's, and what the server's adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from ..analysis import analyze, of_tables
from ..decode.decode import decode
from ..decode.errors import NoGrpcError, TooLargeError
from ..decode.runner import DecodeOptions, Progress
from ..detectors import loss_recovery
from ..model.analysis import (
    Analysis,
    Apart,
    ClockFacts,
    Ends,
    EndsCapture,
    EndsConnection,
    EndsMethod,
    LostPacket,
    Quantiles,
    Way,
)
from ..model.finding import Finding
from ..sidecar.read import Sidecar
from ..summary.figures import HTTP2, TLS
from ..tables import Counts, Ints, Tables
from ..tables.durations import totals_ns
from ..tables.grouping import group_rows
from .clock import Clock, NoClock, fit
from .connections import Pair, pairs
from .losses import Losses, losses
from .matching import Crossing, Mask, align, alike, cross
from .places import vantages
from .recorded import RETRANSMISSION, Recorded, Trace, read
from .split import SPLIT_CAUSES, Delays, Split, split

LISTED = 1_000
"""Lost packets that are listed per direction."""

_CLEAR_NS = 100_000
"""By how much nearer to the client one capture point is for its round trips to tell which is the client's."""


Described = Callable[[Sequence[str]], tuple[Sidecar | None, tuple[str, ...]]]
"""What was recorded beside some files, and what is to be noted of that."""


def analyze_files(
    files: Sequence[str],
    *,
    described: Described = lambda _files: (None, ()),
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Analysis:
    """Analyse several files: pieces of one rotated capture, or captures at two places, whichever they are.

    Raises CaptureError, and NoGrpcError when none has gRPC.
    """
    places = vantages(files, **how)
    if len(places) == 1:
        tables = decode(files, rpc_rows=False, progress=progress, **how)
        if not tables.capture["time_steps_back"]:
            return of_tables(tables, *described(files))
        # pieces of one capture follow each other; what begins before the other's end may be the same time elsewhere
        places = vantages(files, whole=True, **how)
        if len(places) == 1:
            return of_tables(tables, *described(files))
    if len(places) > 2:
        return _apart(places, f"they were captured at {len(places)} places, and two can be put together", progress, how)
    try:
        return _together(_read_both(places, progress, how), described)
    except (NoClock, TooLargeError) as error:
        return _apart(places, str(error), progress, how)
    except NoGrpcError:
        return _apart(places, "the client's shows no gRPC", progress, how)


class RpcBudgets(Struct, frozen=True, eq=False):
    """The RPCs of the client's capture with budgets that know both ends."""

    tables: Tables
    """Tables of the client's capture."""
    budgets: Ints
    """Nanoseconds per RPC and cause of `SPLIT_CAUSES`."""


def rpc_budgets(
    places: Sequence[Sequence[str]], *, progress: Progress | None = None, **how: Unpack[DecodeOptions]
) -> RpcBudgets:
    """Every RPC's time with both ends known. Raises CaptureError, TooLargeError, NoClock."""
    met = _meet(*_read_both(places, progress, how))
    return RpcBudgets(met.client.tables, _split(met).budgets)


def _read_both(
    places: Sequence[Sequence[str]], progress: Progress | None, how: DecodeOptions
) -> tuple[Recorded, Recorded]:
    first, second = (read(files, progress=progress, **how) for files in places)
    return first, second


def _apart(places: Sequence[Sequence[str]], reason: str, progress: Progress | None, how: DecodeOptions) -> Analysis:
    """Each capture by itself. Raises CaptureError, and NoGrpcError when none has gRPC."""
    analyses: list[Analysis] = []
    encrypted: list[Analysis] = []
    without = None
    for files in places:
        try:
            analyses.append(analyze(files, progress=progress, **how))
        except NoGrpcError as error:
            without = error
            encrypted += [error.analysis] if error.analysis else []
    if without and not analyses:
        if len(encrypted) > 1:
            without.analysis = replace(encrypted[0], apart=Apart(reason, tuple(encrypted[1:])))
        raise without
    if without:
        reason += f"; one of them has no gRPC ({without})"
    return replace(analyses[0], apart=Apart(reason, tuple(analyses[1:])))


class _Met(Struct, frozen=True, eq=False):
    """Both captures on one clock."""

    client: Recorded
    server: Recorded
    shared: tuple[Pair, ...]
    clock: Clock
    up: Crossing
    """From the client's capture point to the server's."""
    down: Crossing
    """From the server's capture point to the client's."""
    up_losses: Losses
    down_losses: Losses
    turned: Mask
    """Connections of the client's capture whose client is at the server's capture point."""


def _together(both: tuple[Recorded, Recorded], described: Described) -> Analysis:
    met = _meet(*both)
    tables = met.client.tables
    analysis, ends = of_tables(tables, *described([file["name"] for file in tables.capture["files"]])), _ends(met)
    return replace(analysis, ends=ends, findings=tuple(_placed(finding, ends) for finding in analysis.findings))


def _placed(finding: Finding, ends: Ends) -> Finding:
    """What is known of losses from both ends, in the finding that tells of them."""
    if finding.id != loss_recovery.ID:
        return finding
    needless = ends.up.needless_retransmissions + ends.down.needless_retransmissions
    metrics: dict[str, int | float | str] = {
        "lost_up": ends.up.lost_packets,
        "lost_down": ends.down.lost_packets,
        "needless_retransmissions": needless,
    }
    text = (
        f"{finding.explanation} Both captures together: {ends.up.lost_packets:,} of the client's "
        f"{ends.up.packets:,} packets and {ends.down.lost_packets:,} of the server's {ends.down.packets:,} got lost "
        f"between them; {needless:,} were sent again although they had arrived."
    )
    return replace(finding, metrics={**finding.metrics, **metrics}, explanation=text)


def _meet(first: Recorded, second: Recorded) -> _Met:
    """Match packets and clocks; what is not known of who is nearer to the client, the clocks tell. Raises NoClock."""
    shared = _shared(first, second)
    if not shared:
        raise NoClock("they have no HTTP/2 or TLS connection in common")
    nearer = sum(_nearer(first, second, pair) * _packets(first, pair) for pair in shared)
    if nearer > 0:
        return _on_one_clock(first, second, shared)
    if nearer < 0:
        return _on_one_clock(second, first, _shared(second, first))
    try:
        return _on_one_clock(first, second, shared)
    except NoClock:
        return _on_one_clock(second, first, _shared(second, first))


def _shared(first: Recorded, second: Recorded) -> tuple[Pair, ...]:
    """The connections in both captures that a report is about."""
    mine, theirs = first.tables.connections.protocol, second.tables.connections.protocol
    wanted = (HTTP2, TLS)
    return tuple(p for p in pairs(first, second) if mine[p.first] in wanted or theirs[p.second] in wanted)


def _packets(recorded: Recorded, pair: Pair) -> int:
    connections = recorded.tables.connections
    return int(connections.packets_client[pair.first]) + int(connections.packets_server[pair.first])


def _nearer(first: Recorded, second: Recorded, pair: Pair) -> int:
    """1 when the first capture point is nearer to the connection's client, -1 when the second is, 0 when not clear."""
    near = int(first.tables.connections.near_client_rtt_ns[pair.first])
    others = second.tables.connections
    far = int((others.near_server_rtt_ns if pair.swapped else others.near_client_rtt_ns)[pair.second])
    if min(near, far) < 0 or abs(far - near) < _CLEAR_NS:
        return 0
    return 1 if far > near else -1


def _on_one_clock(client: Recorded, server: Recorded, shared: tuple[Pair, ...]) -> _Met:
    size = len(client.tables.connections.protocol)
    turned, late = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    for pair in shared:
        turned[pair.first] = _nearer(client, server, pair) < 0
        late[pair.first] = not pair.complete
    mine, theirs = align(client, server, shared)
    sent_up, got_down = _ways(mine, turned)
    got_up, sent_down = _ways(theirs, turned)
    up, down = alike(sent_up, got_up), alike(sent_down, got_down)
    outward = _first_copies(sent_up, got_up, up.sent, up.received)
    clock = fit(outward, _first_copies(got_down, sent_down, down.received, down.sent))
    fastest = clock.uncertainty_ns
    crossing_up = cross(sent_up, got_up, (sent_up.time_ns, _by_client(clock, got_up.time_ns)), up, fastest)
    crossing_down = cross(sent_down, got_down, (_by_client(clock, sent_down.time_ns), got_down.time_ns), down, fastest)
    windows = (_window(client, None), _window(server, clock))
    return _Met(
        client=client,
        server=server,
        shared=shared,
        clock=clock,
        up=crossing_up,
        down=crossing_down,
        up_losses=losses(crossing_up, sent_down, windows[1], windows[0], late),
        down_losses=losses(crossing_down, sent_up, windows[0], windows[1], late),
        turned=turned,
    )


def _ways(trace: Trace, turned: Mask) -> tuple[Trace, Trace]:
    """Packets from the client's capture point to the server's, and those of the other way."""
    back = trace.direction.astype(bool) ^ turned[trace.connection]
    return trace.at(~back), trace.at(back)


def _first_copies(mine: Trace, theirs: Trace, rows: Ints, others: Ints) -> tuple[Ints, Ints]:
    """Times in the client's capture, and by how much those of the server's are larger, of packets sent once."""
    once = (mine.note[rows] != RETRANSMISSION) & (theirs.note[others] != RETRANSMISSION)
    times = mine.time_ns[rows[once]]
    return times, theirs.time_ns[others[once]] - times


def _by_client(clock: Clock, times: Ints) -> Ints:
    here: Ints = times - clock.ahead(times - clock.offset_ns)
    return here


def _window(recorded: Recorded, clock: Clock | None) -> tuple[int, int]:
    """From when until when a capture has packets, by the client's clock."""
    capture = recorded.tables.capture
    ends = np.array([capture["first_time_ns"] or 0, capture["last_time_ns"] or 0], dtype=np.int64)
    first, last = ends if clock is None else _by_client(clock, ends)
    return int(first), int(last)


def _ends(met: _Met) -> Ends:
    divided, clock = _split(met), met.clock
    return Ends(
        client=EndsCapture(tuple(met.client.files), _lonely(met.client, {pair.first for pair in met.shared})),
        server=EndsCapture(tuple(met.server.files), _lonely(met.server, {pair.second for pair in met.shared})),
        clock=ClockFacts(
            since_time_ns=clock.since_ns,
            offset_ns=clock.offset_ns,
            uncertainty_ns=clock.uncertainty_ns,
            drift_ppb=clock.drift_ppb if clock.drift_known else None,
            drift_low_ppb=clock.drift_low_ppb,
            drift_high_ppb=clock.drift_high_ppb,
        ),
        matched_packets=int((met.up.origin >= 0).sum() + (met.down.origin >= 0).sum()),
        connections=tuple(_connections(met)),
        up=_way(met.up, met.up_losses),
        down=_way(met.down, met.down_losses),
        budget=_named(totals_ns(divided.budgets)),
        methods=tuple(_methods(met.client, divided)),
    )


def _split(met: _Met) -> Split:
    return split(met.client, met.server, [pair for pair in met.shared if not met.turned[pair.first]], _delays(met))


def _lonely(recorded: Recorded, shared: set[int]) -> int:
    protocol = recorded.tables.connections.protocol
    rows = np.flatnonzero((protocol == HTTP2) | (protocol == TLS))
    return sum(int(row) not in shared for row in rows)


def _delays(met: _Met) -> Delays:
    """Times on the way by number of the packet that arrived."""
    up, down = (_received(way) for way in (met.up, met.down))
    at_server, at_client = met.server.tables.capture["packets"] + 1, met.client.tables.capture["packets"] + 1
    return Delays(
        up=_by_number(met.up.received.packet, met.up.delay, at_server, -1),
        down=_by_number(met.down.received.packet, met.down.delay, at_client, -1),
        sent_up=_by_number(up.packet, up.origin.time_ns, at_server, 0),
        sent_down=_by_number(down.packet, down.origin.time_ns, at_client, 0),
        repeats=_by_number(down.packet, down.origin.note == RETRANSMISSION, at_client, 0).astype(bool),
        by_client=partial(_by_client, met.clock),
    )


class _Received(Struct, frozen=True, eq=False):
    """Packets received that are known, by number, and what was sent."""

    packet: Counts
    origin: Trace


def _received(way: Crossing) -> _Received:
    found = way.origin >= 0
    return _Received(way.received.packet[found], way.sent.at(way.origin[found]))


def _by_number(packet: Counts, values: npt.NDArray[Any], size: int, nothing: int) -> Ints:
    cells = np.full(size, nothing, dtype=np.int64)
    cells[packet] = values
    return cells


def _quantiles(delay: Ints) -> Quantiles | None:
    """By nearest rank, as everywhere."""
    if not len(delay):
        return None
    ordered = np.sort(delay)
    ranks = {name: int(np.ceil(q * len(ordered))) - 1 for name, q in _RANKS.items()}
    values = {name: int(ordered[max(rank, 0)]) for name, rank in ranks.items()}
    return Quantiles(min=int(ordered[0]), max=int(ordered[-1]), mean=int(ordered.sum() // len(ordered)), **values)


_RANKS: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def _way(crossing: Crossing, missing: Losses) -> Way:
    sent = crossing.sent
    delay = crossing.delay[crossing.origin >= 0]
    return Way(
        delay_ns=_quantiles(delay) or Quantiles(0, 0, 0, 0, 0, 0, 0),
        packets=len(sent),
        lost_packets=len(missing.lost),
        lost=tuple(
            LostPacket(int(sent.connection[row]), int(sent.packet[row]), int(sent.time_ns[row]), int(sent.length[row]))
            for row in missing.lost[np.argsort(sent.packet[missing.lost])][:LISTED]
        ),
        not_recorded_packets=len(missing.not_recorded),
        not_seen_sent_packets=len(missing.unsent),
        retransmissions=len(missing.retransmissions),
        needless_retransmissions=int(missing.needless.sum()),
    )


def _connections(met: _Met) -> Iterator[EndsConnection]:
    up, down = _by_connection(met.up, met.up_losses), _by_connection(met.down, met.down_losses)
    for pair in met.shared:
        mine, other = (down, up) if met.turned[pair.first] else (up, down)
        yield _connection(met.server.tables, pair, mine.get(pair.first, _NOTHING), other.get(pair.first, _NOTHING))


class _OneWay(Struct, frozen=True):
    """What one way of one connection comes to."""

    delay: Quantiles | None
    lost: int


_NOTHING = _OneWay(None, 0)


def _by_connection(crossing: Crossing, missing: Losses) -> dict[int, _OneWay]:
    found = crossing.origin >= 0
    connection, delay = crossing.received.connection[found], crossing.delay[found]
    order = np.argsort(connection, kind="stable")
    rows, first = np.unique(connection[order], return_index=True)
    lost = np.bincount(crossing.sent.connection[missing.lost], minlength=int(rows.max(initial=0)) + 1)
    pieces = np.split(delay[order], first[1:])
    known = {int(row): _OneWay(_quantiles(piece), int(lost[row])) for row, piece in zip(rows, pieces, strict=False)}
    return {row: _OneWay(None, int(number)) for row, number in enumerate(lost) if number} | known


def _connection(server: Tables, pair: Pair, up: _OneWay, down: _OneWay) -> EndsConnection:
    names = (server.client(pair.second), server.server(pair.second))
    client, other = names[::-1] if pair.swapped else names
    return EndsConnection(
        connection=pair.first,
        server_connection=pair.second,
        client_at_server=client,
        server_at_server=other,
        up_ns=up.delay,
        down_ns=down.delay,
        lost_up=up.lost,
        lost_down=down.lost,
    )


def _methods(client: Recorded, divided: Split) -> Sequence[EndsMethod]:
    rows, none = group_rows(client.tables.rpcs.method), np.zeros(0, dtype=np.int64)
    found = []
    for method in client.tables.methods:
        mine = rows.get(method.number, none)
        found.append(
            EndsMethod(
                method=method.name,
                label=method.label,
                rpcs=len(mine),
                divided_rpcs=int(divided.divided[mine].sum()),
                budget=_named(totals_ns(divided.budgets[mine])),
            )
        )
    return sorted(found, key=lambda m: (-sum(m.budget.values()), m.method or m.label or ""))


def _named(sums: Sequence[int]) -> Mapping[str, int]:
    return {cause: int(ns) for cause, ns in zip(SPLIT_CAUSES, sums, strict=True) if ns}
