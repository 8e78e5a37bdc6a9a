"""Find and read TLS secrets: of --keylog, of a key log next to the capture, of the one that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyzer.sidecar.names import key_logs
from .config import APPLIED
from .messages import UNREADABLE, fail, say

if TYPE_CHECKING:
    from .config import Config


def read_secrets(files: Sequence[str], keylog: Path | None, config: Config) -> bytes:
    """Read the secrets for these captures; a key log that the user names and that is unreadable ends the command."""
    if keylog is None and (found := _find_key_logs(files)):
        together = b""
        for path in found:
            together += _read(path, required=False, before=len(together)) + b"\n"
        return together
    if keylog is None and config.keylog:
        keylog = config.keylog
        if not keylog.is_file():  # a pipe would block, a device may be endless
            fail(f"{keylog}, which {config.file} names, is no regular file", UNREADABLE)
    return _read(keylog, required=True) if keylog else b""


def find_growing(keylog: Path | None) -> Path | None:
    """Find the key log, of the option or the configuration, to which programs may write meanwhile: a regular file."""
    path = keylog or APPLIED.get().keylog
    return path if path and path.is_file() else None


def read_key_log(path: Path) -> bytes:
    """Read a key log, as far as it is there."""
    return _read(path, required=False)


def _find_key_logs(files: Sequence[str]) -> list[Path]:
    """Find what `grpcdiag capture --keys` wrote next to captures."""
    found = (Path(name) for file in files if file != "-" for name in key_logs(file))
    return list(dict.fromkeys(path for path in found if path.is_file()))


def _read(path: Path, *, required: bool, before: int = 0) -> bytes:
    """Read a key log up to a limit, less the bytes of those `before`: it may be an endless file."""
    from ...analyzer.decode.runner import KEY_LOG_BYTES

    try:
        with path.open("rb") as file:
            text = file.read(max(0, KEY_LOG_BYTES - before))
            if file.read(1):
                say(f"{path}: only the first {KEY_LOG_BYTES >> 20} MiB of key logs are used")
    except OSError as error:
        why = f"{path}: the key log cannot be read: {error.strerror}"
        if required:
            fail(why, UNREADABLE)
        say(why)
        return b""
    return text
