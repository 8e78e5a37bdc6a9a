"""Render the report of a fleet as one page that loads and sends nothing, in the style of the page of one capture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ....analyzer.model.budget import CAUSES
from ....reports.html import page
from ....reports.shared.causes import MEANINGS
from ...dataset.sums import SLOT_NS
from .. import text as words
from ..against import Against
from ..changes import Since
from ..losses import Case, Cause
from ..report import Report, Slot
from ..terminal import MOST_CHANGES, TITLES, TOO_SHORT, UNCHANGED, list_noted
from .drawing import draw

MOST_COLUMNS = 240
"""Most columns of the timeline; with more intervals, several share a column."""
HEIGHT = 100


HEADINGS = {"services": "Services", "methods": "Methods", "pairs": "Hosts", "implementations": "Clients"}
"""Headings of the sections with tables."""


def render(report: Report) -> str:
    """Render the page as text."""
    own = _Words(report)
    more = {"own": own, "draw": draw, "too_short": TOO_SHORT, "meanings": MEANINGS}
    return _render("fleet.html.j2", report.dataset, report=report, **more)


def render_against(changes: Against) -> str:
    """Render the page of what changed since another dataset as text."""
    tables = list_noted(changes)
    slower = any(
        (change.after_ns or 0) > (change.before_ns or change.after_ns or 0) for change in tables.get("methods", ())
    )
    severity = "warning" if slower else "fine"
    more = {"severity": severity, "most": MOST_CHANGES, "unchanged": UNCHANGED}
    return _render("against.html.j2", changes.dataset, changes=changes, tables=tables, **more)


def _render(template: str, dataset: str, **values: Any) -> str:
    strokes = "".join(f".line-{cause} {{ stroke: var(--{cause}); }}\n" for cause in CAUSES)
    more = {"dataset": dataset, "words": words, "titles": TITLES, "headings": HEADINGS}
    return page.render_plain(__package__, template, strokes, **values, **more)


class _Words:
    """Words and figures that need code, not only a template."""

    def __init__(self, report: Report) -> None:
        self._report, self._range = report, (report.first_time_ns, report.last_time_ns)

    def verdict_severity(self) -> str:
        """Find the highest severity of the causes that cost time; `open` if there are no RPCs."""
        if not self._report.rpcs:
            return "open"
        grave = [cause.severity for cause in self._report.causes if cause.lost_ns]
        return next((s for s in ("critical", "warning", "info") if s in grave), "fine")

    def moment(self, time_ns: int) -> str:
        """Format a time, without the date if the whole report is on one day."""
        return words.moment(time_ns, self._range)

    def margin(self, change: Since) -> str:
        """Format how exactly the time of a change is known."""
        return words.margin(change, self._range)

    def span(self) -> str:
        """Format the time range of the dataset."""
        first, last = self._range
        if first is None or last is None:
            return "no packets"
        return f"{words.moment(first)} to {words.moment(last)} UTC"

    def when(self, cause: Cause) -> str:
        """Say when the findings of a cause were seen."""
        first, last = self.moment(cause.first_time_ns), self.moment(cause.last_time_ns)
        return f"{first} to {last}" if first != last else f"at {first}"

    def cases(self, cause: Cause) -> list[tuple[str, Case]]:
        """List the worst finding, and the typical one if it is different."""
        return [("Worst", cause.worst), *([("Typical", cause.typical)] if cause.typical != cause.worst else [])]

    def chart(self) -> dict[str, Any]:
        """Build the timeline: columns of mean time per RPC, divided into rectangles by cause."""
        places, width = _group_slots(self._report.slots)
        means = {place: slot.duration_ns / max(slot.rpcs, 1) for place, slot in places.items()}
        most = max(means.values(), default=0) or 1
        columns: list[dict[str, Any]] = []
        for place, slot in places.items():
            height, bars = HEIGHT * means[place] / most, []
            top = float(HEIGHT)
            for cause in (c for c in CAUSES if slot.budget.get(c)):
                share = slot.budget[cause] / max(slot.duration_ns, 1)
                top -= height * share
                bars.append({"cause": cause, "y": f"{top:.2f}", "height": f"{height * share:.2f}"})
            columns.append({"at": place, "slot": slot, "mean": round(means[place]), "bars": bars})
        seen = {bar["cause"] for column in columns for bar in column["bars"]}
        causes = [cause for cause in CAUSES if cause in seen]
        return {"columns": columns, "width": width, "most": round(most), "causes": causes}


def _group_slots(slots: Sequence[Slot]) -> tuple[dict[int, Slot], int]:
    """Group intervals into columns; return them by place, and the number of columns."""
    begin = slots[0].time_ns
    every = (slots[-1].time_ns - begin) // SLOT_NS + 1
    step = -(-every // MOST_COLUMNS)
    places: dict[int, list[Slot]] = defaultdict(list)
    for slot in slots:
        places[(slot.time_ns - begin) // SLOT_NS // step].append(slot)
    return {place: _merge_slots(some) for place, some in places.items()}, -(-every // step)


def _merge_slots(some: Sequence[Slot]) -> Slot:
    return Slot(
        some[0].time_ns,
        sum(slot.rpcs for slot in some),
        sum(slot.duration_ns for slot in some),
        sum(slot.lost_ns for slot in some),
        {cause: sum(slot.budget.get(cause, 0) for slot in some) for cause in CAUSES},
    )
