"""Build the tables of `docs/tables.md`: names instead of codes, null for unknown values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_type_hints
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from ...analyzer import _core
from ...analyzer.decode.decode import decode, stream, stream_together
from ...analyzer.decode.disk_columns import gathered, gathered_rows
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
    NO_METHOD,
    NOT_SEEN,
    PROTOCOLS,
    TOUCHES_GAP,
    WINDOW_NOT_KNOWN,
    Frames,
    Ints,
    Messages,
    Packets,
    Tables,
    names_of,
)
from .frame import Column, Frame, Hex, Lists, Numbers, Parts, Texts, number_texts

_FRAME_TYPES = [*_core.FRAME_TYPES, *(f"UNKNOWN_0x{number:02x}" for number in range(len(_core.FRAME_TYPES), 256))]
_NO_NUMBER = np.iinfo(np.int64).min
"""Stands for null where any other number may occur."""


def _name_codes(codes: npt.NDArray[Any], names: Sequence[str], nameless: int | None = None) -> Texts:
    """Replace codes by names; those without a name, and `nameless`, become null."""
    return Texts(codes if nameless is None else np.where(codes == nameless, len(names), codes), names, is_enum=True)


def _null_unknown(column: npt.NDArray[Any]) -> Numbers:
    """Replace the value that means unknown by null."""
    return Numbers(column, -1)


def _number(values: Sequence[int | None]) -> Numbers:
    """Make a column of 64-bit integers; None for null."""
    return Numbers(np.array([_NO_NUMBER if value is None else value for value in values], np.int64), _NO_NUMBER)


def _look_up(numbers: npt.NDArray[Any], texts: Sequence[str]) -> Texts:
    """Replace numbers by percent-encoded texts, of which only those that occur are decoded."""
    if not texts:
        return Texts(numbers, ())
    used, codes = np.unique(numbers, return_inverse=True)
    some = [unquote(texts[number]) if number < len(texts) else None for number in used.tolist()]
    return Texts(codes.astype(np.uint32), some)


def read_pieces(
    files: Sequence[str], table: str, origin: Origin | None = None, decoded: Tables | None = None, **how: Any
) -> Iterator[Frame]:
    """Read a capture, and build `rpcs`, `messages`, `frames`, `packets` or `waits` piece by piece.

    `decoded` are its tables with a row per RPC, if they were read before.
    """
    match table:
        case "rpcs":
            if legs := find_legs(files, **how):
                set_origin(origin, legs.tables)
                return rpc_pieces(legs.tables, parents=legs.parent)
            return rpc_pieces(decoded) if decoded else map(rpcs_of, stream_rpcs(files, origin=origin, **how))
        case "messages":
            return map(messages, stream(Messages, files, origin=origin, **how))
        case "frames":
            return map(frames, stream(Frames, files, origin=origin, **how))
        case "packets":
            return map(packets, stream(Packets, files, origin=origin, **how))
    tables = decode(files, rpc_rows=False, **how)
    set_origin(origin, tables)
    return map(waits, [tables])


def read_together(files: Sequence[str], tables: Sequence[str], **how: Any) -> Iterator[dict[str, Frame]]:
    """Read a capture once, and build pieces of several of `messages`, `frames`, `packets` at a time."""
    kinds = {"messages": Messages, "frames": Frames, "packets": Packets}
    build: dict[str, Callable[[Any], Frame]] = {"messages": messages, "frames": frames, "packets": packets}
    for pieces in stream_together([kinds[table] for table in tables], files, **how):
        yield {table: build[table](piece) for table, piece in zip(tables, pieces, strict=True)}


def set_origin(origin: Origin | None, tables: Tables) -> None:
    """Let relative times count from the first packet of a decoded capture."""
    if origin:
        origin.time_ns = tables.capture["first_time_ns"] or 0


def _arrange(table: Any, names: str, **own: Column) -> Frame:
    """Take columns of a table by their names, in this order; `own` are those that differ from the table's."""
    return Frame({name: own[name] if name in own else Numbers(getattr(table, name)) for name in names.split()})


def frames(table: Frames) -> Frame:
    """Build the table of `grpcdiag frames`."""
    return _arrange(
        table,
        "connection direction stream type flags length first_packet first_time_ns last_packet last_time_ns",
        direction=_name_codes(table.direction, DIRECTIONS),
        type=_name_codes(table.kind, _FRAME_TYPES),
    )


def messages(table: Messages) -> Frame:
    """Build the table of `grpcdiag messages`."""
    return _arrange(
        table,
        "connection stream direction index length compressed first_packet first_time_ns last_packet last_time_ns",
        direction=_name_codes(table.direction, DIRECTIONS),
        compressed=Numbers(table.compressed != 0),
    )


_TCP_FLAGS = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE")
_FLAG_SETS = ["-", *(",".join(n for bit, n in enumerate(_TCP_FLAGS) if flags >> bit & 1) for flags in range(1, 512))]
"""Names of all sets of TCP flags by their number (RFC 9293 section 3.1, RFC 9768 for AE)."""


