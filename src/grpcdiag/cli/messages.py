"""`grpcdiag messages`: write one row per gRPC message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .support.tables import row_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

NAME = "messages"


def _read_pieces(files: list[str], **how: Any) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.decode import stream
    from ..analyzer.tables import Messages
    from ..reports.tables import rows

    return map(rows.messages, stream(Messages, files, require_rows=True, **how))


command = row_command(NAME, "Write one row per gRPC message.", _read_pieces)
