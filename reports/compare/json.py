"""Write the JSON of `compare`, schema `grpcdiag.comparison/1`."""

from __future__ import annotations

from typing import Any

from ...analyzer import _core
from ...analyzer.model.finding import Finding
from ..analysis_json import encode, read_schema
from .because import Difference, Reason
from .comparison import Comparison
from .figures import Changed, Figure, Shift
from .run import Run
from .scaling import Scaling

SCHEMA = "grpcdiag.comparison/1"
"""Name and version of the structure."""


def render(comparison: Comparison) -> str:
    """Render the comparison as one JSON document with a final newline."""
    return encode(document(comparison))


def schema() -> dict[str, Any]:
    """Read the published JSON Schema of the document."""
    return read_schema("comparison-1.json")


def document(c: Comparison) -> dict[str, Any]:
    """Build the document of dictionaries and lists."""
    return {
        "schema": SCHEMA,
        "version": _core.__version__,
        "captures": [_describe_capture(run) for run in c.runs],
        "verdict": {"text": c.verdict},
        "notes": list(c.notes),
        "differences": [_describe_difference(difference) for difference in c.differences],
        "figures": [_describe_figure(figure) for figure in c.figures],
        "latencies": [_describe_shift(shift) for shift in c.shifts],
        "budgets": {
            "per": c.unit,
            "causes": [{"cause": s.cause, "each_ns": list(s.each_ns), "shares": list(s.shares)} for s in c.budgets],
        },
        "findings": [_describe_change(changed) for changed in c.changes],
        "scaling": _describe_scaling(c.scaling),
        "fail_on": [
            {"rule": o.rule, "capture": o.run, "met": o.met, "judged": o.judged, "text": o.text} for o in c.outcomes
        ],
    }


def _describe_capture(run: Run) -> dict[str, Any]:
    return {
        "label": run.label,
        "files": list(run.analysis.files),
        "version": run.analysis.version,
        "verdict": run.analysis.verdict.text,
    }


def _describe_difference(d: Difference) -> dict[str, Any]:
    return {
        "what": d.what,
        "worse": d.worse,
        "other": d.other,
        "ratio": d.ratio,
        "text": d.sentence,
        "reasons": [_describe_reason(reason) for reason in d.reasons],
    }


def _describe_reason(r: Reason) -> dict[str, Any]:
    return {"text": r.text, "share": r.share, "finding": r.finding.id if r.finding else None}


def _describe_figure(f: Figure) -> dict[str, Any]:
    ratios = [f.ratio(number) for number in range(len(f.values))]
    return {"section": f.section, "name": f.name, "values": list(f.values), "ratios": ratios}


def _describe_shift(s: Shift) -> dict[str, Any]:
    return {
        "method": s.method,
        "kind": s.kind,
        "quantile": s.quantile,
        "capture": s.run,
        "from_ns": s.from_ns,
        "to_ns": s.to_ns,
        "shift_ns": s.shift_ns,
        "interval_ns": [s.low_ns, s.high_ns],
        "ratio": s.ratio,
    }


def _describe_change(c: Changed) -> dict[str, Any]:
    return {
        "id": c.id,
        "capture": c.run,
        "change": c.change,
        "before": _describe_finding(c.before),
        "after": _describe_finding(c.after),
    }


def _describe_finding(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    return {
        "severity": finding.severity,
        "title": finding.title,
        "lost_ns": finding.lost_ns,
        "share": finding.share,
    }


def _describe_scaling(s: Scaling | None) -> dict[str, Any] | None:
    if s is None:
        return None
    return {
        "unit": s.unit,
        "by": s.by,
        "knee": s.knee,
        "points": [
            {
                "capture": p.run,
                "load": p.load,
                "callers": p.callers,
                "connections": p.connections,
                "rpcs_at_once": p.at_once,
                "per_s": p.per_s,
                "ideal_per_s": p.ideal_per_s,
                "of_ideal": p.of_ideal,
                "shares": p.shares,
            }
            for p in s.points
        ],
    }
