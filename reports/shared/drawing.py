"""Colours, and the drawing of rich's renderables as text."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO

from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.budget import SPLIT
from ...analyzer.model.text import count

CAUSE_STYLES = {
    "client": "cyan",
    "server": "blue",
    "network": "default",
    "network_up": "default",
    "network_down": "default",
    "transmission": "green",
    "congestion_window": "red",
    "receive_window": "magenta",
    "stream_window": "yellow",
    "connection_window": "bright_blue",
    "loss_recovery": "bright_red",
    "delayed_ack": "bright_magenta",
    "head_of_line": "bright_cyan",
    "network_queue": "bright_yellow",
    "peer_unreachable": "bold magenta",
    "proxy": "bold yellow",
    "capture_gap": "bright_black",
    "unexplained": "bright_black",
}
CAUSE_STYLES |= {cause: CAUSE_STYLES[cause.partition(".")[0]] for cause in SPLIT}
"""Colours of causes in bars, visible on dark and on light; the words beside the bars carry the meaning."""

SEVERITY_STYLES = {"info": "cyan", "warning": "yellow", "critical": "bold red"}
"""Colours of severities."""

LEAST_WIDTH = 40
"""Columns of the narrowest terminal for which lines are wrapped."""
NARROW = 72
"""Columns below which a row of a table becomes a paragraph."""


def draw(parts: Iterable[RenderableType], *, width: int, colour: bool, wrap: bool = True) -> str:
    """Draw parts one below the other as text, with escape sequences only when `colour` is set."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,  # not as the environment says
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=not wrap,
    )
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Text) and not (colour or wrap):  # the same text as rich prints, without rendering segments
            drawn = part.plain
        else:
            console.print(part)
            drawn = out.getvalue()
            out.seek(0)
            out.truncate()
        lines += [line.rstrip() for line in drawn.splitlines() or ("",)]
    return "\n".join(lines) + "\n"


def pair(
    rows: Iterable[tuple[RenderableType, RenderableType]], *, gap: int = 2, justify: JustifyMethod = "left"
) -> Table:
    """Lay out pairs in two columns: the first is never wrapped, the second has the rest of the width."""
    table = Table.grid(padding=(0, gap, 0, 0))
    table.add_column(no_wrap=True, justify=justify)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def more(number: int, noun: str, plural: str | None = None) -> list[Text]:
    """Say how many are not shown; nothing when all are."""
    nouns = (f"more {noun}", f"more {plural or noun + 's'}")
    return [Text(f"... and {count(number, *nouns)}", style="dim")] if number > 0 else []
