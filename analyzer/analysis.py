"""From tables to an `Analysis`: facts, findings, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from . import encrypted, facts, story
from .decode import Progress, decode
from .detectors import DETECTORS
from .errors import NoGrpcError
from .reading import How
from .result import Analysis, Finding, Skipped
from .tables import Tables

if TYPE_CHECKING:
    from .beside import Beside
    from .chosen import Chosen
    from .narrowing import Part, Read


def analyze(paths: Sequence[str], *, progress: Progress | None = None, **how: Unpack[How]) -> Analysis:
    """Analyse one capture. Raises CaptureError for what is no capture, NoGrpcError for one without gRPC."""
    return of_tables(decode(paths, rpc_rows=False, progress=progress, **how))


def of_part(seen: Read, chosen: Chosen, beside: Beside | None = None, notes: tuple[str, ...] = ()) -> Analysis:
    """The same of some of the RPCs, as if there were no others. Raises NoGrpcError, NarrowError."""
    from .narrowing import narrow

    return of_tables(seen.tables, beside, notes, lambda tables: narrow(tables, seen, chosen))


def of_tables(
    tables: Tables,
    beside: Beside | None = None,
    notes: tuple[str, ...] = (),
    narrowing: Callable[[Tables], Part] | None = None,
) -> Analysis:
    """The analysis of decoded tables, with what was recorded beside the capture, and what is to be noted of that.

    Raises NoGrpcError.
    """
    if not tables.rpc_count:
        raise NoGrpcError(facts.why_no_grpc(tables), None if narrowing else _without_secrets(tables, notes))
    recording = None
    if beside is not None:
        from .beside import Mismatch, use

        try:
            recording, tables = use(tables, beside)
        except Mismatch as mismatch:
            notes, beside = (*notes, f"{beside.file} is not used: {mismatch}"), None
    part = narrowing(tables) if narrowing else None
    if part is not None:
        tables = part.tables
    findings, skipped = _detect(tables, beside, part)
    budget, totals = facts.all_budget(tables), facts.totals(tables)
    return Analysis(
        files=tuple(file["name"] for file in tables.capture["files"]),
        capture=facts.capture_facts(tables),
        quality=facts.quality(tables, notes),
        totals=totals,
        traffic=facts.traffic(tables),
        budget=budget,
        verdict=story.verdict(findings, budget, totals),
        connections=facts.connection_facts(tables),
        methods=facts.method_facts(tables),
        findings=findings,
        skipped=skipped,
        recording=recording,
        narrowed=part.narrowed if part else None,
        tls=() if part else encrypted.facts(tables),
    )


def _without_secrets(tables: Tables, notes: tuple[str, ...]) -> Analysis | None:
    """What is told of TLS that may carry gRPC in a capture of which no RPC can be read; None without any."""
    unread = encrypted.facts(tables)
    mine = [one.connection for one in unread if one.may_be_grpc]
    if not mine:
        return None
    from .detectors import _encrypted

    answers = list(_encrypted.detect(tables, mine))
    findings = tuple(answer for answer in answers if isinstance(answer, Finding))
    return Analysis(
        files=tuple(file["name"] for file in tables.capture["files"]),
        capture=facts.capture_facts(tables),
        quality=facts.quality(tables, notes),
        totals=facts.totals(tables),
        traffic=facts.traffic(tables),
        budget={},
        verdict=encrypted.verdict(unread, findings),
        connections=facts.connection_facts(tables),
        methods=(),
        findings=story.told(findings),
        skipped=tuple(answer for answer in answers if isinstance(answer, Skipped)),
        tls=unread,
    )


def _unless_unheard(finding: Finding, tables: Tables) -> Finding | Skipped:
    """The finding, unless one side's packets are missing on all its connections: what it says needs both."""
    connections = list(finding.scope.connections)
    if not connections or not tables.connections.unheard[connections].all():
        return finding
    return Skipped(finding.id, "the capture has one direction only of the connections concerned")


def _detect(
    tables: Tables, beside: Beside | None, part: Part | None
) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for detector in DETECTORS:
        if part is not None and (reason := part.not_told(detector.id)):
            skipped.append(Skipped(detector.id, reason))
        for answer in detector.detect(part.judged_by(detector.id) if part else tables):
            if isinstance(answer, Finding) and not detector.judges_one_direction:
                answer = _unless_unheard(answer, tables)
            if isinstance(answer, Finding) and beside is not None:
                from .beside import with_settings

                answer = with_settings(answer, tables, beside)
            if isinstance(answer, Finding):
                findings.append(answer)
            else:
                skipped.append(answer)
    return story.told(findings), tuple(skipped)
