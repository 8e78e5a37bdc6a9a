"""`grpcdiag connections`: one row per TCP connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rows import row_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

NAME = "connections"


def _pieces(files: list[str], **how: Any) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode import decode
    from ..reports import rows

    return rows.connection_pieces(decode(files, rpc_rows=False, **how))


command = row_command(NAME, "Write one row per TCP connection.", _pieces)
