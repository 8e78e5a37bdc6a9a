"""What was counted since the beginning, for a scraper that comes less often than once a second."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from .. import _core
from . import Window
from .interval import FindingFigures

METHODS = 50
"""Methods that are counted apart, the first ones: a series must not change its meaning."""
OTHER = "other"
UNKNOWN = "unknown"
_STATUSES = (*_core.STATUSES, "not_seen")


class Totals(Struct):
    """What was counted since the beginning."""

    methods: dict[str, Counter[str]] = field(default_factory=dict)
    """RPCs that ended, by method and status; `not_seen` when the status is not on the wire."""
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often findings appeared, by id and severity."""
    captures: int = 0
    """Captures that were written."""

    def add(self, piece: Window) -> None:
        """Count the RPCs that ended in a piece."""
        for one in piece.tables.methods:
            name = one.name or UNKNOWN
            if name not in self.methods and len(self.methods) >= METHODS:
                name = OTHER
            # RPCs without an end have no status either, and come again with the next piece
            counts = (*one.statuses[:-1], max(one.complete - sum(one.statuses[:-1]), 0))
            of = self.methods.setdefault(name, Counter())
            of.update({status: number for status, number in zip(_STATUSES, counts, strict=True) if number})

    def note_findings(self, findings: tuple[FindingFigures, ...], now_ns: int) -> None:
        """Count the kinds of findings that appeared in an interval."""
        self.findings.update({(one.id, one.severity) for one in findings if one.since_ns == now_ns})
