"""Budgets: time divided among causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .._core import CAUSES as _CAUSES
from ..tables.durations import clip_ns

CAUSES: tuple[str, ...] = tuple(_CAUSES)
"""The causes of `docs/json.md`, in the order of every budget's columns."""


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