def packets(table: Packets) -> Frame:
    """Build the table of `grpcdiag packets`."""
    return _arrange(
        table,
        "packet time_ns connection direction flags seq ack window payload_bytes captured_payload_bytes note",
        connection=Numbers(table.connection, 0xFFFF_FFFF),
        direction=_name_codes(table.direction, DIRECTIONS),
        flags=_name_codes(table.flags & 511, _FLAG_SETS),
        note=_name_codes(table.note, _core.PACKET_NOTES, nameless=0),
    )


def rpcs(tables: Tables, budgets: Ints | None = None, causes: Sequence[str] = CAUSES) -> Frame:
    """Build the table of `grpcdiag rpcs`; decode with `rpc_rows`. For captures of both ends pass budgets, causes."""
    sums = tables.rpc_budgets if budgets is None else budgets
    return rpcs_of(RpcRows(tables.rpcs, tables.deadlines, sums, names_of(tables.methods), tables.errors), causes)


def rpcs_of(some: RpcRows, causes: Sequence[str] = CAUSES) -> Frame:
    """Build the table of `grpcdiag rpcs` from some of its rows."""
    table = some.rpcs
    following = table.method + np.uint32(1)  # 0 for NO_METHOD; few methods need no sorting
    used = np.flatnonzero(np.bincount(following))
    codes = np.searchsorted(used, following).astype(np.uint32)
    named = [some.names[number - 1 if number else NO_METHOD] for number in used.tolist()]
    before = (table.flags & BEGUN_BEFORE) != 0
    return _arrange(
        table,
        "connection stream method start_time_ns duration_ns status status_source http_status protocol "
        "request_messages response_messages request_bytes response_bytes first_packet last_packet complete "
        "begun_before method_inferred method_label method_unknown touches_gap deadline_ns grpc_message "
        "previous_attempts trace_id span_id parent_rpc budget",
        method=Texts(codes, [name for name, _ in named]),
        start_time_ns=_null_unknown(np.where(before, -1, table.start_time_ns)),
        duration_ns=_null_unknown(np.where(before, -1, table.duration_ns)),
        status=_name_codes(table.status, _core.STATUSES, nameless=NOT_SEEN),
        status_source=_name_codes(table.status_source, _core.STATUS_SOURCES, nameless=0),
        http_status=Numbers(table.http_status, 0),
        protocol=_name_codes(table.protocol, _core.RPC_PROTOCOLS),
        last_packet=Numbers(table.last_packet, 0),
        complete=Numbers((table.flags & (COMPLETE | BEGUN_BEFORE)) == COMPLETE),
        begun_before=Numbers(before),
        method_inferred=Numbers(np.zeros(len(table.flags), dtype=bool)),
        method_label=Texts(codes, [label for _, label in named]),
        method_unknown=Numbers((table.flags & METHOD_UNKNOWN) != 0),
        touches_gap=Numbers((table.flags & TOUCHES_GAP) != 0),
        deadline_ns=_null_unknown(some.deadlines),
        grpc_message=_look_up(table.grpc_message, some.errors),
        previous_attempts=Numbers(table.previous_attempts, 0),
        trace_id=Hex(np.stack((table.trace_high, table.trace_low), axis=1)),
        span_id=Hex(table.span_id[:, np.newaxis]),
        parent_rpc=_null_unknown(np.full(len(before), -1) if some.parents is None else some.parents),
        budget=Parts(some.budgets, causes),
    )


RPCS_AT_ONCE = 50_000
"""RPCs in one piece: one data frame of all rows would need more memory than the RPCs themselves."""


def rpc_pieces(
    tables: Tables, budgets: Ints | None = None, causes: Sequence[str] = CAUSES, parents: Ints | None = None
) -> Iterator[Frame]:
    """Build the table of `grpcdiag rpcs` piece by piece, at least one piece."""
    sums = tables.rpc_budgets if budgets is None else budgets
    names = names_of(tables.methods)
    for begin in range(0, max(1, len(tables.rpcs.connection)), RPCS_AT_ONCE):
        some = np.arange(begin, min(begin + RPCS_AT_ONCE, len(tables.rpcs.connection)))
        before = None if parents is None else parents[some]
        columns = gathered(tables.deadlines, some), gathered(sums, some)
        yield rpcs_of(RpcRows(gathered_rows(tables.rpcs, some), *columns, names, tables.errors, before), causes)


def waits(tables: Tables) -> Frame:
    """Build the table of `grpcdiag waits`."""
    table = tables.waits
    return _arrange(
        table,
        "connection stream direction start_time_ns duration_ns cause owed_bytes in_flight_bytes "
        "congestion_window_bytes receive_window_bytes stream_window_bytes connection_window_bytes stopped_at_packet "
        "released_by_packet resumed_at_packet idle_before_ns retransmission_timeout_ns flight_first_packet",
        direction=_name_codes(table.direction, DIRECTIONS),
        cause=_name_codes(table.cause, CAUSES),
        in_flight_bytes=_null_unknown(table.in_flight_bytes),
        receive_window_bytes=_null_unknown(table.receive_window_bytes),
        stream_window_bytes=Numbers(table.stream_window_bytes, WINDOW_NOT_KNOWN),
        connection_window_bytes=Numbers(table.connection_window_bytes, WINDOW_NOT_KNOWN),
        released_by_packet=Numbers(table.released_by_packet, 0),
        idle_before_ns=_null_unknown(table.idle_before_ns),
        retransmission_timeout_ns=_null_unknown(table.rto_ns),
    )


