"""Make an `Analysis` from tables: facts, findings, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from msgspec.structs import replace

from . import _core
from .decode.decode import decode
from .decode.errors import NoGrpcError
from .decode.runner import DecodeOptions, Progress
from .detectors import ABOUTS, DETECTORS
from .facts.set_up import measure_setup
from .model.analysis import Analysis
from .model.detector import About
from .model.finding import Finding, Skipped, sort_findings
from .summary import figures, tls, verdict
from .summary.hops import describe_proxies, find_proxies
from .summary.other_requests import list_other_requests
from .summary.processes import describe_lack, describe_pressure, describe_processes, split_budget
from .summary.roles import mark_guessed_roles
from .tables import Tables

if TYPE_CHECKING:
    from .hops.legs import Legs
    from .model.recorded import RecordingFacts
    from .selection.narrow import Part, Read
    from .selection.selection import Selection
    from .sidecar.read import Sidecar


def analyze(paths: Sequence[str], *, progress: Progress | None = None, **how: Unpack[DecodeOptions]) -> Analysis:
    """Analyse one capture. Raises CaptureError for what is no capture, NoGrpcError for one without gRPC."""
    return of_capture(paths, decode(paths, rpc_rows=False, progress=progress, **how), progress=progress, **how)


def of_capture(
    paths: Sequence[str],
    tables: Tables,
    sidecar: Sidecar | None = None,
    notes: tuple[str, ...] = (),
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Analysis:
    """Analyse decoded files, which are read again if they show both sides of a proxy. Raises CaptureError."""
    if sidecar is not None and sidecar.processes is not None:
        tables, notes = add_processes(paths, tables, sidecar, notes, progress, **how)
    proxies = find_proxies(tables)
    if not proxies:
        return of_tables(tables, sidecar, notes)
    from .hops.legs import read_legs
    from .hops.look import explain_unread

    if reason := explain_unread(tables, paths):
        return of_tables(tables, sidecar, (*notes, reason))
    return of_tables(tables, sidecar, notes, legs=read_legs(paths, proxies, progress, **how))


def add_processes(
    paths: Sequence[str],
    tables: Tables,
    sidecar: Sidecar,
    notes: tuple[str, ...],
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> tuple[Tables, tuple[str, ...]]:
    """Join the process record, or say why the packets stand alone. Raises CaptureError."""
    from .sidecar.processes.join import join_record
    from .sidecar.processes.record import RecordError

    assert sidecar.processes is not None
    try:
        return replace(tables, processes=join_record(paths, tables, sidecar.processes, progress, **how)), notes
    except RecordError as error:
        return tables, (*notes, f"the process record of {sidecar.file} is not used: {error}")


def of_part(
    paths: Sequence[str],
    seen: Read,
    chosen: Selection,
    sidecar: Sidecar | None = None,
    notes: tuple[str, ...] = (),
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Analysis:
    """Analyse some of the RPCs as if there were no others. Raises CaptureError, NoGrpcError, NarrowError."""
    from .selection.narrow import narrow

    if sidecar is not None and sidecar.processes is not None:
        tables, notes = add_processes(paths, seen.tables, sidecar, notes, progress, **how)
        seen = replace(seen, tables=tables)
    proxies = [] if chosen.connections else find_proxies(seen.tables)
    if not proxies:
        return of_tables(seen.tables, sidecar, notes, lambda tables: narrow(tables, seen, chosen))
    from .hops.legs import join_legs, narrow_legs, select_legs
    from .hops.look import MOST_RPCS

    legs = join_legs(seen, proxies) if seen.tables.rpc_count <= MOST_RPCS else None
    if legs is None:
        return of_tables(seen.tables, sidecar, notes, lambda tables: narrow(tables, seen, chosen))
    some = select_legs(legs, chosen)
    return of_tables(seen.tables, sidecar, notes, lambda tables: narrow_legs(tables, some, seen, chosen), some)


def of_tables(
    tables: Tables,
    sidecar: Sidecar | None = None,
    notes: tuple[str, ...] = (),
    narrowing: Callable[[Tables], Part] | None = None,
    legs: Legs | None = None,
) -> Analysis:
    """Analyse decoded tables, with the capture's sidecar and warnings about it, or those of `legs` in their place.

    Raises NoGrpcError.
    """
    if not tables.rpc_count:
        raise NoGrpcError(figures.why_no_grpc(tables), None if narrowing else _analyze_without_rpcs(tables, notes))
    if legs and tables.processes is not None:
        notes = (*notes, "threads are not used: calls go through a proxy, both sides of which are in the capture")
    proxies = legs.notes if legs else None if narrowing else tuple(describe_proxies(tables))
    hops = legs.hops if legs else ()
    tables = legs.tables if legs else tables
    recording = None
    if sidecar is not None:
        recording, tables, more = _apply_sidecar(tables, sidecar)
        notes, sidecar = (*notes, *more), sidecar if recording else None
    part = narrowing(tables) if narrowing else None
    if part is not None:
        tables = part.tables
    seen = tables.processes
    findings, skipped = _detect(tables, sidecar, part, legs)
    budget, totals = figures.all_budget(tables), figures.totals(tables)
    chosen = verdict.choose_verdict(
        findings,
        budget,
        ABOUTS,
        totals,
        calls=figures.summarize_calls(tables),
        hops=hops,
        fault=legs.faults[0].text if legs and legs.faults else "",
    )
    return Analysis(
        version=_core.__version__,
        files=tuple(file["name"] for file in tables.capture["files"]),
        capture=figures.capture_facts(tables),
        quality=figures.quality(tables, notes, proxies),
        totals=totals,
        traffic=figures.traffic(tables),
        budget=split_budget(budget, seen),
        setup_ns=measure_setup(tables),
        verdict=chosen,
        connections=figures.connection_facts(tables),
        methods=figures.method_facts(tables),
        processes=describe_processes(seen) if seen else (),
        findings=sort_findings(findings, chosen.finding),
        skipped=skipped,
        recording=recording,
        narrowed=part.narrowed if part else None,
        other_requests=list_other_requests(tables),
        hops=hops,
        tls=None if part else tls.report(tls.find_facts(tables)),
    )


def _apply_sidecar(tables: Tables, sidecar: Sidecar) -> tuple[RecordingFacts | None, Tables, tuple[str, ...]]:
    """Give the facts, the tables with measured values, and notes; no facts if the sidecar is of another capture."""
    from .sidecar.read import Mismatch, apply_sidecar

    try:
        recording, tables = apply_sidecar(tables, sidecar)
    except Mismatch as mismatch:
        return None, tables, (f"{sidecar.file} is not used: {mismatch}",)
    return recording, tables, (*describe_lack(recording), *describe_pressure(recording, tables.processes))


def _analyze_without_rpcs(tables: Tables, notes: tuple[str, ...]) -> Analysis:
    """Analyse the connections of a capture without readable RPCs, also TLS connections that may carry gRPC."""
    answers = [answer for detector in DETECTORS if detector.about.without_rpcs for answer in detector.detect(tables)]
    unread = tuple(one for one in tls.find_facts(tables) if not one.is_wordless)
    mine = [one.connection for one in unread if one.may_be_grpc]
    if mine:
        from . import encrypted

        answers += encrypted.detect(tables, mine)
    findings = verdict.link_findings([answer for answer in answers if isinstance(answer, Finding)], ABOUTS)
    reason = f"No gRPC traffic was found: {figures.why_no_grpc(tables)}."
    chosen = (
        tls.write_verdict(unread, findings, ABOUTS)
        if mine
        else verdict.choose_verdict(findings, {}, ABOUTS, reason=reason)
    )
    return Analysis(
        version=_core.__version__,
        files=tuple(file["name"] for file in tables.capture["files"]),
        capture=figures.capture_facts(tables),
        quality=figures.quality(tables, notes),
        totals=figures.totals(tables),
        traffic=figures.traffic(tables),
        budget={},
        verdict=chosen,
        connections=figures.connection_facts(tables, undecided=True),
        methods=(),
        findings=sort_findings(findings, chosen.finding),
        skipped=tuple(answer for answer in answers if isinstance(answer, Skipped)),
        recording=None,
        other_requests=list_other_requests(tables),
        tls=tls.report(unread) if mine else None,
    )


def _skip_if_one_sided(finding: Finding, tables: Tables) -> Finding | Skipped:
    """Skip a finding whose connections all lack one side's packets, or do not show which side is the client."""
    connections = list(finding.scope.connections)
    if connections and tables.connections.unheard[connections].all():
        return Skipped(finding.id, "the capture has only one direction of the connections concerned")
    if connections and mark_guessed_roles(tables)[connections].all():
        return Skipped(finding.id, "which side is the client of the connections concerned is a guess by their ports")
    return finding


