"""`grpcdiag waits`: one row per interval in which a side owed bytes and sent none."""

from __future__ import annotations

from .common import Files, KeyLog, Output, Ports, Quiet, decoding, how, progress
from .rows import ROWS_SHOWN, Format, FormatOption, Limit, write

NAME = "waits"


def command(
    files: Files,
    format_: FormatOption = Format.table,
    output: Output = None,
    limit: Limit = ROWS_SHOWN,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Write one row per interval in which a side owed bytes and sent none."""
    from ..analyzer.decode import decode
    from ..reports import rows

    with decoding(), progress(quiet) as told:
        tables = decode(files, rpc_rows=False, **how(port, keylog), progress=told)
    write([rows.waits(tables)], format_, output, limit)
