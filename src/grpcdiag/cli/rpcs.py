"""`grpcdiag rpcs`: one row per RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rows import row_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

NAME = "rpcs"


def _pieces(files: list[str], **how: Any) -> Iterable[pl.DataFrame]:
    from ..analyzer.decode import decode
    from ..analyzer.errors import NoGrpcError
    from ..analyzer.facts import why_no_grpc
    from ..reports import rows

    tables = decode(files, **how)
    if not tables.rpc_count:
        raise NoGrpcError(why_no_grpc(tables))
    return [rows.rpcs(tables)]


command = row_command("Write one row per RPC.", _pieces)
