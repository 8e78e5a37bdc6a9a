"""Compare the analyses of a capture and its scrubbed copy, and list what could not be kept."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from ..analyzer.model.analysis import Analysis
from ..analyzer.model.text import count, list_first
from ..analyzer.scrub import Report

SHOWN = 5
"""Connections of a kind that a note names."""

_LOST = {
    "tls": "TLS, which cannot be rewritten even with its secrets: headers and negotiated parameters stay",
    "other": "not HTTP/2: the payload is zeroed",
}


def differences(before: Analysis | str, after: Analysis | str) -> Iterator[str]:
    """List the places of the JSON document in which two analyses differ.

    A text in place of an analysis says why there is none.
    """
    if isinstance(before, str) or isinstance(after, str):
        if isinstance(before, str) != isinstance(after, str):
            yield "gRPC is found in only one of them"
        return
    yield from _compare(to_builtins(before), to_builtins(after), "")


def _compare(old: Any, new: Any, place: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from _compare(old[key], new[key], f"{place}.{key}" if place else key)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for at, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _compare(a, b, f"{place}[{at}]")
    elif old != new:
        yield place


def notes(report: Report) -> Iterator[str]:
    """Say what is not in the scrubbed capture, with no names but those that are in it."""
    if report.not_tcp:
        yield f"{count(report.not_tcp, 'packet')} of protocols other than TCP: only headers stay"
    if report.fragments:
        yield f"{count(report.fragments, 'packet')} that are IP fragments: only IP headers stay"
    if report.unreadable:
        yield f"{count(report.unreadable, 'packet')} that cannot be parsed: the rest of each is zeroed"
    for carries, what in _LOST.items():
        ends = [f"{a} - {b}" for a, b, carried in report.connections if carried == carries]
        if ends:
            yield f"{_list_connections(ends)} {what}"
    if report.reasons:
        yield f"debug data of {count(len(report.reasons), 'GOAWAY frame')} removed"


def _list_connections(ends: Sequence[str]) -> str:
    plural, are = ("s", "are") if len(ends) > 1 else ("", "is")
    return f"{len(ends):,} connection{plural} ({list_first(ends, SHOWN)}) {are}"
