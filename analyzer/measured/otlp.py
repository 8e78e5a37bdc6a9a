"""Read OpenTelemetry spans in OTLP JSON: documents or lines, as the Collector's file exporter writes them.

Ids are hexadecimal, as OTLP requires, or base64, as in protobuf's own JSON mapping. 64-bit integers are strings or
numbers; enumerations are names or numbers.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator

from msgspec import Raw, Struct, json

from .record import Record, RecordError
from .spans import OWN_SCOPE, Span, list_calls

_CLIENT = (3, "SPAN_KIND_CLIENT", "3")
_OK = (1, "STATUS_CODE_OK", "1")
_HEX = re.compile(r"[0-9a-fA-F]+", re.ASCII)
_WORD = re.compile(r"[A-Z_a-z]+")


class Value(Struct, rename="camel"):
    """The value of an attribute; lists and maps are ignored."""

    string_value: str | None = None
    int_value: int | str | None = None
    bool_value: bool | None = None

    def as_text(self) -> str | None:
        """Return the value as text; None for other types."""
        found = (self.string_value, self.int_value, self.bool_value)
        return next((str(value) for value in found if value is not None), None)


class Attribute(Struct):
    """An attribute of a span."""

    key: str = ""
    value: Value | None = None


class Status(Struct):
    """The status of a span."""

    code: int | str = 0
    message: str = ""


class JsonSpan(Struct, rename="camel"):
    """A span in JSON."""

    trace_id: str
    span_id: str
    start_time_unix_nano: int | str
    end_time_unix_nano: int | str
    parent_span_id: str = ""
    name: str = ""
    kind: int | str = 0
    attributes: list[Attribute] = []
    status: Status | None = None


class ScopeName(Struct):
    """What instrumentation is called."""

    name: str = ""


class Scope(Struct):
    """The spans of one instrumentation."""

    scope: ScopeName | None = None
    spans: list[JsonSpan] = []


class Resource(Struct, rename="camel"):
    """The spans of one process."""

    scope_spans: list[Scope] = []


_resources = json.Decoder(list[Resource])


def read(documents: Iterable[Raw]) -> Record:
    """Read `resourceSpans` of documents. Raises RecordError, msgspec's errors."""
    return Record("otlp-json", list_calls(_walk(documents)))


def _walk(documents: Iterable[Raw]) -> Iterator[Span]:
    number = 0
    for document in documents:
        for resource in _resources.decode(document):
            for scope in resource.scope_spans:
                is_own = scope.scope is not None and scope.scope.name == OWN_SCOPE
                for span in scope.spans:
                    number += 1
                    yield _convert(span, is_own, f"span {number}")


def _convert(span: JsonSpan, is_own: bool, where: str) -> Span:
    start = _parse_int(span.start_time_unix_nano, where)
    texts = {one.key: text for one in span.attributes if one.value and (text := one.value.as_text()) is not None}
    return Span(
        trace=parse_id(span.trace_id, 16, where),
        span=parse_id(span.span_id, 8, where),
        parent=parse_id(span.parent_span_id, 8, where),
        name=span.name,
        is_client=span.kind in _CLIENT,
        start_ns=start,
        duration_ns=_parse_int(span.end_time_unix_nano, where) - start,
        attributes=texts,
        status=name_status(span.status.code in _OK, span.status.message) if span.status else None,
        where=where,
        is_own=is_own,
    )


def name_status(ok: bool, message: str) -> str | None:
    """Return the gRPC status that a span's status stands for: gRPC's plugins begin its message with the name."""
    word = _WORD.match(message)
    return "OK" if ok else word[0] if word else None


def parse_id(text: str, octets: int, where: str) -> int:
    """Parse a hexadecimal id, or one in base64; 0 for none. Raises RecordError."""
    if len(text) == 2 * octets and _HEX.fullmatch(text):
        return int(text, 16)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b"?"
    if len(raw) not in (0, octets):
        raise RecordError(f"{where}: {text[:40]!r} is not an id of {octets} octets")
    return int.from_bytes(raw)


def _parse_int(value: int | str, where: str) -> int:
    if isinstance(value, str) and not (value.isdecimal() and value.isascii() and len(value) <= 20):
        raise RecordError(f"{where}: {value[:40]!r} is not a time in nanoseconds")
    return int(value)
