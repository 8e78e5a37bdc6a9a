"""Captures compared: everything that the reports of `compare` show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.text import count, size
from .because import Difference, differences, text
from .figures import Changed, Figure, Shift, Spent, budgets, changes, figures, shifts, unit
from .regression import Outcome, Rule, judge
from .run import Run, over, runs
from .scaling import Scaling, scaling

EQUAL_WORK = 0.01
"""Difference of amounts of work that is worth a word (own choice)."""
EQUAL_SIZES = 0.05
"""Difference of mean sizes of messages that is worth a word (own choice)."""


class Comparison(Struct, frozen=True):
    """Two captures or more, against the first."""

    runs: tuple[Run, ...]
    verdict: str
    """The difference in one sentence; with more than two captures, how they scale."""
    notes: tuple[str, ...]
    """In what the work or the captures are not the same."""
    differences: tuple[Difference, ...]
    """Of each capture to the first one."""
    figures: tuple[Figure, ...]
    shifts: tuple[Shift, ...]
    unit: str
    """What budgets are divided by: `RPC` or `message`."""
    budgets: tuple[Spent, ...]
    changes: tuple[Changed, ...]
    scaling: Scaling | None
    outcomes: tuple[Outcome, ...]
    """Of `--fail-on`."""


def compare(documents: Sequence[Analysis], rules: Sequence[Rule] = ()) -> Comparison:
    """Two documents or more, in the order given: the first one is what the others are held against."""
    every = runs(documents)
    curve = scaling(every)
    return Comparison(
        runs=every,
        verdict=curve.text if curve else " ".join(text(every[0], run) for run in every[1:]),
        notes=tuple(_notes(every)),
        differences=tuple(difference for run in every[1:] for difference in differences(every[0], run)),
        figures=figures(every),
        shifts=shifts(every),
        unit=unit(every),
        budgets=budgets(every),
        changes=changes(every),
        scaling=curve,
        outcomes=judge(rules, every),
    )


def _notes(every: Sequence[Run]) -> Iterator[str]:
    for run in every[1:]:
        yield from _other_work(every[0], run)
    for run in every:
        yield from _quality(run)
    ends = {tuple(sorted({c.vantage for c in run.analysis.connections if c.rpcs})) for run in every}
    if len(ends) > 1:
        yield "not all were captured at the same place (client, server): packets are not cut and joined alike there"


def _other_work(first: Run, run: Run) -> Iterator[str]:
    """Where the work differs; figures are per message, per RPC or per second then."""
    kind = unit((first, run))
    amounts = [(of.messages, "message") if kind == "message" else (of.rpcs, "RPC") for of in (first, run)]
    (before, noun), (after, _) = amounts
    if abs(after - before) > EQUAL_WORK * max(before, after):
        yield (
            f"different amounts of work: {count(before, noun)} in {first.label}, {count(after, noun)} in {run.label}; "
            "figures to compare are per message, per RPC or per second"
        )
    elif before != after:
        yield f"nearly the same work: {count(before, noun)} in {first.label}, {count(after, noun)} in {run.label}"
    one, two = (over(of.sent("message_bytes"), of.messages) for of in (first, run))
    if one is not None and two is not None and abs(two - one) > EQUAL_SIZES * max(one, two):
        yield f"messages are not of the same size: {size(one)} on average in {first.label}, {size(two)} in {run.label}"
    only = [
        f"{name} ({of.label} alone)"
        for of, other in ((first, run), (run, first))
        for name in of.named_methods
        if name not in other.named_methods
    ]
    if only:
        more = f" and {len(only) - 3:,} more" if len(only) > 3 else ""
        yield f"not the same methods: {', '.join(only[:3])}{more}; latencies are compared by method"
    programs = [_programs(of) for of in (first, run)]
    if programs[0] != programs[1]:
        yield f"not the same programs: {programs[0]} in {first.label}, {programs[1]} in {run.label}"


def _programs(run: Run) -> str:
    pairs = {
        (c.client_implementation or "?", c.server_implementation or "?") for c in run.analysis.connections if c.rpcs
    }
    shown = sorted(pairs)
    return ", ".join(f"{client} -> {server}" for client, server in shown[:2]) + (" and more" if len(shown) > 2 else "")


def _quality(run: Run) -> Iterator[str]:
    quality, capture = run.analysis.quality, run.analysis.capture
    flaws = [
        (capture.dropped_packets or 0, "packets dropped while capturing"),
        (quality.truncated_packets, "packets cut"),
        (quality.missing_bytes, "bytes missing"),
        (quality.undecoded_bytes, "bytes not decoded"),
        (run.analysis.totals.rpcs_begun_before, "RPCs begun before the capture"),
        (run.analysis.totals.rpcs_without_known_end, "RPCs without a known end"),
    ]
    said = [f"{number:,} {what}" for number, what in flaws if number]
    if said:
        yield f"{run.label}: {', '.join(said)}; counts of packets and messages may be too low"
    if any(method.method is None for method in run.analysis.methods):
        yield f"{run.label}: methods whose names are not in the capture; their latencies are not compared"
