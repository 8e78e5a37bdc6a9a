"""Captures that can be shown: what the core makes of one, and whether it says the same as before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, structs

from . import _core
from .analysis import of_tables
from .decode.decode import decode, stream_together
from .decode.errors import NoGrpcError
from .decode.runner import Progress
from .model.analysis import Analysis
from .tables import Frames, Messages, Packets, Rpcs, Table, Tables

if TYPE_CHECKING:
    from .sidecar.read import Sidecar

STEP = 20_000
"""Packets between two pieces of the new file, at most."""


class Report(Struct, frozen=True):
    """What was done to a capture. It holds what was hidden: not to be shown, but for `connections`."""

    format: str
    """`pcap` or `pcapng`."""
    packets: int
    """Packets written, as many as were read."""
    not_tcp: int
    """Packets of other protocols: only link and IP headers stay, and UDP's."""
    fragments: int
    """IP fragments whose datagram is not whole, or no TCP: only their IP headers stay."""
    unreadable: int
    """Packets that cannot be read as what they claim to be: what was read of them stays."""
    addresses: Mapping[str, str]
    """Addresses and their replacements."""
    methods: Mapping[str, str]
    """Methods and their replacements."""
    agents: Mapping[str, str]
    """Implementations and their replacements."""
    reasons: tuple[str, ...]
    """Debug texts of GOAWAY frames that are left out."""
    connections: tuple[tuple[str, str, str], ...]
    """Of each connection both ends as they are now, and what it carries: `http2`, `tls`, `other` or `nothing`."""


class Scrubbing:
    """Writes a capture anew. Raises CaptureError, also later."""

    def __init__(self, paths: Sequence[str], *, key: bytes, hide_methods: bool = False, ports: list[int] | None = None):
        """Open the files, which are read twice; `key` decides all replacements and is to be forgotten."""
        self._run = _core.Scrubbing(list(paths), key=key, hide_methods=hide_methods, ports=ports or [])

    def pieces(self, progress: Progress | None = None) -> Iterator[bytes]:
        """Yield the scrubbed file in pieces; tell `progress` the bytes read in both passes."""
        while (piece := self._run.step(STEP)) is not None:
            if piece:
                yield piece
            if progress:
                progress(self._run.bytes_read, None)

    def report(self) -> Report:
        """Report what was replaced; call it after the last piece."""
        found = self._run.report()
        tuples = {name: tuple(found[name]) for name in ("reasons", "connections")}
        return Report(**found | tuples)


def renamed(tables: Tables, report: Report) -> Tables:
    """Give the original's tables the names of the scrubbed capture, and drop what only files have."""
    texts = {reason[:64] for reason in report.reasons}
    # damage of the file is mended, secrets and comments are dropped, and all packets get times
    mended = {"damage": [], "damage_not_listed": 0, "secrets": 0, "comments": [], "packets_without_time": 0}
    return structs.replace(
        tables,
        capture={**tables.capture, **mended},
        addresses=tuple(report.addresses.get(name, name) for name in tables.addresses),
        agents=tuple(report.agents.get(name, name) for name in tables.agents),
        goaway_reasons=tuple("" if reason in texts else reason for reason in tables.goaway_reasons),
        methods=tuple(
            structs.replace(method, name=report.methods.get(method.name, method.name)) if method.name else method
            for method in tables.methods
        ),
    )


def analyses(
    before: Sequence[str],
    after: Sequence[str],
    report: Report,
    ports: list[int] | None = None,
    sidecar: Sidecar | None = None,
) -> tuple[Analysis | str, Analysis | str]:
    """Analyse the original with the names of the scrubbed capture, and the scrubbed capture.

    Instead of an analysis the reason why there is no gRPC. TLS is decrypted and HTTP/1.1 read in neither. What was
    recorded `beside` the capture is used for both, without the names in it.
    """
    old = decode(before, rpc_rows=False, ports=ports or [], as_scrubbed=True)
    named, new = renamed(old, report), decode(after, rpc_rows=False, ports=ports or [])
    if len(named.lookup_names) == len(new.lookup_names):  # names of hosts are numbered in the order of first sight
        named = structs.replace(named, lookup_names=new.lookup_names)
    if sidecar is not None:
        from .sidecar.redact import hidden

        sidecar = hidden(sidecar, old, named)
    return _analysis(named, sidecar), _analysis(new, sidecar)


