"""Collect what a bug report shows besides the analysis: packets as evidence, the workload, one example."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from msgspec import Struct

from .. import _core
from ..decode.runner import DecodeOptions, Run
from ..detectors import ABOUTS
from ..model.analysis import Analysis
from ..model.finding import Finding
from ..tables import COMPLETE, Ints, Tables
from .excerpt import Excerpt, excerpt

MOST_EVIDENCE = 8
"""Most packets of a finding that are shown."""
MOST_FRAMES = 6
"""Most frames named per packet; the rest are counted."""
MOST_WORK = 8
"""Most methods whose workload is described."""
MOST_PACKETS = 100
"""Most packets from an example's first to its last."""
LONGEST_NS = 20_000_000_000
"""Longest part of the slowest RPC that is shown."""
AROUND_NS = 1_000_000
"""Time shown on each side of an example's packets."""

_Place = tuple[int, int | None, int, int]
"""Connection, stream (None for all), begin and end in nanoseconds since the epoch."""
_FLAGS = ((0x02, "SYN"), (0x01, "FIN"), (0x04, "RST"))
_NAMES = (*_core.FRAME_TYPES, "UNKNOWN")
_ACKED = ("SETTINGS", "PING")


class PacketFacts(Struct, frozen=True):
    """A packet of the capture."""

    packet: int
    connection: int
    direction: int
    """0 from the client, 1 from the server."""
    payload_bytes: int
    """TCP payload on the wire."""
    flags: str
    """Those of SYN, FIN and RST that are set."""
    note: str
    """`retransmission` and the like; empty for none."""
    frames: tuple[str, ...]
    """Frames with bytes in the packet; dots mark those that began before it or end after it, as in the timeline."""


class Work(Struct, frozen=True):
    """What the RPCs of a method carried, so that others can reproduce the workload."""

    method: str | None
    """Name or label of the method; None if methods cannot be distinguished."""
    rpcs: int
    messages: tuple[int, int]
    """Request and response messages of the median RPC."""
    request_bytes: tuple[int, int]
    """Request message bytes of an RPC, without prefixes: median and largest."""
    response_bytes: tuple[int, int]
    """Response message bytes of an RPC, without prefixes: median and largest."""
    gap_ns: int | None
    """Median time between the starts of successive RPCs on a connection; None if no connection has two."""


class IssueEvidence(Struct, frozen=True, eq=False):
    """What a bug report shows of a capture besides its analysis."""

    packets: Mapping[int, PacketFacts]
    """The packets that findings name, by number."""
    work: tuple[Work, ...]
    """One entry per method, the one with the most RPCs first."""
    example: Excerpt
    """The excerpt that is drawn as a timeline."""
    of: str | None
    """Id of the finding that `example` shows; None if it shows the slowest RPC."""


def collect_evidence(paths: Sequence[str], analysis: Analysis, **how: Unpack[DecodeOptions]) -> IssueEvidence:
    """Read the capture again and select what is shown. Raises CaptureError."""
    wanted = np.unique([e.packet for f in analysis.findings for e in f.evidence[:MOST_EVIDENCE]]).astype(np.int64)
    packets, tables = _packets(paths, wanted, how)
    finding, (connection, stream, begin, end) = _place(analysis, packets, tables)
    first = analysis.capture.first_time_ns or 0
    span = max(begin - first, 0), max(end - first, 0)
    part = excerpt(paths, connection, stream=stream, begin=span[0], end=span[1], **how)
    return IssueEvidence(packets=packets, work=_work(tables), example=part, of=finding.id if finding else None)


def _packets(paths: Sequence[str], wanted: Ints, how: DecodeOptions) -> tuple[dict[int, PacketFacts], Tables]:
    from ..decode.rpc_columns import RpcColumns
    from ..tables import tables_of

    run = Run(paths, frames=True, packets=True, rpc_rows=True, **how)
    rows: dict[int, tuple[int, ...]] = {}
    frames: dict[tuple[int, int, int], list[str]] = {}
    for take in run.read(None, RpcColumns()):
        _keep_packets(take("packets"), wanted, rows)
        _keep_frames(take("frames"), wanted, frames)
    return {number: _facts(number, row, frames) for number, row in rows.items()}, tables_of(run.result)


def _keep_packets(packets: Mapping[str, Any], wanted: Ints, rows: dict[int, tuple[int, ...]]) -> None:
    names = ("connection", "direction", "payload_bytes", "flags", "note")
    for row in np.flatnonzero(np.isin(packets["packet"], wanted)).tolist():
        rows[int(packets["packet"][row])] = tuple(int(packets[name][row]) for name in names)


