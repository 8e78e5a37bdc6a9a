"""Reading begins before the command line is understood only where it is certain what will be read, and how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import invoke, recorded

from grpcdiag import ahead
from grpcdiag.analyzer.decode import runner

CAPTURE = recorded("impl-go.pcap")


@pytest.fixture(autouse=True)
def nothing_begun() -> None:
    ahead._begun.clear()


@pytest.mark.parametrize("options", [[], ["--json"], ["-q"], ["--json", "--quiet"]])
def test_begins_what_is_asked_for_plainly(options: list[str]) -> None:
    ahead.read_ahead(["analyze", *options, CAPTURE])
    assert ahead.begun([CAPTURE], {"ports": []}) is not None
    assert ahead.begun([CAPTURE], {"ports": []}) is None, "it is used once"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["analyze"],
        ["rpcs", "FILE"],
        ["analyze", "-"],
        ["analyze", "--help"],
        ["analyze", "FILE", "FILE"],
        ["analyze", "FILE", "--port", "443"],
        ["analyze", "--memory", "FILE"],
        ["analyze", "FILE", "--format", "html"],
        ["analyze", "missing.pcap"],
        ["analyze", "."],
    ],
)
def test_begins_nothing_else(arguments: list[str]) -> None:
    ahead.read_ahead([CAPTURE if argument == "FILE" else argument for argument in arguments])
    assert not ahead._begun


def test_another_way_of_reading_is_not_what_has_begun() -> None:
    ahead.read_ahead(["analyze", CAPTURE])
    assert ahead.begun([CAPTURE], {"ports": [443]}) is None
    assert ahead.begun([CAPTURE, CAPTURE], {"ports": []}) is None


def test_the_command_takes_what_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["analyze", "--json", "-q", CAPTURE]
    plain = invoke(arguments)
    ahead.read_ahead(arguments)
    monkeypatch.setattr(runner.Reading, "__init__", lambda *_, **__: pytest.fail("read a second time"))
    taken = invoke(arguments)
    assert (taken.exit_code, taken.stdout) == (0, plain.stdout)
    assert not ahead._begun


def test_what_cannot_be_read_is_told_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "notes.pcap"
    path.write_text("no capture")
    told = {
        tuple(said.splitlines())
        for said in (
            subprocess.run(
                [sys.executable, "-m", "grpcdiag", "analyze", str(path), *options],
                capture_output=True,
                text=True,
                check=False,
            ).stderr
            for options in ([], ["--json"], ["--port", "443"])
        )
    }
    assert len(told) == 1
    assert "notes.pcap" in str(told)


@pytest.mark.parametrize("name", ["impl-go.pcap", "truncated.pcap", "tls13-go.pcap", "wild/connect-refused.pcap.zst"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_short_way_ends_as_the_whole_command_does(name: str, options: list[str]) -> None:
    """`analyze FILE` does not ask typer; with an option at its default, it does."""
    short, whole = (
        subprocess.run(
            [sys.executable, "-m", "grpcdiag", "analyze", *options, *other, recorded(name)],
            capture_output=True,
            check=False,
        )
        for other in ([], ["--color", "auto"])
    )
    assert (short.returncode, short.stdout, short.stderr) == (whole.returncode, whole.stdout, whole.stderr)
