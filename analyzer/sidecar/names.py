"""Names, structure and size limits of the sidecar files, which `grpcdiag capture` writes and `analyze` reads.

This module imports nothing that takes long: `capture` and the start of every command need it.
"""

import re
from collections.abc import Mapping
from typing import Any

SCHEMA = "grpcdiag.recording/1"
"""Name and version of the schema of a description."""
SUFFIX = ".grpcdiag.json"
"""Suffix of a description, after the capture's name."""
SAMPLES_SUFFIX = ".grpcdiag-ss.jsonl"
"""Suffix of the samples of sockets, after the capture's name."""
PROCESSES_SUFFIX = ".grpcdiag-processes"
"""Suffix of the process record, after the capture's name."""
KEYS_SUFFIX = ".grpcdiag-keys"
"""Suffix of the key log with TLS secrets, after the capture's name."""
MOST_BYTES = 8_000_000
"""Largest description that is read; a large host has many routes and interfaces."""
MOST_SAMPLE_BYTES = 80_000_000
"""Largest samples file that is read; recordings stop below."""
MOST_PROCESS_BYTES = 300_000_000
"""Largest process record that is read; recordings stop below."""

_COMPRESSED = re.compile(r"\.(gz|zst|lz4)$")
_NUMBER = re.compile(r"\d+$")


def descriptions(capture: str) -> list[str]:
    """List possible names of a capture's description; the capture may be compressed, or part of a rotated one."""
    return [name + SUFFIX for name in _list_names(capture)]


def key_logs(capture: str) -> list[str]:
    """List possible names of a capture's key log, as `descriptions` does."""
    return [name + KEYS_SUFFIX for name in _list_names(capture)]


def _list_names(capture: str) -> list[str]:
    plain = _COMPRESSED.sub("", capture)
    return list(dict.fromkeys((capture, _NUMBER.sub("", capture), plain, _NUMBER.sub("", plain))))


def samples(description: str) -> str:
    """Name the samples file that belongs to a description."""
    return description.removesuffix(SUFFIX) + SAMPLES_SUFFIX


def processes(description: str) -> str:
    """Name the process record that belongs to a description."""
    return description.removesuffix(SUFFIX) + PROCESSES_SUFFIX


def is_sidecar_file(name: str) -> bool:
    """Check whether a file is a sidecar and not a capture."""
    return name.endswith((SUFFIX, SAMPLES_SUFFIX, PROCESSES_SUFFIX, KEYS_SUFFIX))


def encode_description(document: Mapping[str, Any]) -> bytes:
    """Write a description as JSON, with its schema."""
    import json

    return (json.dumps({"schema": SCHEMA, **document}, indent=1) + "\n").encode()
