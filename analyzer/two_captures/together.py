"""Combine two captures: the analysis of the client's capture, and what the server's capture adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from ..analysis import analyze, of_capture, of_tables
from ..decode.decode import decode
from ..decode.errors import NoGrpcError, TooLargeError
from ..decode.runner import DecodeOptions, Progress
from ..detectors import loss_recovery
from ..model.analysis import (
    Analysis,
    Apart,
    ClockFacts,
    ClockSource,
    Ends,
    EndsCapture,
    EndsConnection,
    EndsMethod,
    LostPacket,
    Quantiles,
    Way,
)
from ..model.finding import Finding
from ..sidecar.read import Mismatch, Sidecar, check_match, have_one_clock
from ..summary.figures import HTTP1, HTTP2, TLS, may_have_rpcs
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
"""Most lost packets listed per direction."""

_CLEAR_NS = 100_000
"""Least difference of the round trips to the client that shows which capture point is nearer to it."""


Described = Callable[[Sequence[str]], tuple[Sidecar | None, tuple[str, ...]]]
"""A function that finds the sidecar of files, and warnings about it."""


def _describe_nothing(_files: Sequence[str]) -> tuple[None, tuple[str, ...]]:
    return None, ()


def analyze_files(
    files: Sequence[str],
    *,
    described: Described = _describe_nothing,
    synchronised: bool = False,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Analysis:
    """Analyse several files, which may be pieces of one rotated capture or captures at two places.

    `synchronised` takes the clocks of two places as they are. Raises CaptureError, and NoGrpcError when none has gRPC.
    """
    places = vantages(files, **how)
    if len(places) == 1:
        tables = decode(files, rpc_rows=False, progress=progress, **how)
        if not tables.capture["time_steps_back"]:
            return of_capture(files, tables, *described(files), progress, **how)
        # pieces of one capture follow each other in time; overlapping files may be captures at two places
        places = vantages(files, whole=True, **how)
        if len(places) == 1:
            return of_capture(files, tables, *described(files), progress, **how)
    if len(places) > 2:
        return _analyze_apart(
            places, f"they were captured at {len(places)} places, and only two can be combined", progress, how
        )
    try:
        return _combine(_read_both(places, progress, how), described, synchronised)
    except (NoClock, TooLargeError) as error:
        return _analyze_apart(places, str(error), progress, how)
    except NoGrpcError:
        return _analyze_apart(places, "the client's capture has no gRPC", progress, how)


class RpcBudgets(Struct, frozen=True, eq=False):
    """The RPCs of the client's capture with budgets from both captures."""

    tables: Tables
    """Tables of the client's capture."""
    budgets: Ints
    """Nanoseconds per RPC and cause of `SPLIT_CAUSES`."""
    symmetry_assumed: bool
    """See `Ends.symmetry_assumed`."""


