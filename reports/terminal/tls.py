"""Show TLS connections without secrets: what handshakes and records show, and how to get the secrets."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.text import count
from ...analyzer.model.tls import KEY_LOGS
from ..shared.drawing import more, pair
from ..shared.tls import list_rows

MOST = 10
"""Connections shown; the rest are counted."""


def parts(analysis: Analysis, *, most: int = MOST, ways: bool = True) -> list[RenderableType]:
    """List the parts of the section; empty without such connections.

    The ways to get secrets are shown only where no RPC could be read, and if `ways` is set.
    """
    if not analysis.tls:
        return []
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in analysis.tls.connections[:most]:
        for number, side, words in list_rows(one, analysis):
            table.add_row(number and f"  {number}", side, words)
    head = Text(f"{count(len(analysis.tls.connections), 'TLS connection')} without secrets", style="bold")
    found: list[RenderableType] = [
        Text(),
        Group(head, table, *more(len(analysis.tls.connections) - most, "connection")),
    ]
    return [*found, Text(), _show_key_logs()] if ways and not analysis.totals.rpcs else found


def _show_key_logs() -> RenderableType:
    head = Text("how to get the secrets (for tests only: with them anyone can decrypt the traffic)", style="bold")
    return Group(head, pair((f"  {log.implementation}", log.how) for log in KEY_LOGS))
