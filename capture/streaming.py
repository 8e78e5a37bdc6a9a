"""Copy a stream of packets to a pipe, and to the ring of a flight recorder on the way."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from .errors import RecordingError
from .ring import Ring
from .tcpdump import start_deaf

_PIECE = 1 << 18
_PATIENCE_S = 0.5
"""Longest time for the rest of a stream whose writer has ended; another stream may go on."""


class Tee:
    """Copies a stream in a thread until it ends."""

    def __init__(self, source: int, ring: Ring | None, lock: threading.Lock) -> None:
        """Begin; `source` is closed at the end. Whoever uses the ring meanwhile takes the lock."""
        self.error: RecordingError | None = None
        """Why the ring takes no more packets."""
        self._source = source
        self._ring = ring
        self._lock = lock
        self.copy, self._target = os.pipe()
        """`copy` is the end of a pipe that gives the stream."""
        self._thread = threading.Thread(target=self._run, name="grpcdiag-tee", daemon=True)
        start_deaf(self._thread)

    def _run(self) -> None:
        with suppress(BrokenPipeError):  # nobody reads the copy any more
            while piece := os.read(self._source, _PIECE):
                self._keep(piece)
                while piece:
                    piece = piece[os.write(self._target, piece) :]
        os.close(self._target)
        os.close(self._source)

    def _keep(self, piece: bytes) -> None:
        with self._lock:
            if self._ring is None or self.error:
                return
            try:
                self._ring.add(piece)
            except RecordingError as error:
                self.error = error

    def close(self) -> None:
        """Take what is left of a stream that has ended, and close the copy."""
        os.close(self.copy)
        self._thread.join(_PATIENCE_S)
        with self._lock:
            self._ring = None