def _choose_tables(tables: Tables, every: Tables, about: About, part: Part | None, legs: Legs | None) -> Tables:
    """Choose the tables that a detector reads; `every` has the failures of all legs."""
    if part is not None:
        return part.choose_tables(about)
    if about.whole_connections:
        return every
    return legs.behind if legs and about.judges_servers else tables


def _explain_by_legs(finding: Finding, about: About, legs: Legs) -> Finding:
    """Add what a proxy did with the calls of a finding, and the packets of both legs."""
    faults = [fault for fault in legs.faults if fault.explains(finding, about)]
    return replace(
        finding,
        explanation=" ".join((finding.explanation, *(fault.text for fault in faults))),
        evidence=(*finding.evidence, *(item for fault in faults for item in fault.evidence)),
    )


def _detect(
    tables: Tables, sidecar: Sidecar | None, part: Part | None, legs: Legs | None
) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    every = tables
    if legs:
        every = replace(tables, failures=legs.failures, failure_budgets=legs.failure_budgets)
    for detector in DETECTORS:
        if part is not None and (reason := part.explain_skipped(detector.about)):
            skipped.append(Skipped(detector.id, reason))
        for answer in detector.detect(_choose_tables(tables, every, detector.about, part, legs)):
            if isinstance(answer, Finding) and not detector.about.one_direction:
                answer = _skip_if_one_sided(answer, tables)
            if isinstance(answer, Finding) and sidecar is not None:
                from .sidecar.read import add_present_settings

                answer = add_present_settings(answer, detector.about, tables, sidecar)
            if isinstance(answer, Finding):
                findings.append(_explain_by_legs(answer, detector.about, legs) if legs else answer)
            else:
                skipped.append(answer)
    return verdict.link_findings(findings, ABOUTS), tuple(skipped)
