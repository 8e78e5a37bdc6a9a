"""What the user wants to watch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...analyzer.triggers import Trigger
from ...capture.ring import Keep


@dataclass(frozen=True)
class Options:
    """The options of `grpcdiag watch`."""

    interface: str
    """Empty for a stream on standard input."""
    expression: str
    folder: Path | None
    keep: Keep
    per_hour: int
    triggers: tuple[Trigger, ...]
    as_json: bool
    quiet: bool

    @property
    def source(self) -> str:
        """Name the place where packets come from."""
        return self.interface or "standard input"
