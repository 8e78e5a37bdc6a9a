"""`grpcdiag rpcs`: one row per RPC."""

from __future__ import annotations

from .common import Files, KeyLog, Output, Ports, Quiet, decoding, how, progress
from .rows import ROWS_SHOWN, Format, FormatOption, Limit, write

NAME = "rpcs"


def command(
    files: Files,
    format_: FormatOption = Format.table,
    output: Output = None,
    limit: Limit = ROWS_SHOWN,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Write one row per RPC."""
    from ..analyzer.decode import decode
    from ..analyzer.errors import NoGrpcError
    from ..analyzer.facts import why_no_grpc
    from ..reports import rows

    with decoding(), progress(quiet) as told:
        tables = decode(files, **how(port, keylog), progress=told)
        if not len(tables.rpcs.connection):
            raise NoGrpcError(why_no_grpc(tables))
    write([rows.rpcs(tables)], format_, output, limit)
