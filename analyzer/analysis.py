"""From tables to an `Analysis`: facts, findings, verdict."""

from __future__ import annotations

from collections.abc import Sequence

from . import facts
from .decode import Progress, decode
from .detectors import DETECTORS
from .errors import NoGrpcError
from .result import Analysis, Finding, Skipped, Verdict
from .tables import Tables


def analyze(paths: Sequence[str], *, ports: Sequence[int] = (), progress: Progress | None = None) -> Analysis:
    """Analyse one capture. Raises CaptureError for what is no capture, NoGrpcError for one without gRPC."""
    return of_tables(decode(paths, ports=ports, progress=progress))


def of_tables(tables: Tables) -> Analysis:
    """The analysis of decoded tables. Raises NoGrpcError."""
    if not len(tables.rpcs.connection):
        raise NoGrpcError(facts.why_no_grpc(tables))
    findings, skipped = _detect(tables)
    return Analysis(
        files=tuple(file["name"] for file in tables.capture["files"]),
        capture=facts.capture_facts(tables),
        quality=facts.quality(tables),
        totals=facts.totals(tables),
        budget=facts.all_budget(tables),
        verdict=_verdict(findings),
        connections=facts.connection_facts(tables),
        methods=facts.method_facts(tables),
        findings=findings,
        skipped=skipped,
    )


def _detect(tables: Tables) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for detector in DETECTORS:
        for answer in detector.detect(tables):
            if isinstance(answer, Finding):
                findings.append(answer)
            else:
                skipped.append(answer)
    findings.sort(key=lambda finding: (-(finding.lost_ns or 0), finding.id))
    return tuple(findings), tuple(skipped)


def _verdict(findings: Sequence[Finding]) -> Verdict:
    worst = next((finding for finding in findings if finding.severity != "info"), None)
    if worst:
        return Verdict(worst.verdict, worst.id)
    looked_for = ", ".join(detector.id for detector in DETECTORS)
    return Verdict(f"None of the causes this version looks for ({looked_for}) slows these RPCs.", None)
