"""Terminals that show no more than ASCII, or no colours, and locales that say so."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from functools import cache

import pytest
from support import grpcdiag, recorded, run_here

from grpcdiag.reports.shared.text import ascii_only

RTT205 = recorded("rtt205-go-16000.pcap")
COMMANDS = (("analyze",), ("timeline", "-c", "0"), ("timeline", "--worst", "2"), ("compare", RTT205))
ESCAPE = "\x1b["


def on_a_terminal(*arguments: str, **env: str) -> str:
    """What the command writes to a terminal of 80 columns."""
    first, second = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIOENCODING"))}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "80", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "grpcdiag", *arguments], stdout=second, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(second)
    pieces = []
    while True:
        try:
            piece = os.read(first, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(first)
    assert process.wait(300) == 0
    return b"".join(pieces).decode()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_an_encoding_without_frames_and_bars(command: tuple[str, ...]) -> None:
    plain = run_here(*command, RTT205, charset="ascii")
    assert plain.code == 0, plain.err
    assert plain.out.isascii()
    full = run_here(*command, RTT205)
    assert not full.out.isascii()
    assert [len(line) for line in plain.text.splitlines()] == [len(line) for line in full.text.splitlines()]


def test_what_is_not_drawn_comes_through() -> None:
    for command in (("explain", "slow-start-after-idle"), ("rpcs", RTT205), ("doctor",)):
        assert run_here(*command, charset="ascii").out.isascii(), command


def test_the_encoding_of_the_interpreter_decides() -> None:
    outcome = grpcdiag("analyze", RTT205, env={"PYTHONIOENCODING": "ascii"})
    assert outcome.out == run_here("analyze", RTT205, charset="ascii").out


def test_the_plain_locale_on_a_terminal() -> None:
    assert on_a_terminal("analyze", RTT205, LANG="C").isascii()
    assert on_a_terminal("analyze", RTT205, LC_ALL="POSIX", LANG="en_US.UTF-8").isascii()
    assert "─" in on_a_terminal("analyze", RTT205, LANG="C.UTF-8")


def test_colours_are_for_terminals_that_want_them() -> None:
    for command in (("analyze", RTT205), ("timeline", RTT205, "-c", "0")):
        coloured = on_a_terminal(*command, LANG="C.UTF-8")
        assert ESCAPE in coloured
        plain = on_a_terminal(*command, LANG="C.UTF-8", NO_COLOR="1")
        assert ESCAPE not in plain
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()
        lines = plain.replace("\r", "").splitlines()
        assert max(map(len, lines)) <= 80


@cache
def print_plain(*command: str) -> str:
    return run_here(*command, "--color", "never").text


@pytest.mark.parametrize(
    ("options", "env", "coloured"),
    [
        ((), {}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": ""}, False),
        ((), {"FORCE_COLOR": "0"}, False),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (("--color", "auto"), {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_without_a_terminal(options: tuple[str, ...], env: dict[str, str], coloured: bool) -> None:
    others: tuple[tuple[str, ...], ...] = (("timeline", RTT205, "-c", "0"), ("rpcs", RTT205))
    for command in (("analyze", RTT205), *(others if "auto" in options else ())):
        text = run_here(*command, *options, env={"TERM": "xterm-256color", **env}).text
        assert bool(re.search(r"\x1b\[[0-9;]*3[1-8]", text)) == coloured
        assert re.sub(r"\x1b\[[0-9;]*m", "", text).split() == print_plain(*command).split()


def test_colours_of_a_terminal_are_turned_off() -> None:
    assert ESCAPE not in on_a_terminal("analyze", RTT205, "--color", "never", LANG="C.UTF-8")


def test_every_coloured_command_has_the_option() -> None:
    for command in ("analyze", "compare", "timeline", "verify", "lab", "doctor", "rpcs", "frames", "fleet report"):
        assert "--color" in run_here(*command.split(), "--help").text, command


@pytest.mark.parametrize(
    ("text", "plain"),
    [("─│╭█▏▁▇µ", "-|+#..%u"), ("é漢", "???"), ("a\u0301", "a"), ("plain", "plain")],
)
def test_as_many_columns_in_ascii(text: str, plain: str) -> None:
    assert ascii_only(text) == plain
