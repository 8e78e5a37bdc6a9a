"""The report of `analyze` as Markdown, for a comment in an issue tracker."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from ..analyzer.model.analysis import Analysis, ConnectionFacts, MethodFacts
from ..analyzer.model.finding import Finding, Remedy, rank_cost
from ..analyzer.model.text import count, duration, list_first, size, utc
from .shared import client, hops, two_captures
from .shared.causes import describe_setup, explain_causes
from .shared.markdown_escape import Block, code, fence, fitting, folded, items, prose, sentence, table
from .shared.quality import (
    format_begin,
    format_round_trip,
    format_span,
    list_flaws,
    list_implementations,
    list_not_judged,
    list_vantages,
)
from .shared.sentences import (
    MOST_PATHS,
    THREADS,
    describe_content,
    describe_cost,
    describe_processes,
    describe_requests,
    describe_selection,
    describe_total,
    name_path,
    name_status,
)
from .terminal import draw

MOST_BYTES = 60_000
"""Largest page in bytes: GitHub accepts 65,536 characters."""
TITLE, WHAT, NOTE, VERDICT = 300, 400, 600, 1_500
"""Characters shown of a title, of what a packet shows, of a note, of the verdict."""
MOST_FINDINGS = 12
"""Findings shown in full; the rest are named."""
MOST_EVIDENCE = 6
"""Packets shown for a finding."""
MOST_REMEDIES = 3
"""Settings shown for a finding."""
MOST_METHODS = 20
"""Methods shown; the rest are counted."""
MOST_CONNECTIONS = 12
"""Connections shown; the rest are counted."""
MOST_PROCESSES = 12
"""Recorded processes shown."""
MOST_NAMES = 6
"""Connections or methods named for a finding; the rest are counted."""
MOST_NOTES = 12
"""Most notes on the capture, and most reasons why findings are not judged."""


def render(analysis: Analysis, *, version: str = "") -> str:
    """Render the report; `version` is grpcdiag's."""
    blocks = []
    if analysis.apart:
        why = prose(analysis.apart.reason, NOTE)
        blocks.append(Block(f"These captures cannot be combined and are analysed one by one: {why}."))
    for one in (analysis, *(analysis.apart.analyses if analysis.apart else ())):
        blocks += _list_blocks(one)
    blocks.append(Block(f"<sub>Written by grpcdiag {version}. Times count from the first packet.</sub>"))
    return fitting(blocks, MOST_BYTES, "the terminal and JSON reports have everything")


def _list_blocks(analysis: Analysis) -> Iterator[Block]:
    yield Block(f"## {code(name(analysis))}\n\n**{sentence(analysis.verdict.text, VERDICT)}**")
    yield Block(capture(analysis))
    if analysis.narrowed:
        part = prose(describe_selection(analysis.narrowed), NOTE)
        yield Block(f"Selected: {part}. Packets, bytes and notes are of the whole capture.")
    yield Block(budget(analysis))
    threads = [prose(line, NOTE) for line in describe_processes(analysis.processes[:MOST_PROCESSES])]
    yield Block(f"### Threads: {THREADS}\n\n{items(threads)}" if threads else "", "threads", 20)
    if analysis.client:
        known_client = replace(analysis.client, sources=client.bare_sources(analysis.client.sources))
        drawn = draw(client.parts(known_client, 100), width=100, colour=False)
        yield Block(f"### What the client measured\n\n{fence(drawn)}", "what the client measured", 20)
    if analysis.ends:
        ends = analysis.ends
        known = replace(
            ends,
            client=replace(ends.client, files=bare(ends.client.files)),
            server=replace(ends.server, files=bare(ends.server.files)),
        )
        drawn = draw(two_captures.parts(known, 100), width=100, colour=False)
        yield Block(f"### Both ends\n\n{fence(drawn)}", "both ends", 20)
    for hop in analysis.hops:
        lines = [prose(line, NOTE) for line in hops.list_lines(analysis, hop)]
        yield Block(f"### {prose(hops.name_hop(hop), TITLE)}\n\n{items(lines)}", "proxies", 20)
    shown = costly(analysis)
    for number, finding in enumerate(shown[:MOST_FINDINGS], start=1):
        rank = 30 + number if number > 1 else 0
        yield Block(_show_finding(number, finding, analysis), "findings that cost less", rank)
    yield Block(also_seen([*shown[MOST_FINDINGS:], *remarks(analysis)]), "what else was seen", 25)
    yield Block(f"### Methods\n\n{methods(analysis)}" if analysis.methods else "", "methods", 22)
    yield Block(other_requests(analysis), "other HTTP/2 requests", 22)
    yield Block(f"### Connections\n\n{connections(analysis)}", "connections", 24)
    yield Block(_fold("Not judged", not_judged(analysis)), "what could not be judged", 23)
    yield Block(_fold("Notes on the capture", notes(analysis)), "notes on the capture", 21)


