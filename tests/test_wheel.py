"""The wheel: every Python file is in it, and it runs where nothing else of this repository is."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE_S, REPOSITORY, recorded

from grpcdiag.analyzer import _core
from grpcdiag.version import describe_version

PACKAGE = REPOSITORY / "src" / "grpcdiag"
LINKED = ("analyzer", "capture", "fleet", "reports")
"""Folders that the package reaches through links, which maturin follows only by the include patterns."""
VERSION = tomllib.loads((REPOSITORY / "Cargo.toml").read_text())["workspace"]["package"]["version"]
INSTALLED = (
    "man/man1/grpcdiag.1",
    "bash-completion/completions/grpcdiag",
    "zsh/site-functions/_grpcdiag",
    "fish/vendor_completions.d/grpcdiag.fish",
)
"""Below `share` of where it is installed."""
PROFILE = _core.__build__[2]
MOST_BYTES = {"quick": 35_000_000, "release": 12_000_000}[PROFILE]
"""Size of the core: 27 MB compiled quickly, 8 MB as users get it, and several times that with debug information."""
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what `make dev` has compiled: with its environment, nothing is compiled again."""
    out = tmp_path_factory.mktemp("dist")
    env = {**os.environ, "VIRTUAL_ENV": sys.prefix, "PYO3_PYTHON": str(Path(sys.prefix) / "bin" / "python")}
    build = [sys.executable, "-m", "maturin", "build", "--profile", PROFILE, "--offline", "--out", str(out)]
    subprocess.run(build, cwd=REPOSITORY, env=env, check=True, timeout=PATIENCE_S)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_what_users_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        core = archive.read("grpcdiag/analyzer/_core.abi3.so")
    assert {str(path) for path in wanted()} <= names
    assert "grpcdiag/py.typed" in names
    assert [name for name in names if name.endswith("/sboms/grpcdiag-python.cyclonedx.json")]
    assert not [name for name in names if name.endswith((".rs", ".pcap")) and "/recipes/" not in name]
    assert len(core) < MOST_BYTES
    assert "-abi3-" in wheel.name


def test_the_wheel_runs_elsewhere(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=PATIENCE_S)
    # its dependencies are those of the tests, whose own grpcdiag stays out: a .pth file there is not followed
    (site,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    command = str(tmp_path / "env" / "bin" / "grpcdiag")
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [command, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import grpcdiag.analyzer._core as core; print(core.__file__)"
    assert Path(subprocess.check_output([python, "-c", where], cwd=tmp_path, env=env, text=True)).is_relative_to(site)
    assert run("--version") == f"{describe_version()}\n"
    capture = recorded("rtt205-go-16000.pcap")
    assert "tcp_slow_start_after_idle" in run("analyze", capture)
    assert 'id="library"' in run("analyze", capture, "--format", "html")
    for path in INSTALLED:
        assert (tmp_path / "env" / "share" / path).is_file()
