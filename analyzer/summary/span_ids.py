"""Ids of exported spans: the same whenever the same capture is read, so that `analyze --client` finds their RPCs."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from ..tables import Ints, Tables

_TRACE_OCTETS, _SPAN_OCTETS = 16, 8


def make_ids(tables: Tables, rows: Ints) -> Iterator[tuple[int, int]]:
    """Make, for each of some RPCs, a trace-id of its own (of use without a `traceparent`) and a span-id."""
    rpcs = tables.rpcs
    ends: dict[int, str] = {}
    columns: Iterable[list[int]] = (
        column[rows].tolist() for column in (rpcs.connection, rpcs.stream, rpcs.start_time_ns)
    )
    for connection, stream, start in zip(*columns, strict=True):
        if connection not in ends:
            ends[connection] = f"{tables.client(connection)} {tables.server(connection)}"
        text = f"{ends[connection]} {stream} {start}".encode()
        digest = blake2b(text, digest_size=_TRACE_OCTETS + _SPAN_OCTETS).digest()
        # OpenTelemetry reserves ids of zeros
        yield int.from_bytes(digest[:_TRACE_OCTETS]) or 1, int.from_bytes(digest[_TRACE_OCTETS:]) or 1


def find_trace(tables: Tables, row: int) -> int:
    """Return the trace-id that the request carries, 0 for none."""
    return int(tables.rpcs.trace_high[row]) << 64 | int(tables.rpcs.trace_low[row])


def make_child_id(span: str, what: str) -> str:
    """Make the id of a span below an RPC's, in hexadecimal."""
    return blake2b(f"{span} {what}".encode(), digest_size=_SPAN_OCTETS).hexdigest()
