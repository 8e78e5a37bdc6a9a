"""What the user wants to watch."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ...analyzer.live.triggers import Trigger
from ...capture.errors import UsageError
from ...capture.ring import Keep

STDIN = "-"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Options:
    """The options of `grpcdiag watch`."""

    interface: str
    """Empty for a stream, of standard input or of another host."""
    stream: str
    """`-`, or `tcp://HOST:PORT`; empty for an interface."""
    expression: str
    folder: Path | None
    keep: Keep | None
    """What the user wants to be kept."""
    per_hour: int
    triggers: tuple[Trigger, ...]
    gates: tuple[Trigger, ...]
    """What fails the command when it is met once."""
    fails_on_trigger: bool
    """Whether a trigger that is met fails it, too."""
    hook: tuple[str, ...]
    """The command that is run for each moment, in words."""
    seconds: float | None
    """For how long; None until the user ends it."""
    metrics: tuple[str, int] | None
    """Address and port on which a scraper is answered."""
    as_json: bool
    quiet: bool
    key_file: Path | None = None
    """A key log to which programs write meanwhile."""

    @property
    def source(self) -> str:
        """Name the place where packets come from."""
        return self.interface or ("standard input" if self.stream == STDIN else self.stream)

    @property
    def has_keyboard(self) -> bool:
        """Say whether the view with a keyboard is possible: packets may be standard input, and textual may lack."""
        terminals = (sys.stdin, sys.stdout, sys.stderr)  # textual draws on the last one
        return not self.as_json and all(one.isatty() for one in terminals) and find_spec("textual") is not None


def parse_seconds(text: str) -> float:
    """Parse a time: `30s`, `10m`, `8h`. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,7})([smhd])", text.strip(), re.ASCII)
    if not match or not int(match[1]):
        raise UsageError(f"--for {text}: write a time such as 30s, 10m or 8h")
    return int(match[1]) * _UNITS[match[2]]


def parse_hook(text: str) -> tuple[str, ...]:
    """Divide a command into words as a shell does, without running one, and find its program. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--exec {text}: {error}") from None
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise UsageError(f"--exec {text}: no such program, or it cannot be executed")
    return str(Path(program).absolute()), *words[1:]


def parse_address(text: str) -> tuple[str, int]:
    """Parse `:PORT`, which is one of the loopback device, or `ADDRESS:PORT`. Raises UsageError."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\s]*)):(\d{1,5})", text, re.ASCII)
    if not match or not 0 < int(match[3]) < 65_536:
        raise UsageError(f"--openmetrics {text}: write :PORT for this host alone, or ADDRESS:PORT, as 0.0.0.0:9464")
    return match[1] or match[2] or "127.0.0.1", int(match[3])
