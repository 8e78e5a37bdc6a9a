"""Width and colours of reports: as options, the environment and the terminal say."""

import os
import sys
from enum import StrEnum
from pathlib import Path

WIDTH = 100
"""Default width of a report that is not shown in a terminal; COLUMNS overrides it."""


When = StrEnum("When", ["auto", "always", "never"])
"""When reports are coloured."""


def set_colour(when: When) -> When:
    """Heed `--color`."""
    global _colour
    _colour = when
    return when


_colour = When.auto
"""As this run's `--color` says."""


def columns(output: Path | None, otherwise: int = WIDTH) -> int:
    """Find the width of a report: the terminal's, that of COLUMNS, or `otherwise`."""
    if output is None and sys.stdout.isatty():
        from shutil import get_terminal_size

        return get_terminal_size((WIDTH, 24)).columns
    value = os.environ.get("COLUMNS", "")
    return int(value) if value.isdecimal() and 0 < int(value) < 10_000 else otherwise


def coloured(output: Path | None) -> bool:
    """Say whether a report may contain escape sequences."""
    return _colour is When.always or (output is None and wants_colour())


def wants_colour() -> bool:
    """Say whether standard output is coloured: as `--color` says, NO_COLOR, FORCE_COLOR, or if it is a terminal."""
    if _colour is not When.auto:
        return _colour is When.always
    if "NO_COLOR" in os.environ:  # https://no-color.org
        return False
    return os.environ.get("FORCE_COLOR", "") not in ("", "0") or sys.stdout.isatty()
