"""The page of `compare`: what it draws, and that nothing from a capture is markup or leaves the plot."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import recorded, recording, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.reports.compare import html
from grpcdiag.reports.compare.comparison import Comparison, compare
from grpcdiag.reports.compare.html import charts
from grpcdiag.reports.compare.rules import parse

STREAMS = ("max-concurrent-streams", "max-concurrent-streams-control")
SWEEP = ("ydb-unary-single-inflight1", "ydb-unary-single-inflight8", "ydb-unary-multi-inflight8")


@cache
def analysis(name: str) -> Analysis:
    return replace(analyze(recording(name).files), files=(f"{name}.pcap",))


def compared(*names: str) -> Comparison:
    return compare([analysis(name) for name in names])


def slowed(one: Analysis, factor: float) -> Analysis:
    """The same work over another time."""
    methods = tuple(
        replace(
            m, last_end_time_ns=m.first_start_time_ns + round(factor * (m.last_end_time_ns - m.first_start_time_ns))
        )
        for m in one.methods
    )
    return replace(one, methods=methods)


class Tags(HTMLParser):
    """The elements of a page and their attributes, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.names = set[str](), set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}


def test_latencies_lie_over_each_other_with_their_intervals() -> None:
    comparison = compared(*STREAMS)
    (chart,) = charts.list_latencies(comparison)
    assert [line.label for line in chart.lines] == ["A", "B"]
    for line, run in zip(chart.lines, comparison.runs, strict=True):
        (method,) = run.named_methods.values()
        assert method.latency_ns is not None
        values = [getattr(method.latency_ns, name) for name in charts.QUANTILES]
        heights = [mark.y for mark in line.marks]
        assert heights == sorted(heights, reverse=True), "quantiles rise"
        assert (heights[0] == heights[-1]) == (values[0] == values[-1])
        assert all(
            charts.TOP <= mark.y <= charts.BOTTOM and charts.LEFT <= mark.x <= charts.RIGHT for mark in line.marks
        )
        for mark in line.marks:
            assert mark.low is None or mark.low >= mark.y - 1e-6
            assert mark.high is None or mark.high <= mark.y + 1e-6
    assert chart.lines[1].marks[3].y < chart.lines[0].marks[3].y, "B's p99 is higher"
    assert 2 <= len(chart.y_ticks) <= 9


@pytest.mark.parametrize(
    ("least", "most"), [(0, 0), (1, 1), (7, 8), (20_000_000, 23_000_000), (1, 10**18), (0, 10**30), (10**30, 10**30)]
)
def test_axes_hold_every_duration(least: int, most: int) -> None:
    place, ticks = charts._scale_durations(least, most)
    assert all(charts.TOP - 1e-6 <= place(value) <= charts.BOTTOM + 1e-6 for value in (0, least, most))
    assert 2 <= len(ticks) <= charts._MOST_TICKS
    assert len({tick.text for tick in ticks}) == len(ticks)


def test_the_range_of_baselines_is_drawn() -> None:
    first = analysis(STREAMS[0])
    noisy = compare([first, analysis(STREAMS[1])], baselines=[slowed(first, 1.25), slowed(first, 0.8)])
    bar, other = charts.list_rates(noisy)
    assert bar.low is not None and bar.high is not None
    assert bar.low < bar.parts[0][2] < bar.high
    assert "in 3 baselines" in bar.text and other.low is None
    (alone, _) = charts.list_rates(compared(*STREAMS))
    assert alone.low is None
    assert "One run of a program has no interval" in html.render(compared(*STREAMS))


def test_packets_by_kind_add_up() -> None:
    comparison = compared(*STREAMS)
    for bar, run in zip(charts.list_packets(comparison), comparison.runs, strict=True):
        widths = sum(width for _, _, width, _ in bar.parts)
        most = max(one.packets / one.messages for one in comparison.runs)
        assert widths == pytest.approx(100 * run.packets / run.messages / most)


def test_the_curve_has_its_ideal_and_its_knee() -> None:
    comparison = compared(*SWEEP)
    assert comparison.scaling is not None
    chart = charts.draw_scaling(comparison.scaling)
    assert not chart.lines[0].joined, "two captures have the same load: no curve"
    knee = replace(comparison.scaling, points=comparison.scaling.points[:2], knee="B")
    joined = charts.draw_scaling(knee)
    assert joined.lines[0].joined
    assert [mark.text.endswith("the knee") for mark in joined.lines[0].marks] == [False, True]
    page = html.render(replace(comparison, scaling=knee))
    assert page.count('class="knee"') == 1 and 'class="ideal"' in page
    for tick in (*chart.y_ticks, *chart.x_ticks):
        assert 0 <= tick.at <= charts.WIDTH


def test_the_page_loads_nothing_and_escapes_everything() -> None:
    nasty = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\x1b\u202e"
    one = analysis(STREAMS[0])
    methods = tuple(replace(method, method=nasty) for method in one.methods)
    findings = tuple(replace(finding, title=nasty) for finding in one.findings)
    odd = replace(one, files=(nasty,), methods=methods, findings=findings)
    page = html.render(compare([odd, odd, odd], [parse("p99>1ns", []), parse("warning", [])]))
    parser = Tags()
    parser.feed(page)
    assert (
        page.count("<script") == 1
        and "img" not in parser.tags
        and not {name for name in parser.names if name.startswith("on")}
    )
    assert not set(page) & set("\x1b\u202e")
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,)", page)
    assert 'style="' not in page, "the policy allows no style attributes"
    assert "default-src 'none'" in page


def test_the_command_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "compare.html"
    rules = ("--fail-on", "throughput:1.2", "--baseline", recorded(f"{STREAMS[1]}.pcap"))
    files = (recorded(f"{STREAMS[1]}.pcap"), recorded(f"{STREAMS[0]}.pcap"))
    assert run_here("compare", *files, "--format", "html", "-o", str(path), *rules).code == 1
    page = path.read_text()
    assert "throughput is 4.8 times" in page
    assert '<td class="met">met</td>' in page
