"""Find and read the sidecar that `grpcdiag capture` wrote next to a capture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyzer.sidecar.names import (
    MOST_BYTES,
    MOST_PROCESS_BYTES,
    MOST_SAMPLE_BYTES,
    descriptions,
    processes,
    samples,
)
from .config import list_notes

if TYPE_CHECKING:
    from ...analyzer.sidecar.read import Sidecar


def find_sidecar(files: Sequence[str]) -> tuple[Sidecar | None, tuple[str, ...]]:
    """Find and read the sidecar of a capture; give notes if it cannot be used, and on the configuration."""
    sidecar, notes = _find_sidecar(files)
    return sidecar, (*notes, *list_notes())


def _find_sidecar(files: Sequence[str]) -> tuple[Sidecar | None, tuple[str, ...]]:
    found = {path for file in files if (path := _find_description(file))}
    if len(found) != 1:
        return None, ()
    from ...analyzer.sidecar import read  # imported only here: most captures have no sidecar

    path = found.pop()
    try:
        lines = _read_lines(path.with_name(samples(path.name)))
        sidecar = read.read(str(path), _read_bytes(path, MOST_BYTES), lines)
        return _add_processes(sidecar, path.with_name(processes(path.name)))
    except OSError as error:
        return None, (f"{path} is not used: {error.strerror}",)
    except read.Mismatch as mismatch:
        return None, (f"{path} is not used: {mismatch}",)


def _add_processes(sidecar: Sidecar, path: Path) -> tuple[Sidecar, tuple[str, ...]]:
    """Add the process record, if there is one that can be used."""
    from msgspec.structs import replace

    from ...analyzer.sidecar.processes.record import RecordError, read_record

    if not path.is_file():
        return sidecar, ()
    try:
        return replace(sidecar, processes=read_record(_read_bytes(path, MOST_PROCESS_BYTES))), ()
    except OSError as error:
        return sidecar, (f"{path} is not used: {error.strerror}",)
    except RecordError as error:
        return sidecar, (f"{path} is not used: {error}",)


def _find_description(file: str) -> Path | None:
    """Find the sidecar of a capture, which may be compressed or a part of a rotated capture."""
    if file == "-":
        return None
    return next((path for name in descriptions(file) if (path := Path(name)).is_file()), None)


def _read_bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _read_lines(path: Path) -> list[bytes]:
    try:
        return _read_bytes(path, MOST_SAMPLE_BYTES).splitlines()
    except OSError:
        return []
