"""Colours, and the drawing of rich's renderables as text."""

from collections.abc import Iterable
from io import StringIO

from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from ...analyzer.model.budget import SPLIT
from ...analyzer.model.text import count

# All colours are of the fixed 256, with a contrast of 3 or more to black and to white (WCAG 2.2, 1.4.11).
CAUSE_STYLES = {
    "client": "color(30)",
    "server": "color(33)",
    "network": "default",
    "network_up": "default",
    "network_down": "default",
    "transmission": "color(28)",
    "congestion_window": "color(160)",
    "receive_window": "color(127)",
    "stream_window": "color(136)",
    "connection_window": "color(63)",
    "loss_recovery": "color(197)",
    "delayed_ack": "color(169)",
    "head_of_line": "color(67)",
    "network_queue": "color(166)",
    "peer_unreachable": "bold color(134)",
    "proxy": "bold color(130)",
    "capture_gap": "color(243)",
    "unexplained": "color(243)",
}
CAUSE_STYLES |= {cause: CAUSE_STYLES[cause.partition(".")[0]] for cause in SPLIT}
"""Colours of causes in bars; the words beside the bars carry the meaning."""

GOOD, NOTE, CAUTION, BAD = "color(28)", "color(31)", "color(136)", "bold color(160)"
SEVERITY_STYLES = {"info": NOTE, "warning": CAUTION, "critical": BAD}
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
        color_system="256" if colour else None,
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
