"""`grpcdiag connections`: one row per TCP connection."""

from __future__ import annotations

from .common import Files, KeyLog, Output, Ports, Quiet, decoding, how, progress
from .rows import ROWS_SHOWN, Format, FormatOption, Limit, write

NAME = "connections"


def command(
    files: Files,
    format_: FormatOption = Format.table,
    output: Output = None,
    limit: Limit = ROWS_SHOWN,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Write one row per TCP connection."""
    from ..analyzer.decode import decode
    from ..reports import rows

    with decoding(), progress(quiet) as told:
        tables = decode(files, rpc_rows=False, **how(port, keylog), progress=told)
    write([rows.connections(tables)], format_, output, limit)
