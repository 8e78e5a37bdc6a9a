"""Encode spans as OTLP protobuf. Imports opentelemetry-proto.

Each piece has the resource and the scope. All pieces together are one message, because protobuf merges repeated fields.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtobufSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status, TracesData

from ...analyzer import _core
from .attributes import Attribute
from .json_lines import SCOPE, describe_resource
from .spans import Span

_AT_ONCE = 500
"""Spans of a piece."""
_FIELDS = {"stringValue": "string_value", "intValue": "int_value", "boolValue": "bool_value"}
"""Kinds of values in protobuf by those in JSON."""


def write_protobuf(spans: Iterable[Span]) -> Iterator[bytes]:
    """Encode spans as pieces of one `TracesData`."""
    spans = iter(spans)
    while some := list(islice(spans, _AT_ONCE)):
        data = TracesData()
        resource = data.resource_spans.add()
        resource.resource.attributes.extend(map(_convert_attribute, describe_resource()))
        scope = resource.scope_spans.add()
        scope.scope.name, scope.scope.version = SCOPE, _core.__version__
        scope.spans.extend(map(_convert_span, some))
        yield data.SerializeToString(deterministic=True)


def _convert_span(span: Span) -> ProtobufSpan:
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
    ((kind, value),) = attribute["value"].items()
    of_kind: dict[str, Any] = {_FIELDS[kind]: int(value) if kind == "intValue" else value}
    return KeyValue(key=attribute["key"], value=AnyValue(**of_kind))
