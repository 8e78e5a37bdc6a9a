"""Triggers of `grpcdiag watch`: conditions on the analysis of the last seconds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from .. import _core
from ..model.analysis import Analysis, MethodFacts
from ..model.finding import SEVERITIES
from ..model.text import duration

QUANTILES = ("p50", "p90", "p99", "p999", "max", "mean")
GRAMMAR = (
    "p99 > 50ms (also p50, p90, p999, max, mean); status=UNAVAILABLE rate > 1% (also UNAVAILABLE|INTERNAL, or failed: "
    "all but OK); each also of some methods: p99(/package.Service/*) > 50ms; finding:warning, or finding:ID"
)
"""The triggers, for error messages."""
_METHODS = r"(?:\s*\((?P<methods>[^()]+)\))?"
_NUMBER = r"(?P<number>\d{1,9}(?:\.\d{1,6})?)"
_LATENCY = re.compile(rf"(?P<quantile>[a-z0-9]+){_METHODS}\s*>\s*{_NUMBER}\s*(?P<unit>us|µs|ms|s)", re.ASCII)
_STATUS = re.compile(rf"status=(?P<names>[A-Za-z_|]+){_METHODS}\s*rate\s*>\s*{_NUMBER}\s*%", re.ASCII)
_UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3}


class TriggerError(ValueError):
    """A trigger is invalid; the message says why."""


class Trigger(Struct, frozen=True):
    """One condition."""

    text: str
    """As the user wrote it."""
    methods: str = "*"
    """Pattern of the methods, with * and ?."""
    quantile: str = ""
    statuses: frozenset[str] = frozenset()
    limit: float = 0.0
    """Nanoseconds, or the share of the RPCs."""
    finding: str = ""
    """Severity or id."""

    def judge(self, analysis: Analysis) -> str | None:
        """Say what meets the condition; None if nothing does."""
        if self.finding:
            return self._judge_findings(analysis)
        methods = [one for one in analysis.methods if fnmatchcase(one.method or "", self.methods)]
        return self._judge_latency(methods) if self.quantile else self._judge_statuses(methods)

    def _judge_findings(self, analysis: Analysis) -> str | None:
        severities = SEVERITIES[SEVERITIES.index(self.finding) :] if self.finding in SEVERITIES else ()
        found = [one for one in analysis.findings if one.severity in severities or one.id == self.finding]
        return f"{found[0].id}: {found[0].title}" if found else None

    def _judge_latency(self, methods: Iterable[MethodFacts]) -> str | None:
        """Judge each method alone: a slow one with few calls must not disappear among many fast ones."""
        for one in methods:
            value = getattr(one.latency_ns, self.quantile) if one.latency_ns else 0
            if value > self.limit:
                return f"{self.quantile} of {one.method or 'calls of an unknown method'} is {duration(value)}"
        return None

    def _judge_statuses(self, methods: Sequence[MethodFacts]) -> str | None:
        counts: Counter[str] = Counter()
        for one in methods:
            counts.update(one.statuses)
        ended = counts.total() - counts["not_seen"]
        found = Counter({name: count for name, count in counts.items() if name in self.statuses})
        if not ended or found.total() / ended <= self.limit:
            return None
        return f"{found.total():,} of {ended:,} calls ended with {', '.join(name for name, _ in found.most_common(3))}"


def parse(text: str, ids: Sequence[str]) -> Trigger:
    """Parse a trigger; `ids` are the ids of all findings. Raises TriggerError."""
    stripped = text.strip()
    if stripped.startswith("finding:"):
        finding = stripped.removeprefix("finding:")
        if finding not in SEVERITIES and finding not in ids:
            raise TriggerError(f"{finding!r} is neither a severity ({', '.join(SEVERITIES)}) nor the id of a finding")
        return Trigger(text, finding=finding)
    if match := _STATUS.fullmatch(stripped):
        share = float(match["number"]) / 100
        if share >= 1:
            raise TriggerError(f"{text!r} is never met: a rate is at most 100%")
        return Trigger(text, match["methods"] or "*", statuses=_parse_statuses(match["names"]), limit=share)
    match = _LATENCY.fullmatch(stripped)
    if match and match["quantile"] in QUANTILES:
        limit = float(match["number"]) * _UNITS[match["unit"]]
        return Trigger(text, match["methods"] or "*", quantile=match["quantile"], limit=limit)
    raise TriggerError(f"{text!r} is not a trigger: write {GRAMMAR}")


def _parse_statuses(names: str) -> frozenset[str]:
    if names.lower() == "failed":
        return frozenset(_core.STATUSES) - {"OK"}
    statuses = {name.upper() for name in names.split("|")}
    if unknown := statuses - set(_core.STATUSES):
        raise TriggerError(f"{sorted(unknown)[0]!r} is no gRPC status; known: {', '.join(_core.STATUSES)}, failed")
    return frozenset(statuses)
