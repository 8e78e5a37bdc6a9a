"""Compare two datasets."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from .changes import Change, FindingChange
from .losses import Loser
from .report import Report

_NOTED = 0.1
"""Smallest change of the mean that is listed, as a share (heuristic: smaller ones are often noise; JSON lists all)."""


class Against(Struct, frozen=True, kw_only=True):
    """The comparison of a dataset with another one."""

    schema: str = "grpcdiag.fleet-against/1"
    dataset: str
    against: str
    every: Change
    """The change over all RPCs."""
    methods: tuple[Change, ...]
    services: tuple[Change, ...]
    pairs: tuple[Change, ...]
    implementations: tuple[Change, ...]
    findings: tuple[FindingChange, ...]


def against(now: Report, before: Report) -> Against:
    """Compare two reports, which must have all rows (`most` is None)."""
    return Against(
        dataset=now.dataset,
        against=before.dataset,
        every=_compare("all RPCs", _sum_up(before), _sum_up(now)),
        services=_compare_all(before.services, now.services),
        methods=_compare_all(before.methods, now.methods),
        pairs=_compare_all(before.pairs, now.pairs),
        implementations=_compare_all(before.implementations, now.implementations),
        findings=_compare_findings(before, now),
    )


def _sum_up(report: Report) -> Loser | None:
    """Make a row of all RPCs of a report, without quantiles; None without RPCs."""
    if not report.rpcs:
        return None
    return Loser(
        name="all RPCs",
        rpcs=report.rpcs,
        failed_rpcs=report.failed_rpcs,
        duration_ns=report.duration_ns,
        p50_ns=None,
        p99_ns=None,
        lost_ns=report.lost_ns,
        cause=None,
        budget=report.budget,
    )


def _compare_all(before: Sequence[Loser], now: Sequence[Loser]) -> tuple[Change, ...]:
    """List changes, the largest change of the total time first."""
    old, new = {loser.name: loser for loser in before}, {loser.name: loser for loser in now}
    changes = [_compare(name, old.get(name), new.get(name)) for name in {**new, **old}]
    return tuple(sorted(changes, key=lambda change: (-_weigh(change), change.name)))


def _weigh(change: Change) -> int:
    return abs((change.after_ns or 0) - (change.before_ns or 0)) * max(change.rpcs, change.rpcs_before)


def noted(change: Change) -> bool:
    """Say whether a change is large enough to be listed."""
    if change.before_ns is None or change.after_ns is None:
        return True
    return abs(change.after_ns - change.before_ns) > _NOTED * max(change.before_ns, 1)


def _compare(name: str, old: Loser | None, new: Loser | None) -> Change:
    cause, cause_ns = None, None
    if old and new and old.rpcs and new.rpcs:
        moved = {c: new.budget.get(c, 0) // new.rpcs - old.budget.get(c, 0) // old.rpcs for c in CAUSES}
        cause = max(moved, key=lambda c: abs(moved[c]))
        cause_ns = moved[cause]
    return Change(
        name=name,
        rpcs_before=old.rpcs if old else 0,
        rpcs=new.rpcs if new else 0,
        before_ns=old.duration_ns // old.rpcs if old and old.rpcs else None,
        after_ns=new.duration_ns // new.rpcs if new and new.rpcs else None,
        p99_before_ns=old.p99_ns if old else None,
        p99_ns=new.p99_ns if new else None,
        cause=cause,
        cause_ns=cause_ns,
    )


def _compare_findings(before: Report, now: Report) -> tuple[FindingChange, ...]:
    old, new = {cause.id: cause for cause in before.causes}, {cause.id: cause for cause in now.causes}
    changes = [
        FindingChange(
            id=name,
            findings_before=old[name].findings if name in old else 0,
            findings=new[name].findings if name in new else 0,
            lost_before_ns=old[name].lost_ns if name in old else 0,
            lost_ns=new[name].lost_ns if name in new else 0,
        )
        for name in {**new, **old}
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.lost_ns - change.lost_before_ns), change.id)))
