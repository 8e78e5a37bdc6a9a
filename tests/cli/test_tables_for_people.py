"""Tables for people: they fit the width, say what they leave out, and show the rows that were asked for."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from support import PATIENCE_S, Outcome, grpcdiag, recorded, run_here
from terminals import Terminal

from grpcdiag.analyzer.decode.runner import Origin
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.cli.support.pager import paged
from grpcdiag.reports.tables import choose
from grpcdiag.reports.tables.choose import Choice, ChoiceError, Chosen
from grpcdiag.reports.tables.frame import Frame, Numbers, Parts, Texts, number_texts
from grpcdiag.reports.tables.glance import BAR, LETTERS, Glance, draw_bar, shorten
from grpcdiag.reports.tables.headings import VIEWS

ERRORS, STALLS = "rpc-errors.pcap", "rtt205-go-16000.pcap"


@functools.cache
def rows(table: str, name: str) -> list[dict[str, Any]]:
    """All rows as they are."""
    return [json.loads(line) for line in run_here(table, recorded(name), "--format", "jsonl").text.splitlines()]


def jsonl(table: str, name: str, *options: str) -> list[dict[str, Any]]:
    outcome = run_here(table, recorded(name), "--format", "jsonl", *options)
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.text.splitlines()]


def shown(table: str, name: str, *options: str, width: int = 80) -> tuple[list[list[str]], Outcome]:
    outcome = run_here(table, recorded(name), *options, env={"COLUMNS": str(width)})
    assert outcome.code == 0, outcome.err
    return [re.split(r"\s{2,}", line.strip()) for line in outcome.text.splitlines()], outcome


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("name", ["impl-go.pcap", "ipv6.pcap", ERRORS, STALLS])
@pytest.mark.parametrize("table", VIEWS)
def test_a_table_fits_the_width(table: str, name: str, width: int) -> None:
    (head, *lines), outcome = shown(table, name, width=width)
    assert 6 <= len(head) <= 8
    assert max(map(len, outcome.text.splitlines())) <= width
    assert all(len(line) <= len(head) for line in lines)
    left_out = len(rows(table, name)[0]) - len(head) if rows(table, name) else None
    if left_out is not None:
        assert f"{left_out} more columns: --columns all, or --format csv" in outcome.err


def extreme(name: str, table: str) -> Numbers | Texts | Parts:
    """A value that is as wide as any."""
    numbers = {"connection": 32_767, "stream": 2**31 - 1, "flags": 255, "index": 2**32 - 1}
    texts = {
        "direction": "client",
        "type": "WINDOW_UPDATE",
        "cause": "connection_window",
        "status": "FAILED_PRECONDITION",
    }
    if name == "budget":
        return Parts(np.array([[1]]), ["server"])
    if name.endswith("_ns"):
        return Numbers(np.array([99_999_999_999_999 if name.endswith("time_ns") else 999_000_000]))
    if name in texts or name in ("method", "client", "server", "note") or (name, table) == ("flags", "packets"):
        return number_texts([texts.get(name, "long" * 100)])
    return Numbers(np.array([numbers.get(name, 10**10 if "bytes" in name else 2**32 - 1)]))


@pytest.mark.parametrize("table", VIEWS)
def test_the_widest_values_fit_80_columns(table: str) -> None:
    frame = Frame({name: extreme(name, table) for name in VIEWS[table].columns.values()})
    glance = Glance(table, Choice(), Origin(), str, 80)
    cells = glance.make_cells(frame)
    glance.fit(len(VIEWS[table].columns))
    head, line = glance.write_lines(cells, header=True, colour=False)
    assert max(len(head), len(line)) <= 80
    assert len(head.split()) == len(VIEWS[table].columns) - glance.columns_left_out >= 6


def test_times_count_from_the_first_packet_and_durations_have_units() -> None:
    (head, *lines), _ = shown("rpcs", STALLS, "--limit", "0")
    first = rows("packets", STALLS)[0]["time_ns"]
    for line, row in zip(lines, rows("rpcs", STALLS), strict=True):
        cells = dict(zip(head, line, strict=True))
        assert cells["time"] == f"{(row['start_time_ns'] - first) / 1e9:.6f}"
        number, unit = cells["duration"].split()
        scale = {"s": 1e9, "ms": 1e6, "µs": 1e3}[unit]
        assert float(number) * scale == pytest.approx(row["duration_ns"], rel=0.005)


def test_causes_are_a_bar_with_a_legend() -> None:
    (head, *lines), outcome = shown("rpcs", STALLS)
    bars = [line[head.index("causes")] for line in lines]
    assert all(len(bar) == BAR for bar in bars)
    assert set("".join(bars)) == {"w", "n"}
    assert "causes: n network, w congestion_window" in outcome.err
    assert all(abs(bar.count("w") - 5) <= 1 for bar in bars), "half of the time is blocked by the congestion window"


@pytest.mark.parametrize(
    ("budget", "bar"),
    [
        ({"client": 10, "server": 0}, "cccccccccc"),
        ({"client": 1, "server": 2}, "sssssssccc"),
        ({"client": 1, "server": 1, "network": 1}, "ccccsssnnn"),
        ({"client": 0}, ""),
        ({"client": 1, "server": 10**15}, "ssssssssss"),
    ],
)
def test_a_bar(budget: dict[str, int], bar: str) -> None:
    assert draw_bar(budget) == bar


def test_each_cause_has_a_letter() -> None:
    assert {*LETTERS} == {*CAUSES, "network_up", "network_down"}
    assert len({*LETTERS.values()}) == len(LETTERS)


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("/a.B/C", 6, "/a.B/C"),
        ("/package.Service/Method", 12, "/pac…/Method"),
        ("漢漢漢漢", 5, "漢…漢"),
        ("ab", 1, "…"),
    ],
)
def test_texts_are_cut_in_the_middle(text: str, width: int, cut: str) -> None:
    assert shorten(text, width) == cut


@pytest.mark.parametrize(
    "sort", ["duration", "-duration", "duration_ns", "-budget_server", "method", "-status", "conn"]
)
def test_sort(sort: str) -> None:
    name = sort.removeprefix("-")
    key = {"duration": "duration_ns", "conn": "connection"}.get(name, name)

    def value(row: dict[str, Any]) -> Any:
        return row["budget"][key.removeprefix("budget_")] if key.startswith("budget_") else row[key]

    expected = sorted(map(value, rows("rpcs", ERRORS)), reverse=sort.startswith("-"))
    assert [*map(value, jsonl("rpcs", ERRORS, "--sort", sort))] == expected
    assert [*map(value, jsonl("rpcs", ERRORS, "--sort", sort, "--limit", "7"))] == expected[:7]


@pytest.mark.parametrize("form", [(), ("--format", "csv")])
def test_frames_are_sorted_by_type(form: tuple[str, ...]) -> None:
    """Types are all 256 numbers of one byte."""
    lines = run_here(
        "frames", recorded(ERRORS), "--columns", "type", "--sort", "type", "--limit", "0", *form
    ).text.split()[1:]
    assert len(set(lines)) > 3 and lines == sorted(lines)


def test_worst() -> None:
    longest = sorted((row["duration_ns"] for row in rows("rpcs", ERRORS)), reverse=True)[:5]
    assert [row["duration_ns"] for row in jsonl("rpcs", ERRORS, "--worst", "5")] == longest
    longest = sorted((row["duration_ns"] for row in rows("waits", STALLS)), reverse=True)[:2]
    assert [row["duration_ns"] for row in jsonl("waits", STALLS, "--worst", "2")] == longest
    assert run_here("rpcs", recorded(ERRORS), "--worst", "5", "--sort", "time").code == 2
    assert run_here("frames", recorded(ERRORS), "--worst", "5").code == 2, "frames have no duration"


def pieces(number: int) -> list[Frame]:
    """Rows of packets in pieces of ten."""
    packets = np.arange(number)
    return [Frame({"packet": Numbers(packets[n : n + 10])}) for n in range(0, number, 10)]


@pytest.mark.parametrize(("sort", "limit", "kept"), [("-packet", 5, [999, 998, 997, 996, 995]), ("packet", 2, [0, 1])])
def test_sorting_keeps_no_more_than_is_shown(
    monkeypatch: pytest.MonkeyPatch, sort: str, limit: int, kept: list[int]
) -> None:
    monkeypatch.setattr(choose, "SORTED_AT_ONCE", 20)
    held: list[int] = []
    find_first = Chosen._find_first

    def note(self: Chosen, waiting: Sequence[Frame], by: str, most: int) -> Frame:
        held.append(sum(map(len, waiting)))
        return find_first(self, waiting, by, most)

    monkeypatch.setattr(Chosen, "_find_first", note)
    chosen = Chosen(pieces(1000), "packets", Choice(sort=sort, limit=limit), Origin(), count=True)
    assert [row for piece in chosen for row in piece.columns["packet"].to_list()] == kept
    assert chosen.rows == 1000
    assert len(held) > 10
    assert max(held) <= 30


def test_more_rows_than_can_be_sorted_need_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "MOST_SORTED", 50)
    for number, limit, works in ((50, 0, True), (60, 0, False), (60, 50, True), (60, 51, False)):
        chosen = Chosen(pieces(number), "packets", Choice(sort="packet", limit=limit), Origin(), count=True)
        if works:
            assert sum(map(len, chosen)) == 50
        else:
            with pytest.raises(ChoiceError, match="60 rows are too many to sort: give --limit, 50 at most"):
                list(chosen)


@pytest.mark.parametrize(("limit", "read"), [(5, 1), (10, 1), (11, 2), (0, 4)])
def test_rows_beyond_the_limit_are_read_only_to_count_them(limit: int, read: int) -> None:
    given: list[int] = []

    def note() -> Any:
        for piece in pieces(40):
            given.append(len(piece))
            yield piece

    chosen = Chosen(note(), "packets", Choice(limit=limit), Origin(), count=False)
    assert sum(map(len, chosen)) == (limit or 40)
    assert len(given) == read
    chosen = Chosen(pieces(40), "packets", Choice(limit=limit), Origin(), count=True)
    assert (sum(map(len, chosen)), chosen.rows) == (limit or 40, 40)


def test_rows_are_selected() -> None:
    every = rows("rpcs", ERRORS)
    failed = [row for row in every if row["status"] not in (None, "OK")]
    assert failed and len(failed) < len(every)
    assert jsonl("rpcs", ERRORS, "--status", "failed") == failed
    some = [row for row in every if row["status"] in ("OK", "NOT_FOUND")]
    assert jsonl("rpcs", ERRORS, "--status", "ok", "--status", "NOT_FOUND") == some
    assert run_here("rpcs", recorded(ERRORS), "--status", "GREAT").code == 2
    down = [row for row in every if row["method"] == "/lab.v1.Lab/Down"]
    assert down and jsonl("rpcs", ERRORS, "--method", "Down") == down == jsonl("rpcs", ERRORS, "--method", "*Dow?")
    assert jsonl("rpcs", ERRORS, "--stream", "5") == [row for row in every if row["stream"] == 5]
    assert jsonl("rpcs", ERRORS, "--connection", "0") == every
    assert jsonl("rpcs", ERRORS, "--connection", "1", "--connection", "2") == []


@pytest.mark.parametrize("table", ["rpcs", "frames", "messages", "packets", "waits", "connections"])
def test_rows_of_a_time(table: str) -> None:
    first, column = rows("packets", STALLS)[0]["time_ns"], choose.TIMES[table]
    for begin, end in ((0, 2_900_000_000), (2_900_000_000, 9_000_000_000)):
        found = jsonl(table, STALLS, "--from", f"{begin}ns", "--to", f"{end}ns")
        assert found == [row for row in rows(table, STALLS) if begin <= row[column] - first <= end]
    assert run_here(table, recorded(STALLS), "--from", "2", "--to", "1").code == 2


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_columns_that_are_asked_for_are_raw(format_: str) -> None:
    out = run_here("rpcs", recorded(STALLS), "--format", format_, "--columns", "time,duration_ns,budget_network").out
    frame = pl.read_csv(out) if format_ == "csv" else pl.read_parquet(io.BytesIO(out))
    assert frame.columns == ["start_time_ns", "duration_ns", "budget_network"]
    assert frame["duration_ns"].to_list() == [row["duration_ns"] for row in rows("rpcs", STALLS)]
    assert frame["budget_network"].to_list() == [row["budget"]["network"] for row in rows("rpcs", STALLS)]


def test_columns_of_a_table() -> None:
    (head, line), outcome = shown("rpcs", STALLS, "--columns", "status,duration,budget_server", "--limit", "1")
    assert head == ["status", "duration", "budget_server"], "its cells have units"
    assert line == ["OK", "411 ms", "541 µs"]
    assert "more columns" not in outcome.err
    (head, _), _ = shown("rpcs", STALLS, "--columns", "all", "--limit", "1")
    assert len(head) == len(rows("rpcs", STALLS)[0]) - 1 + len(CAUSES)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--columns", "speed"], "no column has the name 'speed'; known: connection"),
        (["--columns", "time,start_time_ns"], "a column is named twice"),
        (["--columns", "budget_weather"], "no column has the name 'budget_weather'"),
        (["--sort", "speed"], "no column has the name 'speed'"),
        (["--sort", "-budget_weather"], "no column has the name 'budget_weather'"),
    ],
)
def test_unknown_columns(tmp_path: Path, options: list[str], why: str) -> None:
    for more in ([], ["--format", "csv"], ["--format", "csv", "-o", str(tmp_path / "out.csv")]):
        outcome = run_here("rpcs", recorded(ERRORS), *options, *more)
        assert (outcome.code, outcome.out) == (2, b"")
        assert why in outcome.err
    assert list(tmp_path.iterdir()) == []


def on_a_terminal(*options: str, pager: str) -> str:
    """What is shown on a terminal of 24 lines, up to the message about further rows."""
    command = [sys.executable, "-m", "grpcdiag", "rpcs", recorded(ERRORS), *options]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", "PAGER": pager}
    with Terminal(command, env=environment) as terminal:
        text = terminal.read_until("more rows")
        assert terminal.process.wait(PATIENCE_S) == 0
    return text


def test_a_long_table_goes_through_the_pager(tmp_path: Path) -> None:
    """On a terminal, when it is longer than the screen; a pager that ends early is no error."""
    paged = tmp_path / "paged"
    assert "PAGED" in on_a_terminal(pager=f"cat > {paged}; echo PAGED")
    lines = paged.read_text().splitlines()
    header = [line.split()[0] for line in lines].index("time")
    assert (len(lines), lines[0].split()[0]) == (header + 101, "causes:")
    assert len(on_a_terminal(pager="head -1").splitlines()) < 10
    for options, pager in ((("--limit", "20"), "echo PAGED"), ((), ""), ((), "cat")):
        shown = on_a_terminal(*options, pager=pager)
        assert "PAGED" not in shown
        assert ["time", "conn"] in [line.split()[:2] for line in shown.splitlines()[:3]]


@pytest.mark.parametrize("command", [("rpcs",), ("waits",), ("analyze",), ("timeline", "-c", "0")])
def test_standard_input_is_a_whole_capture(command: tuple[str, ...]) -> None:
    """Not one of several files: it can be read once, and they are read in the order of their times."""
    outcome = run_here(*command, "-", recorded(ERRORS))
    assert (outcome.code, outcome.out) == (2, b"")
    assert "standard input (-) is one capture" in outcome.err


def test_quiet_silences_the_meanings_of_letters() -> None:
    """They are on standard error when standard output is no terminal."""
    shown, quiet = (run_here("rpcs", recorded(ERRORS), *option) for option in ((), ("--quiet",)))
    assert shown.err.startswith("causes: c client, s server")
    assert (quiet.err, quiet.out) == ("", shown.out)


def test_causes_are_one_column_by_which_nobody_sorts() -> None:
    shown = run_here("rpcs", recorded(ERRORS), "--columns", "stream,causes", "--limit", "1")
    assert shown.text.split() == ["stream", "causes", "1", "ssssssssss"]
    refused = run_here("rpcs", recorded(ERRORS), "--sort", "budget")
    assert (refused.code, refused.out) == (2, b"")
    assert "name one, such as budget_server" in refused.err


def test_a_pager_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PAGER", "no-such-pager")
    with pytest.raises(SystemExit), paged() as out:
        out.write(b"a line")
    assert "the pager 'no-such-pager' cannot be started" in capfd.readouterr().err


def test_no_pager_without_a_terminal() -> None:
    outcome = grpcdiag("rpcs", recorded(ERRORS), env={"PAGER": "echo PAGED"})
    assert outcome.code == 0
    assert len(outcome.text.splitlines()) == 101
