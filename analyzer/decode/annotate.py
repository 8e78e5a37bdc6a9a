"""Captures written again with comments on packets."""

from collections.abc import Iterator, Sequence

from .. import _core
from .runner import Progress

STEP = 20_000
"""Packets between two pieces of the new file, at most."""


class Annotating:
    """Writes a capture again as pcapng: the same packets at the same times, with comments. Raises CaptureError."""

    def __init__(self, paths: Sequence[str], comments: Sequence[tuple[int, str]]) -> None:
        """Open the files; `comments` are texts with the numbers of their packets."""
        self._run = _core.Annotating(list(paths), list(comments))

    def pieces(self, progress: Progress | None = None) -> Iterator[bytes]:
        """Write the new file piece by piece."""
        while (piece := self._run.step(STEP)) is not None:
            yield piece
            if progress:
                progress(self._run.bytes_read, None)

    @property
    def packets(self) -> int:
        """Packets written."""
        return self._run.counts[0]

    @property
    def commented(self) -> int:
        """Packets written with comments."""
        return self._run.counts[1]

    @property
    def without_room(self) -> int:
        """Packets written without their comments: Simple Packet Blocks of pcapng have no room for any."""
        return self._run.counts[2]
