"""`grpcdiag packets`: one row per TCP packet."""

from __future__ import annotations

from .common import Files, KeyLog, Output, Ports, Quiet, decoding, how, progress
from .rows import ROWS_SHOWN, Format, FormatOption, Limit, write

NAME = "packets"


def command(
    files: Files,
    format_: FormatOption = Format.table,
    output: Output = None,
    limit: Limit = ROWS_SHOWN,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Write one row per TCP packet."""
    from ..analyzer.decode import stream
    from ..analyzer.tables import Packets
    from ..reports import rows

    with decoding(), progress(quiet) as told:
        pieces = map(rows.packets, stream(Packets, files, **how(port, keylog), progress=told))
        write(pieces, format_, output, limit)
