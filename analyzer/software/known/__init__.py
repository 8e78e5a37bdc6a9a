"""Implementations: one JSON file each, which registers by being in this folder, as detectors do."""

import functools
from pathlib import Path

from msgspec.json import Decoder

from ..implementation import Implementation


@functools.cache
def read_all() -> dict[str, Implementation]:
    """Read all implementations, by name and in the order of their names."""
    decode = Decoder(Implementation).decode
    found = [decode(file.read_text(encoding="utf-8")) for file in Path(__file__).parent.glob("[!.]*.json")]
    return {one.name: one for one in sorted(found, key=lambda one: one.name.lower())}
