"""docs/adding-a-detector.md is followed word by word in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import REPOSITORY

PAGE = (REPOSITORY / "docs" / "adding-a-detector.md").read_text()
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "target", "build", "core", "bench-data", "__pycache__", ".*_cache")
CAPTURE = "large-metadata.pcap.gz"


def files_of_the_page() -> Iterator[tuple[str, str]]:
    """Each file that the page shows, with its name."""
    yield from re.findall(r"^`([\w/]+\.py)`:\n\n```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def run(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "GRPCDIAG_CAPTURES": "none"}
    done = subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the page's files and capture in it."""
    copy = tmp_path_factory.mktemp("copy") / "grpcdiag"
    shutil.copytree(REPOSITORY, copy, symlinks=True, ignore=LEFT_OUT)
    (copy / "analyzer" / "core").symlink_to(REPOSITORY / "analyzer" / "core")
    shutil.copy(REPOSITORY / "tests" / "data" / CAPTURE, copy / "fixtures" / "recorded" / "lab" / CAPTURE)
    for name, text in files_of_the_page():
        assert not (copy / name).exists()
        (copy / name).write_text(text)
    run(copy, "-m", "grpcdiag.fixtures.synthetic.catalogue", "--write", "fixtures/synthetic/captures")
    run(copy, "docs/generate.py", "--finding", "large-metadata")
    return copy


def test_the_page_shows_three_files() -> None:
    assert [Path(name).parent.as_posix() for name, _ in files_of_the_page()] == [
        "fixtures/synthetic",
        "analyzer/detectors",
        "tests/detectors",
    ]


def test_the_new_detector_passes_its_checks(tree: Path) -> None:
    checks = ["tests/test_catalogue.py", "tests/test_layers.py", "tests/detectors/test_large_metadata.py"]
    checks += ["tests/analyzer/test_evidence.py", "tests/test_limits.py"]
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "large or arrow or listed or command_line", *checks)


def test_its_page_and_the_command_know_it(tree: Path) -> None:
    page = (tree / "docs" / "findings" / "large-metadata.md").read_text()
    assert re.search(r"9,\d{3} bytes of metadata per RPC", page)
    assert "large-metadata" in (tree / "docs" / "findings" / "README.md").read_text()
    assert run(tree, "-m", "grpcdiag", "explain", "large-metadata").startswith("large-metadata")
