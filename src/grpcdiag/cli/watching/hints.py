"""Where packets may be when there are none where it is recorded."""

from __future__ import annotations

from collections.abc import Sequence

from ...capture import namespaces

AFTER_INTERVALS = 5
"""Intervals without a packet after which other network namespaces are looked at, once."""


class Hints:
    """Looks once whether processes of other network namespaces have what is recorded here."""

    def __init__(self, path: str | None, ports: Sequence[int], pids: Sequence[int] = ()) -> None:
        """`path` is the network namespace that is recorded, None for the present one."""
        self._path, self._ports, self._pids = path, ports, pids
        self._silent = 0

    def list(self, packets: int) -> list[str]:
        """List the hints, as soon as there was no packet for a while."""
        self._silent = -1 if packets or self._silent < 0 else self._silent + 1
        if self._silent != AFTER_INTERVALS:
            return []
        return ["no packet matched the filter yet", *namespaces.list_hints(self._path, self._ports, self._pids)]
