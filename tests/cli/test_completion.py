"""The shell completes commands, options, ids, cases, formats and names of files: in the shells themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, require_tool
from terminals import Terminal

from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.cli.support.completion import finding_ids, lab_cases
from grpcdiag.fixtures.lab.cases import CASES

# What is typed, and what is offered for its last word, among other things.
OFFERED = [
    ("grpcdiag ana", {"analyze"}),
    ("grpcdiag c", {"capture", "compare", "connections"}),
    ("grpcdiag analyze --fo", {"--format"}),
    ("grpcdiag analyze --format t", {"terminal"}),
    ("grpcdiag rpcs --format p", {"parquet"}),
    ("grpcdiag analyze --fail-on w", {"warning"}),
    ("grpcdiag compare --fail-on crit", {"critical"}),
    ("grpcdiag explain slow-s", {"slow-start-after-idle"}),
    ("grpcdiag explain connection-", {"connection-churn", "connection-closed-early", "connection-window-stall"}),
    ("grpcdiag lab sl", {"slow-start"}),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command, its completion for each shell, and a capture's name."""
    folder = tmp_path_factory.mktemp("completion")
    command = folder / "bin" / "grpcdiag"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom grpcdiag.__main__ import main\nmain()\n")
    command.chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        show = {**environment(folder), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
        done = subprocess.run([str(command), "--show-completion", shell], capture_output=True, text=True, env=show)
        assert done.returncode == 0, done.stderr
        (folder / f"complete.{shell}").write_text(done.stdout)
    (folder / "run-of-today.pcap").touch()
    return folder


def environment(home: Path) -> dict[str, str]:
    """No settings of whoever runs the tests."""
    keep = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        **keep,
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }


def test_all_ids_and_cases_are_offered() -> None:
    assert finding_ids("") == sorted(detector.id for detector in DETECTORS)
    assert lab_cases("") == [case.name for case in CASES]
    assert finding_ids("no-such") == lab_cases("no-such") == []


@pytest.mark.parametrize(("typed", "wanted"), OFFERED, ids=[typed for typed, _ in OFFERED])
def test_bash_is_offered(typed: str, wanted: set[str], home: Path) -> None:
    words = typed.split()
    script = f"""source {home}/complete.bash; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
        _grpcdiag_completion grpcdiag {words[-1]} {words[-2]}; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        [require_tool("bash"), "--norc", "-c", script], capture_output=True, text=True, env=environment(home)
    )
    assert wanted <= set(done.stdout.split()), done.stderr
    assert all(word.startswith(words[-1]) for word in done.stdout.split())


@pytest.mark.parametrize(("typed", "wanted"), OFFERED[::4])
def test_fish_is_offered(typed: str, wanted: set[str], home: Path) -> None:
    script = f"source {home}/complete.fish; complete --do-complete '{typed}'"
    done = subprocess.run(
        [require_tool("fish"), "--no-config", "-c", script], capture_output=True, text=True, env=environment(home)
    )
    assert wanted <= {line.split("\t")[0] for line in done.stdout.splitlines()}, done.stderr


SHARE = REPOSITORY / "docs" / "man" / "data" / "share"
START = {
    "bash": (["--norc", "--noprofile", "-i"], "source complete.bash"),
    "zsh": (["-f", "-i"], "autoload -Uz compinit; compinit -u; source ./complete.zsh"),
    "bash, installed": (["--norc", "--noprofile", "-i"], f"source {SHARE}/bash-completion/completions/grpcdiag"),
    "zsh, installed": (["-f", "-i"], f"fpath=({SHARE}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -u"),
}


@pytest.mark.parametrize(
    ("shell", "typed", "completed"),
    [
        *((shell, "grpcdiag explain slow-s", "slow-start-after-idle ") for shell in START),
        *((shell, "grpcdiag analyze run-of", "run-of-today.pcap ") for shell in START),
        ("zsh", "grpcdiag analyze --fail-on crit", "critical "),
    ],
)
def test_a_tab_completes_the_word(shell: str, typed: str, completed: str, home: Path) -> None:
    arguments, setting_up = START[shell]
    command = [require_tool(shell.partition(",")[0]), *arguments]
    with Terminal(command, cwd=home, env={**environment(home), "PS1": "> "}) as terminal:
        terminal.read_until("> ")
        terminal.type(f"{setting_up}; echo re''ady\n")
        terminal.read_until("ready")
        terminal.type(f"{typed}\t")
        terminal.read_until(re.escape(completed))
