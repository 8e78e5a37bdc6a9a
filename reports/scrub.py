"""What is said of a scrubbed capture: whether it tells the same, and what could not be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from ..analyzer.model.analysis import Analysis
from ..analyzer.scrub import Report

SHOWN = 5
"""Connections named of a kind."""

_LOST = {
    "tls": "TLS, which cannot be written anew, with its secrets neither: headers and what was negotiated stay",
    "other": "not HTTP/2: its payload is zeroed",
}


def differences(before: Analysis | str, after: Analysis | str) -> Iterator[str]:
    """Places of the JSON document in which two analyses differ; a text says why there is no analysis."""
    if isinstance(before, str) or isinstance(after, str):
        if isinstance(before, str) != isinstance(after, str):
            yield "gRPC is found in one of them only"
        return
    yield from _differ(to_builtins(before), to_builtins(after), "")


def _differ(old: Any, new: Any, place: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from _differ(old[key], new[key], f"{place}.{key}" if place else key)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for at, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _differ(a, b, f"{place}[{at}]")
    elif old != new:
        yield place


def notes(report: Report) -> Iterator[str]:
    """What is not in the new capture, in words; only names that are in it."""
    if report.not_tcp:
        yield f"{_packets(report.not_tcp)} of other protocols than TCP: only headers stay"
    if report.fragments:
        yield f"{_packets(report.fragments)} that are IP fragments: only IP headers stay"
    if report.unreadable:
        yield f"{_packets(report.unreadable)} that cannot be read: the rest of each is zeroed"
    for carries, what in _LOST.items():
        ends = [f"{a} - {b}" for a, b, carried in report.connections if carried == carries]
        if ends:
            yield f"{_connections(ends)} {what}"
    if report.reasons:
        yield f"{len(report.reasons)} debug text{'s' if len(report.reasons) > 1 else ''} of GOAWAY frames left out"


def _packets(count: int) -> str:
    return f"{count:,} packet{'s' if count > 1 else ''}"


def _connections(ends: Sequence[str]) -> str:
    shown = ", ".join(ends[:SHOWN]) + (f" and {len(ends) - SHOWN:,} more" if len(ends) > SHOWN else "")
    plural, are = ("s", "are") if len(ends) > 1 else ("", "is")
    return f"{len(ends):,} connection{plural} ({shown}) {are}"
