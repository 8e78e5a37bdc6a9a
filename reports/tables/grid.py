"""Draw tables of expected and found figures, and the sentences below them."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ..shared.drawing import BAD, GOOD, draw

MARKS: dict[bool | None, tuple[str, str]] = {
    True: ("yes", GOOD),
    False: ("NO", BAD),
    None: ("", ""),
}
"""Word and colour of an expectation that was met, one that was not, and a plain statement."""


def table(
    columns: Sequence[str], rows: Sequence[tuple[Sequence[str], bool | None]], *, width: int, colour: bool
) -> str:
    """Draw a table whose last column says for each row whether it is as expected."""
    drawn = Table(box=box.HORIZONTALS, pad_edge=False)
    for column in (*columns, "met"):
        drawn.add_column(column)
    for cells, met in rows:
        word, style = MARKS[met]
        drawn.add_row(*(Text(cell) for cell in cells), Text(word, style))
    return draw([drawn], width=width, colour=colour)


def sentences(statements: Sequence[tuple[str, bool | None]], *, width: int, colour: bool) -> str:
    """Draw sentences, each after its mark."""
    lines = []
    for text, met in statements:
        word, style = MARKS[met]
        lines.append(Text.assemble((f"{word or '-':<4}", style), text))
    return draw(lines, width=width, colour=colour)
