"""The report of `compare` as Markdown, for a job summary or a comment on a pull request."""

from collections.abc import Iterator
from pathlib import PurePath

from ...analyzer import _core
from ...analyzer.model.text import duration, format_number
from ..shared.markdown_escape import Block, code, fitting, folded, items, prose, sentence, table
from .comparison import Comparison
from .figures import Changed
from .run import Run
from .scaling import Scaling
from .words import KINDS, describe_interval, describe_work, format_ratio, format_severity, format_value

MOST_BYTES = 60_000
"""Largest page in bytes: GitHub accepts 65,536 characters in a comment."""
NOTE, VERDICT = 600, 3_000
"""Characters shown of a sentence, and of the first one."""
MOST_RUNS = 8
"""Captures with a column in the table of figures."""
MOST_ROWS = 30
"""Most rows of a table, and most sentences of a list."""


def render(comparison: Comparison) -> str:
    """Render the comparison as one page of Markdown."""
    return fitting(list(_list_blocks(comparison)), MOST_BYTES, "the terminal and JSON reports have everything")


def _list_blocks(c: Comparison) -> Iterator[Block]:
    yield Block(f"## Comparison\n\n**{sentence(c.verdict, VERDICT)}**")
    yield Block(items(_describe_run(run) for run in c.runs[:MOST_ROWS]))
    if c.outcomes:
        rows = [
            ("**met**" if outcome.met else "not met", code(outcome.rule), outcome.run, prose(outcome.text, NOTE))
            for outcome in c.outcomes
        ]
        yield Block(f"### Rules\n\n{table(('Result', 'Rule', 'Capture', 'Figures'), rows[:MOST_ROWS])}")
    lines = [prose(line, NOTE) for line in (*(d.sentence for d in c.others), *(f"Note: {note}" for note in c.notes))]
    yield Block(f"### Other differences\n\n{items(lines[:MOST_ROWS])}" if lines else "", "other differences", 10)
    if c.scaling:
        yield Block(f"### Scaling\n\n{_show_scaling(c.scaling)}", "scaling", 11)
    if c.shifts:
        yield Block(f"### Latency\n\n{_show_latencies(c)}", "latency", 12)
    yield Block(f"### Findings\n\n{_show_findings(c)}" if c.changes else "", "findings", 13)
    yield Block(folded("Figures", _show_figures(c)), "figures", 20)
    yield Block(folded(f"RPC time per {c.unit}", _show_budgets(c)), "RPC time", 21)
    yield Block(f"<sub>Written by grpcdiag {_core.__version__}. All captures are compared with the first.</sub>")


def _describe_run(run: Run) -> str:
    files = run.analysis.files
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"**{run.label}** {code(PurePath(files[0]).name or 'capture')}{more}: {describe_work(run)}"


def _show_findings(c: Comparison) -> str:
    rows = [_describe_change(one) for one in c.changes[:MOST_ROWS]]
    return table(("Finding", "In", "Change", "Severity", "What"), rows)


def _describe_change(changed: Changed) -> tuple[str, ...]:
    seen = changed.after or changed.before
    title = prose(seen.title, NOTE) if seen else ""
    return code(changed.id), changed.run, changed.change, prose(format_severity(changed), NOTE), title


def _show_scaling(s: Scaling) -> str:
    rows = [
        (
            point.run + (" (knee)" if point.run == s.knee else ""),
            f"{point.callers:,}",
            f"{point.connections:,}",
            format_number(point.per_s),
            format_number(point.ideal_per_s),
            f"{point.of_ideal:.0%}",
        )
        for point in s.points
    ]
    head = ("Capture", "Callers", "Connections", f"{s.unit}s per second", "Ideal", "Of ideal")
    return table(head, rows[:MOST_ROWS], right=range(1, 6))


def _show_latencies(c: Comparison) -> str:
    rows = [
        (
            code(s.method),
            f"{s.quantile} {KINDS[s.kind]}",
            s.run,
            duration(s.from_ns),
            duration(s.to_ns),
            format_ratio(s.ratio),
            describe_interval(s),
        )
        for s in c.shifts[:MOST_ROWS]
    ]
    head = ("Method", "Quantile", "In", "Before", "After", "Ratio", "Shift, 95% interval")
    return table(head, rows, right=(3, 4, 5, 6))


def _show_figures(c: Comparison) -> str:
    shown = c.runs[:MOST_RUNS]
    rows = [
        (figure.title.strip(), *(format_value(figure, value) for value in figure.values[: len(shown)]))
        for figure in c.figures
    ]
    return table(("", *(run.label for run in shown)), rows, right=range(1, len(shown) + 1))


def _show_budgets(c: Comparison) -> str:
    shown = c.runs[:MOST_RUNS]
    rows = [(code(spent.cause), *(duration(ns) for ns in spent.each_ns[: len(shown)])) for spent in c.budgets]
    return table(("Cause", *(run.label for run in shown)), rows, right=range(1, len(shown) + 1))
