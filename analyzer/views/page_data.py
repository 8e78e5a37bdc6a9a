"""Collect what the HTML page draws: RPCs, blocked intervals, frames and packets over time, bounded in number.

A small capture is included completely. Of a large one, all connections are included, RPCs and blocked intervals up to a
bound (the longest, the failed, and an even sample of the others), and frames and packets around the findings' evidence
and in the slowest RPCs. `halve_page_data` halves these rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..decode.decode import decode_rows
from ..decode.disk_columns import gathered
from ..decode.runner import DecodeOptions, Progress
from ..hops.look import find_legs
from ..model.analysis import Analysis
from ..tables import BEGUN_BEFORE, COMPLETE, NO_METHOD, NOT_SEEN, PROTOCOLS, Ints, Tables
from ..tables.grouping import take_rows
from ..tables.processes import Processes
from .pictures import Picture, draw_pictures, list_lanes
from .sampling import BOUNDS, Bounds, Flights, Overview, Spans, read_around, read_overview
from .thread_steps import NO_STEPS, PageSteps, collect_steps

Column = npt.NDArray[Any]
_Table = TypeVar("_Table", "PageRpcs", "PageWaits", "PageFrames", "PagePackets", PageSteps)
_Join = Callable[[Tables], Processes | None]


class PageRpcs(Struct, frozen=True, eq=False):
    """RPCs in the order of their starts; times are relative to the capture's first packet."""

    connection: Annotated[Column, "row of its connection"]
    stream: Annotated[Column, "HTTP/2 stream identifier"]
    method: Annotated[Column, "index into `PageData.methods`"]
    start_ns: Annotated[Column, "first byte"]
    duration_ns: Annotated[Column, "until its end, or as far as it was seen"]
    status: Annotated[Column, "gRPC status code, `NOT_SEEN` when not on the wire"]
    complete: Annotated[Column, "1 when its beginning and its end were seen"]
    first_packet: Annotated[Column, "packet of the first byte"]
    last_packet: Annotated[Column, "packet of the last byte, 0 when the end was not seen"]
    shares: Annotated[Column, "thousandths of its duration by cause, shape (RPCs, causes)"]


class PageWaits(Struct, frozen=True, eq=False):
    """Blocked intervals in the order of their starts; sizes are -1 where unknown."""

    connection: Annotated[Column, "row of its connection"]
    stream: Annotated[Column, "stream of the last bytes before the stop"]
    direction: Annotated[Column, "the blocked sender"]
    start_ns: Annotated[Column, "the stop, relative to the capture's first packet"]
    duration_ns: Annotated[Column, "until its next bytes"]
    cause: Annotated[Column, "index into `CAUSES`"]
    owed_bytes: Annotated[Column, "bytes left to send at the stop"]
    in_flight_bytes: Annotated[Column, "sent and not acknowledged at the stop"]
    congestion_window_bytes: Annotated[Column, "at the stop; an estimate unless the sidecar has it"]
    receive_window_bytes: Annotated[Column, "the peer's TCP window at the stop"]
    stream_window_bytes: Annotated[Column, "HTTP/2 window of the stream, or `WINDOW_NOT_KNOWN`"]
    connection_window_bytes: Annotated[Column, "HTTP/2 window of the connection, or `WINDOW_NOT_KNOWN`"]
    stopped_at_packet: Annotated[Column, "packet of the last bytes before the stop"]
    released_by_packet: Annotated[Column, "the ACK right before the sender resumed, 0 for none"]
    resumed_at_packet: Annotated[Column, "packet of the next bytes"]


class PageFrames(Struct, frozen=True, eq=False):
    """Frames in the order of their first bytes."""

    connection: Annotated[Column, "row of its connection"]
    direction: Annotated[Column, "sender"]
    stream: Annotated[Column, "HTTP/2 stream identifier, 0 for the connection"]
    kind: Annotated[Column, "frame type"]
    flags: Annotated[Column, "flags as sent"]
    length: Annotated[Column, "payload bytes"]
    start_ns: Annotated[Column, "first byte, relative to the capture's first packet"]
    duration_ns: Annotated[Column, "until its last byte"]
    first_packet: Annotated[Column, "packet of its first byte"]
    last_packet: Annotated[Column, "packet of its last byte"]


