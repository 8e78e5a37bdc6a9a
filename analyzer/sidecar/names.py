"""Names, structure and size limits of the sidecar files, which `grpcdiag capture` writes and `analyze` reads.

This module imports nothing that takes long: `capture` and the start of every command need it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SCHEMA = "grpcdiag.recording/1"
"""Name and version of the structure of a description."""
SUFFIX = ".grpcdiag.json"
"""Added to the capture's name, for the description."""
SAMPLES_SUFFIX = ".grpcdiag-ss.jsonl"
"""Added to the capture's name, for the samples of sockets."""
MOST_BYTES = 8_000_000
"""Size of a description up to which it is read: routes and interfaces of a large host."""
MOST_SAMPLE_BYTES = 80_000_000
"""Size of the samples up to which they are read; recordings end before."""

_COMPRESSED = re.compile(r"\.(gz|zst|lz4)$")
_NUMBER = re.compile(r"\d+$")


def descriptions(capture: str) -> list[str]:
    """Names that the description of a capture may have, which may be compressed since, or a part of a rotated one."""
    plain = _COMPRESSED.sub("", capture)
    names = (capture, _NUMBER.sub("", capture), plain, _NUMBER.sub("", plain))
    return [name + SUFFIX for name in dict.fromkeys(names)]


def samples(description: str) -> str:
    """The name of the samples that go with a description."""
    return description.removesuffix(SUFFIX) + SAMPLES_SUFFIX


def is_sidecar_file(name: str) -> bool:
    """Whether a file lies beside a capture and is none."""
    return name.endswith((SUFFIX, SAMPLES_SUFFIX))


def encode_description(document: Mapping[str, Any]) -> bytes:
    """Write a description as JSON, with its schema."""
    return (json.dumps({"schema": SCHEMA, **document}, indent=1) + "\n").encode()
