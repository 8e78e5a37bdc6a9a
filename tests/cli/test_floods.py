"""Floods through the whole command: the cost of each grows no faster than the flood, counted in steps, not in time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from support import invoke

from grpcdiag.analyzer.decode.decode import decode_rows
from grpcdiag.analyzer.selection import reading
from grpcdiag.analyzer.selection.methods import methods as methods_of_part
from grpcdiag.analyzer.selection.selection import Selection
from grpcdiag.analyzer.tables.grouping import group_rows
from grpcdiag.analyzer.views.excerpt import excerpt
from grpcdiag.fixtures.bench import commands, floods
from grpcdiag.reports import timeline

FEW = 300
"""Of each flood, enough to fill what is bounded in lists and small enough for every command."""
SHORT = (
    "analyze",
    "analyze-json",
    "analyze-html",
    "analyze-perfetto",
    "analyze-part",
    "analyze-both-ends",
    "compare",
    "messages",
    "timeline",
    "timeline-whole",
    "timeline-worst",
    "export-csv",
    "scrub",
    "annotate",
    "rpcs-sorted",
)
"""Commands that each take a way of their own."""
PAIRS = [
    (kind, name)
    for i, kind in enumerate(sorted(floods.FLOODS))
    for j, name in enumerate(SHORT)
    if name == "analyze" or (i + j) % 3 == 0
]
"""A third of the commands for each flood and of the floods for each command; `make fuzz-commands` runs them all."""


@pytest.fixture(scope="module")
def flood(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "flood.pcap"
    path.write_bytes(floods.FLOODS[request.param][0](1_000 if request.param in ("messages",) else FEW))
    return path


@pytest.mark.parametrize(("flood", "name"), PAIRS, indirect=["flood"])
def test_every_command_ends_as_documented(flood: Path, name: str, tmp_path: Path) -> None:
    if name == "analyze-perfetto":
        pytest.importorskip("perfetto")
    places = {"a": flood, "b": flood, "out": tmp_path / "out", "dataset": tmp_path}
    done = invoke(commands.arguments(name, places))
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code in commands.EXIT_CODES[name], done.output


class Counted(tuple[Any, ...]):
    """A tuple that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.times += 1
        return super().__iter__()


@pytest.mark.parametrize("made", [floods.methods, floods.failures], ids=lambda made: made.__name__)
def test_a_timeline_looks_at_the_methods_once(made: Any, tmp_path: Path) -> None:
    (tmp_path / "flood.pcap").write_bytes(made(FEW))
    part = excerpt([str(tmp_path / "flood.pcap")], 0)
    assert len(part.tables.methods) == FEW
    Counted.times = 0
    counted = type(part)(
        **{name: getattr(part, name) for name in part.__dataclass_fields__ if name != "tables"},
        tables=replace(part.tables, methods=Counted(part.tables.methods)),
    )
    assert timeline.render(counted, limit=0).count("starts: /flood.Service/") == FEW
    assert Counted.times <= 3


def test_a_burst_that_opens_many_streams_names_one_method(tmp_path: Path) -> None:
    """Streams of as many methods in one burst."""
    made = floods.Flood()
    made.open()
    for n in range(FEW):
        made.send(0, floods.request(2 * n + 1, b"/flood.Service/M%d" % n))
    (tmp_path / "flood.pcap").write_bytes(made.pcap())
    part = excerpt([str(tmp_path / "flood.pcap")], 0)
    Counted.times = 0
    counted = type(part)(
        **{name: getattr(part, name) for name in part.__dataclass_fields__ if name != "tables"},
        tables=replace(part.tables, methods=Counted(part.tables.methods)),
    )
    assert f"start: /flood.Service/M0 and {FEW - 1} more" in timeline.render(counted).replace("\n", " ")
    assert Counted.times <= 3


def test_methods_of_a_part_are_grouped_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No column of all RPCs is searched once for every method."""
    (tmp_path / "flood.pcap").write_bytes(floods.methods(FEW))
    seen = reading.read([str(tmp_path / "flood.pcap")], Selection((0,), None, None, None))
    searched = 0

    def counted(column: Any) -> Any:
        nonlocal searched
        searched += len(column)
        return found(column)

    found = np.flatnonzero
    monkeypatch.setattr(np, "flatnonzero", counted)
    every = methods_of_part(seen.tables, np.ones(FEW, dtype=bool), seen)
    assert [method.rpcs for method in every] == [1] * FEW
    assert searched <= 10 * FEW
    expected = decode_rows([str(tmp_path / "flood.pcap")]).methods
    assert [method.name for method in every] == [method.name for method in expected]


def test_lines_of_a_drawing_go_past_rich_unchanged(tmp_path: Path) -> None:
    """What is written directly where no colours are is what rich would write."""
    from rich.console import Console
    from rich.text import Text

    from grpcdiag.reports.shared.drawing import draw

    parts = [
        Text("plain"),
        Text("a" * 300, style="bold"),
        Text("wide 漢字 [bold]x[/bold]  "),
        Text("two\nlines"),
        Text(),
    ]
    with (tmp_path / "out").open("w+") as out:
        console = Console(file=out, width=80, soft_wrap=True, highlight=False, markup=False, emoji=False)
        for part in parts:
            console.print(part)
        out.seek(0)
        expected = "\n".join(line.rstrip() for line in out.read().splitlines()) + "\n"
    assert draw(parts, width=80, colour=False, wrap=False) == expected


def test_no_warning_of_a_library_reaches_the_reader(tmp_path: Path) -> None:
    """But -W and PYTHONWARNINGS do show them, as the bench that changes captures does."""
    import subprocess

    text = (
        "import sys, warnings; import grpcdiag.__main__ as m\n"
        "import grpcdiag.cli as cli\n"
        "cli.of_arguments = lambda arguments: lambda: warnings.warn('overflow encountered', RuntimeWarning)\n"
        "m.main()"
    )
    for options, told in (([], False), (["-W", "default"], True)):
        done = subprocess.run(
            [sys.executable, *options, "-c", text, "analyze"], capture_output=True, text=True, check=True
        )
        assert ("overflow encountered" in done.stderr) is told


def test_rows_are_grouped_in_their_order() -> None:
    numbers = np.array([3, 1, 3, 2, 1], dtype=np.uint32)
    assert {number: rows.tolist() for number, rows in group_rows(numbers).items()} == {1: [1, 4], 2: [3], 3: [0, 2]}
    assert group_rows(numbers[:0]) == {}
