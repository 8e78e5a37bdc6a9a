"""The configuration file: what it changes, what the command line overrides, and what a hostile one cannot do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import recorded, run_here

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.limits import CHANGED, MOST_FACTOR, LimitError, change_limits

ERRORS, TLS, KEYS = recorded("rpc-errors.pcap"), recorded("tls13-go.pcap"), recorded("tls13-go.keys")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, below one that may have a file too."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.delenv("GRPCDIAG_CONFIG", raising=False)
    return inner


def analyzed(*arguments: str) -> dict[str, Any]:
    outcome = run_here("analyze", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def severity(document: dict[str, Any], name: str) -> str | None:
    return next((finding["severity"] for finding in document["findings"] if finding["id"] == name), None)


def test_a_key_log_is_relative_to_the_file(folder: Path) -> None:
    """And the command line takes precedence over it."""
    assert run_here("analyze", TLS, "--json").code == 4
    (folder.parent / "grpcdiag.toml").write_text('keylog = "keys/log"')
    (folder.parent / "keys").mkdir()
    shutil.copy(KEYS, folder.parent / "keys" / "log")
    assert analyzed(TLS)["totals"]["rpcs"] > 0
    wrong = folder / "wrong.keys"
    wrong.write_text("")
    assert run_here("analyze", TLS, "--json", "--keylog", str(wrong)).code == 4


def test_ports_are_decoded(folder: Path) -> None:
    (folder / "grpcdiag.toml").write_text("ports = [443, 8443]")
    assert analyzed(ERRORS) == analyzed(ERRORS, "--port", "443")


def test_limits_change_findings_and_the_report_says_so(folder: Path) -> None:
    before = analyzed(ERRORS)
    assert severity(before, "rpc-errors") == "critical"
    (folder / "pyproject.toml").write_text("[tool.grpcdiag.limits.rpc-errors]\ncritical_share = 0.9\n")
    changed = analyzed(ERRORS)
    assert severity(changed, "rpc-errors") == "warning"
    (note,) = set(changed["quality"]["warnings"]) - set(before["quality"]["warnings"])
    assert note.endswith("pyproject.toml changes limits of detectors: rpc-errors.critical_share = 0.9")
    outcome = run_here("analyze", ERRORS)
    assert "pyproject.toml changes limits of detectors: rpc-errors.critical_share = 0.9" in outcome.err
    assert run_here("analyze", ERRORS, "--quiet").err == ""
    (folder / "pyproject.toml").unlink()
    assert analyzed(ERRORS) == before, "nothing is left of it in this process"


def test_hidden_methods(folder: Path) -> None:
    before = analyzed(ERRORS)
    name = before["methods"][0]["method"]
    (folder / "grpcdiag.toml").write_text(f'hide = ["{name[:-2]}*"]')
    hidden = analyzed(ERRORS)
    assert name not in {method["method"] for method in hidden["methods"]}
    assert hidden["totals"] == before["totals"]
    assert any(
        "hides" in note and "totals, time by cause and findings" in note for note in hidden["quality"]["warnings"]
    )
    assert f"hides methods: {name[:-2]}*" in run_here("analyze", ERRORS).err
    for format_ in ("terminal", "markdown", "html"):
        assert run_here("analyze", ERRORS, "--format", format_).code == 0
    assert run_here("compare", ERRORS, ERRORS).code == 0


def test_the_nearest_file_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "grpcdiag.toml").write_text("ports = [1]")
    (folder / "pyproject.toml").write_text("[tool.other]\nthis is not TOML, and not ours either")
    assert str(folder.parent / "grpcdiag.toml") in run_here("-v", "explain").err
    (folder / "pyproject.toml").write_text("[tool.grpcdiag]\nports = [2]")
    assert f"{folder / 'pyproject.toml'} (ports)" in run_here("-v", "explain").err
    (folder / "grpcdiag.toml").write_text("")
    assert f"{folder / 'grpcdiag.toml'} (no settings)" in run_here("-v", "explain").err
    monkeypatch.setenv("GRPCDIAG_CONFIG", "")
    assert "none found" in run_here("-v", "explain").err
    monkeypatch.setenv("GRPCDIAG_CONFIG", str(folder.parent / "grpcdiag.toml"))
    assert f"{folder.parent / 'grpcdiag.toml'} (ports)" in run_here("-v", "explain").err
    monkeypatch.setenv("GRPCDIAG_CONFIG", str(folder / "gone.toml"))
    assert run_here("analyze", ERRORS).code == 2


def test_doctor_tells_which_file_is_read(folder: Path) -> None:
    (folder / "grpcdiag.toml").write_text("ports = [2]")
    text = " ".join(run_here("doctor", "--for", "lab", env={"COLUMNS": "400"}).text.split())
    assert f"configuration file: {folder / 'grpcdiag.toml'} (ports)" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("port = [1]", "unknown key 'port'; did you mean ports?"),
        ('output = "x"', "unknown key 'output'"),
        ('command = ["touch", "x"]', "unknown key 'command'"),
        ("ports = [0]", "ports"),
        ('ports = "50051"', "ports"),
        ("hide = [1]", "hide"),
        ("[limits.rpc-error]\nfew = 1", "no such finding: 'rpc-error'; did you mean rpc-errors?"),
        ("[limits.rpc-errors]\ncritical = 1", "no such limit: 'critical'; did you mean critical_share?"),
        ("[limits.rpc-errors]\nexamples = 3", "no such limit: 'examples'"),
        ("[limits.rpc-errors]\nfew = 0", "rpc-errors.few may be changed by a factor of 1,000 from 3"),
        ("[limits.rpc-errors]\nfew = 99999999999999999999", "limits"),
        ("[limits.rpc-errors]\nfew = 2.5", "rpc-errors.few needs an integer"),
        ("[limits.rpc-errors]\ncritical_share = nan", "may be changed by a factor"),
        ("[limits.rpc-errors]\ncritical_share = true", "limits"),
        ("limits = 1", "limits"),
        ("a = " + "[" * 100_000, "too deeply nested"),
        ("\udcff", "utf-8"),
        ("= 1", "grpcdiag.toml"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, text: str, says: str) -> None:
    (folder / "grpcdiag.toml").write_bytes(text.encode(errors="surrogateescape"))
    outcome = run_here("analyze", ERRORS)
    assert (outcome.code, outcome.out) == (2, b"")
    assert says in outcome.err
    assert [path.name for path in folder.iterdir()] == ["grpcdiag.toml"]


@pytest.mark.parametrize("name", ["rpc-errors", "too-many-pings", "max-concurrent-streams", "rtt205-go-16000"])
def test_extreme_limits_break_no_detector(name: str) -> None:
    """Each limit alone, as far from its default as a file may set it."""
    tables, judged = decode([recorded(f"{name}.pcap")], rpc_rows=False), 0
    for detector in DETECTORS:
        for limit in detector.limits.__struct_fields__:
            default = getattr(detector.limits, limit)
            for factor in (MOST_FACTOR, 1 / MOST_FACTOR):
                try:
                    least = 1 if isinstance(default, int) else 0.0
                    changed = change_limits(
                        DETECTORS, detector.id, {limit: max(type(default)(default * factor), least)}
                    )
                except (LimitError, TypeError):  # of an integer below 1,000, of a limit that is no number
                    continue
                token = CHANGED.set({detector.id: changed})
                list(detector.detect(tables))
                CHANGED.reset(token)
                judged += 1
    assert judged > 300


def test_pipes_and_folders_do_not_block(folder: Path) -> None:
    os.mkfifo(folder / "grpcdiag.toml")
    (folder / "pyproject.toml").mkdir()
    os.mkfifo(folder / "pipe")
    (folder.parent / "grpcdiag.toml").write_text('keylog = "inner/pipe"')
    outcome = run_here("analyze", ERRORS)
    assert (outcome.code, outcome.out) == (3, b"")
    assert "no regular file" in outcome.err
    assert "inner/grpcdiag.toml is not read: it is no regular file" in run_here("-v", "explain").err


@pytest.mark.parametrize(
    "place", ["/dev/zero", "../keys", "a/../../keys", "//host/share/keys", "\\\\host\\keys", "C:keys"]
)
def test_a_key_log_lies_below_the_files_folder(folder: Path, place: str) -> None:
    (folder / "grpcdiag.toml").write_text(f"keylog = '{place}'")
    outcome = run_here("analyze", ERRORS)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "below the folder of this file" in outcome.err


def test_a_key_of_many_parts_costs_nothing(folder: Path) -> None:
    """Such a key costs the square of its parts: 64 kB took 20 s and 4 GB."""
    (folder / "grpcdiag.toml").write_text("a." * 30_000 + "a = 1")
    outcome = run_here("analyze", ERRORS)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "more than 200 dots" in outcome.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("link", [False, True])
def test_root_reads_no_file_of_somebody_else(folder: Path, link: bool) -> None:
    path = folder / "grpcdiag.toml"
    path.write_text("ports = [2]")
    if link:
        path.rename(folder / "real")
        path.symlink_to("real")
        assert f"{path} (ports)" in run_here("-v", "explain").err
    os.chown(path, 65534, 65534, follow_symlinks=False)
    outcome = run_here("-v", "explain")
    assert f"none found; {path} is not read: it belongs to another user" in outcome.err
