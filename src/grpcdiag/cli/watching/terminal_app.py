"""The app of the view with a keyboard: tables by method, by connection and by call, and the timeline of a call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from ...analyzer.live.interval import CallFigures, ConnectionFigures, Interval, MethodFigures
from ...analyzer.model.text import count, safe
from ...capture.errors import RecordingError
from ...reports import live_view
from .screen import DrawCall, Handover

POLL_S = 0.1
"""Time between two looks for a newer interval."""
MOST_ROWS = 200
"""Rows of a table."""
VIEWS: dict[str, Sequence[live_view.Column[Any]]] = {
    "methods": live_view.METHODS,
    "connections": live_view.CONNECTIONS,
    "calls": live_view.CALLS,
}


class Timeline(Screen[None]):
    """The timeline of one call."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "back", "back")]

    def __init__(self, call: CallFigures, draw_call: DrawCall) -> None:
        """Store `draw_call`, which runs in a thread because it reads packets again."""
        super().__init__()
        self._call, self._draw_call = call, draw_call

    def compose(self) -> ComposeResult:
        """Lay it out."""
        with VerticalScroll():
            yield Static("reading the packets of this call ...", id="timeline")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to draw."""
        self._draw(max(self.size.width - 3, 60))

    def action_back(self) -> None:
        """Go back to the tables."""
        self.dismiss()

    @work(thread=True, exclusive=True)
    def _draw(self, width: int) -> None:
        try:
            drawn = Text.from_ansi(self._draw_call(self._call, width))
        except RecordingError as error:
            drawn = Text(f"no timeline: {error}")
        self.app.call_from_thread(self._show, drawn)

    def _show(self, drawn: Text) -> None:
        with suppress(Exception):  # the user may have gone back meanwhile
            self.query_one("#timeline", Static).update(drawn)


class TablesScreen(Screen[None]):
    """The tables of the newest interval, or of the one at which it was frozen."""

    CSS = "DataTable { height: 1fr; } Input { display: none; } Input.asked { display: block; } Static { height: auto; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "view('methods')", "methods"),
        Binding("c", "view('connections')", "connections"),
        Binding("l", "view('calls')", "calls"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", show=False),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "ask", "filter"),
        Binding("space", "freeze", "freeze"),
        Binding("enter", "open", "open"),
        Binding("escape", "back", show=False),
        Binding("q", "app.quit", "quit"),
    ]

    def __init__(self, handover: Handover, draw_call: DrawCall) -> None:
        """Show what is handed over."""
        super().__init__()
        self._handover, self._draw_call = handover, draw_call
        self._shown: Interval | None = None
        self._is_frozen = False
        self._view = "methods"
        self._sort: dict[str, tuple[int, bool]] = {}
        """Column and whether it is reversed, by view, where the user has chosen."""
        self._filter = ""
        self._only: MethodFigures | ConnectionFigures | None = None
        """Calls of this method or connection alone are shown."""
        self._rows: list[Any] = []

    def compose(self) -> ComposeResult:
        """Lay it out."""
        yield Static(id="head")
        yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
        yield Static(id="findings")
        yield Input(placeholder="a part of the name, status or address; Enter takes it, Esc removes it", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look for intervals."""
        self.query_one(DataTable).focus()
        self.set_interval(POLL_S, self._poll)
        self._draw_table(columns=True)

    def _poll(self) -> None:
        if self._handover.newest is not self._shown and not self._is_frozen:
            self._shown = self._handover.newest
            self._draw_table()

    def _draw_table(self, *, columns: bool = False) -> None:
        """Draw the interval; `columns` are drawn anew when they have changed."""
        interval = self._shown
        self._draw_head(interval)
        if interval is None:
            return
        table = self.query_one(DataTable)
        before = self._rows[table.cursor_row] if table.cursor_row < len(self._rows) else None
        left, top = table.scroll_offset
        table.clear(columns=True)
        own, chosen = VIEWS[self._view], self._choose_sort()
        for place, column in enumerate(own):
            mark = ("▲" if chosen[1] == column.right else "▼") if place == chosen[0] else ""
            table.add_column(Text(f"{column.name} {mark}".strip(), justify="right" if column.right else "left"))
        self._rows = self._list_rows(interval)
        for one in self._rows:
            table.add_row(*(_align(column, one) for column in own))
        keys = [_identify(one) for one in self._rows]
        if before is not None and _identify(before) in keys:
            table.cursor_coordinate = Coordinate(keys.index(_identify(before)), 0)
        if not columns:
            table.scroll_to(left, top, animate=False)
        lines = [
            *live_view.list_findings(interval),
            *(Text(safe(one), style="bold") for one in self._handover.messages.last),
        ]
        self.query_one("#findings", Static).update(Text("\n").join(lines))

    def _draw_head(self, interval: Interval | None) -> None:
        head = live_view.show_head(interval, self._handover.source) if interval else Text("waiting for packets")
        parts = [f"by {self._view.removesuffix('s')}"]
        if interval and self._view == "connections" and interval.more_connections:
            parts.append(f"{count(interval.more_connections, 'more connection')}")
        if self._only and self._view == "calls":
            parts.append(f"of {safe(_name(self._only))}")
        parts += [f"filter {safe(self._filter)!r}"] if self._filter else []
        head.append("\n" + ", ".join(parts), style="bold")
        head.append("  FROZEN, space goes on" if self._is_frozen else "", style="bold reverse")
        self.query_one("#head", Static).update(head)

    def _list_rows(self, interval: Interval) -> list[Any]:
        """List the rows of the view, filtered and sorted."""
        found: Sequence[Any] = getattr(interval, self._view)
        if self._view == "calls" and self._only is not None:
            found = [one for one in found if _is_of(one, self._only)]
        wanted = self._filter.casefold()
        found = [one for one in found if wanted in " ".join(_list_texts(one)).casefold()]
        place, is_reversed = self._choose_sort()
        if place >= 0:
            column = VIEWS[self._view][place]
            found = sorted(found, key=column.key, reverse=column.right != is_reversed)
        return list(found[:MOST_ROWS])

    def _choose_sort(self) -> tuple[int, bool]:
        return self._sort.get(self._view, (-1, False))

    def action_view(self, view: str) -> None:
        """Show another table."""
        self._only = None
        self._show_view(view)

    def _show_view(self, view: str) -> None:
        self._view, self._rows = view, []
        self._draw_table(columns=True)

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or by the one before."""
        place, _ = self._choose_sort()
        self._sort[self._view] = ((place + step) % len(VIEWS[self._view]), False)
        self._draw_table()

    def action_reverse(self) -> None:
        """Turn the order round."""
        place, is_reversed = self._choose_sort()
        self._sort[self._view] = (max(place, 0), not is_reversed)
        self._draw_table()

    def action_freeze(self) -> None:
        """Keep this interval on the screen, or go on with the newest; recording goes on all the time."""
        self._is_frozen = not self._is_frozen
        self._draw_head(self._shown)

    def action_ask(self) -> None:
        """Ask for the filter."""
        asked = self.query_one(Input)
        asked.add_class("asked")
        asked.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        self._filter = event.value
        self._draw_table()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the filter."""
        self._close_input()

    def _close_input(self) -> None:
        self.query_one(Input).remove_class("asked")
        self.query_one(DataTable).focus()

    def action_back(self) -> None:
        """Remove the filter, or show the calls of all methods and connections again."""
        asked = self.query_one(Input)
        if asked.value or asked.has_class("asked"):
            asked.value = ""
            self._close_input()
        elif self._only is not None:
            self.action_view("methods" if isinstance(self._only, MethodFigures) else "connections")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the row on which Enter was pressed."""
        if event.cursor_row >= len(self._rows):
            return
        one = self._rows[event.cursor_row]
        if isinstance(one, CallFigures):
            self.app.push_screen(Timeline(one, self._draw_call))
        else:
            self._only = one
            self._show_view("calls")


class WatchApp(App[None]):
    """Shows tables and timelines until the user or the loop ends."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", show=False, priority=True)]

    def __init__(self, handover: Handover, draw_call: DrawCall) -> None:
        """Show what is handed over."""
        super().__init__()
        self.is_interrupted = False
        """Ctrl-C ended it."""
        self._handover, self._draw_call = handover, draw_call

    def on_mount(self) -> None:
        """Show the tables."""
        self.push_screen(TablesScreen(self._handover, self._draw_call))
        self.set_interval(POLL_S, self._end_with_the_loop)

    def _end_with_the_loop(self) -> None:
        if self._handover.is_over.is_set():
            self.exit()

    def action_interrupt(self) -> None:
        """End as Ctrl-C ends other commands."""
        self.is_interrupted = True
        self.exit()


def _align(column: live_view.Column[Any], one: Any) -> Text:
    shown = column.show(one)
    text = Text(shown) if isinstance(shown, str) else shown
    text.justify = "right" if column.right else "left"
    return text


def _name(one: MethodFigures | ConnectionFigures) -> str:
    return f"{one.client} -> {one.server}" if isinstance(one, ConnectionFigures) else one.method or "unknown methods"


def _identify(one: Any) -> tuple[Any, ...]:
    """Find what stays the same of a row from one interval to the next."""
    if isinstance(one, CallFigures):
        return one.client, one.server, one.stream, one.start_ns
    return (one.client, one.server) if isinstance(one, ConnectionFigures) else (one.method,)


def _list_texts(one: Any) -> list[str]:
    """List what the filter looks at."""
    names = ("method", "client", "server", "status")
    return [str(text) for name in names if (text := getattr(one, name, None)) is not None]


def _is_of(call: CallFigures, one: MethodFigures | ConnectionFigures) -> bool:
    """Say whether a call is of a method or connection."""
    if isinstance(one, MethodFigures):
        return call.method == one.method
    return (call.client, call.server) == (one.client, one.server)
