"""`grpcdiag connections`: write one row per TCP connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .support.common import say
from .support.tables import row_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..analyzer.decode.runner import Origin
    from ..reports.tables.frame import Frame


def _read_pieces(files: list[str], _: str, origin: Origin, **how: Any) -> Iterable[Frame]:
    from ..analyzer.decode.decode import decode
    from ..reports.tables import rows

    tables = decode(files, rpc_rows=False, **how)
    rows.set_origin(origin, tables)
    if more := tables.capture["connections_not_listed"]:
        say(f"{more:,} more connections carried no payload and are not listed")
    return rows.connection_pieces(tables)


command = row_command("connections", "Write one row per TCP connection.", _read_pieces, lacks=("worst", "stream"))
