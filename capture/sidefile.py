"""The file beside a capture: what was recorded, of what, on which machine. See docs/recording.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMA = "grpcdiag.recording/1"
"""Name and version of the structure."""
SUFFIX = ".grpcdiag.json"
"""Added to the capture's name."""
SAMPLES_SUFFIX = ".grpcdiag-ss.jsonl"
"""Added to the capture's name, for the samples of sockets."""


def write(path: Path, document: dict[str, Any]) -> None:
    """Write the file whole or not at all: a reader never sees a part of it. Raises OSError."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps({"schema": SCHEMA} | document, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)
