"""Compare captures: everything that the reports of `compare` show."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.text import count, list_first, size
from ..shared.quality import list_flaws
from .because import differences, text
from .difference import NOTABLE, Difference
from .figures import Changed, Figure, Shift, Spent, budgets, changes, figures, shifts, unit
from .regression import Outcome, judge
from .rules import Rule
from .run import Run, over, runs
from .scaling import Scaling, scaling

EQUAL_WORK = 0.01
"""Largest difference between amounts of work that counts as equal (heuristic without a source)."""
EQUAL_SIZES = 0.05
"""Largest difference between mean message sizes that counts as equal (heuristic without a source)."""


class Comparison(Struct, frozen=True):
    """The comparison of two or more captures with the first."""

    runs: tuple[Run, ...]
    verdict: str
    """The difference in one sentence; with more than two captures, how they scale."""
    notes: tuple[str, ...]
    """How the work or the captures differ."""
    differences: tuple[Difference, ...]
    """Differences of each capture from the first one."""
    figures: tuple[Figure, ...]
    shifts: tuple[Shift, ...]
    unit: str
    """The unit of work by which budgets are divided: `RPC` or `message`."""
    budgets: tuple[Spent, ...]
    changes: tuple[Changed, ...]
    scaling: Scaling | None
    outcomes: tuple[Outcome, ...]
    """Results of the rules of `--fail-on`."""
    baselines: tuple[Run, ...] = ()
    """More captures like the first."""

    @property
    def others(self) -> tuple[Difference, ...]:
        """List the differences that the verdict does not state."""
        curve = self.scaling is not None
        rest = (d for d in self.differences if not (curve and d.what == "throughput"))
        return tuple(d for d in rest if d.sentence not in self.verdict)


def compare(
    documents: Sequence[Analysis], rules: Sequence[Rule] = (), baselines: Sequence[Analysis] = ()
) -> Comparison:
    """Compare two or more documents with the first one.

    `baselines` are more captures like the first: only what differs from all of them is a difference.
    """
    every = runs(documents)
    like_first = tuple(Run(f"baseline {place}", run.analysis) for place, run in enumerate(runs(baselines), start=2))
    curve = scaling(every)
    return Comparison(
        runs=every,
        verdict=curve.text if curve else " ".join(text(every[0], run, like_first) for run in every[1:]),
        notes=(*_describe_baselines(like_first), *_list_notes(every)),
        differences=tuple(found for run in every[1:] for found in differences(every[0], run, like_first)),
        figures=figures(every),
        shifts=shifts(every),
        unit=unit(every),
        budgets=budgets(every),
        changes=changes(every),
        scaling=curve,
        outcomes=judge(rules, every, like_first),
        baselines=like_first,
    )


def _describe_baselines(baselines: Sequence[Run]) -> Iterator[str]:
    if baselines:
        yield (
            f"{count(len(baselines), 'more baseline')} like A: what does not differ from each of them by "
            f"{NOTABLE - 1:.0%} or more is noise"
        )


def _list_notes(every: Sequence[Run]) -> Iterator[str]:
    for run in every[1:]:
        yield from _compare_work(every[0], run)
    for run in every:
        yield from _list_flaws(run)
    ends = {tuple(sorted({c.vantage for c in run.analysis.connections if c.rpcs})) for run in every}
    if len(ends) > 1:
        yield "captured at different places (client, server): offloads split and join packets differently there"


def _compare_work(first: Run, run: Run) -> Iterator[str]:
    """List how the work of two captures differs."""
    kind = unit((first, run))
    amounts = [(of.messages, "message") if kind == "message" else (of.rpcs, "RPC") for of in (first, run)]
    (before, noun), (after, _) = amounts
    if abs(after - before) > EQUAL_WORK * max(before, after):
        yield (
            f"different amounts of work: {count(before, noun)} in {first.label}, {count(after, noun)} in {run.label}; "
            "compare the figures per message, per RPC or per second"
        )
    elif before != after:
        yield f"nearly equal work: {count(before, noun)} in {first.label}, {count(after, noun)} in {run.label}"
    one, two = (over(of.sent("message_bytes"), of.messages) for of in (first, run))
    if one is not None and two is not None and abs(two - one) > EQUAL_SIZES * max(one, two):
        yield f"different message sizes: {size(one)} on average in {first.label}, {size(two)} in {run.label}"
    only = [
        f"{name} (only in {of.label})"
        for of, other in ((first, run), (run, first))
        for name in of.named_methods
        if name not in other.named_methods
    ]
    if only:
        yield f"different methods: {list_first(only, 3)}; latencies are compared by method"
    programs = [_list_programs(of) for of in (first, run)]
    if programs[0] != programs[1]:
        yield f"different implementations: {programs[0]} in {first.label}, {programs[1]} in {run.label}"


def _list_programs(run: Run) -> str:
    pairs = {
        (c.client_implementation or "?", c.server_implementation or "?") for c in run.analysis.connections if c.rpcs
    }
    shown = sorted(pairs)
    return ", ".join(f"{client} -> {server}" for client, server in shown[:2]) + (" and more" if len(shown) > 2 else "")


def _list_flaws(run: Run) -> Iterator[str]:
    totals = run.analysis.totals
    found = list_flaws(run.analysis)
    if totals.rpcs_begun_before:
        found.append(f"{count(totals.rpcs_begun_before, 'RPC')} started before the capture")
    if totals.rpcs_without_known_end:
        found.append(f"{count(totals.rpcs_without_known_end, 'RPC')} without a known end")
    if found:
        yield f"{run.label}: {', '.join(found)}; counts of packets and messages may be too low"
    if unknown := sum(method.statuses.get("not_seen", 0) for method in run.analysis.methods):
        yield (
            f"{run.label}: {count(unknown, 'RPC')} with unknown status; the mean time per RPC counts those without an "
            "end as long as they are seen, latencies do not"
        )
    if any(method.method is None for method in run.analysis.methods):
        yield f"{run.label}: some methods have no name in the capture; their latencies are not compared"
