"""Read traces in the JSON of Jaeger's UI and query service. Its times are whole microseconds, rounded down."""

from collections.abc import Iterable, Iterator

from msgspec import Raw, Struct, field, json

from .otlp import name_status
from .record import Record, RecordError
from .spans import Span, list_calls


class Tag(Struct):
    """A tag of a span."""

    key: str = ""
    value: str | int | float | bool | None = None


class Reference(Struct, rename={"span_id": "spanID", "kind": "refType"}):
    """A span that another one refers to."""

    span_id: str = ""
    kind: str = ""


class JaegerSpan(Struct, rename={"trace_id": "traceID", "span_id": "spanID", "name": "operationName"}):
    """A span of Jaeger."""

    trace_id: str
    span_id: str
    start_us: int = field(name="startTime")
    duration_us: int = field(name="duration")
    name: str = ""
    references: list[Reference] | None = None
    tags: list[Tag] | None = None


class Trace(Struct):
    """A trace with its spans."""

    spans: list[JaegerSpan]


_traces = json.Decoder(list[Trace])
_spans = json.Decoder(list[JaegerSpan])


def read(traces: Iterable[Raw], spans: Iterable[Raw] = ()) -> Record:
    """Read lists of traces and of spans. Raises RecordError, msgspec's errors."""
    return Record("jaeger", list_calls(_walk(traces, spans)))


def _walk(traces: Iterable[Raw], spans: Iterable[Raw]) -> Iterator[Span]:
    listed = [trace.spans for some in traces for trace in _traces.decode(some)]
    listed += [_spans.decode(some) for some in spans]
    for number, span in enumerate((span for some in listed for span in some), start=1):
        yield _convert(span, f"span {number}")


def _convert(span: JaegerSpan, where: str) -> Span:
    texts = {tag.key: str(tag.value) for tag in span.tags or () if tag.value is not None}
    parents = [one.span_id for one in span.references or () if one.kind == "CHILD_OF"]
    return Span(
        trace=_parse_hex(span.trace_id, where),
        span=_parse_hex(span.span_id, where),
        parent=_parse_hex(parents[0], where) if parents else 0,
        name=span.name,
        is_client=texts.get("span.kind") == "client",
        start_ns=span.start_us * 1_000,
        duration_ns=span.duration_us * 1_000,
        attributes=texts,
        status=name_status(texts.get("otel.status_code") == "OK", texts.get("otel.status_description", "")),
        where=where,
    )


def _parse_hex(text: str, where: str) -> int:
    """Parse a hexadecimal id; Jaeger may omit leading zeros. Raises RecordError."""
    if len(text) <= 32 and not text.lower().strip("0123456789abcdef"):
        return int(text or "0", 16)
    raise RecordError(f"{where}: {text[:40]!r} is not a hexadecimal id")
