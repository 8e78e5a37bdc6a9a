"""Tables for people: a few columns that fit the width, relative times, and time by cause as a bar."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style

from ...analyzer.decode.runner import Origin
from ...analyzer.model.text import duration
from ..shared.drawing import CAUSE_STYLES
from .choose import ALL, Choice, select_columns
from .frame import Frame, Hex, Numbers, Parts, Texts
from .headings import VIEWS, View

BAR = 10
"""Cells of a bar."""
LEAST_CELLS = 8
"""Narrowest width of a text that is shortened."""
GAP = 2
"""Spaces between columns."""

LETTERS = {
    "client": "c",
    "server": "s",
    "network": "n",
    "network_up": "u",
    "network_down": "d",
    "transmission": "t",
    "congestion_window": "w",
    "receive_window": "r",
    "stream_window": "f",
    "connection_window": "F",
    "loss_recovery": "l",
    "delayed_ack": "a",
    "head_of_line": "h",
    "network_queue": "q",
    "peer_unreachable": "!",
    "proxy": "p",
    "capture_gap": "g",
    "unexplained": "?",
}
"""The cells of bars; their colours are those of other reports."""
_STYLES = {letter: CAUSE_STYLES[cause] for cause, letter in LETTERS.items()}


class Cells(NamedTuple):
    """Rows of text."""

    headings: list[str]
    columns: list[list[str]]
    left: list[bool]
    """Whether a column is aligned left."""


class Glance:
    """Makes the cells of a table's pieces, and finds how wide its columns become."""

    def __init__(self, table: str, choice: Choice, origin: Origin, shown: Callable[[str], str], width: int) -> None:
        """Escape texts of the capture with `shown`."""
        self._table, self._choice, self._origin, self._shown, self._width = table, choice, origin, shown, width
        self._view = View({}) if choice.columns else VIEWS[table]
        self._widths: dict[str, int] = {}
        self._letters: set[str] = set()
        self.columns_left_out = 0

    def make_cells(self, piece: Frame) -> Cells:
        """Make the cells of a piece. Raises ChoiceError."""
        if self._choice.columns:
            chosen = select_columns(piece, self._table, self._choice.columns)
            columns = _flatten_budget(chosen) if ALL in self._choice.columns else _name_bar(chosen)
        else:
            columns = {heading: piece.columns[name] for heading, name in self._view.columns.items()}
        texts_of = [self._format(name, column) for name, column in columns.items()]
        headings = [name.removesuffix("_ns") for name in columns]  # cells have their units
        cells = Cells(headings, texts_of, [isinstance(c, Texts | Hex | Parts) for c in columns.values()])
        for heading, texts in zip(cells.headings, cells.columns, strict=True):
            widest = max(map(cell_len, (heading, *texts)))
            self._widths[heading] = max(widest, self._widths.get(heading, 0))
        return cells

    def fit(self, all_columns: int) -> None:
        """Decide what fits: shorten texts, then leave columns out, then shorten texts further."""
        view = self._view
        self._shrink(view.least)
        for heading in view.dispensable:
            if self._too_wide() > 0:
                del self._widths[heading]
        self._shrink(LEAST_CELLS)
        self.columns_left_out = all_columns - len(self._widths) if view.columns else 0

    def _shrink(self, least: int) -> None:
        """Take what is missing from the widest texts."""
        widths = self._widths
        while self._too_wide() > 0:
            widest = max(self._view.flexible, key=lambda heading: widths[heading], default=None)
            if widest is None or widths[widest] <= least:
                return
            widths[widest] -= 1

    def _too_wide(self) -> int:
        return sum(self._widths.values()) + GAP * (len(self._widths) - 1) - self._width

    def write_lines(self, cells: Cells, *, header: bool, colour: bool) -> Iterator[str]:
        """Write the rows as lines of the widths found."""
        padded = []
        for heading, texts, left in zip(*cells, strict=True):
            if (width := self._widths.get(heading)) is None:
                continue
            some = [shorten(text, width) for text in ([heading, *texts] if header else texts)]
            spaces = (" " * (width - cell_len(text)) for text in some)
            if colour and heading == "causes":
                some = [_colour(text) if text != heading else text for text in some]
            padded.append([t + space if left else space + t for t, space in zip(some, spaces, strict=True)])
        yield from ((" " * GAP).join(line).rstrip() for line in zip(*padded, strict=True))

    def list_causes(self) -> str:
        """Say which letters of the bars shown stand for what; empty without bars."""
        return ", ".join(f"{letter} {cause}" for cause, letter in LETTERS.items() if letter in self._letters)

    def _format(self, name: str, column: Any) -> list[str]:
        values = column.to_list()
        if isinstance(column, Parts):
            bars = list(map(draw_bar, values))
            self._letters.update(*bars)
            return bars
        write = self._choose_format(self._view.columns.get(name, name), column)
        return ["-" if value is None else write(value) for value in values]

    def _choose_format(self, name: str, column: Any) -> Callable[..., str]:
        if name == "time_ns" or name.endswith("_time_ns"):
            return lambda ns: f"{(ns - self._origin.time_ns) / 1e9:.6f}"
        if name.endswith("_ns") or name.startswith("budget_"):
            return duration
        if isinstance(column, Numbers) and column.cells.dtype == np.bool_:
            return lambda value: "yes" if value else "no"
        if name == "flags" and isinstance(column, Numbers):
            return lambda value: f"0x{value:02x}"
        return lambda value: self._shown(str(value))


def _flatten_budget(piece: Frame) -> Mapping[str, Any]:
    columns = dict(piece.columns)
    budget = columns.pop("budget", None)
    return columns | {f"budget_{cause}": budget.part(cause) for cause in (budget.names if budget else ())}


def _name_bar(piece: Frame) -> Mapping[str, Any]:
    return {"causes" if name == "budget" else name: column for name, column in piece.columns.items()}


def draw_bar(budget: dict[str, int]) -> str:
    """Draw time by cause as letters, the largest first; what is rounded away goes to the largest remainders."""
    total = sum(budget.values())
    if not total:
        return ""
    exact = {cause: ns * BAR / total for cause, ns in sorted(budget.items(), key=lambda item: -item[1]) if ns > 0}
    cells = {cause: int(share) for cause, share in exact.items()}
    left = BAR - sum(cells.values())
    for cause in sorted(exact, key=lambda cause: cells[cause] - exact[cause])[:left]:
        cells[cause] += 1
    return "".join(LETTERS[cause] * number for cause, number in cells.items())


def shorten(text: str, width: int) -> str:
    """Cut a text in the middle: the end of a method or address tells more than its middle."""
    if cell_len(text) <= width:
        return text
    tail = _take(reversed(text), (width - 1) * 2 // 3)
    head = _take(text, width - 1 - cell_len(tail))
    return f"{head}…{tail[::-1]}"


def _take(text: Iterable[str], width: int) -> str:
    """Take characters of at most this width."""
    taken = ""
    for character in text:
        if cell_len(taken + character) > width:
            break
        taken += character
    return taken


def _colour(bar: str) -> str:
    styles = {letter: Style.parse(f"{_STYLES[letter]} reverse") for letter in bar}
    parts = (styles[letter].render("".join(some), color_system=ColorSystem.EIGHT_BIT) for letter, some in groupby(bar))
    return "".join(parts)
