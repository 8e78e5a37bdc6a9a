"""Two datasets: what changed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from .changes import Change, FindingChange
from .report import Loser, Report

_NOTED = 0.1
"""Smallest change of the mean that is listed, as a share (own choice; the JSON has all)."""


class Against(Struct, frozen=True, kw_only=True):
    """A dataset and an earlier one."""

    schema: str = "grpcdiag.fleet-against/1"
    dataset: str
    against: str
    every: Change
    """Of all RPCs together."""
    methods: tuple[Change, ...]
    services: tuple[Change, ...]
    pairs: tuple[Change, ...]
    implementations: tuple[Change, ...]
    findings: tuple[FindingChange, ...]


def against(now: Report, before: Report) -> Against:
    """What is different now; reports without a limit of rows."""
    return Against(
        dataset=now.dataset,
        against=before.dataset,
        every=_change("all RPCs", _all(before), _all(now)),
        services=_changes(before.services, now.services),
        methods=_changes(before.methods, now.methods),
        pairs=_changes(before.pairs, now.pairs),
        implementations=_changes(before.implementations, now.implementations),
        findings=_findings(before, now),
    )


def _all(report: Report) -> Loser | None:
    """All RPCs of a report as one; quantiles of all are in no report."""
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


def _changes(before: Sequence[Loser], now: Sequence[Loser]) -> tuple[Change, ...]:
    """Those whose RPCs together gained or lost the most time first."""
    old, new = {loser.name: loser for loser in before}, {loser.name: loser for loser in now}
    changes = [_change(name, old.get(name), new.get(name)) for name in {**new, **old}]
    return tuple(sorted(changes, key=lambda change: (-_weight(change), change.name)))


def _weight(change: Change) -> int:
    return abs((change.after_ns or 0) - (change.before_ns or 0)) * max(change.rpcs, change.rpcs_before)


def noted(change: Change) -> bool:
    """Whether a change is worth a line."""
    if change.before_ns is None or change.after_ns is None:
        return True
    return abs(change.after_ns - change.before_ns) > _NOTED * max(change.before_ns, 1)


def _change(name: str, old: Loser | None, new: Loser | None) -> Change:
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


def _findings(before: Report, now: Report) -> tuple[FindingChange, ...]:
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