class PagePackets(Struct, frozen=True, eq=False):
    """Packets in the order of the capture."""

    packet: Annotated[Column, "number in the capture, from 1"]
    time_ns: Annotated[Column, "relative to the capture's first packet"]
    connection: Annotated[Column, "row of its connection"]
    direction: Annotated[Column, "sender"]
    flags: Annotated[Column, "TCP flags"]
    payload_bytes: Annotated[Column, "TCP payload on the wire"]
    window: Annotated[Column, "its sender's receive window, -1 when its scale is not known"]
    note: Annotated[Column, "index into `PACKET_NOTES`"]
    client_in_flight: Annotated[Column, "bytes of the client not acknowledged after it"]
    server_in_flight: Annotated[Column, "bytes of the server not acknowledged after it"]


class PageConnection(Struct, frozen=True):
    """First and last packet of a connection, relative to the capture's first packet."""

    connection: int
    start_ns: int
    end_ns: int


class PageMethod(Struct, frozen=True):
    """A method with the distribution of its latencies."""

    name: str | None
    label: str | None
    first_class: int
    """Class of `counts[0]`: class n holds durations from 10^(n / `_core.CLASSES_PER_DECADE`) ns to the next class."""
    counts: tuple[int, ...]
    """Complete RPCs by class."""


class PageData(Struct, frozen=True, eq=False):
    """The rows that are drawn, and the totals of the capture."""

    duration_ns: int
    """Time of the capture's last packet after its first."""
    connections: tuple[PageConnection, ...]
    methods: tuple[PageMethod, ...]
    rpcs: PageRpcs
    waits: PageWaits
    frames: PageFrames
    packets: PagePackets
    rpcs_total: int
    waits_total: int
    frames_total: int
    packets_total: int
    connections_total: int
    spans: Spans
    """Ranges whose frames and packets are included."""
    pictures: tuple[Picture | None, ...]
    """The picture of each finding, in the order of `Analysis.findings`."""
    steps: PageSteps = NO_STEPS
    acts: int = 0
    """Intervals in which a recorded host had to act, whose steps are drawn."""
    acts_total: int = 0
    threads: Mapping[int, str] = {}
    """Names of the threads in `steps`."""


def collect_page_data(
    paths: Sequence[str],
    analysis: Analysis,
    *,
    bounds: Bounds = BOUNDS,
    progress: Progress | None = None,
    join: _Join | None = None,
    overview: Overview | None = None,
    **how: Unpack[DecodeOptions],
) -> PageData:
    """Read the capture of an analysis again and select what is drawn. Raises CaptureError.

    `join` joins the record of threads, if there is one; `overview` is what the analysis was made of.
    """
    whole = analysis.capture.packets <= bounds.packets and sum(analysis.totals.frames.values()) <= bounds.frames
    if whole:
        tables = decode_rows(paths, progress=progress, **how)
        rpcs = _rpcs(tables, bounds.rpcs, np.ones(tables.rpc_count, dtype=bool))
        flights, spans = Flights().add(asdict(tables.packets)), Spans.everything()
    else:
        overview = overview or read_overview(paths, progress, bounds, **how)
        rpcs = _rpcs(overview.tables, bounds.rpcs, overview.sampled)
        lanes = list_lanes(analysis, overview.tables)
        tables, flights, spans = read_around(paths, overview, analysis, bounds, lanes, progress, how)
    legs = find_legs(paths, **how) if analysis.hops else None
    if legs and len(legs.tables.rpc_budgets) == tables.rpc_count:  # a file may grow meanwhile
        tables = replace(tables, rpcs=legs.tables.rpcs, rpc_budgets=legs.tables.rpc_budgets)
        rpcs = _rpcs(tables, bounds.rpcs, np.ones(tables.rpc_count, dtype=bool))
    page = _page_data(tables, rpcs, flights, spans, bounds, analysis)
    return _add_steps(page, join(tables) if join else None, tables.capture["first_time_ns"] or 0, bounds.acts)


