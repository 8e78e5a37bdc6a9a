"""Reading that begins before the command line's libraries are imported, which takes as long as many a capture takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .analyzer.decode.runner import DecodeOptions, Reading

_ABOUT_OUTPUT = frozenset({"--json", "--quiet", "-q"})
"""Options of `analyze` without a value that change nothing about how a capture is read."""

_PLAIN: DecodeOptions = {"ports": []}
"""How `analyze FILE` reads."""

_begun: dict[str, Reading] = {}


def read_ahead(arguments: Sequence[str]) -> bool:
    """Begin to read for `grpcdiag analyze FILE`, and say whether the arguments are such."""
    if arguments[:1] != ["analyze"]:
        return False
    others = [argument for argument in arguments[1:] if argument not in _ABOUT_OUTPUT]
    if len(others) == 1 and not others[0].startswith("-") and os.path.isfile(others[0]):  # noqa: PTH113 pathlib is late
        from .analyzer.decode.runner import Reading

        _begun[others[0]] = Reading(others, **_PLAIN)
        return True
    return False


def begun(files: Sequence[str], how: DecodeOptions) -> Reading | None:
    """Hand over the reading that has begun, once, if it is of these files with these options; stop another one."""
    reading = _begun.pop(files[0], None) if len(files) == 1 else None
    if reading is None or how == _PLAIN:
        return reading
    reading.stop()
    return None
