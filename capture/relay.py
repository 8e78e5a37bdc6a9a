"""Handing a stream on: tcpdump says nothing when it cannot write, so its stream goes through here."""

from __future__ import annotations

import os
import threading

from .tcpdump import start_deaf

_PIECE = 1 << 18
_PATIENCE_S = 10.0
"""How long a slow reader may take for what is left at the end."""


class Relay:
    """Copies what tcpdump writes to a stream, and keeps the error of the stream."""

    def __init__(self, target: int) -> None:
        """Begin; `target` is closed at the end, and `source` is what tcpdump writes to."""
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
        os.close(self._reads)  # after an error tcpdump ends, as its reader has gone
        os.close(self._target)

    def wait(self) -> None:
        """Return when everything is handed on, once nobody writes to `source` any more."""
        self._thread.join(_PATIENCE_S)
