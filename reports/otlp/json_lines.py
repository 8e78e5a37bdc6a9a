"""Encode spans as OTLP JSON, with a document per line, as the Collector's file exporter writes it."""

from collections.abc import Iterable, Iterator

import msgspec

from ...analyzer import _core
from .attributes import Attribute, make_attributes
from .spans import Span

SCOPE = "grpcdiag"
"""Name of the scope, by which `analyze --client` recognises the spans."""
_MOST_BYTES = 500_000
"""Bytes of a line: the Collector's receiver of files cuts lines at 1 MiB."""


def describe_resource() -> list[Attribute]:
    """Describe what made the spans."""
    return make_attributes({"service.name": "grpcdiag", "service.version": _core.__version__})


def write_json(spans: Iterable[Span]) -> Iterator[bytes]:
    """Encode spans as lines of JSON."""
    whole = msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": describe_resource()},
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