def _fold(title: str, lines: Sequence[str]) -> str:
    return folded(title, items(lines)) if lines else ""


def bare(files: Sequence[str]) -> tuple[str, ...]:
    """Remove the folders from names of files: a public report must not show them."""
    return tuple(PurePath(file).name or "capture" for file in files)


def name(analysis: Analysis) -> str:
    """Name the capture by its files."""
    return list_first(bare(analysis.files) or ("capture",), 1)


def capture(analysis: Analysis, *, place: bool = True) -> str:
    """Describe the capture: its size, its quality, and with `place` where it was taken."""
    facts = analysis.capture
    found = ", ".join(list_flaws(analysis)) or "nothing missing"
    where = f" Capture point: {list_vantages(analysis)}." if place else ""
    return (
        f"{count(facts.packets, 'packet')}, {size(facts.bytes)} in {format_span(analysis)}{format_begin(analysis)} "
        f"({', '.join(facts.link_types)}); {describe_content(analysis)}. Quality of the capture: {found}.{where}"
    )


def budget(analysis: Analysis) -> str:
    """Show the RPC time by cause."""
    causes = (analysis.ends or analysis).budget
    total, meanings = sum(causes.values()), explain_causes(analysis.ends)
    rows = [
        (code(cause), duration(ns), f"{ns / total:.1%}", meanings.get(cause, ""))
        for cause, ns in sorted(causes.items(), key=lambda item: -item[1])
    ]
    if not rows:
        return "No RPC time is in the capture."
    shown = table((f"Cause ({duration(total)} of RPC time)", "Time", "Share", "What it means"), rows, right=(1, 2))
    setup = describe_setup(analysis)
    return f"{shown}\n\n{setup[0].upper()}{setup[1:]}." if setup else shown


def costly(analysis: Analysis) -> list[Finding]:
    """List the findings above `info`, costliest first; a part of another finding follows it."""
    return sorted((finding for finding in analysis.findings if finding.severity != "info"), key=rank_cost)


def remarks(analysis: Analysis) -> list[Finding]:
    """List the findings of severity `info`."""
    return [finding for finding in analysis.findings if finding.severity == "info"]


def cost(finding: Finding) -> str:
    """Say what a finding costs, with its confidence and scope."""
    text = describe_cost(finding, mark=code)
    text = text[0].upper() + text[1:]
    numbers = finding.scope.connections
    text += f". Confidence: {finding.confidence}. Connection{'s' * (len(numbers) != 1)} "
    text += list_first([str(number) for number in numbers], MOST_NAMES)
    methods = [code(method) for method in finding.scope.methods]
    return f"{text}; {list_first(methods, MOST_NAMES)}" if methods else text


def seconds(analysis: Analysis, time_ns: int) -> str:
    """Format a time in seconds after the first packet, and in UTC."""
    first = analysis.capture.first_time_ns or 0
    return f"{(time_ns - first) / 1e9:.6f} ({utc(time_ns, first)})"


def _show_finding(number: int, finding: Finding, analysis: Analysis) -> str:
    shown = finding.evidence[:MOST_EVIDENCE]
    rows = [(str(item.packet), seconds(analysis, item.time_ns), prose(item.what, WHAT)) for item in shown]
    parts = [
        f"### {number}. {code(finding.id)} ({finding.severity}): {sentence(finding.title, TITLE)}",
        f"{cost(finding)}.",
        sentence(finding.explanation),
        table(("Packet", "Time (s, UTC)", "What it shows"), rows, right=(0, 1)),
    ]
    return "\n\n".join([*parts, *remedies(finding)])


