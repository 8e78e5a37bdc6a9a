"""`grpcdiag frames`: one row per HTTP/2 frame."""

from __future__ import annotations

from .common import Files, KeyLog, Output, Ports, Quiet, decoding, how, progress
from .rows import ROWS_SHOWN, Format, FormatOption, Limit, write

NAME = "frames"


def command(
    files: Files,
    format_: FormatOption = Format.table,
    output: Output = None,
    limit: Limit = ROWS_SHOWN,
    port: Ports = None,
    keylog: KeyLog = None,
    quiet: Quiet = False,
) -> None:
    """Write one row per HTTP/2 frame."""
    from ..analyzer.decode import stream
    from ..analyzer.tables import Frames
    from ..reports import rows

    with decoding(), progress(quiet) as told:
        pieces = map(rows.frames, stream(Frames, files, **how(port, keylog), require_rows=True, progress=told))
        write(pieces, format_, output, limit)
