"""Findings of the last seconds, and those that were there before."""

from __future__ import annotations

from msgspec.structs import replace

from ..model.analysis import Analysis
from .interval import FindingFigures

GONE_NS = 60 * 10**9
"""Time for which a finding that is gone is reported."""


class FindingsLog:
    """Since when each kind of finding is there. It has at most one entry for each detector."""

    def __init__(self) -> None:
        """Nothing was found yet."""
        self._here: dict[str, FindingFigures] = {}
        self._gone: dict[str, FindingFigures] = {}

    def take(self, analysis: Analysis, now_ns: int) -> tuple[FindingFigures, ...]:
        """List the findings of an analysis, with the time since which there are such ones."""
        since = {name: one.since_ns for name, one in self._here.items()}
        found = tuple(
            FindingFigures(one.id, one.severity, one.title, since.get(one.id, now_ns)) for one in analysis.findings
        )
        here = {one.id: one for one in reversed(found)}  # the gravest of a kind stands for it
        self._gone |= {name: replace(one, gone_ns=now_ns) for name, one in self._here.items() if name not in here}
        self._gone = {
            name: one for name, one in self._gone.items() if name not in here and (one.gone_ns or 0) > now_ns - GONE_NS
        }
        self._here = here
        return found

    def list_gone(self) -> tuple[FindingFigures, ...]:
        """List findings that are gone, the last one first."""
        return tuple(sorted(self._gone.values(), key=lambda one: -(one.gone_ns or 0)))
