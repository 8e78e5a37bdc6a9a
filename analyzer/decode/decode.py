"""Run the core over a capture."""

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

from ..summary.figures import why_no_grpc
from ..tables import Frames, Messages, Packets, Table, Tables, table_of, tables_of
from .errors import NoGrpcError
from .runner import DecodeOptions, Origin, Progress, Reading, Run, read_ahead

_STREAMED: dict[type[Any], str] = {Frames: "frames", Messages: "messages", Packets: "packets"}


def decode(
    paths: Sequence[str],
    *,
    rpc_rows: bool = True,
    slowest: int = 0,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Tables:
    """Decode a capture into its tables; frames, messages and packets are counted only.

    Without `rpc_rows` only the RPCs that serve as examples have rows, which is what `analyze` needs: less memory, and
    two threads read. The `slowest` RPCs of all have rows, too, and then rows have budgets.

    `paths` are files of one capture in any order, or `-` for standard input; `how` are `DecodeOptions`. Raises
    CaptureError.
    """
    return tables_of(Reading(paths, rpc_rows=rpc_rows, slowest=slowest, **how).finish(progress))


def decode_examples(
    paths: Sequence[str], progress: Progress | None = None, **how: Unpack[DecodeOptions]
) -> tuple[Tables, Tables]:
    """Decode a capture into what `decode` gives without `rpc_rows`, and with them. Raises CaptureError."""
    from .examples import divide_examples

    return divide_examples(tables_of(Reading(paths, rpc_rows=True, marks_examples=True, **how).finish(progress)))


def stream(
    kind: type[Table],
    paths: Sequence[str],
    *,
    require_rows: bool = False,
    origin: Origin | None = None,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Iterator[Table]:
    """Decode a capture and yield one of the tables `Frames`, `Messages`, `Packets` piece by piece.

    Raises CaptureError, KeyError for tables that are complete only at the end, and with `require_rows` NoGrpcError
    after a capture without rows.
    """
    for (table,) in stream_together((kind,), paths, require_rows=require_rows, origin=origin, progress=progress, **how):
        yield table


def stream_together(
    kinds: Sequence[type[Any]],
    paths: Sequence[str],
    *,
    require_rows: bool = False,
    origin: Origin | None = None,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Iterator[list[Any]]:
    """Decode a capture as `stream` does, and yield a piece of each of several tables at a time."""
    names = [_STREAMED[kind] for kind in kinds]
    wanted = {table: table in names for table in _STREAMED.values()}
    run = Run(paths, file_times=True, unlisted_packets=wanted["packets"], **wanted, **how)
    rows = 0
    pieces = (([take(name) for name in names], run.first_time_ns) for take in run.read(None))
    for columns, first_time_ns in read_ahead(pieces, lambda: run.report(progress)):
        if origin and not rows:
            origin.time_ns = first_time_ns or 0
        rows += sum(len(table["connection"]) for table in columns)
        yield [table_of(kind, table) for kind, table in zip(kinds, columns, strict=True)]
    if require_rows and not rows:
        raise NoGrpcError(why_no_grpc(tables_of(run.result)))


def decode_rows(paths: Sequence[str], *, progress: Progress | None = None, **how: Unpack[DecodeOptions]) -> Tables:
    """Decode a capture with a row for every packet, frame and RPC, all in memory. Raises CaptureError."""
    run = Run(paths, frames=True, packets=True, rpc_rows=True, distributions=True, file_times=True, **how)
    for _ in run.read(progress):
        pass
    return tables_of(run.result)