def _keep_frames(columns: Mapping[str, Any], wanted: Ints, frames: dict[tuple[int, int, int], list[str]]) -> None:
    """Collect the names of frames with bytes in a wanted packet, by packet, connection and direction."""
    first, last = columns["first_packet"].astype(np.int64), columns["last_packet"].astype(np.int64)
    begin, end = np.searchsorted(wanted, first), np.searchsorted(wanted, last, side="right")
    for row in np.flatnonzero(end > begin).tolist():
        ends = int(columns["connection"][row]), int(columns["direction"][row])
        for packet in wanted[begin[row] : end[row]].tolist():
            name = _frame(columns, row, int(first[row]) < packet, int(last[row]) > packet)
            frames.setdefault((packet, *ends), []).append(name)


def _frame(columns: Mapping[str, Any], row: int, before: bool, later: bool) -> str:
    name, flags = _NAMES[min(int(columns["kind"][row]), len(_NAMES) - 1)], int(columns["flags"][row])
    stream = int(columns["stream"][row])
    ended = " END" if name in ("DATA", "HEADERS") and flags & 1 and not later else ""
    name += " ACK" if name in _ACKED and flags & 1 else ""
    return ".." * before + name + (f"[{stream}]" if stream else "") + ".." * later + ended


def _facts(number: int, row: tuple[int, ...], frames: Mapping[tuple[int, int, int], list[str]]) -> PacketFacts:
    connection, direction, payload, flags, note = row
    named = frames.get((number, connection, direction), []) if payload else []
    more = (f"and {len(named) - MOST_FRAMES:,} more",) if len(named) > MOST_FRAMES else ()
    return PacketFacts(
        packet=number,
        connection=connection,
        direction=direction,
        payload_bytes=payload,
        flags=" ".join(name for bit, name in _FLAGS if flags & bit),
        note=_core.PACKET_NOTES[note],
        frames=(*named[:MOST_FRAMES], *more),
    )


def _place(analysis: Analysis, packets: Mapping[int, PacketFacts], tables: Tables) -> tuple[Finding | None, _Place]:
    """Find the example: the packets of the most severe finding that lie close together, otherwise the slowest RPC."""
    costly = [finding for finding in analysis.findings if finding.severity != "info"]
    for finding in sorted(costly, key=lambda f: f.id != analysis.verdict.finding):
        if place := _of(finding, packets):
            return finding, place
    return None, _slowest(tables)


def _of(finding: Finding, packets: Mapping[int, PacketFacts]) -> _Place | None:
    """Find the first packets of a finding that lie close together on one connection; None without any."""
    shown = [e for e in finding.evidence[:MOST_EVIDENCE] if e.packet in packets]
    if not shown or ABOUTS[finding.id].judges_capture:
        return None
    first = packets[shown[0].packet]
    begin = end = shown[0].time_ns
    for item in shown[1:]:
        if packets[item.packet].connection != first.connection or not 0 <= item.packet - first.packet <= MOST_PACKETS:
            break
        end = max(end, item.time_ns)
    return first.connection, None, begin - AROUND_NS, end + AROUND_NS


def _slowest(tables: Tables) -> _Place:
    """Find the longest complete RPC, or the longest one if none is complete."""
    rpcs = tables.rpcs
    row = int(np.lexsort((rpcs.duration_ns, (rpcs.flags & COMPLETE) != 0))[-1])
    begin, lasted = int(rpcs.start_time_ns[row]), min(int(rpcs.duration_ns[row]), LONGEST_NS)
    return int(rpcs.connection[row]), int(rpcs.stream[row]), begin, begin + lasted


def _work(tables: Tables) -> tuple[Work, ...]:
    rpcs = tables.rpcs
    numbers, counts = np.unique(rpcs.method, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    most = numbers[order[:MOST_WORK]]
    return tuple(_of_method(tables, np.flatnonzero(rpcs.method == number), int(number)) for number in most)


def _of_method(tables: Tables, rows: Ints, number: int) -> Work:
    rpcs = tables.rpcs
    order = rows[np.lexsort((rpcs.start_time_ns[rows], rpcs.connection[rows]))]
    gaps = np.diff(rpcs.start_time_ns[order])[np.diff(rpcs.connection[order].astype(np.int64)) == 0]
    return Work(
        method=next((m.name or m.label for m in tables.methods if m.number == number), None),
        rpcs=len(rows),
        messages=(_median(rpcs.request_messages[rows]), _median(rpcs.response_messages[rows])),
        request_bytes=(_median(rpcs.request_bytes[rows]), int(rpcs.request_bytes[rows].max())),
        response_bytes=(_median(rpcs.response_bytes[rows]), int(rpcs.response_bytes[rows].max())),
        gap_ns=_median(gaps) if len(gaps) else None,
    )


def _median(values: Any) -> int:
    return int(np.partition(values, len(values) // 2)[len(values) // 2])
