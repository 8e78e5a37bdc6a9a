"""Reading what `grpcdiag capture` wrote beside a capture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..analyzer.beside import Beside

SUFFIX = ".grpcdiag.json"
"""Added to the capture's name."""
MOST_BYTES = 8_000_000
"""Size of a description up to which it is read: routes and interfaces of a large host."""
MOST_SAMPLE_BYTES = 80_000_000
"""Size of the samples up to which they are read; recordings end before."""

_COMPRESSED = (".gz", ".zst", ".lz4")


def recorded_beside(files: Sequence[str]) -> tuple[Beside | None, tuple[str, ...]]:
    """What lies beside a capture, and what is to be noted when that cannot be used."""
    found = {path for file in files if (path := _description(file))}
    if len(found) != 1:
        return None, ()
    from ..analyzer import beside  # costs time that most captures need not take

    path = found.pop()
    samples = path.with_name(path.name.removesuffix(SUFFIX) + beside.SAMPLES_SUFFIX)
    try:
        return beside.read(str(path), _bytes(path, MOST_BYTES), _lines(samples)), ()
    except OSError as error:
        return None, (f"{path} is not used: {error.strerror}",)
    except beside.Mismatch as mismatch:
        return None, (f"{path} is not used: {mismatch}",)


def _description(file: str) -> Path | None:
    """The file beside a capture, which may be compressed, or a part of a rotated one."""
    if file == "-":
        return None
    names = [file, re.sub(r"\d+$", "", file)]
    names += [name.removesuffix(end) for name in names for end in _COMPRESSED if name.endswith(end)]
    return next((path for name in names if (path := Path(name + SUFFIX)).is_file()), None)


def _bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _lines(path: Path) -> list[bytes]:
    try:
        return _bytes(path, MOST_SAMPLE_BYTES).splitlines()
    except OSError:
        return []
