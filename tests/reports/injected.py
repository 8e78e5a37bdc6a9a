"""Analyses in which every text that a capture could bring is a stranger's."""

from __future__ import annotations

from msgspec.structs import replace

from grpcdiag.analyzer.model.analysis import Analysis, Apart
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.model.recorded import ProcessFacts


def injected(analysis: Analysis, text: str) -> Analysis:
    """The analysis with `text` wherever foreign text can come to stand."""
    c, m = analysis.connections[0], analysis.methods[0]
    connection = replace(c, client=text, server=text, client_implementation=text, server_implementation=text)
    return replace(
        analysis,
        files=(text, text),
        quality=replace(analysis.quality, warnings=(text, f"note {text}")),
        verdict=replace(analysis.verdict, text=f"{text} because {text}"),
        connections=(connection, replace(connection, client_implementation_inferred=True)),
        methods=(replace(m, method=text, statuses={text: 1, "OK": 2}), replace(m, method=None, label=text)),
        findings=tuple(_finding(finding, text) for finding in analysis.findings),
        skipped=(Skipped("cancelled", text),),
        processes=(process(text),),
        apart=Apart(text, ()),
    )


def process(name: str) -> ProcessFacts:
    """A recorded process that ran for three quarters of its time, and waited for a lock for the rest."""
    counts = {field: 0 for field in ProcessFacts.__struct_fields__ if field.endswith(("_ns", "intervals"))}
    counts |= {"intervals": 2, "running_ns": 750_000, "lock_ns": 250_000}
    return ProcessFacts(pid=7, name=name, side="client", **counts)


def _finding(finding: Finding, text: str) -> Finding:
    return replace(
        finding,
        title=text,
        explanation=f"{text} and {text}",
        scope=replace(finding.scope, methods=(text, f"/{text}")),
        evidence=tuple(replace(item, what=text) for item in finding.evidence),
        remedies=tuple(replace(r, implementation=text, knob=text, note=text, present=text) for r in finding.remedies),
        verdict=text,
    )
