"""What strangers put into header fields, GOAWAY frames and file names does not command the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import run_here

from grpcdiag.analyzer.decode import runner
from grpcdiag.analyzer.sidecar.names import key_logs
from grpcdiag.cli.support import common
from grpcdiag.cli.support.common import say
from grpcdiag.cli.support.options import ReadOptions
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link

NASTY = "\x1b[31mred\x1b]0;title\x07\x9b2J\x08\u202egpj.exe\u200b[bold red]x[/bold red]"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys or does not show."""

COMMANDS = (
    ("analyze",),
    ("analyze", "--format", "markdown"),
    ("connections",),
    ("rpcs",),
    ("messages",),
    ("frames",),
    ("packets",),
    ("waits",),
    ("timeline", "--connection", "0"),
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nasty = NASTY.encode()
    conversation = opened()
    for _ in range(3):
        conversation.unary("/" + NASTY, status=13, message=NASTY, metadata=[(b"user-agent", nasty), (b"x", nasty)])
    conversation.goaway("server", 11, 0, debug=nasty)
    path = tmp_path_factory.mktemp("nasty") / "names.pcap"
    path.write_bytes(write_pcap(Link().carry(conversation)))
    return path


@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_no_command_passes_them_on(capture: Path, command: tuple[str, ...]) -> None:
    outcome = run_here(*command, str(capture))
    assert outcome.code == 0, outcome.err
    assert outcome.text.strip()
    assert not OBEYED.search(outcome.text + outcome.err.replace("\r", ""))


def test_they_are_shown_escaped_and_markup_is_text(capture: Path) -> None:
    text = run_here("rpcs", str(capture), env={"COLUMNS": "200"}).text
    assert r"/\x1b[31mred\x1b]0;title\x07" in text
    assert "[bold red]x[/bold red]" in text


def test_json_lines_are_ascii_where_it_matters(capture: Path) -> None:
    text = run_here("rpcs", "--format", "jsonl", str(capture)).text
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)


@pytest.mark.parametrize("name", ["no\x1b[31mcapture.pcap", "no\x9b2Jcapture.pcap"])
def test_names_of_files_are_shown_escaped(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1b[31m no capture at all")
    outcome = run_here("analyze", str(tmp_path / name))
    assert outcome.code == 3
    assert not OBEYED.search(outcome.text + outcome.err)
    missing = run_here("analyze", str(tmp_path / ("missing" + name)))
    assert not OBEYED.search(missing.text + missing.err)


def test_messages_are_escaped_for_a_terminal_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no terminal reads them, typer takes escape sequences out by itself."""
    say(f"{NASTY}\nsecond line")
    assert capsys.readouterr().err.startswith(r"grpcdiag: \x1b[31mred\x1b]0;title\x07\x9b2J")


def test_a_key_log_without_an_end_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "KEY_LOG_BYTES", 1 << 20)
    assert common.how((), ReadOptions(keylog=Path("/dev/zero")))["keylog"] == bytes(1 << 20)
    (tmp_path / "keys").write_bytes(b"CLIENT_RANDOM 00 11")
    assert common.how((), ReadOptions(keylog=tmp_path / "keys"))["keylog"] == b"CLIENT_RANDOM 00 11"


def test_key_logs_beside_captures_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "KEY_LOG_BYTES", 1 << 20)
    files = [str(tmp_path / f"{name}.pcap") for name in ("one", "two", "three")]
    for file in files:
        Path(key_logs(file)[0]).write_bytes(bytes(1 << 19))
    assert len(common.how(files, ReadOptions())["keylog"]) == (1 << 20) + 2
