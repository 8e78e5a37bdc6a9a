"""The file beside a capture: what was recorded, of what, on which machine. See docs/recording.md."""

from __future__ import annotations

import json
from typing import Any

SCHEMA = "grpcdiag.recording/1"
"""Name and version of the structure."""
SUFFIX = ".grpcdiag.json"
"""Added to the capture's name."""
SAMPLES_SUFFIX = ".grpcdiag-ss.jsonl"
"""Added to the capture's name, for the samples of sockets."""


def encoded(document: dict[str, Any]) -> bytes:
    """The file's content."""
    return (json.dumps({"schema": SCHEMA} | document, indent=1) + "\n").encode()
