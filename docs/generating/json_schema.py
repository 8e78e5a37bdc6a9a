"""The JSON Schema of `grpcdiag.analysis/1`, made from the types of analyzer/model, their constraints and sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from grpcdiag.analyzer.model import analysis, client, ends, finding, quantiles, recorded, tls

ABOUT = (
    "What `grpcdiag analyze --json` prints. Durations (*_ns) and instants since the epoch (*_time_ns) are integer "
    "nanoseconds, sizes bytes. Properties may be added; those here keep their meaning until the schema number changes."
)


def write_schema(attribute_docs: Callable[[type], dict[str, str]]) -> str:
    """Write the schema as text; `attribute_docs` gives the sentences of a type's fields."""
    schema = msgspec.json.schema(analysis.Analysis)
    definitions = schema["$defs"]
    modules = (analysis, client, ends, finding, quantiles, recorded, tls)
    types = {name: of for module in modules for name, of in vars(module).items()}
    found = definitions["Finding"]["properties"]  # a detector may leave these two out, the document never does
    required = {*definitions["Finding"]["required"], "lost_ns", "share"}
    definitions["Finding"]["required"] = [name for name in found if name in required]
    for name in ("lost_ns", "share"):
        del found[name]["default"]
    for name, definition in definitions.items():
        sentences = attribute_docs(types[name])
        for field, described in definition["properties"].items():
            if field in sentences:
                described["description"] = " ".join(sentences[field].split())
    for definition in _objects(definitions):
        definition["additionalProperties"] = False
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:grpcdiag:schema:analysis-1",
        "title": analysis.SCHEMA,
        "description": ABOUT,
        **definitions.pop("Analysis"),
        "$defs": definitions,
    }
    whole.pop("additionalProperties")
    text = json.dumps({**whole, "title": analysis.SCHEMA, "description": ABOUT}, indent=1, ensure_ascii=False)
    return text.replace('"#/$defs/Analysis"', '"#"') + "\n"


def _objects(definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for definition in definitions.values():
        if "properties" in definition:
            yield definition
