"""The live view of `grpcdiag watch` on a terminal."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from ...analyzer.model.text import duration, safe, size, utc
from ..tables.glance import draw_bar, name_letters, shorten, style_bar
from .snapshot import SPANS_S, ConnectionRow, MethodRow, Shown, Snapshot

_NAME = 44
"""Widest method or address."""
_SEVERITIES = {"critical": "bold red", "warning": "yellow", "info": ""}
_FINDINGS = 8
"""Most findings shown."""


class Row(NamedTuple):
    """A row of the table."""

    name: str
    figures: tuple[str, ...]
    bar: str
    """Time by cause."""
    weights: tuple[float, ...]
    """What each column behind the name is sorted by."""


class Source(Protocol):
    """What gives the figures; both functions are called by another thread than the view's."""

    def step(self) -> Snapshot | None:
        """Wait for the end of an interval, and give its figures; None at the end."""

    def draw_timeline(self, method: str, width: int) -> str:
        """Draw the slowest RPC of a method as a timeline, or say why that is impossible."""


class Timeline(ModalScreen[None]):
    """A call's timeline above the view."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "dismiss", "Back")]

    def __init__(self, text: str) -> None:
        """Show the text of a timeline."""
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show it in a field that scrolls."""
        with VerticalScroll():
            yield Static(Text(self._text, no_wrap=True))
        yield Footer()


