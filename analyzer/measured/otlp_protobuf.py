"""Read OpenTelemetry spans in OTLP protobuf: one message, or several, each after its length in four octets.

The Collector's file exporter writes the latter with `format: proto`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .otlp import name_status
from .record import Record, RecordError
from .spans import OWN_SCOPE, Span, list_calls

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtobufSpan

_LENGTH = 4
_FIELD = 0x0A
"""First byte of every message: the tag of field 1, `resource_spans`, with wire type 2 (length-delimited)."""


_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Octets that JSON and CSV do not have (RFC 8259 section 7); a message has some, as tags (field 2) and lengths."""
_BEGIN = 1_024
"""Octets that are looked at (heuristic: the first attribute of the first resource has such a tag)."""


def looks_like(data: bytes) -> bool:
    """Check whether a file begins like one of the two forms; text does not."""
    if data[:1] == bytes([_FIELD]):  # a line feed in text
        return _CONTROL.search(data[:_BEGIN]) is not None
    length = int.from_bytes(data[:_LENGTH])
    return len(data) > _LENGTH and 0 < length < len(data) + (1 << 24) and data[_LENGTH] == _FIELD


def read(data: bytes) -> Record:
    """Read the calls. Raises RecordError."""
    return Record("otlp-protobuf", list_calls(_walk(data)))


def _walk(data: bytes) -> Iterator[Span]:
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
    except ImportError:
        raise RecordError("OTLP protobuf needs opentelemetry-proto: pip install 'grpcdiag[otlp]'") from None
    number = 0
    for at, piece in _cut(data):
        try:
            found = TracesData.FromString(piece)
        except DecodeError:
            raise RecordError(f"the message at offset {at:,} is not OTLP protobuf, or is cut") from None
        for resource in found.resource_spans:
            for scope in resource.scope_spans:
                is_own = scope.scope.name == OWN_SCOPE
                for span in scope.spans:
                    number += 1
                    yield _convert(span, is_own, f"span {number}")


def _cut(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut the file into its messages, each with its offset. Raises RecordError."""
    if data[0] == _FIELD:
        yield 0, data
        return
    at = 0
    while at < len(data):
        end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH])
        if end > len(data) or at + _LENGTH > len(data):
            raise RecordError(f"the file ends inside the message at offset {at:,}")
        yield at, data[at + _LENGTH : end]
        at = end


def _convert(span: ProtobufSpan, is_own: bool, where: str) -> Span:
    if len(span.trace_id) not in (0, 16) or {len(span.span_id), len(span.parent_span_id)} - {0, 8}:
        raise RecordError(f"{where}: an id has a wrong length")
    texts = {
        one.key: str(getattr(one.value, one.value.WhichOneof("value") or "string_value")) for one in span.attributes
    }
    return Span(
        trace=int.from_bytes(span.trace_id),
        span=int.from_bytes(span.span_id),
        parent=int.from_bytes(span.parent_span_id),
        name=span.name,
        is_client=span.kind == span.SPAN_KIND_CLIENT,
        start_ns=span.start_time_unix_nano,
        duration_ns=span.end_time_unix_nano - span.start_time_unix_nano,
        attributes=texts,
        status=name_status(span.status.code == span.status.STATUS_CODE_OK, span.status.message),
        where=where,
        is_own=is_own,
    )
