"""Tables of expected against found, and the sentences below them."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ..terminal import draw

MARKS: dict[bool | None, tuple[str, str]] = {
    True: ("yes", "green"),
    False: ("NO", "bold red"),
    None: ("", ""),
}
"""Word and colour for what was met, what was not, and what was only told; the word carries the meaning."""


def table(
    columns: Sequence[str], rows: Sequence[tuple[Sequence[str], bool | None]], *, width: int, colour: bool
) -> str:
    """A table with a last column that says for each row whether it is as expected."""
    drawn = Table(box=box.HORIZONTALS, pad_edge=False)
    for column in (*columns, "met"):
        drawn.add_column(column)
    for cells, met in rows:
        word, style = MARKS[met]
        drawn.add_row(*(Text(cell) for cell in cells), Text(word, style))
    return draw([drawn], width=width, colour=colour)


def sentences(told: Sequence[tuple[str, bool | None]], *, width: int, colour: bool) -> str:
    """Sentences, each behind its mark."""
    lines = []
    for text, met in told:
        word, style = MARKS[met]
        lines.append(Text.assemble((f"{word or '-':<4}", style), text))
    return draw(lines, width=width, colour=colour)
