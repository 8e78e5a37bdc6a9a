"""Commands import what they use: what they do not is time at every start."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import recorded

CAPTURE = recorded("rtt205-go-14000.pcap")
_PROGRAM = """
import sys
sys.argv[1:] = {arguments!r}
from grpcdiag.__main__ import run
assert run() == 0
print(*sys.modules, sep="\\n", file=sys.stderr)
"""

HEAVY = {
    "polars",
    "duckdb",
    "fsspec",
    "dask",
    "pyshark",
    "perfetto",
    "google",
    "jinja2",
    "jsonschema",
    "asyncio",
    "numpy.ma",
}
TABLES = HEAVY - {"numpy.ma"}
OTHER_COMMANDS = {f"grpcdiag.cli.{name}" for name in ("attach", "scrub", "fleet", "capture", "export", "verify", "lab")}
LATE = HEAVY | OTHER_COMMANDS | {"json", "multiprocessing", "pkgutil", "socket", "tempfile", "tomllib", "unittest"}
"""What `analyze FILE` does not need."""
NOT_IMPORTED: dict[str, tuple[list[str], set[str]]] = {
    "version": (
        ["--version"],
        HEAVY
        | {
            "numpy",
            "msgspec",
            "typer",
            "rich",
            "click",
            "inspect",
            "threading",
            "signal",
            "json",
            "subprocess",
            "contextlib",
            "typing",
        },
    ),
    "json": (
        ["analyze", "--json", CAPTURE],
        LATE | {"rich", "grpcdiag.analyzer.two_captures"},
    ),
    "terminal": (
        ["analyze", CAPTURE],
        LATE | {"rich.progress", "grpcdiag.reports.compare"},
    ),
    "rpcs": (["rpcs", "--format", "csv", CAPTURE], TABLES | OTHER_COMMANDS | {"rich", "grpcdiag.analyzer.detectors"}),
    "explain": (["explain", "ping-storm"], HEAVY | OTHER_COMMANDS | {"rich.progress", "grpcdiag.cli.analyze"}),
}


@pytest.mark.parametrize("name", NOT_IMPORTED)
def test_nothing_is_imported_that_is_not_used(name: str) -> None:
    arguments, unused = NOT_IMPORTED[name]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(arguments=arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    imported = set(done.stderr.split("\n"))
    assert "grpcdiag.__main__" in imported
    assert sorted(imported & unused) == []


def test_the_command_line_of_one_command_is_that_of_all() -> None:
    """An option of one command is found whether all commands are there or it alone, and a wrong name is told."""
    from typer.testing import CliRunner

    from grpcdiag.cli import COMMANDS, app, application, of_arguments

    for name in COMMANDS:
        alone, whole = (CliRunner().invoke(one, [name, "--help"]) for one in (application(name), app))
        assert (alone.exit_code, alone.output) == (whole.exit_code, whole.output) == (0, whole.output)
    listed = CliRunner().invoke(of_arguments([]), ["--help"]).output
    assert all(f"  {name} " in listed and summary in listed for name, summary in COMMANDS.items())
    wrong = CliRunner().invoke(of_arguments(["analyse"]), ["analyse"])
    assert wrong.exit_code == 2
    assert "No such command 'analyse'" in wrong.output


def test_reports_of_many_captures_import_no_detectors() -> None:
    program = "import sys, grpcdiag.fleet.answers.html, grpcdiag.fleet.answers.terminal; print(*sys.modules, sep='\\n')"
    imported = subprocess.check_output([sys.executable, "-c", program], text=True).split("\n")
    assert "grpcdiag.reports.terminal" in imported
    assert "grpcdiag.analyzer.detectors" not in imported
