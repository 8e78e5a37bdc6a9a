"""The report for a terminal: what happened, the proof, and what to do, in one screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Analysis, Narrowed, RecordingFacts
from ...analyzer.model.finding import Finding
from ...analyzer.model.text import count, duration, safe, size
from ..shared import two_captures
from ..shared.drawing import CAUSE_STYLES, LEAST_WIDTH, SEVERITY_STYLES, draw
from ..shared.narrowed import said
from . import overviews, tls
from .findings import findings, in_full

__all__ = ["CAUSE_STYLES", "LEAST_WIDTH", "SEVERITY_STYLES", "draw", "one", "render"]

_BAR = 40
"""Columns of the longest bar where the report has a hundred."""
_LEAST_BAR = 6
"""Columns of the longest bar below which bars say nothing."""
_FIGURES = 25
"""Columns that a cause's duration, its share and the space between take."""


def render(analysis: Analysis, *, width: int = 100, colour: bool = False, top: int | None = None) -> str:
    """The report as text, with escape sequences only when `colour` is set.

    `top` bounds the findings, methods and connections that are shown.
    """
    width = max(LEAST_WIDTH, width)
    parts = _parts(analysis, width, top)
    if analysis.apart:
        parts = [*two_captures.apart(analysis.apart), Text(), *parts]
        for other in analysis.apart.analyses:
            parts += [Text(), Rule(style="dim"), Text(), *_parts(other, width, top)]
    return draw(parts, width=width, colour=colour)


def one(analysis: Analysis, finding: Finding, *, width: int = 100) -> str:
    """One finding as the report shows it when it is no remark, numbered as the first."""
    return draw(in_full(1, finding, analysis, width), width=width, colour=False)


def _parts(analysis: Analysis, width: int, top: int | None) -> list[RenderableType]:
    parts: list[RenderableType] = [_capture_line(analysis), _quality_line(analysis)]
    parts += [_recording_line(analysis.recording)] if analysis.recording else []
    parts += [_narrowed_line(analysis.narrowed)] if analysis.narrowed else []
    budget = analysis.ends.budget if analysis.ends else analysis.budget
    parts += [Text(), _verdict(analysis)]
    # without RPCs there are TLS connections that cannot be read, and nothing else to tell of
    parts += [Text(), _budget(budget, width)] if analysis.totals.rpcs else tls.parts(analysis)
    if analysis.ends:
        parts += [Text(), *two_captures.parts(analysis.ends, width)]
    parts += findings(analysis, width, top)
    most = top or overviews.MOST
    parts += [Text(), *overviews.methods(analysis.methods, width, most)] if analysis.totals.rpcs else []
    parts += [Text(), *overviews.connections(analysis.connections, width, most)]
    parts += tls.parts(analysis) if analysis.totals.rpcs else []
    notes = [f"not judged: {line}" for line in _not_judged(analysis)]
    notes += [f"note: {safe(warning)}" for warning in analysis.quality.warnings]
    return parts + ([Text(), *(Text(note, style="dim") for note in notes)] if notes else [])


def _capture_line(analysis: Analysis) -> Text:
    capture, totals = analysis.capture, analysis.totals
    first, last = capture.first_time_ns, capture.last_time_ns
    span = duration(last - first) if first is not None and last is not None else "-"
    names = safe(analysis.files[0]) + (f" and {len(analysis.files) - 1} more" if len(analysis.files) > 1 else "")
    line = Text(names, style="bold")
    line.append(
        f"  {count(capture.packets, 'packet')}, {size(capture.bytes)} in {span}, {'/'.join(capture.link_types)}; "
        f"{count(totals.connections, 'connection')}, {count(totals.rpcs, 'RPC')}, {count(totals.messages, 'message')}",
        style="not bold",
    )
    return line


def _quality_line(analysis: Analysis) -> Text:
    quality, capture = analysis.quality, analysis.capture
    flaws = [
        (capture.dropped_packets or 0, "packets dropped while capturing"),
        (quality.truncated_packets, "packets cut"),
        (quality.missing_bytes, "bytes missing"),
        (quality.undecoded_bytes, "bytes not decoded"),
    ]
    said = [f"{n:,} {what}" for n, what in flaws if n]
    vantages = sorted({connection.vantage for connection in analysis.connections})
    line = Text("quality ", style="dim")
    line.append("nothing missing" if not said else ", ".join(said), style="yellow" if said else "green")
    line.append(f"; captured at: {', '.join(vantages)}", style="dim")
    if quality.warnings:
        line.append(f"; {count(len(quality.warnings), 'note')} below", style="dim")
    if len(analysis.files) > 1 and not analysis.ends:
        line.append("; packet numbers count through all files, as after mergecap", style="dim")
    return line


def _recording_line(recording: RecordingFacts) -> Text:
    line = Text("beside ", style="dim")
    line.append(safe(f"settings of {recording.host}, {recording.kernel.split(' #')[0]} ({recording.file})"))
    waits = recording.waits_measured
    line.append(f"; its kernel told the congestion window in {count(waits, 'wait')}" if waits else "")
    return line


def _narrowed_line(narrowed: Narrowed) -> Text:
    line = Text("narrowed ", style="bold yellow")
    line.append(f"to {safe(said(narrowed))}", style="not bold default")
    line.append("; packets, bytes and notes are the capture's", style="not bold dim default")
    return line


def _verdict(analysis: Analysis) -> Panel:
    finding = next((f for f in analysis.findings if f.id == analysis.verdict.finding), None)
    style = SEVERITY_STYLES[finding.severity] if finding else "green"
    text = Text(safe(analysis.verdict.text))
    return Panel(text, box=box.ROUNDED, title="verdict", title_align="left", border_style=style)


def _budget(budget: Mapping[str, int], width: int) -> RenderableType:
    total = sum(budget.values())
    room = min(_BAR * width // 100, width - max(map(len, budget), default=0) - _FIGURES)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="left", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for cause, ns in sorted(budget.items(), key=lambda item: -item[1]):
        share = ns / total
        bar = "" if room < _LEAST_BAR else "█" * round(share * room) or "▏"
        table.add_row(f"  {cause}", duration(ns), f"{share:.1%}", Text(bar, style=CAUSE_STYLES.get(cause, "")))
    return Group(Text(f"where {duration(total)} of RPC time went", style="bold"), table)


def _not_judged(analysis: Analysis) -> list[str]:
    """Findings that could not be told, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for skipped in analysis.skipped:
        ids = reasons.setdefault(skipped.reason, [])
        if skipped.id not in ids:
            ids.append(skipped.id)
    return [f"{', '.join(ids)}: {safe(reason)}" for reason, ids in reasons.items()]
