"""`grpcdiag packets`: write one row per TCP packet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .support.tables import row_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

NAME = "packets"


def _read_pieces(files: list[str], **how: Any) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode.decode import stream
    from ..analyzer.tables import Packets
    from ..reports.tables import rows

    return map(rows.packets, stream(Packets, files, **how))


command = row_command(NAME, "Write one row per TCP packet.", _read_pieces)