def _analysis(tables: Tables, sidecar: Sidecar | None) -> Analysis | str:
    try:
        found = of_tables(tables, sidecar)
    except NoGrpcError as reason:
        return str(reason)
    # a path with two queries has one name before, and two afterwards
    return structs.replace(found, files=(), other_requests=())


def row_differences(before: Sequence[str], after: Sequence[str], ports: list[int] | None = None) -> Iterator[str]:
    """Tables that differ, row for row: packets, frames, messages, RPCs with their budgets, waits, habits.

    Method numbers are compared as such: they count in the order of first sight.
    """
    how: dict[str, Any] = {"ports": ports or []}
    yield from _streamed_differences(before, after, how)
    old, new = (_digests(decode(before, as_scrubbed=True, **how)), _digests(decode(after, **how)))
    yield from (name for name in old if old[name] != new[name])


REPLACED = ("trace_high", "trace_low", "span_id", "request_id")
"""Columns whose numbers differ, and are equal where they were."""


def _digests(tables: Tables) -> dict[str, bytes]:
    """Compute a digest of each table at a run's end, so that the tables of two runs are never in memory together."""
    names = ("rpcs", "waits", "pings", "turns", "directions")
    columns = {name: _columns(getattr(tables, name)) for name in names}
    columns["rpcs"] = [getattr(tables.rpcs, name) for name in Rpcs.__struct_fields__ if name not in REPLACED]
    columns["budgets of RPCs"] = [tables.rpc_budgets]
    return {name: _digest(arrays) for name, arrays in columns.items()}


def _columns(rows: Table) -> list[np.ndarray[Any, Any]]:
    return [getattr(rows, name) for name in rows.__struct_fields__]


def _digest(arrays: Sequence[np.ndarray[Any, Any]]) -> bytes:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


_STREAMED = {"packets": Packets, "frames": Frames, "messages": Messages}


def _streamed_differences(before: Sequence[str], after: Sequence[str], how: Mapping[str, Any]) -> list[str]:
    """Compare the tables of which no run holds all rows; each capture is read once for the three of them."""
    kinds = list(_STREAMED.values())
    pieces = (stream_together(kinds, before, as_scrubbed=True, **how), stream_together(kinds, after, **how))
    differ: set[str] = set()
    for old, new in zip(*pieces, strict=True):
        differ.update(name for name, *both in zip(_STREAMED, old, new, strict=True) if not _equal(*both))
    return [name for name in _STREAMED if name in differ]


def _equal(old: Table, new: Table) -> bool:
    columns = zip(_columns(defined(old)), _columns(defined(new)), strict=True)
    return all(np.array_equal(*both) for both in columns)


_FLAGS = np.array([0x09, 0x2D, 0, 0, 0x01, 0x0C, 0x01, 0, 0, 0x04], dtype=np.uint8)
"""Flags that RFC 9113 section 6 defines, by frame type; others are cleared."""


def defined(rows: Table) -> Table:
    """Frames as far as RFC 9113 defines them, which is what scrubbing keeps: of other types length and place."""
    if not isinstance(rows, Frames):
        return rows
    known = rows.kind < len(_FLAGS)
    flags = rows.flags & _FLAGS[np.where(known, rows.kind, 2)]
    kind = np.where(known, rows.kind, len(_FLAGS)).astype(rows.kind.dtype)
    return structs.replace(rows, kind=kind, flags=flags, stream=np.where(known, rows.stream, 0))
