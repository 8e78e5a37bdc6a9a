"""What the release workflow runs: the version that is released, and the site of all versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from support import PATIENCE_S, REPOSITORY

CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- New.

## [0.1.0] - 2026-11-01

- Old.
"""


def run(script: str, *arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / ".ci").mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / ".ci" / script, folder / ".ci")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    command = [folder / ".ci" / script, *arguments]
    return subprocess.run(command, env={**clean, **env}, capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "Cargo.toml").write_text('[workspace.package]\nversion = "0.2.0"\n[profile]\nversion = "9"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_the_tag_names_the_version(project: Path) -> None:
    done = run("release-version", folder=project, GITHUB_REF_TYPE="tag", GITHUB_REF_NAME="v0.2.0")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "version=0.2.0"), done.stderr
    assert done.stdout.splitlines()[1].startswith("built=20")


@pytest.mark.parametrize(
    ("tag", "changelog", "why"),
    [
        ("v0.3.0", CHANGELOG, "the tag is v0.3.0, Cargo.toml says 0.2.0"),
        ("v0.2.0", CHANGELOG.replace(" - 2026-12-01", ""), "CHANGELOG.md has no section '## [0.2.0] - DATE'"),
    ],
    ids=["tag", "changelog"],
)
def test_what_does_not_fit_is_not_released(project: Path, tag: str, changelog: str, why: str) -> None:
    (project / "CHANGELOG.md").write_text(changelog)
    done = run("release-version", folder=project, GITHUB_REF_TYPE="tag", GITHUB_REF_NAME=tag)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", why + "\n")


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("manylinux_2_31_x86_64", "docs/versions.md promises another tag"),
        ("linux_x86_64", "docs/versions.md promises another tag"),
        ("manylinux2014_x86_64.manylinux_2_17_x86_64", "no man/man1/grpcdiag.1"),
        ("musllinux_1_2_aarch64", "no man/man1/grpcdiag.1"),
    ],
)
def test_a_wheel_for_fewer_systems_or_without_its_data_is_not_released(project: Path, tag: str, why: str) -> None:
    wheel = project / "dist" / f"grpcdiag-0.2.0-cp311-abi3-{tag}.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("grpcdiag/__init__.py", "")
    done = run("try-wheels", folder=project)
    assert (done.returncode, done.stderr) == (1, f"dist/{wheel.name}: {why}\n")


def test_the_notes_are_the_section_of_the_version(project: Path) -> None:
    assert run("release-version", "--notes", folder=project).stdout.split() == ["###", "Added", "-", "New."]


def test_the_site_has_all_versions_and_leads_to_the_newest(tmp_path: Path) -> None:
    pages = tmp_path / "pages.git"
    subprocess.run(["git", "init", "--quiet", "--bare", pages], check=True)
    for version in ("0.9.0", "0.10.0", "0.9.1", "0.9.0"):  # the last one again, as after a correction
        site = tmp_path / "site"
        shutil.rmtree(site, ignore_errors=True)
        site.mkdir()
        (site / "index.html").write_text(f"pages of {version}")
        done = run("publish-site", str(site), version, str(pages), folder=tmp_path)
        assert done.returncode == 0, done.stderr

    def show(path: str) -> str:
        return subprocess.check_output(["git", "-C", str(pages), "show", f"gh-pages:{path}"], text=True)

    assert "url=0.10.0/" in show("index.html")
    listed = [part.partition('"')[0] for part in show("versions.html").split('href="')[1:]]
    assert listed == ["0.10.0/", "0.9.1/", "0.9.0/"]
    assert all(show(f"{version}index.html") == f"pages of {version[:-1]}" for version in listed)
