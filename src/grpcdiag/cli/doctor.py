"""`grpcdiag doctor`: check what this machine lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from .support.common import write
from .support.config import read_config
from .support.options import Color
from .support.terminal import When, coloured, columns

if TYPE_CHECKING:
    from ..capture.doctor import Check

LACKING = 1
"""Exit code: something needed is missing."""
_STYLES = {"ok": "color(28)", "missing": "bold color(160)", "optional": "color(136)"}


Area = StrEnum("Area", ["recording", "verifying", "lab"])
"""What a machine can be used for."""


def command(
    areas: Annotated[
        list[Area] | None, typer.Option("--for", help="Check only recording, verifying or lab; repeatable.")
    ] = None,
    color: Color = When.auto,
) -> None:
    """Check what this machine lacks for recording, verifying and the lab, and say what to do about it.

    Exits with 1 if something needed is missing.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from ..analyzer.model.text import safe
    from ..capture import doctor
    from ..reports import terminal

    checks = [check for check in chain(doctor.examine(), _check_implementations()) if not areas or check.area in areas]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("needed for", "what", "state", "found", "what to do"):
        table.add_column(name, overflow="fold", no_wrap=name in ("needed for", "what", "state"))
    for before, check in zip([None, *checks], checks, strict=False):
        state = Text(check.state, style=_STYLES[check.state])
        area = "" if before and before.area == check.area else check.area
        table.add_row(area, safe(check.name), state, safe(check.found), safe(check.do))
    known = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("kernel setting", "value", "what it means"):
        known.add_column(name, overflow="fold", no_wrap=name == "kernel setting")
    for row in doctor.settings():
        known.add_row(*map(safe, row))
    missing = sum(check.state == "missing" for check in checks)
    configured = f"configuration file: {safe(read_config().describe())}"
    last = Text(f"\n{configured}\n\n{f'{missing} missing' if missing else 'nothing that is needed is missing'}")
    drawn = terminal.draw([table, Text(), known, last], width=max(80, columns(None)), colour=coloured(None))
    write(drawn, None)
    if missing:
        raise typer.Exit(LACKING)


def _check_implementations() -> Iterator[Check]:
    """Check which optional programs, besides grpcio's, the lab can build here."""
    if sys.platform != "linux":
        return
    from ..capture.doctor import Check
    from ..fixtures.lab.programs import PROGRAMS

    for name, programs in PROGRAMS.items():
        if programs.works is None:  # grpcio, which doctor checks itself
            continue
        lacks = programs.lacks()
        found, do = ("not found", f"for lab --implementation {name}: {lacks}") if lacks else (programs.version(), "")
        yield Check("lab", name, "optional" if lacks else "ok", found, do)
