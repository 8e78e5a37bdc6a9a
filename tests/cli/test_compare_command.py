"""`grpcdiag compare`: captures and saved documents, exit codes, errors."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import PATIENCE_S, grpcdiag, recorded, run_here

from grpcdiag.reports.compare import json as comparison_json

SLOW, FAST = recorded("max-concurrent-streams.pcap"), recorded("max-concurrent-streams-control.pcap")


@pytest.fixture
def baseline(tmp_path: Path) -> str:
    """The control's analysis as CI would keep it."""
    path = tmp_path / "baseline.json"
    assert run_here("analyze", FAST, "--json", "-o", str(path)).code == 0
    return str(path)


def compared(*arguments: str, code: int = 0, stdin: bytes | None = None) -> dict[str, Any]:
    """The JSON report, valid against its schema."""
    words = ("compare", *arguments, "--json")
    outcome = run_here(*words) if stdin is None else grpcdiag(*words, stdin=stdin)
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    jsonschema.Draft202012Validator(comparison_json.schema()).validate(document)
    return document


def test_captures_and_saved_documents_compare_alike(baseline: str) -> None:
    of_captures = compared(FAST, SLOW)
    assert compared(baseline, SLOW) == of_captures
    assert compared(baseline, "-", stdin=Path(SLOW).read_bytes())["differences"] == of_captures["differences"]
    turned = compared(SLOW, "-", stdin=Path(baseline).read_bytes())
    assert turned["captures"][1] == of_captures["captures"][0] | {"label": "B"}
    assert of_captures["differences"][0]["reasons"][0]["finding"] == "max-concurrent-streams"


def test_a_pipe_is_read_once(baseline: str, tmp_path: Path) -> None:
    """As a shell's process substitution gives it."""
    for content in (Path(baseline), Path(FAST)):
        pipe = tmp_path / f"pipe-{content.suffix}"
        os.mkfifo(pipe)
        with subprocess.Popen(["/bin/sh", "-c", 'exec cat "$1" > "$2"', "sh", str(content), str(pipe)]) as writer:
            piped = compared(str(pipe), SLOW)
            assert writer.wait(PATIENCE_S) == 0
        assert piped["differences"] == compared(baseline, SLOW)["differences"]


def test_a_gate_in_ci(baseline: str) -> None:
    """The report is written whatever the gate says; what is met is told on standard error."""
    rules = ("--fail-on", "throughput:1.2", "--fail-on", "warning", "--fail-on", "errors:0.01")
    worse = run_here("compare", baseline, SLOW, *rules)
    assert worse.code == 1
    assert "--fail-on throughput:1.2: B: RPCs per second: 468, before 2,266" in worse.err
    assert "--fail-on warning: B: critical max-concurrent-streams" in worse.err
    assert "errors" not in worse.err
    assert "not met" in worse.text
    assert run_here("compare", baseline, SLOW, *rules, "--quiet").err == ""
    same = run_here("compare", baseline, FAST, *rules)
    assert (same.code, same.err) == (0, "")
    fail_on = compared(baseline, SLOW, *rules, code=1)["fail_on"]
    assert [outcome["met"] for outcome in fail_on] == [True, True, False]


def test_more_baselines_show_what_is_noise(baseline: str) -> None:
    rules = ("--fail-on", "throughput:1.2")
    noisy = compared(baseline, SLOW, *rules, "--baseline", SLOW)
    assert noisy["baselines"] == [[SLOW]]
    assert noisy["differences"] == [] and not noisy["fail_on"][0]["met"]
    assert compared(baseline, SLOW, *rules, "--baseline", FAST, code=1)["differences"]
    assert run_here("compare", baseline, SLOW, "--baseline", "gone.json").code == 3
    assert run_here("compare", baseline, "-", "--baseline", "-").code == 2


@pytest.mark.parametrize(
    "arguments",
    [[], [SLOW], ["-", "-"], [SLOW, FAST, "--fail-on", "p95:2"], [SLOW, FAST, "--fail-on", "finding:nothing"]],
    ids=["none", "one", "twice standard input", "metric", "finding"],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    outcome = run_here("compare", *arguments)
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err


@pytest.mark.parametrize("text", [b"", b"no capture\n", b"{}", b'  \r\n{"schema": "other/1"}', b'\xef\xbb\xbf{"a":'])
def test_what_is_neither_is_3(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(text)
    outcome = run_here("compare", SLOW, str(path))
    assert (outcome.code, outcome.out) == (3, b"")
    assert "odd" in outcome.err


def test_a_missing_file_is_3(tmp_path: Path) -> None:
    outcome = run_here("compare", str(tmp_path / "gone"), SLOW)
    assert outcome.code == 3
    assert "gone" in outcome.err


def test_no_grpc_is_4(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(Path(SLOW).read_bytes()[:24])
    assert run_here("compare", SLOW, str(path)).code == 4


def test_output_file(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    assert run_here("compare", FAST, SLOW, "-o", str(path)).out == b""
    assert path.read_text() == run_here("compare", FAST, SLOW).text
    assert "\x1b[" not in path.read_text()
    assert run_here("compare", FAST, SLOW, "-o", str(tmp_path / "no" / "where")).code == 2