def _add_steps(page: PageData, found: Processes | None, zero: int, most: int) -> PageData:
    if found is None:
        return page
    steps = collect_steps(found, zero, most)
    names = {thread: found.threads.get(thread, "") for thread in np.unique(steps.thread).tolist() if thread}
    total = int((found.acts.process > 0).sum())
    return replace(page, steps=steps, acts=min(most, total), acts_total=total, threads=names)


def halve_page_data(page: PageData) -> PageData:
    """Keep at most half of the rows."""
    spans = page.spans.halved(page.packets.connection, page.packets.packet)
    kept = spans.holds(page.packets.connection, page.packets.packet, page.packets.packet)
    frames, rpcs, waits = page.frames, page.rpcs, page.waits
    of_frames = spans.holds(frames.connection, frames.first_packet, frames.last_packet)
    return replace(
        page,
        spans=spans,
        packets=take_rows(page.packets, kept),
        frames=take_rows(frames, of_frames & (np.cumsum(of_frames) <= len(of_frames) // 2)),
        rpcs=take_rows(rpcs, _telling(rpcs.duration_ns, rpcs.status, len(rpcs.stream) // 2, np.True_)),
        waits=take_rows(waits, _longest(waits.duration_ns, len(waits.stream) // 2)),
        steps=take_rows(page.steps, page.steps.interval < page.acts // 2),
        acts=page.acts // 2,
    )


def _page_data(
    tables: Tables, rpcs: PageRpcs, flights: tuple[Ints, Ints], spans: Spans, bounds: Bounds, analysis: Analysis
) -> PageData:
    zero = tables.capture["first_time_ns"] or 0
    connections = _connections(tables, zero, bounds.connections)
    return PageData(
        duration_ns=max((tables.capture["last_time_ns"] or 0) - zero, 0),
        connections=connections,
        methods=_methods(tables),
        rpcs=rpcs,
        waits=_waits(tables, zero, bounds.waits),
        frames=_frames(tables, zero),
        packets=_packets(tables, flights, zero),
        rpcs_total=tables.rpc_count,
        waits_total=len(tables.waits.cause),
        frames_total=sum(tables.frame_counts.values()),
        packets_total=tables.capture["packets"],
        connections_total=int(_ours(tables).sum()),
        spans=spans,
        pictures=draw_pictures(tables, flights, spans, analysis),
    )


def _ours(tables: Tables) -> npt.NDArray[np.bool_]:
    protocol = tables.connections.protocol
    return np.isin(protocol, [PROTOCOLS.index(name) for name in ("http2", "http1", "tls")])


def _connections(tables: Tables, zero: int, most: int) -> tuple[PageConnection, ...]:
    """List the connections with the most RPCs, by row."""
    c = tables.connections
    rows = np.flatnonzero(_ours(tables))
    busiest = np.sort(rows[np.argsort(-c.rpcs[rows].astype(np.int64), kind="stable")[:most]])
    return tuple(
        PageConnection(int(row), int(c.first_time_ns[row]) - zero, int(c.last_time_ns[row]) - zero) for row in busiest
    )


def _method_numbers(tables: Tables, methods: Column) -> Ints:
    """Find the indices of method numbers in `tables.methods`."""
    numbers = np.array([method.number for method in tables.methods] or [NO_METHOD], dtype=np.int64)
    order = np.argsort(numbers)
    return np.asarray(order[np.searchsorted(numbers[order], methods).clip(0, len(numbers) - 1)])


def _methods(tables: Tables) -> tuple[PageMethod, ...]:
    return tuple(
        PageMethod(m.name, m.label, *_trimmed(np.array(m.distribution, dtype=np.int64))) for m in tables.methods
    )


def _seen_whole(flags: Column) -> npt.NDArray[np.bool_]:
    return np.asarray((flags & (COMPLETE | BEGUN_BEFORE)) == COMPLETE)


def _trimmed(counts: Ints) -> tuple[int, tuple[int, ...]]:
    """Return the first class that is not empty, and the counts up to the last one."""
    filled = np.flatnonzero(counts)
    if not len(filled):
        return 0, ()
    return int(filled[0]), tuple(counts[filled[0] : filled[-1] + 1].tolist())


def _rpcs(tables: Tables, most: int, sampled: npt.NDArray[np.bool_]) -> PageRpcs:
    rpcs, zero = tables.rpcs, tables.capture["first_time_ns"] or 0
    kept = np.flatnonzero(_telling(rpcs.duration_ns, rpcs.status, most, sampled))
    budgets = gathered(tables.rpc_budgets, kept)
    shares = budgets / np.maximum(budgets.sum(axis=1, keepdims=True, dtype=np.float64), 1)
    np.rint(np.multiply(shares, 1000, out=shares), out=shares)
    names = ("connection", "stream", "duration_ns", "status", "first_packet", "last_packet")
    table = PageRpcs(
        method=_method_numbers(tables, gathered(rpcs.method, kept)),
        start_ns=gathered(rpcs.start_time_ns, kept) - zero,
        complete=_seen_whole(gathered(rpcs.flags, kept)),
        shares=shares.clip(0, 1000, out=shares).astype(np.int16),
        **{name: gathered(getattr(rpcs, name), kept) for name in names},
    )
    return take_rows(table, np.argsort(table.start_ns, kind="stable"))


def _telling(
    durations: Ints, status: Column, most: int, sampled: npt.NDArray[np.bool_] | np.bool_
) -> npt.NDArray[np.bool_]:
    """Mark the RPCs to keep if there are too many: the longest, then failed ones, then of the others the sample."""
    if len(durations) <= most:
        return np.ones(len(durations), dtype=bool)
    kept = _longest(durations, most // 3)
    failed = np.flatnonzero(~kept & (status != 0) & (status != NOT_SEEN))
    kept[_spread(failed, most // 3)] = True
    kept[_spread(np.flatnonzero(~kept & sampled), most - int(kept.sum()))] = True
    return kept


def _longest(durations: Ints, most: int) -> npt.NDArray[np.bool_]:
    """Mark the longest durations; of equal ones, the first."""
    if len(durations) <= most:
        return np.ones(len(durations), dtype=bool)
    if not most:
        return np.zeros(len(durations), dtype=bool)
    least = np.partition(durations, -most)[-most]
    kept: npt.NDArray[np.bool_] = durations > least
    kept[np.flatnonzero(durations == least)[: most - int(kept.sum())]] = True
    return kept


def _spread(rows: Ints, most: int) -> Ints:
    return rows if len(rows) <= most else rows[np.arange(most) * len(rows) // max(most, 1)]


def _waits(tables: Tables, zero: int, most: int) -> PageWaits:
    w = tables.waits
    names = set(PageWaits.__struct_fields__) - {"start_ns"}
    table = PageWaits(start_ns=w.start_time_ns - zero, **{name: getattr(w, name) for name in names})
    table = take_rows(table, _longest(w.duration_ns, most))
    return take_rows(table, np.argsort(table.start_ns, kind="stable"))


def _frames(tables: Tables, zero: int) -> PageFrames:
    f = tables.frames
    names = set(PageFrames.__struct_fields__) - {"start_ns", "duration_ns"}
    table = PageFrames(
        start_ns=f.first_time_ns - zero,
        duration_ns=np.maximum(f.last_time_ns - f.first_time_ns, 0),
        **{name: getattr(f, name) for name in names},
    )
    return take_rows(table, np.argsort(table.start_ns, kind="stable"))


def _packets(tables: Tables, flights: tuple[Ints, Ints], zero: int) -> PagePackets:
    p = tables.packets
    names = ("packet", "connection", "direction", "flags", "payload_bytes", "note")
    scaled = tables.connections.complete[p.connection] == 1  # otherwise the window scale is unknown (RFC 7323)
    return PagePackets(
        window=np.where(scaled, p.window.astype(np.int64), -1),
        time_ns=p.time_ns - zero,
        client_in_flight=flights[0],
        server_in_flight=flights[1],
        **{name: getattr(p, name) for name in names},
    )
