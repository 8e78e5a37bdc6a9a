"""`grpcdiag doctor`: a table of what is here and what is not, and an exit code that says whether it is enough."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE_S, grpcdiag, invoke, run_here

from grpcdiag.capture import doctor, tools


def test_it_says_what_is_here() -> None:
    done = grpcdiag("doctor", env={"COLUMNS": "100"})
    assert done.code in (0, 1)
    for name in ("tcpdump", "right to record", "tshark", "pyshark", "grpcio", "network namespaces", "TUN devices"):
        assert name in done.text
    assert "net.ipv4.tcp_slow_start_after_idle" in done.text
    assert ("nothing that is needed is missing" in done.text) == (done.code == 0)


def test_each_name_stays_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much there is to say of what is missing."""
    names = [check.name for check in doctor.examine()]
    checks = [doctor.Check("lab", name, "missing", "found " * 20, "word" * 60) for name in names]
    monkeypatch.setattr(doctor, "examine", lambda: iter(checks))
    done = invoke(["doctor"], COLUMNS="80")
    assert all(name in done.stdout for name in names)


def test_one_area_alone() -> None:
    text = run_here("doctor", "--for", "verifying").text
    assert "tshark" in text and "tcpdump" not in text


def test_what_is_missing_is_told_with_what_to_do(tmp_path: Path) -> None:
    """A machine without any tool: PATH leads nowhere."""
    env = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    script = tmp_path / "run.py"
    script.write_text(
        "from grpcdiag.capture import tools\ntools.SBIN = ()\nfrom grpcdiag.__main__ import main\nmain()\n"
    )
    words = [sys.executable, str(script), "doctor", "--for", "recording"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1, done.stderr
    assert "apt install tcpdump" in " ".join(done.stdout.split())
    assert "optional" in done.stdout  # ss and ip make it better, and are not needed
    assert " missing" in done.stdout.splitlines()[-1]


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are tried in a network namespace that ends with the process."""
    asked: list[tuple[str, ...]] = []

    def output(*words: str, **_: object) -> str:
        asked.append(words)
        return ""

    monkeypatch.setattr(tools, "output", output)
    checks = list(doctor._check_namespaces("lab"))
    assert [check.state for check in checks] == ["ok"] * 3
    assert all(words[:3] == ("unshare", "--net", "--") for words in asked)