def remedies(finding: Finding, wanted: Callable[[Remedy], bool] = lambda _: True) -> list[str]:
    """List the settings that change a finding, as far as `wanted` accepts them; empty without any."""
    lines = []
    for remedy in list(filter(wanted, finding.remedies))[:MOST_REMEDIES]:
        present = "" if remedy.present is None else f" (is {code(remedy.present)} here)"
        lines.append(
            f"{prose(remedy.implementation, TITLE)}: {code(remedy.knob, 400)}{present}: {prose(remedy.note, NOTE)}"
        )
    return [f"What to do:\n\n{items(lines)}"] if lines else []


def also_seen(findings: Sequence[Finding]) -> str:
    """Show each finding that is not shown in full in one line."""
    lines = []
    for finding in findings:
        part = f" (part of {code(finding.part_of)})" if finding.part_of else ""
        part = part if finding.lost_ns is None else f" ({duration(finding.lost_ns)} lost)"
        lines.append(f"{code(finding.id)}: {prose(finding.title, TITLE)}{part}")
    return f"### Also seen\n\n{items(lines)}" if lines else ""


def methods(analysis: Analysis) -> str:
    """Show latencies and statuses by method."""
    head = ("Method", "RPCs", "Statuses", "p50", "p90", "p99", "max")
    rows = [_show_method(method) for method in analysis.methods[:MOST_METHODS]]
    drawn = table(head, rows, right=(1, 3, 4, 5, 6))
    return drawn + _count_rest(len(analysis.methods) - MOST_METHODS, "method")


def _show_method(method: MethodFacts) -> list[str]:
    q = method.latency_ns
    latencies = [duration(value) for value in (q.p50, q.p90, q.p99, q.max)] if q else ["-"] * 4
    statuses = ", ".join(f"{code(name_status(status))} {n:,}" for status, n in method.statuses.items())
    return [code(called(method)), f"{method.rpcs:,}", statuses or "-", *latencies]


def called(method: MethodFacts) -> str:
    """Name a method, or give the label that stands for an unknown name."""
    return method.method or method.label or "(method not readable)"


def other_requests(analysis: Analysis) -> str:
    """Show HTTP/2 requests that are no RPCs; empty without any."""
    found = analysis.other_requests
    lines = [f"{code(name_path(one))}: {describe_requests(one)}" for one in found[:MOST_PATHS]]
    rest = len(found) - MOST_PATHS
    lines += [f"and {count(rest, 'more path or status', 'more paths or statuses')}"] if rest > 0 else []
    return f"{describe_total(analysis)}:\n\n{items(lines)}" if lines else ""


def connections(analysis: Analysis) -> str:
    """Show the ends, RPCs, round trip, packets and implementations of connections."""
    head = ("#", "Client → server", "RPCs", "Concurrent", "Min RTT", "Packets", "Retransmitted", "Implementations")
    rows = [_show_connection(connection) for connection in analysis.connections[:MOST_CONNECTIONS]]
    drawn = table(head, rows, right=(0, 2, 3, 4, 5, 6))
    return drawn + _count_rest(len(analysis.connections) - MOST_CONNECTIONS, "connection")


def _show_connection(c: ConnectionFacts) -> list[str]:
    marks = " TLS" * c.tls + " (opened before)" * (not c.complete)
    names = [code(name) + " (inferred)" * inferred if name else "unknown" for name, inferred in list_implementations(c)]
    return [
        str(c.connection),
        f"{code(c.client)} → {code(c.server)}{marks}",
        f"{c.rpcs:,}",
        f"{c.max_concurrent_rpcs:,}",
        format_round_trip(c),
        f"{c.packets_client + c.packets_server:,}",
        f"{c.retransmitted_packets:,}",
        " → ".join(names),
    ]


def _count_rest(number: int, noun: str) -> str:
    return f"\n\n... and {count(number, 'more ' + noun)}" if number > 0 else ""


def not_judged(analysis: Analysis) -> list[str]:
    """List the findings that the capture cannot decide, one line for each reason."""
    found = list_not_judged(analysis)
    return _limit([f"{', '.join(map(code, ids))}: {prose(reason, NOTE)}" for ids, reason in found])


def notes(analysis: Analysis) -> list[str]:
    """List what is wrong with the capture itself."""
    return _limit([prose(warning, NOTE) for warning in analysis.quality.warnings])


def _limit(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MOST_NOTES:,} more"] if len(lines) > MOST_NOTES else []
    return [*lines[:MOST_NOTES], *more]
