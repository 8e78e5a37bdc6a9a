"""Write the JSON of `compare`, schema `grpcdiag.comparison/1`."""

from typing import Any

from ...analyzer import _core
from ..analysis_json import encode, read_schema
from .comparison import Comparison
from .difference import Difference
from .figures import Changed, Figure, Shift
from .scaling import Point, Scaling

SCHEMA = "grpcdiag.comparison/1"
"""Name and version of the structure."""


def render(comparison: Comparison) -> str:
    """Render the comparison as one JSON document with a final newline."""
    return encode(document(comparison))


def schema() -> dict[str, Any]:
    """Read the published JSON Schema of the document."""
    return read_schema("comparison-1.json")


def document(c: Comparison) -> dict[str, Any]:
    """Build the document of structs, dictionaries and lists."""
    return {
        "schema": SCHEMA,
        "version": _core.__version__,
        "captures": [
            {"label": run.label, **_pick(run.analysis, "files", "version"), "verdict": run.analysis.verdict.text}
            for run in c.runs
        ],
        "baselines": [run.analysis.files for run in c.baselines],
        "verdict": {"text": c.verdict},
        "notes": c.notes,
        "differences": [_describe_difference(difference) for difference in c.differences],
        "figures": [_describe_figure(figure) for figure in c.figures],
        "latencies": [_describe_shift(shift) for shift in c.shifts],
        "budgets": {"per": c.unit, "causes": c.budgets},
        "findings": [_describe_change(changed) for changed in c.changes],
        "scaling": _describe_scaling(c.scaling),
        "fail_on": c.outcomes,
    }


def _describe_difference(d: Difference) -> dict[str, Any]:
    reasons = [{"text": r.text, "share": r.share, "finding": r.finding and r.finding.id} for r in d.reasons]
    return {**_pick(d, "what", "worse", "other", "ratio"), "text": d.sentence, "reasons": reasons}


def _describe_figure(f: Figure) -> dict[str, Any]:
    return _pick(f, "section", "name", "values") | {"ratios": [f.ratio(number) for number in range(len(f.values))]}


def _describe_shift(s: Shift) -> dict[str, Any]:
    times = _pick(s, "from_ns", "to_ns", "shift_ns") | {"interval_ns": [s.low_ns, s.high_ns]}
    return {**_pick(s, "method", "kind", "quantile"), "capture": s.run, **times, "ratio": s.ratio}


def _describe_change(c: Changed) -> dict[str, Any]:
    before, after = (f and _pick(f, "severity", "title", "lost_ns", "share") for f in (c.before, c.after))
    return {"id": c.id, "capture": c.run, "change": c.change, "before": before, "after": after}


def _describe_scaling(s: Scaling | None) -> dict[str, Any] | None:
    if s is None:
        return None
    return {**_pick(s, "unit", "by", "knee"), "points": [_describe_point(point) for point in s.points]}


def _describe_point(p: Point) -> dict[str, Any]:
    load = {"capture": p.run, **_pick(p, "load", "callers", "connections"), "rpcs_at_once": p.at_once}
    return load | _pick(p, "per_s", "ideal_per_s", "of_ideal", "shares")


def _pick(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}
