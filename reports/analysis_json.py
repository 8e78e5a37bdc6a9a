"""The JSON of `analyze`: an `Analysis` as it is, since its types are the document's (analyzer/model/analysis.py)."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import json
from msgspec.structs import replace

from ..analyzer.model.analysis import Analysis, ConnectionFacts

_AT_ONCE = 1_000
"""Connections whose text is in memory at once."""


class DocumentError(Exception):
    """A text is no document of `grpcdiag.analysis/1`; the message says why."""


def render(analysis: Analysis) -> str:
    """Write the analysis as one JSON document with a final newline."""
    return "".join(render_pieces(analysis))


def render_pieces(analysis: Analysis) -> Iterator[str]:
    """Write the same piece by piece: there may be very many connections."""
    if not analysis.connections:
        yield encode(analysis)
        return
    before, after = _text(replace(analysis, connections=())).split(_NONE, 1)  # in a string, quotes are escaped
    yield before + '"connections": [\n'
    yield from _list_connections(analysis.connections)
    yield "\n  ]" + after + "\n"


_NONE = '"connections": []'


def _list_connections(connections: Sequence[ConnectionFacts]) -> Iterator[str]:
    """Write connections as the items of a list two levels deep."""
    for begin in range(0, len(connections), _AT_ONCE):
        text = _text(connections[begin : begin + _AT_ONCE])
        text = text[1:-2].replace("\n", "\n  ")  # without its brackets; a line break is never in a string
        yield text[1:] if begin == 0 else f",{text}"


def encode(document: Any) -> str:
    """Write structs, names, texts and numbers as JSON with a final newline, in ASCII."""
    return _text(document) + "\n"


def _text(document: Any) -> str:
    try:
        text = json.format(json.encode(document), indent=2).decode()
    except OverflowError:  # only the slower library writes integers of more than 64 bits
        import json as standard_json

        text = standard_json.dumps(msgspec.to_builtins(document), indent=2)
    return text if text.isascii() else _NOT_ASCII.sub(_escape, text)


_NOT_ASCII = re.compile("[^\0-\x7f]")


def _escape(character: re.Match[str]) -> str:
    """Escape a character as JSON does (RFC 8259 section 7), for output whose encoding is not known."""
    units = character[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def read(text: bytes) -> Analysis:
    """Read a document as it was saved. Raises DocumentError."""
    import json as standard_json

    try:
        found = standard_json.loads(text, parse_constant=_refuse, parse_int=_parse_int, parse_float=_parse_float)
        read = msgspec.convert(found, Analysis)
        json.encode(read)  # what cannot be written again, such as half of a character, is no analysis
        return read
    except OverflowError:  # integers of more than 64 bits are written by another library
        return read
    except (ValueError, TypeError, RecursionError) as error:  # ValueErrors are msgspec's, and of undecodable bytes
        raise DocumentError(str(error)) from None


_DIGITS = 30
"""Most digits of an integer: sums of extreme times need fewer, and sums and products of such integers fit floats."""


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > _DIGITS:
        raise ValueError(f"an integer of {len(digits):,} digits")
    return int(digits)


def _parse_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:_DIGITS])


def schema() -> dict[str, Any]:
    """Read the published JSON Schema of the document."""
    return read_schema("analysis-1.json")


def read_schema(name: str) -> dict[str, Any]:
    """Read one of the published schemas."""
    import json as standard_json
    from importlib import resources  # only here: it takes longer to import than a small capture to analyse

    text = resources.files("grpcdiag.reports").joinpath(f"schema/{name}").read_text(encoding="utf-8")
    parsed: dict[str, Any] = standard_json.loads(text)
    return parsed
