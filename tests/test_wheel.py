"""The wheel: every Python file is in it, and it runs where nothing else of this repository is."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, recorded

PACKAGE = REPOSITORY / "src" / "grpcdiag"
LINKED = ("analyzer", "capture", "fleet", "reports")
"""Folders that the package reaches through links, which maturin follows only by the include patterns."""
DATA = (".pyi", ".json", ".typed", ".j2", ".js", ".css", ".LICENSE", ".NOTICE")


def matched(key: str) -> set[Path]:
    """Files that one of maturin's lists of patterns names."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        listed: list[Any] = tomllib.load(file)["tool"]["maturin"].get(key, [])
    patterns = [pattern for pattern in listed if isinstance(pattern, str)]  # a table is of the source distribution
    deep = [f"{pattern}/*" if pattern.endswith("**") else pattern for pattern in patterns]  # as maturin reads **
    return {path.relative_to(PACKAGE.parent) for pattern in deep for path in PACKAGE.parent.glob(pattern)}


def covered() -> set[Path]:
    return {path for path in matched("include") - matched("exclude") if not (PACKAGE.parent / path).is_dir()}


def wanted() -> set[Path]:
    """Python files and data of the linked folders, as paths within the package."""
    return {
        Path("grpcdiag") / folder / path.relative_to(REPOSITORY / folder)
        for folder in LINKED
        for path in (REPOSITORY / folder).rglob("*")
        if path.suffix in (".py", *DATA) and "core" not in path.relative_to(REPOSITORY / folder).parts[:1]
    }


@pytest.mark.parametrize("folder", LINKED)
def test_links_lead_to_the_folders(folder: str) -> None:
    assert (PACKAGE / folder).is_symlink()
    assert not (PACKAGE / folder).readlink().is_absolute()
    assert (PACKAGE / folder).resolve() == REPOSITORY / folder


def test_include_patterns_cover_every_file() -> None:
    assert wanted() - covered() == set()
    assert Path("grpcdiag/analyzer/detectors/slow_start_after_idle.py") in wanted()
    assert any(path.suffix == ".json" for path in wanted())
    assert Path("grpcdiag/reports/html/vendor/echarts.min.js") in wanted()
    assert Path("grpcdiag/reports/html/page/page.html.j2") in wanted()
    assert {
        Path("grpcdiag/fleet/answers/html/fleet.html.j2"),
        Path("grpcdiag/fleet/answers/html/style.css"),
    } <= wanted()


def test_tests_and_the_crate_stay_out() -> None:
    ours = [path for path in covered() if "recipes" not in path.parts]  # the lab builds those where it runs
    assert not [path for path in ours if "tests" in path.parts or "target" in path.parts or path.suffix == ".rs"]


def test_every_folder_with_python_is_a_package() -> None:
    folders = {path.parent for path in wanted() if path.suffix == ".py"}
    assert [folder for folder in folders if not (PACKAGE.parent / folder / "__init__.py").is_file()] == []


@pytest.mark.skipif(os.environ.get("GRPCDIAG_TEST_WHEEL") != "1", reason="slow: set GRPCDIAG_TEST_WHEEL=1")
def test_the_wheel_runs_elsewhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "maturin", "build", "--release", "--out", str(tmp_path / "dist")]
    subprocess.run(build, cwd=REPOSITORY, check=True, timeout=1800)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {str(path) for path in wanted()} <= names
    assert "grpcdiag/py.typed" in names
    assert not [name for name in names if name.endswith((".rs", ".pcap"))]
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True, timeout=600)
    assert (tmp_path / "env" / "share" / "man" / "man1" / "grpcdiag.1").is_file()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [str(tmp_path / "env" / "bin" / "grpcdiag"), "analyze", recorded("rtt205-go-16000.pcap")]
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=elsewhere, env=clean, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "tcp_slow_start_after_idle" in done.stdout
    done = subprocess.run([*command, "--json"], cwd=elsewhere, env=clean, capture_output=True, text=True, timeout=240)
    assert '"grpcdiag.analysis/1"' in done.stdout
    done = subprocess.run(
        [*command, "--format", "html"], cwd=elsewhere, env=clean, capture_output=True, text=True, timeout=240
    )
    assert "Content-Security-Policy" in done.stdout and 'id="library"' in done.stdout, done.stderr
