"""Commands shown in pages, and what they print: run anew each time, so that a page cannot say what is no longer so.

A block is run when a comment stands right above it:

    <!-- run in fixtures/recorded: verdict | where -->
    ```console
    $ grpcdiag analyze rtt205-go-16000.pcap
    ...
    ```

Commands are grpcdiag's, with `echo $?` for the exit code of the one before; what they print to standard error is shown
too. The folder is the repository's when none is named. After the colon: the parts to show, each by what its first line
begins with; parts are divided by blank lines, and `...` stands where some are left out. `all` shows everything.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path

from typer.testing import CliRunner

from grpcdiag.cli import app

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^<!-- run(?: in (?P<folder>\S+?))?: (?P<parts>.+?) -->\n```console\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
LEFT_OUT = "..."
PLAIN = {"NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}


def pages() -> Iterator[Path]:
    """Pages that may hold such blocks: those written by hand."""
    yield REPOSITORY / "README.md"
    yield from sorted(path for path in (REPOSITORY / "docs").rglob("*.md") if path.parent.name != "findings")


def refreshed(page: str) -> str:
    """A page with what its commands print now. Raises ValueError when a part that it names is not printed."""
    return BLOCK.sub(_block, page)


def commands(page: str) -> list[str]:
    """The commands of a page that are run."""
    return [line[2:] for block in BLOCK.finditer(page) for line in block["body"].splitlines() if line.startswith("$ ")]


def _block(match: re.Match[str]) -> str:
    wanted = [] if match["parts"] == "all" else match["parts"].split(" | ")
    lines = [line for line in match["body"].splitlines() if line.startswith("$ ")]
    if not lines:
        raise ValueError(f"no command in a block to run: {match[0][:200]}")
    shown: list[str] = []
    printed: list[str] = []
    code = 0
    for line in lines:
        shown.append(line)
        if line == "$ echo $?":
            shown.append(str(code))
            continue
        text, code = run(line.removeprefix("$ "), REPOSITORY / (match["folder"] or ""))
        parts = re.split(r"\n\s*\n", text.strip("\n"))
        printed += parts
        shown += _chosen(parts, wanted)
    for begin in wanted:
        if not any(_begins(part, begin) for part in printed):
            raise ValueError(f"{', '.join(lines)}: nothing printed begins with {begin!r}")
    head = match[0][: match.start("body") - match.start()]
    return head + "\n".join(shown) + "\n```"


def run(command: str, folder: Path) -> tuple[str, int]:
    """What a command of grpcdiag prints where there is no terminal, and its exit code."""
    name, *arguments = shlex.split(command)
    if name != "grpcdiag":
        raise ValueError(f"only grpcdiag's commands can be run here: {command}")
    files = [file for word in arguments for file in _expanded(word, folder)]
    with chdir(folder):
        done = CliRunner().invoke(app, files, env=PLAIN, prog_name="grpcdiag")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return f"{done.stdout}\n{done.stderr}", done.exit_code  # as parts of their own


def _expanded(word: str, folder: Path) -> Sequence[str]:
    """File names for a pattern, in the shell's order."""
    if "*" not in word:
        return [word]
    return sorted(os.path.relpath(path, folder) for path in folder.glob(word)) or [word]


def _chosen(parts: list[str], wanted: list[str]) -> Iterator[str]:
    """The parts that are wanted, in the order in which they were printed."""
    skipped, first = False, True
    for part in parts:
        if wanted and not any(_begins(part, begin) for begin in wanted):
            skipped = True
            continue
        if skipped or not first:
            yield LEFT_OUT if skipped else ""
        skipped = first = False
        yield from (line.rstrip() for line in part.splitlines())
    if skipped:
        yield LEFT_OUT


def _begins(part: str, begin: str) -> bool:
    """A part's first words, behind the corner of its box."""
    return part.lstrip("╭─ \n").startswith(begin)
