"""`grpcdiag waits`: write one row per blocked interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .support.tables import row_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

NAME = "waits"


def _read_pieces(files: list[str], **how: Any) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.decode import decode
    from ..reports.tables import rows

    return [rows.waits(decode(files, rpc_rows=False, **how))]


command = row_command(
    NAME, "Write one row per blocked interval: a side had bytes left to send and sent none.", _read_pieces
)
