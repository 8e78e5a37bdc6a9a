"""A new implementation is one file: in a copy of the repository, its setting is proposed and its texts are listed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, recorded

LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "target", "build", "core", "captures", "recorded", "__pycache__")
FILE = {
    "name": "kitex",
    "tokens": ["kitex"],
    "settings": {"client/option.go, Kitex 0.16": [["set the deadline of a call", "client.WithRPCTimeout(d)"]]},
    "texts": {"pkg/kerrors, Kitex 0.16": [[["rpc timeout: timeout=#ms*"], "its timeout passed", "WithRPCTimeout"]]},
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product with the file in it."""
    copy = tmp_path_factory.mktemp("copy") / "grpcdiag"
    copy.mkdir()
    for folder in ("analyzer", "capture", "docs", "fixtures", "fleet", "reports", "src"):
        shutil.copytree(REPOSITORY / folder, copy / folder, symlinks=True, ignore=LEFT_OUT)
    (copy / "analyzer" / "software" / "known" / "kitex.json").write_text(json.dumps(FILE))
    return copy


def run(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'docs'}"}
    done = subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_its_setting_is_proposed(tree: Path) -> None:
    shown = run(tree, "-m", "grpcdiag", "analyze", "--details", str(recorded("wild/kitex-deadline.pcap.zst")))
    assert "client.WithRPCTimeout(d)" in shown
    assert "WithDeadline" not in shown


def test_the_page_and_the_core_get_it(tree: Path) -> None:
    shown = run(tree, "-c", "from generating import software as s; print(s.write_page(), s.write_texts())")
    assert "## kitex" in shown
    assert "| set the deadline of a call | `` client.WithRPCTimeout(d) `` |" in shown
    assert '    "rpc timeout: timeout=#ms*",' in shown
