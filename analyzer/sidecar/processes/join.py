"""Join a process record with the packets: which thread ended each interval, and what led to its send."""

import ipaddress
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from msgspec import Struct

from ...decode.runner import DecodeOptions, Progress, Run
from ...tables import Ints, Tables
from ...tables.processes import Acts, Processes
from .record import ProcessRecord, RecordError
from .ways import Sends, Ways

_EARLY_NS = 1_000_000_000
"""A socket is established this long before its connection's first packet at most, or later (heuristic: the capture may
begin within the opening; a port is not used again within a second)."""


class _Wire(Struct, frozen=True, eq=False):
    """What a second reading of the capture gives."""

    acts: dict[str, Any]
    acts_left_out: int
    """Intervals that `acts` had no room for."""
    packet: Ints
    """Packets with payload, ascending."""
    time_ns: Ints
    end: Ints
    """Offset behind their last byte in their direction."""
    seq: Ints
    """Offset of their first byte."""
    ways: Ints
    """Twice the connection, and the direction."""


def join_record(
    paths: Sequence[str],
    tables: Tables,
    record: ProcessRecord,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Processes:
    """Read the capture again and join it. Raises CaptureError and RecordError."""
    if tables.capture["clock_steps"]:
        raise RecordError("the capture's clock was set meanwhile")
    wire = _read_wire(paths, progress, **how)
    if wire.acts_left_out:
        raise RecordError(f"the capture has {wire.acts_left_out:,} intervals more than are joined")
    sockets = _match_sockets(tables, wire, record)
    acts = wire.acts
    ways = 2 * acts["connection"].astype(np.int64) + acts["direction"]
    mine = sockets[ways] >= 0
    if not mine.any():
        raise RecordError("the recorded command opened none of the connections")
    acts, ways = {name: column[mine] for name, column in acts.items()}, ways[mine]
    starts = acts["start_time_ns"] - record.offset_ns
    places = np.minimum(np.searchsorted(wire.packet, acts["packet"]), len(wire.packet) - 1)
    known = (wire.packet[places] == acts["packet"]) & (wire.ways[places] == ways)
    sends = Sends(
        starts, starts + acts["duration_ns"], np.where(known, sockets[ways], -1), wire.seq[places].astype(np.uint64)
    )
    found = Ways(record, sends, np.sort(wire.time_ns[sockets[wire.ways ^ 1] >= 0] - record.offset_ns))
    return Processes(
        acts=Acts(**acts, process=found.process, parts=found.parts),
        names=found.names,
        processors=record.processors,
        quotas=found.quotas,
        locks=record.full,
        follow=found.follow,
        list_spans=found.list_spans,
        threads=found.threads,
        elsewhere=record.elsewhere,
    )


def _read_wire(paths: Sequence[str], progress: Progress | None, **how: Unpack[DecodeOptions]) -> _Wire:
    run = Run(paths, packets=True, acts=True, file_times=True, **how)
    pieces: list[list[Ints]] = []
    for take in run.read(progress):
        packets = take("packets")
        carries = packets["payload_bytes"] > 0
        names = ("packet", "time_ns", "seq", "payload_bytes", "connection", "direction")
        pieces.append([packets[name][carries].astype(np.int64) for name in names])
    packet, time, seq, size, connection, direction = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
    return _Wire(
        run.result["acts"], run.result["acts_left_out"], packet, time, seq + size, seq, 2 * connection + direction
    )


def _match_sockets(tables: Tables, wire: _Wire, record: ProcessRecord) -> Ints:
    """Find the socket of each connection and direction, -1 for none.

    A socket is the connection's if its addresses and its time are, and if all bytes of the packets were sent on it.
    """
    connections = tables.connections
    found = np.full(2 * len(connections.rpcs), -1, dtype=np.int64)
    sent = np.zeros(len(found), dtype=np.int64)
    np.maximum.at(sent, wire.ways, wire.end)
    by_ends: dict[tuple[object, ...], list[tuple[int, int, int]]] = {}
    for number, (time, own, port, peer, peer_port, total) in enumerate(record.events.sockets()):
        by_ends.setdefault((_plain(own), port, _plain(peer), peer_port), []).append((time, number, total))
    for row in range(len(connections.rpcs)):
        client = (tables.addresses[int(connections.client_ip[row])], int(connections.client_port[row]))
        server = (tables.addresses[int(connections.server_ip[row])], int(connections.server_port[row]))
        first, last = int(connections.first_time_ns[row]), int(connections.last_time_ns[row])
        for direction, ends in enumerate(((*client, *server), (*server, *client))):
            for time, number, total in by_ends.get(ends, ()):
                in_time = first - _EARLY_NS <= time + record.offset_ns <= last
                if in_time and total >= sent[2 * row + direction] > 0:
                    found[2 * row + direction] = number
    return found


def _plain(address: bytes) -> str:
    """Format an address as in the tables; IPv4 in IPv6 is IPv4 on the wire."""
    ip = ipaddress.ip_address(address)
    return str(ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else str(ip)
