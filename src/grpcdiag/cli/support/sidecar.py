"""Reading what `grpcdiag capture` wrote beside a capture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyzer.sidecar.names import MOST_BYTES, MOST_SAMPLE_BYTES, descriptions, samples

if TYPE_CHECKING:
    from ...analyzer.sidecar.read import Sidecar


def find_sidecar(files: Sequence[str]) -> tuple[Sidecar | None, tuple[str, ...]]:
    """What lies beside a capture, and what is to be noted when that cannot be used."""
    found = {path for file in files if (path := _description(file))}
    if len(found) != 1:
        return None, ()
    from ...analyzer.sidecar import read  # costs time that most captures need not take

    path = found.pop()
    try:
        return read.read(str(path), _bytes(path, MOST_BYTES), _lines(path.with_name(samples(path.name)))), ()
    except OSError as error:
        return None, (f"{path} is not used: {error.strerror}",)
    except read.Mismatch as mismatch:
        return None, (f"{path} is not used: {mismatch}",)


def _description(file: str) -> Path | None:
    """The file beside a capture, which may be compressed, or a part of a rotated one."""
    if file == "-":
        return None
    return next((path for name in descriptions(file) if (path := Path(name)).is_file()), None)


def _bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _lines(path: Path) -> list[bytes]:
    try:
        return _bytes(path, MOST_SAMPLE_BYTES).splitlines()
    except OSError:
        return []
