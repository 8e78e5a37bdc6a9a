"""Build the tables of `docs/tables.md` as data frames: names instead of codes, null for unknown values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_type_hints
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import polars as pl

from ...analyzer import _core
from ...analyzer.decode.decode import decode, stream
from ...analyzer.decode.rpc_stream import RpcRows, stream_rpcs
from ...analyzer.decode.runner import Origin
from ...analyzer.hops.look import find_legs
from ...analyzer.model.analysis import Analysis, ConnectionFacts
from ...analyzer.model.budget import CAUSES, of_cause
from ...analyzer.summary import figures
from ...analyzer.tables import (
    BEGUN_BEFORE,
    COMPLETE,
    DIRECTIONS,
    LAYERS,
    METHOD_UNKNOWN,
    NOT_SEEN,
    PROTOCOLS,
    TOUCHES_GAP,
    WINDOW_NOT_KNOWN,
    Frames,
    Ints,
    Messages,
    Packets,
    Rpcs,
    Tables,
    names_of,
)

_FRAME_TYPES = [*_core.FRAME_TYPES, *(f"UNKNOWN_0x{number:02x}" for number in range(len(_core.FRAME_TYPES), 256))]


_OF_FACTS: Mapping[object, Any] = {
    int: pl.Int64,
    bool: pl.Boolean,
    str: pl.String,
    int | None: pl.Int64,
    str | None: pl.String,
}
"""Types of columns made from `ConnectionFacts`, so that a column without values has its type too."""


def _name_codes(codes: npt.NDArray[Any], names: Sequence[str]) -> pl.Series:
    """Replace codes by names; codes without a name become null."""
    return _look_up(codes, pl.Series(list(names), dtype=pl.Enum(list(names))))


def _look_up(numbers: npt.NDArray[Any], values: pl.Series) -> pl.Series:
    """Replace numbers by the values that they number, those beyond them by null."""
    series = pl.Series(numbers).cast(pl.UInt32)
    return values.gather(pl.select(pl.when(series < len(values)).then(series)).to_series())


def _null_unknown(column: npt.NDArray[Any], not_known: int = -1) -> pl.Series:
    """Replace the value that means unknown by null."""
    series = pl.Series(column)
    return pl.select(pl.when(series != not_known).then(series)).to_series()


def _write_hex(*words: npt.NDArray[Any]) -> pl.Series:
    """Write identifiers of 64 bits a word in hexadecimal, null where all words are zero."""
    seen = np.flatnonzero(np.logical_or.reduce([word != 0 for word in words]))
    texts = [
        "".join(f"{word:016x}" for word in row) for row in zip(*(word[seen].tolist() for word in words), strict=True)
    ]
    return pl.Series([None], dtype=pl.String).new_from_index(0, len(words[0])).scatter(seen, texts)


def read_pieces(files: Sequence[str], table: str, origin: Origin | None = None, **how: Any) -> Iterator[pl.DataFrame]:
    """Read a capture, and build `rpcs`, `messages`, `frames`, `packets` or `waits` piece by piece."""
    match table:
        case "rpcs":
            if legs := find_legs(files, **how):
                set_origin(origin, legs.tables)
                return rpc_pieces(legs.tables, parents=legs.parent)
            return map(rpcs_of, stream_rpcs(files, origin=origin, **how))
        case "messages":
            return map(messages, stream(Messages, files, origin=origin, **how))
        case "frames":
            return map(frames, stream(Frames, files, origin=origin, **how))
        case "packets":
            return map(packets, stream(Packets, files, origin=origin, **how))
    tables = decode(files, rpc_rows=False, **how)
    set_origin(origin, tables)
    return map(waits, [tables])


def set_origin(origin: Origin | None, tables: Tables) -> None:
    """Let relative times count from the first packet of a decoded capture."""
    if origin:
        origin.time_ns = tables.capture["first_time_ns"] or 0


def frames(table: Frames) -> pl.DataFrame:
    """Build the table of `grpcdiag frames`."""
    return pl.DataFrame(
        {
            "connection": table.connection,
            "direction": _name_codes(table.direction, DIRECTIONS),
            "stream": table.stream,
            "type": _name_codes(table.kind, _FRAME_TYPES),
            "flags": table.flags,
            "length": table.length,
            "first_packet": table.first_packet,
            "first_time_ns": table.first_time_ns,
            "last_packet": table.last_packet,
            "last_time_ns": table.last_time_ns,
        }
    )


def messages(table: Messages) -> pl.DataFrame:
    """Build the table of `grpcdiag messages`."""
    return pl.DataFrame(
        {
            "connection": table.connection,
            "stream": table.stream,
            "direction": _name_codes(table.direction, DIRECTIONS),
            "index": table.index,
            "length": table.length,
            "compressed": pl.Series(table.compressed).cast(pl.Boolean),
            "first_packet": table.first_packet,
            "first_time_ns": table.first_time_ns,
            "last_packet": table.last_packet,
            "last_time_ns": table.last_time_ns,
        }
    )


_TCP_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE")
_FLAG_SETS = ["-", *(",".join(n for bit, n in enumerate(_TCP_FLAGS) if flags >> bit & 1) for flags in range(1, 512))]
"""Names of all sets of TCP flags by their number (RFC 9293 section 3.1, RFC 9768 for AE)."""


def packets(table: Packets) -> pl.DataFrame:
    """Build the table of `grpcdiag packets`."""
    notes = np.where(table.note == 0, len(_core.PACKET_NOTES), table.note)
    return pl.DataFrame(
        {
            "packet": table.packet,
            "time_ns": table.time_ns,
            "connection": _null_unknown(table.connection, 0xFFFF_FFFF),
            "direction": _name_codes(table.direction, DIRECTIONS),
            "flags": _name_codes(table.flags & 511, _FLAG_SETS),
            "seq": table.seq,
            "ack": table.ack,
            "window": table.window,
            "payload_bytes": table.payload_bytes,
            "captured_payload_bytes": table.captured_payload_bytes,
            "note": _name_codes(notes, _core.PACKET_NOTES),
        }
    )


def rpcs(tables: Tables, budgets: Ints | None = None, causes: Sequence[str] = CAUSES) -> pl.DataFrame:
    """Build the table of `grpcdiag rpcs`; decode with `rpc_rows`. For captures of both ends pass budgets, causes."""
    sums = tables.rpc_budgets if budgets is None else budgets
    return rpcs_of(RpcRows(tables.rpcs, tables.deadlines, sums, names_of(tables.methods), tables.errors), causes)


def rpcs_of(some: RpcRows, causes: Sequence[str] = CAUSES) -> pl.DataFrame:
    """Build the table of `grpcdiag rpcs` from some of its rows."""
    table = some.rpcs
    numbers = list(some.names)
    names, labels = [name for name, _ in some.names.values()], [label for _, label in some.names.values()]
    method = pl.Series(table.method).replace_strict(numbers, names, return_dtype=pl.String)
    method_label = pl.Series(table.method).replace_strict(numbers, labels, return_dtype=pl.String)
    before = (table.flags & BEGUN_BEFORE) != 0
    deadlines = np.full(len(table.connection), -1, dtype=np.int64)
    deadlines[: len(some.deadlines)] = some.deadlines
    frame = pl.DataFrame(
        {
            "connection": table.connection,
            "stream": table.stream,
            "method": method,
            "start_time_ns": _null_unknown(np.where(before, -1, table.start_time_ns)),
            "duration_ns": _null_unknown(np.where(before, -1, table.duration_ns)),
            "status": _name_codes(
                np.where(table.status == NOT_SEEN, len(_core.STATUSES), table.status), _core.STATUSES
            ),
            "status_source": _name_codes(
                np.where(table.status_source == 0, len(_core.STATUS_SOURCES), table.status_source), _core.STATUS_SOURCES
            ),
            "http_status": _null_unknown(table.http_status, 0),
            "protocol": _name_codes(table.protocol, _core.RPC_PROTOCOLS),
            "request_messages": table.request_messages,
            "response_messages": table.response_messages,
            "request_bytes": table.request_bytes,
            "response_bytes": table.response_bytes,
            "first_packet": table.first_packet,
            "last_packet": _null_unknown(table.last_packet, 0),
            "complete": (table.flags & (COMPLETE | BEGUN_BEFORE)) == COMPLETE,
            "begun_before": before,
            "method_inferred": np.zeros(len(table.flags), dtype=bool),
            "method_label": method_label,
            "method_unknown": (table.flags & METHOD_UNKNOWN) != 0,
            "touches_gap": (table.flags & TOUCHES_GAP) != 0,
            "deadline_ns": _null_unknown(deadlines),
            "grpc_message": _look_up(table.grpc_message, pl.Series(map(unquote, some.errors), dtype=pl.String)),
            "previous_attempts": _null_unknown(table.previous_attempts, 0),
            "trace_id": _write_hex(table.trace_high, table.trace_low),
            "span_id": _write_hex(table.span_id),
            "parent_rpc": _null_unknown(np.full(len(deadlines), -1) if some.parents is None else some.parents),
        }
    )
    budget = pl.DataFrame({cause: some.budgets[:, place] for place, cause in enumerate(causes)})
    return frame.with_columns(budget.select(pl.struct(causes).alias("budget")).to_series())


RPCS_AT_ONCE = 50_000
"""RPCs in one piece: one data frame of all rows would need more memory than the RPCs themselves."""


def rpc_pieces(
    tables: Tables, budgets: Ints | None = None, causes: Sequence[str] = CAUSES, parents: Ints | None = None
) -> Iterator[pl.DataFrame]:
    """Build the table of `grpcdiag rpcs` piece by piece, at least one piece."""
    sums = tables.rpc_budgets if budgets is None else budgets
    columns = {name: getattr(tables.rpcs, name) for name in Rpcs.__struct_fields__}
    names = names_of(tables.methods)
    for begin in range(0, max(1, len(tables.rpcs.connection)), RPCS_AT_ONCE):
        some = slice(begin, begin + RPCS_AT_ONCE)
        part = Rpcs(**{name: column[some] for name, column in columns.items()})
        before = None if parents is None else parents[some]
        yield rpcs_of(RpcRows(part, tables.deadlines[some], sums[some], names, tables.errors, before), causes)


def waits(tables: Tables) -> pl.DataFrame:
    """Build the table of `grpcdiag waits`."""
    table = tables.waits
    return pl.DataFrame(
        {
            "connection": table.connection,
            "stream": table.stream,
            "direction": _name_codes(table.direction, DIRECTIONS),
            "start_time_ns": table.start_time_ns,
            "duration_ns": table.duration_ns,
            "cause": _name_codes(table.cause, CAUSES),
            "owed_bytes": table.owed_bytes,
            "in_flight_bytes": _null_unknown(table.in_flight_bytes),
            "congestion_window_bytes": table.congestion_window_bytes,
            "receive_window_bytes": _null_unknown(table.receive_window_bytes),
            "stream_window_bytes": _null_unknown(table.stream_window_bytes, WINDOW_NOT_KNOWN),
            "connection_window_bytes": _null_unknown(table.connection_window_bytes, WINDOW_NOT_KNOWN),
            "stopped_at_packet": table.stopped_at_packet,
            "released_by_packet": _null_unknown(table.released_by_packet, 0),
            "resumed_at_packet": table.resumed_at_packet,
            "idle_before_ns": _null_unknown(table.idle_before_ns),
            "retransmission_timeout_ns": _null_unknown(table.rto_ns),
            "flight_first_packet": table.flight_first_packet,
        }
    )


def connections(tables: Tables) -> pl.DataFrame:
    """Build the table of `grpcdiag connections`: all TCP connections, including other protocols."""
    return _build_connections(tables, range(len(tables.connections.client_ip)))


CONNECTIONS_AT_ONCE = 10_000
"""Connections in one piece."""


def connection_pieces(tables: Tables) -> Iterator[pl.DataFrame]:
    """Build the table of `grpcdiag connections` piece by piece, at least one piece."""
    number = len(tables.connections.client_ip)
    for begin in range(0, max(1, number), CONNECTIONS_AT_ONCE):
        yield _build_connections(tables, range(begin, min(number, begin + CONNECTIONS_AT_ONCE)))


def _build_connections(tables: Tables, some: range) -> pl.DataFrame:
    table, part = tables.connections, slice(some.start, some.stop)
    described = [figures.connection(tables, row) for row in some]
    names = [name for name in ConnectionFacts.__struct_fields__ if name not in ("budget", "protocol")]
    kinds = {name: kind for name, kind in get_type_hints(ConnectionFacts).items() if name in names}
    columns: dict[str, object] = {name: [getattr(fact, name) for fact in described] for name in names}
    columns["protocol"] = _name_codes(table.protocol[part], PROTOCOLS).cast(pl.String)
    for name in ("payload_bytes", "decoded_bytes", "retransmitted_bytes", "not_http2_bytes", "encrypted_bytes"):
        columns[name] = getattr(table, name)[part]
    columns["undecoded_bytes"] = table.undecoded_bytes[part]
    return pl.DataFrame(columns, schema_overrides={name: _OF_FACTS[kind] for name, kind in kinds.items()})


def methods(analysis: Analysis) -> pl.DataFrame:
    """Build the table of methods with latencies and budgets."""
    facts_of = analysis.methods
    latency = [method.latency_ns for method in facts_of]
    frame = pl.DataFrame(
        {
            "method": pl.Series([method.method for method in facts_of], dtype=pl.String),
            "label": pl.Series([method.label for method in facts_of], dtype=pl.String),
            **{
                name: pl.Series([getattr(method, name) for method in facts_of], dtype=pl.Int64)
                for name in ("rpcs", "messages", "first_start_time_ns", "last_end_time_ns")
            },
            **{
                f"{name}_ns": pl.Series([found and getattr(found, name) for found in latency], dtype=pl.Int64)
                for name in ("p50", "p90", "p99", "max", "mean")
            },
        }
    )
    sums = pl.DataFrame(
        {cause: pl.Series([of_cause(m.budget, cause) for m in facts_of], dtype=pl.Int64) for cause in CAUSES}
    )
    return frame.with_columns(sums.select(pl.struct(CAUSES).alias("budget")).to_series())


def findings(analysis: Analysis) -> pl.DataFrame:
    """Build the table of findings; `evidence` has their packets."""
    found = analysis.findings
    texts = ("id", "title", "severity", "confidence", "part_of", "explanation", "verdict")
    columns = {name: pl.Series([getattr(finding, name) for finding in found], dtype=pl.String) for name in texts}
    return pl.DataFrame(
        {
            "finding": pl.Series(range(1, len(found) + 1), dtype=pl.UInt32),
            **{name: columns[name] for name in texts[:4]},
            "lost_ns": pl.Series([finding.lost_ns for finding in found], dtype=pl.Int64),
            "share": pl.Series([finding.share for finding in found], dtype=pl.Float64),
            "connections": pl.Series([list(f.scope.connections) for f in found], dtype=pl.List(pl.UInt32)),
            "methods": pl.Series([list(f.scope.methods) for f in found], dtype=pl.List(pl.String)),
            **{name: columns[name] for name in texts[4:]},
        }
    )


def evidence(analysis: Analysis) -> pl.DataFrame:
    """Build the table of the packets that show the findings."""
    rows = [
        (number, finding.id, shown.packet, shown.time_ns, shown.what)
        for number, finding in enumerate(analysis.findings, start=1)
        for shown in finding.evidence
    ]
    schema = {"finding": pl.UInt32, "id": pl.String, "packet": pl.UInt32, "time_ns": pl.Int64, "what": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def problems(tables: Tables) -> pl.DataFrame:
    """Build the table of decoding problems."""
    table = tables.problems
    return pl.DataFrame(
        {
            "time_ns": table.time_ns,
            "connection": _null_unknown(table.connection, 0xFFFF_FFFF),
            "layer": _name_codes(table.layer, LAYERS),
            "kind": _name_codes(table.kind, tables.problem_kinds),
            "packet": table.packet,
        }
    )
