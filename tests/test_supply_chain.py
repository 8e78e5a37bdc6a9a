"""The locks hold what pyproject.toml asks for, by hash and without a host; the audit says what it left out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import PATIENCE_S, REPOSITORY

LOCKS = ("dev", "build", "audit", "release")
PIN = re.compile(r"^([\w.-]+)==(\S+?)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def text(extra: str) -> str:
    return (REPOSITORY / "requirements" / f"{extra}.txt").read_text()


@pytest.mark.parametrize("extra", LOCKS)
def test_each_package_has_a_version_and_hashes_and_no_host(extra: str) -> None:
    rest = [line for line in PIN.sub("", text(extra)).splitlines() if not line.startswith("#")]
    assert rest == []
    assert "://" not in text(extra)


@pytest.mark.parametrize("extra", LOCKS)
def test_the_lock_has_what_pyproject_asks_for(extra: str) -> None:
    pinned: dict[str, list[str]] = {}
    for name, version, _, _ in PIN.findall(text(extra)):
        pinned.setdefault(canonicalize_name(name), []).append(version)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for line in (*project["dependencies"], *project["optional-dependencies"][extra]):
        wanted = Requirement(line)
        versions = pinned.get(canonicalize_name(wanted.name), [])
        assert versions and all(version in wanted.specifier for version in versions), f"{line}: make lock"


# The audit, with tools that answer as they are told

PYTHON = """#!/bin/sh
case "$*" in
*"-m venv"*) mkdir -p build/audit/venv/bin && cp "$0" build/audit/venv/bin/python ;;
*"-m pip "*) {install} ;;
*"-m pip_audit"*) {audit} ;;
*) exec {python} "$@" ;;
esac
"""
CARGO = """#!/bin/sh
case "$*" in
*"fetch db"*) {fetch} ;;
*advisories*) {advisories} ;;
*check*) echo "$*"; {check} ;;
esac
"""
FLAW = {"id": "PYSEC-1", "fix_versions": ["2.0"], "aliases": [], "description": ""}
REPORTS = {
    "nothing": [{"name": "a", "version": "1.0", "vulns": []}, {"name": "b", "skip_reason": "not found"}],
    "a flaw": [{"name": "a", "version": "1.0", "vulns": [FLAW]}],
    "not known": [{"name": "a", "skip_reason": "not found"}, {"name": "b", "skip_reason": "not found"}],
}


def audit(folder: Path, report: str = "nothing", **cargo: str) -> tuple[int, str]:
    """Run the audit in a folder of its own: exit code and what it says."""
    (folder / ".ci").mkdir()
    shutil.copy(REPOSITORY / ".ci" / "audit", folder / ".ci")
    answer = "echo no route to host >&2; exit 1"
    if report in REPORTS:
        (folder / "answer").write_text(json.dumps({"dependencies": REPORTS[report]}))
        answer = "cp answer build/audit/report.json"
    install = "echo no route to host >&2; exit 1" if report == "no registry" else "true"
    tools = {
        "python": PYTHON.format(install=install, audit=answer, python=sys.executable),
        "cargo": CARGO.format(**{"fetch": "true", "advisories": "true", "check": "true"} | cargo),
    }
    (folder / "bin").mkdir()
    for name, script in tools.items():
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHON": str(folder / "bin" / "python")}
    done = subprocess.run([folder / ".ci" / "audit"], capture_output=True, text=True, env=env, timeout=PATIENCE_S)
    return done.returncode, done.stdout + done.stderr


def test_nothing_found(tmp_path: Path) -> None:
    code, said = audit(tmp_path)
    assert code == 0 and "left out" not in said
    assert "audit: 1 Python packages, 0 known flaws\naudit: not known to the database: b\n" in said
    assert "check bans licenses sources" in said


@pytest.mark.parametrize("cargo", [{}, {"check": "exit 1"}, {"advisories": "exit 1"}], ids=["flaw", "licence", "crate"])
def test_what_is_found_fails(tmp_path: Path, cargo: dict[str, str]) -> None:
    code, said = audit(tmp_path, "nothing" if cargo else "a flaw", **cargo)
    assert code == 1 and "left out" not in said
    assert ("a 1.0 PYSEC-1 repaired in 2.0" in said) is not bool(cargo)


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ("not known", "the database knows none of them"),  # pip-audit itself finds no flaws then
        ("no database", "the database does not answer: no route to host"),
        ("no registry", "pip-audit cannot be installed: no route to host"),
    ],
)
def test_a_database_that_does_not_answer_is_named(tmp_path: Path, report: str, why: str) -> None:
    code, said = audit(tmp_path, report, fetch="echo no route to host >&2; exit 1")
    assert code == 0
    assert f"audit: Python packages left out: {why}" in said
    assert "audit: flaws of crates left out: the database does not answer: no route to host" in said
    assert "check bans licenses sources" in said  # which need no database
