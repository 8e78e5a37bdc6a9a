"""Colours, and parts drawn as text."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

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
    "capture_gap": "bright_black",
    "unexplained": "bright_black",
}
"""Colours of causes in bars, to be seen on dark and on light; the words beside them carry the meaning."""

SEVERITY_STYLES = {"info": "cyan", "warning": "yellow", "critical": "bold red"}
"""Colours of severities."""

LEAST_WIDTH = 40
"""Columns of the narrowest terminal that lines are made to fit."""
NARROW = 72
"""Columns below which a row of a table becomes a paragraph."""


def draw(parts: Iterable[RenderableType], *, width: int, colour: bool, wrap: bool = True) -> str:
    """Parts one below the other as text, with escape sequences only when `colour` is set."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=not wrap,
    )
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Text) and not (colour or wrap):  # as rich does it, without rendering segments
            drawn = part.plain
        else:
            console.print(part)
            drawn = out.getvalue()
            out.seek(0)
            out.truncate()
        lines += [line.rstrip() for line in drawn.splitlines() or ("",)]
    return "\n".join(lines) + "\n"


def more(number: int, noun: str) -> list[Text]:
    """That so many are not shown."""
    return [Text(f"... and {count(number, 'more ' + noun)}", style="dim")] if number > 0 else []
