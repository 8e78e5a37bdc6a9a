"""`grpcdiag lab`: reproduce the field cases on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..files.atomic_file import PRIVATE, replacing
from ..files.rights import Rights
from ..interruption import Raising, scratch
from .support.common import fail, suggest, write
from .support.completion import lab_cases
from .support.options import Color, Quiet
from .support.terminal import When, coloured, columns

if TYPE_CHECKING:
    import pwd

    from ..fixtures.lab.cases import Case, Judgement

NAME = "lab"

NOT_MET = 1
"""Exit code: an expected result was not found."""
CANNOT = 2
"""Exit code: the case cannot run here."""


def command(
    case: Annotated[
        str | None,
        typer.Argument(
            metavar="[CASE]",
            help="Case to run, or the id of a finding. Default: list all cases.",
            autocompletion=lab_cases,
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Fewer runs.")] = False,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep captures and the client's measurements there.")
    ] = None,
    implementation: Annotated[
        str | None,
        typer.Option(
            "--implementation", metavar="NAME", help="gRPC implementation of client and server; see the list."
        ),
    ] = None,
    color: Color = When.auto,
    quiet: Quiet = False,
) -> None:
    """Reproduce a problem with real gRPC programs on an emulated link, and compare the findings with the measurements.

    Needs root, tcpdump and grpcio (pip install 'grpcdiag[lab]'). Exit codes: 0 as expected, 1 not as expected,
    2 cannot run.
    """
    if sys.platform != "linux":
        fail("the lab needs network namespaces, which only Linux has", CANNOT)
    from ..fixtures.lab.cases import CASES, by_name
    from ..fixtures.lab.perform import PROGRAMS, in_programs_of

    if case is None:
        write(_list_cases(CASES) + _list_implementations(), None)
        return
    chosen = by_name(case)
    if chosen is None:
        fail(
            f"no case has the name {case!r}; {suggest(case, [one.name for one in CASES], 'grpcdiag lab lists all')}",
            CANNOT,
        )
    if implementation is not None and implementation not in PROGRAMS:
        fail(f"no implementation has the name {implementation!r}; {suggest(implementation, [*PROGRAMS])}", CANNOT)
    if implementation is not None:
        chosen = in_programs_of(chosen, implementation)
    judgement = _perform(chosen, fast, keep, quiet)
    write(_format_judgement(chosen, judgement), None)
    if not judgement.met:
        raise typer.Exit(NOT_MET)


def _perform(case: Case, fast: bool, keep: Path | None, quiet: bool) -> Judgement:
    from ..capture.command import choose_user
    from ..capture.errors import UsageError
    from ..fixtures.lab.errors import LabError
    from ..fixtures.lab.perform import perform, why_not

    if lacks := why_not(case, fast):
        fail(f"the lab cannot run here: {'; '.join(lacks)}", CANNOT)

    def report_progress(run: str, done: int, runs: int) -> None:
        if not quiet:
            typer.echo(f"{done} of {runs}: {run}", err=True)

    try:
        user = choose_user(None)
        with private_files(), scratch("grpcdiag-lab-") as folder, Raising():
            try:
                return perform(case, folder, fast, report_progress)
            finally:
                if keep:
                    _keep(folder, keep, user)
    except (LabError, UsageError, OSError) as error:
        fail(f"lab {case.name}: {error}", CANNOT)


@contextmanager
def private_files() -> Iterator[None]:
    """Make files private that are written inside this block: captures contain headers and payload."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _keep(folder: Path, keep: Path, user: pwd.struct_passwd | None) -> None:
    """Copy the files of the runs to the user's folder, with the rights of the caller of sudo. Raises OSError."""
    with Rights(user).taken():
        os.makedirs(keep, exist_ok=True)  # noqa: PTH103
    for path in sorted(folder.iterdir()):
        with path.open("rb") as source, replacing(keep / path.name, user, PRIVATE) as out:
            shutil.copyfileobj(source, out)


def _list_cases(cases: tuple[Case, ...]) -> str:
    width = max(len(case.name) for case in cases)
    lines = [f"{case.name:<{width}}  {case.about}" for case in cases]
    return "\n".join(["cases:", *lines]) + "\n"


def _list_implementations() -> str:
    from ..fixtures.lab.perform import PROGRAMS

    width = max(map(len, PROGRAMS))
    lines = [f"{name:<{width}}  {programs.lacks() or 'can run here'}" for name, programs in PROGRAMS.items()]
    return "\n".join(["", "implementations:", *lines]) + "\n"


def _format_judgement(case: Case, judgement: Judgement) -> str:
    from ..reports.tables.grid import sentences, table

    width, colour = columns(None, 160), coloured(None)
    rows = [(row.cells, row.met) for row in judgement.rows]
    statements = [(conclusion.text, conclusion.met) for conclusion in judgement.conclusions]
    statements.append((f"{case.name}: {'as expected' if judgement.met else 'NOT as expected'}", judgement.met))
    return table(judgement.columns, rows, width=width, colour=colour) + sentences(
        statements, width=width, colour=colour
    )