def rpc_budgets(
    places: Sequence[Sequence[str]],
    *,
    described: Described = _describe_nothing,
    synchronised: bool = False,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> RpcBudgets:
    """Divide every RPC's time with both captures. Raises CaptureError, TooLargeError, NoClock."""
    met = _choose_clock(_read_both(places, progress, how), described, synchronised)
    return RpcBudgets(met.client.tables, _split(met).budgets, met.source == "symmetric_path")


def _read_both(
    places: Sequence[Sequence[str]], progress: Progress | None, how: DecodeOptions
) -> tuple[Recorded, Recorded]:
    first, second = (read(files, progress=progress, **how) for files in places)
    return first, second


def _analyze_apart(
    places: Sequence[Sequence[str]], reason: str, progress: Progress | None, how: DecodeOptions
) -> Analysis:
    """Analyse each capture separately. Raises CaptureError, and NoGrpcError when none has gRPC."""
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
    """Both captures on a common clock."""

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
    source: ClockSource = "symmetric_path"


def _choose_clock(both: tuple[Recorded, Recorded], described: Described, synchronised: bool) -> _Met:
    """Match packets; take the clocks as they are if asked for, or if one host recorded both. Raises NoClock."""
    if synchronised:
        return replace(_match(*both, as_they_are=True), source="synchronised")
    if _have_one_host(both, described):
        with suppress(NoClock):  # copies of a virtual machine have equal ids, but clocks of their own
            return replace(_match(*both, as_they_are=True), source="same_host")
    return _match(*both)


def _have_one_host(both: tuple[Recorded, Recorded], described: Described) -> bool:
    """Say whether the sidecars of both captures show that one host recorded them."""
    sidecars = []
    for one in both:
        sidecar, _ = described(one.files)
        with suppress(Mismatch):
            if sidecar is not None:
                check_match(one.tables, sidecar)
                sidecars.append(sidecar)
    return len(sidecars) == len(both) and have_one_clock(*sidecars)


def _combine(both: tuple[Recorded, Recorded], described: Described, synchronised: bool) -> Analysis:
    met = _choose_clock(both, described, synchronised)
    tables = met.client.tables
    analysis, ends = of_tables(tables, *described([file["name"] for file in tables.capture["files"]])), _summarize(met)
    return replace(analysis, ends=ends, findings=tuple(_add_losses(finding, ends) for finding in analysis.findings))


def _add_losses(finding: Finding, ends: Ends) -> Finding:
    """Add the losses seen from both ends to the finding about losses."""
    if finding.id != loss_recovery.ID:
        return finding
    needless = ends.up.needless_retransmissions + ends.down.needless_retransmissions
    metrics: dict[str, int | float | str] = {
        "lost_up": ends.up.lost_packets,
        "lost_down": ends.down.lost_packets,
        "needless_retransmissions": needless,
    }
    text = (
        f"{finding.explanation} Both captures show that {ends.up.lost_packets:,} of the client's "
        f"{ends.up.packets:,} packets and {ends.down.lost_packets:,} of the server's {ends.down.packets:,} were lost "
        f"between them. {needless:,} packets were retransmitted although they had arrived."
    )
    return replace(finding, metrics={**finding.metrics, **metrics}, explanation=text)


def _match(first: Recorded, second: Recorded, *, as_they_are: bool = False) -> _Met:
    """Match packets and clocks; if round trips do not show which capture is the client's, try both. Raises NoClock."""
    relate = partial(_relate, as_they_are=as_they_are)
    shared = _find_shared(first, second)
    if not shared:
        raise NoClock("they have no HTTP/2 or TLS connection in common")
    nearer = sum(_compare_nearness(first, second, pair) * _count_packets(first, pair) for pair in shared)
    if nearer > 0:
        return relate(first, second, shared)
    if nearer < 0:
        return relate(second, first, _find_shared(second, first))
    try:
        return relate(first, second, shared)
    except NoClock:
        return relate(second, first, _find_shared(second, first))


def _find_shared(first: Recorded, second: Recorded) -> tuple[Pair, ...]:
    """Find the HTTP/2, gRPC-Web and TLS connections that are in both captures."""
    mine, theirs = first.tables.connections.protocol, second.tables.connections.protocol
    wanted = (HTTP2, HTTP1, TLS)
    return tuple(p for p in pairs(first, second) if mine[p.first] in wanted or theirs[p.second] in wanted)


def _count_packets(recorded: Recorded, pair: Pair) -> int:
    connections = recorded.tables.connections
    return int(connections.packets_client[pair.first]) + int(connections.packets_server[pair.first])


def _compare_nearness(first: Recorded, second: Recorded, pair: Pair) -> int:
    """Return 1 when the first capture point is nearer to the client, -1 when the second is, 0 when unclear."""
    near = int(first.tables.connections.near_client_rtt_ns[pair.first])
    others = second.tables.connections
    far = int((others.near_server_rtt_ns if pair.swapped else others.near_client_rtt_ns)[pair.second])
    if min(near, far) < 0 or abs(far - near) < _CLEAR_NS:
        return 0
    return 1 if far > near else -1


def _relate(client: Recorded, server: Recorded, shared: tuple[Pair, ...], *, as_they_are: bool) -> _Met:
    size = len(client.tables.connections.protocol)
    turned, late = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    for pair in shared:
        turned[pair.first] = _compare_nearness(client, server, pair) < 0
        late[pair.first] = not pair.complete
    mine, theirs = align(client, server, shared)
    sent_up, got_down = _split_ways(mine, turned)
    got_up, sent_down = _split_ways(theirs, turned)
    up, down = alike(sent_up, got_up), alike(sent_down, got_down)
    outward = _find_first_copies(sent_up, got_up, up.sent, up.received)
    clock = fit(outward, _find_first_copies(got_down, sent_down, down.received, down.sent), as_they_are=as_they_are)
    fastest_up, fastest_down = clock.fastest_ns
    crossing_up = cross(sent_up, got_up, (sent_up.time_ns, _convert_to_client(clock, got_up.time_ns)), up, fastest_up)
    crossing_down = cross(
        sent_down, got_down, (_convert_to_client(clock, sent_down.time_ns), got_down.time_ns), down, fastest_down
    )
    windows = (_find_time_span(client, None), _find_time_span(server, clock))
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


def _split_ways(trace: Trace, turned: Mask) -> tuple[Trace, Trace]:
    """Split packets into those from the client's capture point to the server's, and those back."""
    back = trace.direction.astype(bool) ^ turned[trace.connection]
    return trace.at(~back), trace.at(back)


def _find_first_copies(mine: Trace, theirs: Trace, rows: Ints, others: Ints) -> tuple[Ints, Ints]:
    """Return, for packets sent once, their times in `mine`, and their times in `theirs` less these."""
    once = (mine.note[rows] != RETRANSMISSION) & (theirs.note[others] != RETRANSMISSION)
    times = mine.time_ns[rows[once]]
    return times, theirs.time_ns[others[once]] - times


def _convert_to_client(clock: Clock, times: Ints) -> Ints:
    return times - clock.ahead(times - clock.offset_ns)


def _find_time_span(recorded: Recorded, clock: Clock | None) -> tuple[int, int]:
    """Return the times of a capture's first and last packet, by the client's clock."""
    capture = recorded.tables.capture
    ends = np.array([capture["first_time_ns"] or 0, capture["last_time_ns"] or 0], dtype=np.int64)
    first, last = ends if clock is None else _convert_to_client(clock, ends)
    return int(first), int(last)


def _summarize(met: _Met) -> Ends:
    divided, clock = _split(met), met.clock
    return Ends(
        client=EndsCapture(tuple(met.client.files), _count_unshared(met.client, {pair.first for pair in met.shared})),
        server=EndsCapture(tuple(met.server.files), _count_unshared(met.server, {pair.second for pair in met.shared})),
        clock=ClockFacts(
            since_time_ns=clock.since_ns,
            offset_ns=clock.offset_ns,
            uncertainty_ns=clock.uncertainty_ns,
            drift_ppb=clock.drift_ppb if clock.drift_known else None,
            drift_low_ppb=clock.drift_low_ppb,
            drift_high_ppb=clock.drift_high_ppb,
            source=met.source,
        ),
        symmetry_assumed=met.source == "symmetric_path",
        matched_packets=int((met.up.origin >= 0).sum() + (met.down.origin >= 0).sum()),
        connections=tuple(_describe_connections(met)),
        up=_describe_way(met.up, met.up_losses),
        down=_describe_way(met.down, met.down_losses),
        budget=_name_causes(totals_ns(divided.budgets)),
        methods=tuple(_describe_methods(met.client, divided)),
    )


def _split(met: _Met) -> Split:
    return split(
        met.client, met.server, [pair for pair in met.shared if not met.turned[pair.first]], _collect_delays(met)
    )


def _count_unshared(recorded: Recorded, shared: set[int]) -> int:
    protocol = recorded.tables.connections.protocol
    rows = np.flatnonzero(may_have_rpcs(protocol) | (protocol == TLS))
    return sum(int(row) not in shared for row in rows)


def _collect_delays(met: _Met) -> Delays:
    """Collect one-way delays by number of the received packet."""
    up, down = (_take_received(way) for way in (met.up, met.down))
    at_server, at_client = met.server.tables.capture["packets"] + 1, met.client.tables.capture["packets"] + 1
    return Delays(
        up=_index_by_number(met.up.received.packet, met.up.delay, at_server, -1),
        down=_index_by_number(met.down.received.packet, met.down.delay, at_client, -1),
        sent_up=_index_by_number(up.packet, up.origin.time_ns, at_server, 0),
        sent_down=_index_by_number(down.packet, down.origin.time_ns, at_client, 0),
        repeats=_index_by_number(down.packet, down.origin.note == RETRANSMISSION, at_client, 0).astype(bool),
        by_client=partial(_convert_to_client, met.clock),
    )


class _Received(Struct, frozen=True, eq=False):
    """Numbers of matched received packets, and the sent packets that they are."""

    packet: Counts
    origin: Trace


def _take_received(way: Crossing) -> _Received:
    found = way.origin >= 0
    return _Received(way.received.packet[found], way.sent.at(way.origin[found]))


def _index_by_number(packet: Counts, values: npt.NDArray[Any], size: int, nothing: int) -> Ints:
    cells = np.full(size, nothing, dtype=np.int64)
    cells[packet] = values
    return cells


def _compute_quantiles(delay: Ints) -> Quantiles | None:
    """Compute quantiles by nearest rank."""
    if not len(delay):
        return None
    ordered = np.sort(delay)
    ranks = {name: int(np.ceil(q * len(ordered))) - 1 for name, q in _RANKS.items()}
    values = {name: int(ordered[max(rank, 0)]) for name, rank in ranks.items()}
    return Quantiles(min=int(ordered[0]), max=int(ordered[-1]), mean=int(ordered.sum() // len(ordered)), **values)


_RANKS: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def _describe_way(crossing: Crossing, missing: Losses) -> Way:
    sent = crossing.sent
    delay = crossing.delay[crossing.origin >= 0]
    return Way(
        delay_ns=_compute_quantiles(delay) or Quantiles(0, 0, 0, 0, 0, 0, 0),
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


def _describe_connections(met: _Met) -> Iterator[EndsConnection]:
    up, down = (
        _group_by_connection(met.up, met.up_losses),
        _group_by_connection(met.down, met.down_losses),
    )
    for pair in met.shared:
        mine, other = (down, up) if met.turned[pair.first] else (up, down)
        yield _describe_connection(
            met.server.tables, pair, mine.get(pair.first, _NOTHING), other.get(pair.first, _NOTHING)
        )


class _OneWay(Struct, frozen=True):
    """Delays and losses of one direction of one connection."""

    delay: Quantiles | None
    lost: int


_NOTHING = _OneWay(None, 0)


def _group_by_connection(crossing: Crossing, missing: Losses) -> dict[int, _OneWay]:
    found = crossing.origin >= 0
    connection, delay = crossing.received.connection[found], crossing.delay[found]
    order = np.argsort(connection, kind="stable")
    rows, first = np.unique(connection[order], return_index=True)
    lost = np.bincount(crossing.sent.connection[missing.lost], minlength=int(rows.max(initial=0)) + 1)
    pieces = np.split(delay[order], first[1:])
    known = {
        int(row): _OneWay(_compute_quantiles(piece), int(lost[row])) for row, piece in zip(rows, pieces, strict=False)
    }
    return {row: _OneWay(None, int(number)) for row, number in enumerate(lost) if number} | known


def _describe_connection(server: Tables, pair: Pair, up: _OneWay, down: _OneWay) -> EndsConnection:
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


def _describe_methods(client: Recorded, divided: Split) -> Sequence[EndsMethod]:
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
                budget=_name_causes(totals_ns(divided.budgets[mine])),
            )
        )
    return sorted(found, key=lambda m: (-sum(m.budget.values()), m.method or m.label or ""))


def _name_causes(sums: Sequence[int]) -> Mapping[str, int]:
    return {cause: int(ns) for cause, ns in zip(SPLIT_CAUSES, sums, strict=True) if ns}
