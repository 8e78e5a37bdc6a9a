"""Budgets: time divided among causes."""

from collections.abc import Iterable, Mapping

from .._core import CAUSES as _CAUSES
from ..tables.durations import clip_ns
from ..tables.processes import PARTS as PARTS

CAUSES: tuple[str, ...] = tuple(_CAUSES)
"""The causes of `docs/json.md`, in the order of every budget's columns."""


SIDES = ("client", "server")
"""Causes that a process record splits."""
SPLIT = tuple(f"{side}.{part}" for side in SIDES for part in PARTS)
"""The causes that take their place."""


def of_cause(budget: Mapping[str, int], cause: str) -> int:
    """Give the time of a cause, whole or split."""
    return budget.get(cause, 0) + sum(ns for name, ns in budget.items() if name.startswith(f"{cause}."))


def unsplit(budget: Mapping[str, int]) -> dict[str, int]:
    """Put split causes together again."""
    causes = dict.fromkeys(name.partition(".")[0] for name in budget)
    return {cause: of_cause(budget, cause) for cause in causes}


def named(nanoseconds: Iterable[int]) -> Mapping[str, int]:
    """Name a budget's times by cause, without causes that have no time. They add up to the divided duration."""
    return {cause: clip_ns(int(ns)) for cause, ns in zip(CAUSES, nanoseconds, strict=True) if ns}


def total(budgets: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Add up several budgets, cause by cause."""
    sums = [0] * len(CAUSES)
    for budget in budgets:
        for index, ns in enumerate(budget):
            sums[index] += int(ns)
    return tuple(map(clip_ns, sums))
