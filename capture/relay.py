"""Relay tcpdump's stream: tcpdump reports no error when it cannot write, so this module writes for it."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable

from .tcpdump import start_deaf

_PIECE = 1 << 16
"""Largest piece. For larger ones malloc maps new pages each time, which triples the processor time."""
_ROOM = 1 << 20
"""Size of pipes: what any user may have (pipe(7), pipe-max-size)."""
_GATHER_S = 0.02
"""Time in which a piece gathers once such a pipe is empty: fifty pieces a second cost less than thousands."""
_PATIENCE_S = 10.0
"""Longest time for a slow reader to take the rest at the end."""


def make_pipe() -> tuple[int, int]:
    """Make a pipe with much room: for reading, and for writing. It has less where that is not granted."""
    source, target = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, _ROOM)
    return source, target


def _measure_room(pipe: int) -> int:
    """Measure how much a pipe holds in bytes; 0 for what is no pipe."""
    try:
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    except (OSError, AttributeError):
        return 0


class Relay:
    """Copies a stream in a thread until it ends, and stores the stream's error."""

    def __init__(self, source: int, target: int, note: Callable[[bytes], None] | None = None) -> None:
        """Start copying; both descriptors are closed at the end. `note` gets each piece before the target does."""
        self.error: OSError | None = None
        self._source = source
        self._target = target
        self._note = note
        self._gathers = _measure_room(source) >= _ROOM
        self._thread = threading.Thread(target=self._run, name="grpcdiag-relay", daemon=True)
        start_deaf(self._thread)

    def _run(self) -> None:
        try:
            while piece := os.read(self._source, _PIECE):
                if self._note:
                    self._note(piece)
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(self._target, rest) :]
                if self._gathers and len(piece) < _PIECE:
                    time.sleep(_GATHER_S)
        except OSError as error:
            self.error = error
        finally:
            os.close(self._source)  # after an error this ends tcpdump, because its pipe has no reader
            os.close(self._target)

    def wait(self, patience_s: float = _PATIENCE_S) -> None:
        """Return when everything is copied; call it when nobody writes to the source any more."""
        self._thread.join(patience_s)
