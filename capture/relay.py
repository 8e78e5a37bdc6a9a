"""Relay tcpdump's stream: tcpdump reports no error when it cannot write, so this module writes for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from .tcpdump import start_deaf

_PIECE = 1 << 18
_PATIENCE_S = 10.0
"""Longest time for a slow reader to take the rest at the end."""


class Relay:
    """Copies a stream in a thread until it ends, and stores the stream's error."""

    def __init__(self, source: int, target: int, note: Callable[[bytes], None] | None = None) -> None:
        """Start copying; both descriptors are closed at the end. `note` gets each piece before the target does."""
        self.error: OSError | None = None
        self._source = source
        self._target = target
        self._note = note
        self._thread = threading.Thread(target=self._run, name="grpcdiag-relay", daemon=True)
        start_deaf(self._thread)

    def _run(self) -> None:
        try:
            while piece := os.read(self._source, _PIECE):
                if self._note:
                    self._note(piece)
                while piece:
                    piece = piece[os.write(self._target, piece) :]
        except OSError as error:
            self.error = error
        finally:
            os.close(self._source)  # after an error this ends tcpdump, because its pipe has no reader
            os.close(self._target)

    def wait(self, patience_s: float = _PATIENCE_S) -> None:
        """Return when everything is copied; call it when nobody writes to the source any more."""
        self._thread.join(patience_s)