def connections(tables: Tables) -> Frame:
    """Build the table of `grpcdiag connections`: all TCP connections, including other protocols."""
    return _build_connections(tables, range(len(tables.connections.client_ip)))


CONNECTIONS_AT_ONCE = 10_000
"""Connections in one piece."""


def connection_pieces(tables: Tables) -> Iterator[Frame]:
    """Build the table of `grpcdiag connections` piece by piece, at least one piece."""
    number = len(tables.connections.client_ip)
    for begin in range(0, max(1, number), CONNECTIONS_AT_ONCE):
        yield _build_connections(tables, range(begin, min(number, begin + CONNECTIONS_AT_ONCE)))


def _build_connections(tables: Tables, some: range) -> Frame:
    table, part = tables.connections, slice(some.start, some.stop)
    described = figures.describe_connections(tables, np.arange(some.start, some.stop))
    kinds = {name: kind for name, kind in get_type_hints(ConnectionFacts).items() if name not in ("budget", "protocol")}
    columns = {
        name: _of_facts([getattr(fact, name) for fact in described], kinds[name])
        for name in ConnectionFacts.__struct_fields__
        if name in kinds
    }
    columns["protocol"] = Texts(table.protocol[part], PROTOCOLS)
    sums = "payload_bytes decoded_bytes retransmitted_bytes not_http2_bytes encrypted_bytes undecoded_bytes"
    return Frame(columns | {name: Numbers(getattr(table, name)[part]) for name in sums.split()})


def _of_facts(values: Sequence[Any], kind: object) -> Numbers | Texts:
    """Make a column of facts of one kind, whose type does not depend on the values."""
    if kind is bool:
        return Numbers(np.array(values, bool))
    return number_texts(values) if kind in (str, str | None) else _number(values)


def methods(analysis: Analysis) -> Frame:
    """Build the table of methods with latencies and budgets."""
    facts_of = analysis.methods
    latency = [method.latency_ns for method in facts_of]
    sums = [[of_cause(method.budget, cause) for cause in CAUSES] for method in facts_of]
    return Frame(
        {
            "method": number_texts([method.method for method in facts_of]),
            "label": number_texts([method.label for method in facts_of]),
            **{
                name: _number([getattr(method, name) for method in facts_of])
                for name in ("rpcs", "messages", "first_start_time_ns", "last_end_time_ns")
            },
            **{
                f"{name}_ns": _number([None if found is None else getattr(found, name) for found in latency])
                for name in ("p50", "p90", "p99", "max", "mean")
            },
            "budget": Parts(np.array(sums, np.int64).reshape(len(sums), len(CAUSES)), CAUSES),
        }
    )


def findings(analysis: Analysis) -> Frame:
    """Build the table of findings; `evidence` has their packets."""
    found = analysis.findings
    texts = ("id", "title", "severity", "confidence", "part_of", "explanation", "verdict")
    columns = {name: number_texts([getattr(finding, name) for finding in found]) for name in texts}
    return Frame(
        {
            "finding": Numbers(np.arange(1, len(found) + 1, dtype=np.uint32)),
            **{name: columns[name] for name in texts[:4]},
            "lost_ns": _number([finding.lost_ns for finding in found]),
            "share": Numbers(np.array([finding.share for finding in found], np.float64)),
            "connections": Lists([finding.scope.connections for finding in found], np.uint32),
            "methods": Lists([finding.scope.methods for finding in found]),
            **{name: columns[name] for name in texts[4:]},
        }
    )


def evidence(analysis: Analysis) -> Frame:
    """Build the table of the packets that show the findings."""
    shown = [(number, f.id, one) for number, f in enumerate(analysis.findings, start=1) for one in f.evidence]
    return Frame(
        {
            "finding": Numbers(np.array([number for number, _, _ in shown], np.uint32)),
            "id": number_texts([name for _, name, _ in shown]),
            "packet": Numbers(np.array([one.packet for _, _, one in shown], np.uint32)),
            "time_ns": Numbers(np.array([one.time_ns for _, _, one in shown], np.int64)),
            "what": number_texts([one.what for _, _, one in shown]),
        }
    )


def problems(tables: Tables) -> Frame:
    """Build the table of decoding problems."""
    table = tables.problems
    return _arrange(
        table,
        "time_ns connection layer kind packet",
        connection=Numbers(table.connection, 0xFFFF_FFFF),
        layer=_name_codes(table.layer, LAYERS),
        kind=_name_codes(table.kind, tables.problem_kinds),
    )
