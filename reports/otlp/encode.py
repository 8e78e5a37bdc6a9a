"""Encode spans as OTLP: JSON with a document per line, as the Collector's file exporter writes it, or protobuf.

Each line, and each piece of protobuf, has the resource and the scope. Pieces of protobuf in one file are one message,
because protobuf merges repeated fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ...analyzer import _core
from .attributes import Attribute, make_attributes
from .spans import Span

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtobufSpan

SCOPE = "grpcdiag"
"""Name of the scope, by which `analyze --client` recognises the spans."""
_MOST_BYTES = 500_000
"""Bytes of a line: the Collector's receiver of files cuts lines at 1 MiB."""
_AT_ONCE = 500
"""Spans of a piece of protobuf."""


def _describe_resource() -> list[Attribute]:
    return make_attributes({"service.name": "grpcdiag", "service.version": _core.__version__})


def write_json(spans: Iterable[Span]) -> Iterator[bytes]:
    """Encode spans as lines of JSON."""
    whole = msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _describe_resource()},
                    "scopeSpans": [{"scope": {"name": SCOPE, "version": _core.__version__}, "spans": []}],
                }
            ]
        }
    )
    head, tail = whole.removesuffix(b"]}]}]}"), b"]}]}]}\n"
    encode = msgspec.json.Encoder().encode
    line: list[bytes] = []
    size = 0
    for span in spans:
        text = encode(span)
        if line and size + len(text) > _MOST_BYTES:
            yield head + b",".join(line) + tail
            line, size = [], 0
        line.append(text)
        size += len(text) + 1
    if line:
        yield head + b",".join(line) + tail


def write_protobuf(spans: Iterable[Span]) -> Iterator[bytes]:
    """Encode spans as pieces of one `TracesData`."""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    spans = iter(spans)
    while some := list(islice(spans, _AT_ONCE)):
        data = TracesData()
        resource = data.resource_spans.add()
        resource.resource.attributes.extend(map(_convert_attribute, _describe_resource()))
        scope = resource.scope_spans.add()
        scope.scope.name, scope.scope.version = SCOPE, _core.__version__
        scope.spans.extend(map(_convert_span, some))
        yield data.SerializeToString(deterministic=True)


def _convert_span(span: Span) -> ProtobufSpan:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtobufSpan
    from opentelemetry.proto.trace.v1.trace_pb2 import Status

    events = [
        ProtobufSpan.Event(
            time_unix_nano=int(event["timeUnixNano"]),
            name=event["name"],
            attributes=map(_convert_attribute, event["attributes"]),
        )
        for event in span.get("events", ())
    ]
    return ProtobufSpan(
        trace_id=bytes.fromhex(span["traceId"]),
        span_id=bytes.fromhex(span["spanId"]),
        parent_span_id=bytes.fromhex(span.get("parentSpanId", "")),
        name=span["name"],
        kind=span["kind"],
        start_time_unix_nano=int(span["startTimeUnixNano"]),
        end_time_unix_nano=int(span["endTimeUnixNano"]),
        attributes=map(_convert_attribute, span["attributes"]),
        events=events,
        dropped_events_count=span.get("droppedEventsCount", 0),
        status=Status(code=span["status"]["code"]) if "status" in span else None,
    )


def _convert_attribute(attribute: Attribute) -> KeyValue:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    ((kind, value),) = attribute["value"].items()
    of_kind: dict[str, Any] = {_FIELDS[kind]: int(value) if kind == "intValue" else value}
    return KeyValue(key=attribute["key"], value=AnyValue(**of_kind))


_FIELDS = {"stringValue": "string_value", "intValue": "int_value", "boolValue": "bool_value"}
