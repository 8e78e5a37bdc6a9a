"""The view of `grpcdiag watch` with a keyboard, driven by its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from rich.text import Text

pytest.importorskip("textual")

from textual.coordinate import Coordinate
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from grpcdiag.analyzer.live.interval import CallFigures, ConnectionFigures, FindingFigures, Interval, MethodFigures
from grpcdiag.capture.errors import RecordingError
from grpcdiag.cli.watching.options import Options
from grpcdiag.cli.watching.screen import Handover
from grpcdiag.cli.watching.terminal_app import WatchApp

MS = 1_000_000
START = 1_795_000_000 * 10**9


def method(name: str, rate: float, p99_ms: int) -> MethodFigures:
    return MethodFigures(name, rate, 1, 10, 0, {"10s": MS}, {"10s": p99_ms * MS}, {"server": 9, "network": 1})


def connection(port: int) -> ConnectionFigures:
    return ConnectionFigures(f"10.0.0.1:{port}", "10.0.0.2:50051", 5.0, 1, 0, 3, MS, {}, {}, {})


def call(name: str, stream: int, ms: int) -> CallFigures:
    return CallFigures(name, "10.0.0.1:40001", "10.0.0.2:50051", stream, START, ms * MS, "OK", False)


def interval(second: int, **parts: Any) -> Interval:
    usual: dict[str, Any] = {
        "methods": (method("/a.B/Fast", 50.0, 2), method("/a.B/Slow", 5.0, 80)),
        "connections": (connection(40_001), connection(40_002)),
        "calls": (call("/a.B/Slow", 7, 80), call("/a.B/Fast", 5, 2)),
        "findings": (FindingFigures("ping-storm", "warning", "many PINGs", START),),
        "gone": (FindingFigures("loss-recovery", "warning", "loss", START, START + 10**9),),
    }
    return Interval(time_ns=START + second * 10**9, packets=10 * second, dropped_packets=2, **(usual | parts))


class Driven:
    """The app with an interval, and what a test does with it."""

    def __init__(self, first: Interval) -> None:
        self.handover = Handover(cast(Options, type("", (), {"quiet": True, "source": "eth0"})))
        self.handover.newest = first
        self.drawn: list[CallFigures] = []
        self.app = WatchApp(self.handover, self.draw_call)

    def draw_call(self, one: CallFigures, width: int) -> str:
        self.drawn.append(one)
        if one.stream == 5:
            raise RecordingError("its packets are gone")
        return "the \x1b[31mtimeline\x1b[0m"

    def run(self, steps: Callable[[Pilot[None]], Awaitable[None]]) -> None:
        async def drive() -> None:
            async with self.app.run_test(size=(200, 40)) as pilot:
                await self.wait_for(pilot, lambda: self.rows)
                await steps(pilot)

        asyncio.run(drive())

    async def wait_for(self, pilot: Pilot[None], condition: Callable[[], object]) -> None:
        for _ in range(10_000):
            if condition():
                return
            await pilot.pause(0.01)
        pytest.fail("it did not happen")

    @property
    def table(self) -> DataTable[Text]:
        return self.app.screen.query_one(DataTable)

    @property
    def rows(self) -> list[str]:
        table = self.table
        return [" ".join(map(str, table.get_row_at(row))) for row in range(table.row_count)]

    def text(self, name: str) -> str:
        return str(self.app.screen.query_one(name, Static).render())


def test_what_is_shown_by_method_by_connection_and_by_call() -> None:
    driven = Driven(interval(1))

    async def steps(pilot: Pilot[None]) -> None:
        assert driven.rows[0].startswith("/a.B/Fast 50.0 1 0 - 1.00 ms - - 2.00 ms - server 90%, network 10%")
        assert "eth0, 10 packets, 2 dropped" in driven.text("#head")
        assert "for 1 s  ping-storm: many PINGs" in driven.text("#findings")
        assert "gone 0 s ago  loss-recovery: loss" in driven.text("#findings")
        await pilot.press("c")
        assert [row.split()[0] for row in driven.rows] == ["10.0.0.1:40001", "10.0.0.1:40002"]
        await pilot.press("l")
        assert driven.rows[0].startswith("80.0 ms OK")
        await pilot.press("m")
        assert driven.rows[0].startswith("/a.B/Fast")

    driven.run(steps)


def test_sort_and_filter() -> None:
    driven = Driven(interval(1))

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("s", "r")
        assert [row.split()[0] for row in driven.rows] == ["/a.B/Slow", "/a.B/Fast"]  # by name, backwards
        await pilot.press("s")
        assert [row.split()[0] for row in driven.rows] == ["/a.B/Fast", "/a.B/Slow"]  # the largest rate first
        await pilot.press("slash", *"slow")
        assert [row.split()[0] for row in driven.rows] == ["/a.B/Slow"]
        await pilot.press("enter", "l")  # the keys are keys again
        assert [row.split()[4] for row in driven.rows] == ["/a.B/Slow"]
        await pilot.press("escape")
        assert len(driven.rows) == 2

    driven.run(steps)


def test_a_frozen_view_stays_and_then_shows_the_newest() -> None:
    driven = Driven(interval(1))

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("space")
        driven.handover.newest = interval(2, methods=(method("/a.B/New", 1.0, 1),))
        cast(Any, driven.app.screen)._poll()
        assert "FROZEN" in driven.text("#head") and len(driven.rows) == 2
        await pilot.press("space")
        await driven.wait_for(pilot, lambda: len(driven.rows) == 1)
        assert "FROZEN" not in driven.text("#head")

    driven.run(steps)


def test_calls_of_a_method_and_the_timeline_of_one() -> None:
    driven = Driven(interval(1))

    async def steps(pilot: Pilot[None]) -> None:
        driven.table.cursor_coordinate = Coordinate(1, 0)
        await pilot.press("enter")
        assert len(driven.rows) == 1 and "of /a.B/Slow" in driven.text("#head")
        await pilot.press("enter")
        await driven.wait_for(pilot, lambda: "the timeline" in driven.text("#timeline"))
        assert [one.stream for one in driven.drawn] == [7]
        driven.handover.newest = interval(2)  # comes while the timeline is shown
        await pilot.press("c", "escape")
        await driven.wait_for(pilot, lambda: "20 packets" in driven.text("#head"))
        await pilot.press("escape")
        assert len(driven.rows) == 2

    driven.run(steps)


def test_packets_that_are_gone_are_told() -> None:
    driven = Driven(interval(1))

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("l", "down", "enter")
        await driven.wait_for(pilot, lambda: "no timeline: its packets are gone" in driven.text("#timeline"))

    driven.run(steps)


def test_names_from_the_capture_are_escaped() -> None:
    hostile = "/a.B/\x1b]0;x\x07[red]"
    driven = Driven(interval(1, methods=(method(hostile, 1.0, 1),), calls=(call(hostile, 1, 1),)))

    async def steps(pilot: Pilot[None]) -> None:
        assert driven.rows[0].startswith(r"/a.B/\x1b]0;x\x07[red] 1.0")
        await pilot.press("enter")
        assert r"\x1b]0;x\x07[red]" in driven.text("#head")
        assert r"\x1b]0;x\x07[red]" in driven.rows[0]

    driven.run(steps)


@pytest.mark.parametrize(("key", "interrupted"), [("q", False), ("ctrl+c", True)])
def test_how_it_ends(key: str, interrupted: bool) -> None:
    driven = Driven(interval(1))

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press(key)

    driven.run(steps)
    assert driven.app.is_interrupted == interrupted
    assert driven.app.return_code == 0