class Live(App[None]):
    """Tables of methods and connections, and findings, once per interval."""

    TITLE = "grpcdiag watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #state, #verdict, #legend, #findings { height: auto; padding: 0 1; }
    #findings { text-wrap: nowrap; text-overflow: ellipsis; }
    #rows { height: 1fr; }
    #filter { display: none; height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        ("space", "freeze", "Freeze"),
        ("s", "sort", "Sort"),
        ("w", "window", "Window"),
        ("c", "connections", "Methods/connections"),
        ("slash", "filter", "Filter"),
        Binding("enter", "select_cursor", "Slowest call"),
    ]

    def __init__(self, source: Source) -> None:
        """Show what `source` gives."""
        super().__init__()
        self._source = source
        self._last: Snapshot | None = None
        self._frozen = self._ended = self._by_connection = False
        self._sort = self._window = 0
        self._filter = ""
        self.error: Exception | None = None

    def compose(self) -> ComposeResult:
        """Lay the parts out from top to bottom."""
        yield Static("waiting for packets", id="state")
        yield Static("", id="verdict")
        yield DataTable[str | Text](id="rows", cursor_type="row", zebra_stripes=True)
        yield Static("", id="legend")
        yield Input(placeholder="part of a method or address", id="filter")
        yield Static("", id="findings")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one(DataTable).focus()
        self._read()

    @work(thread=True)
    def _read(self) -> None:
        """Take figures until there are no more."""
        try:
            while self.is_running and (snapshot := self._source.step()) is not None:
                self.call_from_thread(self._take, snapshot)
        except Exception as error:  # the command reports it when the terminal is its own again
            self.error = error
            self.call_from_thread(self.exit)
        else:
            self.call_from_thread(self._end)

    def _take(self, snapshot: Snapshot) -> None:
        if not self._frozen:
            self._last = snapshot
            self._draw()

    def _end(self) -> None:
        self._ended = True
        self._draw()

    def _draw(self) -> None:
        """Draw what was read last."""
        if self._last is None:
            return
        self.query_one("#state", Static).update(self._describe_state(self._last))
        self.query_one("#verdict", Static).update(Text(safe(self._last.verdict)))
        self.query_one("#findings", Static).update(_list_findings(self._last))
        rows = self._list_rows(self._last)
        self.query_one("#legend", Static).update(Text(name_letters("".join(row.bar for row in rows)), style="dim"))
        table = self.query_one("#rows", DataTable)
        place = table.cursor_row
        table.clear(columns=True)
        table.add_columns(*self._columns)
        for row in rows:
            figures = (Text(cell, justify="right") for cell in row.figures)
            table.add_row(shorten(row.name, _NAME), *figures, style_bar(row.bar), key=row.name)
        table.move_cursor(row=place)

    def _describe_state(self, now: Snapshot) -> Text:
        lost = "" if not now.dropped_packets else f"; {now.dropped_packets:,} packets lost by the recording"
        state = "ended" if self._ended else "frozen" if self._frozen else f"{utc(now.time_ns)[:-7]} UTC"
        rate = f"{now.packets_per_s:,.0f} packets/s, {size(now.bytes_per_s)}/s"
        window = f"last {SPANS_S[self._window]} s, sorted by {self._columns[self._sort]}"
        return Text(f"{state}  {rate}  {window}{lost}", style="bold")

    @property
    def _columns(self) -> tuple[str, ...]:
        if self._by_connection:
            return ("client > server", "RPC/s", "packets/s", "retransmitted", "time by cause")
        return ("method", "RPC/s", "in flight", "failed/s", "p50", "p99", "time by cause")

    def _list_rows(self, now: Snapshot) -> list[Row]:
        """List the rows of the table, filtered and sorted: names from A on, figures from the largest."""
        window = str(SPANS_S[self._window])
        every = (
            [_describe_connection(one, window) for one in now.connections]
            if self._by_connection
            else [_describe_method(one, window) for one in now.methods]
        )
        some = [row for row in every if self._filter in row.name.lower()]
        return sorted(some, key=lambda row: -row.weights[self._sort - 1] if self._sort else row.name)

    def action_freeze(self) -> None:
        """Keep what is shown, or go on."""
        self._frozen = not self._frozen
        self._draw()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort = (self._sort + 1) % len(self._columns)
        self._draw()

    def action_window(self) -> None:
        """Show the next window."""
        self._window = (self._window + 1) % len(SPANS_S)
        self._draw()

    def action_connections(self) -> None:
        """Show connections in place of methods, or methods again."""
        self._by_connection, self._sort = not self._by_connection, 0
        self._draw()

    def action_filter(self) -> None:
        """Ask for a part of a name."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only rows with that part."""
        self._filter = event.value.lower()
        self._draw()

    def on_input_submitted(self) -> None:
        """Go back to the table."""
        field = self.query_one("#filter", Input)
        field.display = bool(field.value)
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Draw the slowest call of the method below the cursor."""
        if not self._by_connection and event.row_key.value is not None:
            self._draw_timeline(event.row_key.value)

    @work(thread=True, exclusive=True, group="timeline")
    def _draw_timeline(self, method: str) -> None:
        text = self._source.draw_timeline(method, self.size.width - 2)
        self.call_from_thread(self.push_screen, Timeline(text))


def _describe_method(one: MethodRow, window: str) -> Row:
    figures = one.windows.get(window)
    if figures is None:
        return Row(safe(one.method), ("0", f"{one.in_flight:,}", "-", "-", "-"), "", (0, one.in_flight, 0, 0, 0, 0))
    cells = (
        f"{figures.rpcs_per_s:,.1f}",
        f"{one.in_flight:,}",
        f"{figures.failed_per_s:,.1f}",
        duration(figures.p50_ns),
        duration(figures.p99_ns),
    )
    bar = draw_bar(dict(figures.budget))
    times = (figures.p50_ns or 0, figures.p99_ns or 0, sum(figures.budget.values()))
    return Row(safe(one.method), cells, bar, (figures.rpcs_per_s, one.in_flight, figures.failed_per_s, *times))


def _describe_connection(one: ConnectionRow, window: str) -> Row:
    rate = one.rpcs_per_s.get(window, 0.0)
    cells = (f"{rate:,.1f}", f"{one.packets_per_s:,.0f}", f"{one.retransmitted_packets:,}")
    weights = (rate, one.packets_per_s, one.retransmitted_packets, sum(one.budget.values()))
    return Row(f"{one.client} > {one.server}", cells, draw_bar(dict(one.budget)), weights)


def _list_findings(now: Snapshot) -> Text:
    """List the findings that are there, then those that are gone."""
    lines = [_describe_finding(one, now.time_ns) for one in now.findings[:_FINDINGS]]
    if more := len(now.findings) - _FINDINGS:
        lines += [Text(f"and {more} more")] if more > 0 else []
    return Text("\n").join(lines)


def _describe_finding(one: Shown, now_ns: int) -> Text:
    seconds = round(((one.gone_time_ns or now_ns) - one.since_time_ns) / 1e9)
    if one.gone_time_ns is not None:
        return Text(f"gone      {one.id}: {safe(one.title)} (it was there for {seconds:,} s)", style="dim")
    since = f"for {seconds:,} s" if seconds else "new"
    return Text(f"{one.severity:<9} {one.id}: {safe(one.title)} ({since})", style=_SEVERITIES[one.severity])
