"""Relay tcpdump's stream: tcpdump reports no error when it cannot write, so this module writes for it."""

from __future__ import annotations

import os
import threading

from .tcpdump import start_deaf

_PIECE = 1 << 18
_PATIENCE_S = 10.0
"""Longest time for a slow reader to take the rest at the end."""


class Relay:
    """Copies what tcpdump writes to a stream, and stores the stream's error."""

    def __init__(self, target: int) -> None:
        """Start copying; `target` is closed at the end, and tcpdump writes to `source`."""
        self.error: OSError | None = None
        self._reads, self.source = os.pipe()
        self._target = target
        self._thread = threading.Thread(target=self._run, name="grpcdiag-relay", daemon=True)
        start_deaf(self._thread)

    def _run(self) -> None:
        try:
            while piece := os.read(self._reads, _PIECE):
                while piece:
                    piece = piece[os.write(self._target, piece) :]
        except OSError as error:
            self.error = error
        os.close(self._reads)  # after an error this ends tcpdump, because its pipe has no reader
        os.close(self._target)

    def wait(self) -> None:
        """Return when everything is copied; call it when nobody writes to `source` any more."""
        self._thread.join(_PATIENCE_S)
