"""The GitHub Action: its script with a recording in place of tcpdump, and what linters of actions say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE_S, REPOSITORY, recorded, run_here

SLOW, FAST = recorded("max-concurrent-streams.pcap"), recorded("max-concurrent-streams-control.pcap")
ACTION = REPOSITORY / "action.yml"
RECORDER = """#!/bin/sh
[ "$1" = capture ] || exec {python} -m grpcdiag "$@"
while [ "$1" != -- ]; do
    [ "$1" != --output ] || cp {capture} "$2"
    shift
done
shift
exec "$@"
"""


def run(folder: Path, capture: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's script in a folder; `capture` is what it records."""
    recorder = folder / "recorder"
    recorder.write_text(RECORDER.format(python=sys.executable, capture=capture))
    recorder.chmod(0o755)
    given = {"COMMAND": "true", "INTERFACE": "lo", "PORT": "", "BASELINE": "", "FAIL_ON": "", "OUTPUT": "out"} | inputs
    own = {"GRPCDIAG": str(recorder), "GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "outputs"}
    return subprocess.run(
        [str(REPOSITORY / ".ci" / "benchmark")],
        cwd=folder,
        env=os.environ | given | own,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_regression_fails_and_is_in_the_summary(tmp_path: Path) -> None:
    for number in (1, 2):
        baseline = tmp_path / f"base {number}.json"
        assert run_here("analyze", FAST, "--json", "-o", str(baseline)).code == 0
    rules = "\n  throughput:1.2\n\n finding:max-concurrent-streams \n"
    outcome = run(tmp_path, SLOW, FAIL_ON=rules, BASELINE="base *.json", PORT="50051")
    assert outcome.returncode == 1, outcome.stderr
    assert outcome.stderr.count("--fail-on throughput:1.2: B: RPCs per second: 468, before 2,266") == 1
    summary = (tmp_path / "summary.md").read_text()
    assert "**A's throughput is 4.8 times B's" in summary
    assert "## `run.pcap`" in summary
    outputs = dict(line.split("=", 1) for line in (tmp_path / "outputs").read_text().splitlines())
    assert set(outputs) == {"analysis", "sarif", "junit"}
    assert all((tmp_path / path).stat().st_size for path in outputs.values())
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["schema"] == "grpcdiag.comparison/1"
    assert 'failures="2"' in (tmp_path / "out" / "findings.junit.xml").read_text()


@pytest.mark.parametrize(
    ("capture", "inputs", "code"),
    [
        (os.devnull, {"COMMAND": "exit 7"}, 7),
        (FAST, {"BASELINE": "gone*.json"}, 1),
        (FAST, {"FAIL_ON": "$(touch injected)`touch injected`;touch injected"}, 2),
    ],
    ids=["benchmark fails", "baseline is gone", "injection"],
)
def test_what_fails_does_not_pass(tmp_path: Path, capture: str, inputs: dict[str, str], code: int) -> None:
    outcome = run(tmp_path, capture, **inputs)
    assert outcome.returncode == code, outcome.stderr
    assert not (tmp_path / "injected").exists()


def test_inputs_are_no_part_of_a_script() -> None:
    """They reach scripts as environment variables alone."""
    text = ACTION.read_text()
    scripts = re.findall(r"^      run: (.*(?:\n {8}.*)*)", text, re.MULTILINE)
    assert len(scripts) == 2
    assert not [script for script in scripts if "${{" in script]
    asked = set(re.findall(r"inputs\.([a-z-]+)", text))
    assert asked == set(re.findall(r"^  ([a-z-]+):\n    description: .*\n    (?:default|required)", text, re.MULTILINE))


def find_linter(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:{Path.home() / 'go' / 'bin'}")
    if path is None:
        pytest.skip(f"{name} is not here")
    return path


def test_linters_accept_the_action_and_the_example(tmp_path: Path) -> None:
    """`actionlint` checks the inputs that the example of docs/ci.md gives, `zizmor` both for what is not safe."""
    (page,) = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "ci.md").read_text(), re.DOTALL)
    workflow = tmp_path / ".github" / "workflows" / "benchmark.yml"
    workflow.parent.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    shutil.copy(ACTION, tmp_path)
    for reference, command in (
        ("./", [find_linter("actionlint"), "-shellcheck=", "-pyflakes="]),
        (f"owner/grpcdiag@{'a' * 40}", [find_linter("zizmor"), "--offline", "--quiet", "."]),
    ):
        workflow.write_text(page.replace("OWNER/grpcdiag@COMMIT", reference))
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr
