"""`grpcdiag attach`: everything from the scrubbed capture, nothing of what was hidden, all or nothing."""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from canaries import Places, canary, conversation, other_traffic, pcapng
from support import grpcdiag, invoke, recorded, run_here, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.cli.scrub import DIFFERS
from grpcdiag.reports import analysis_json

FILES = {"issue.md", "report.html", "analysis.json"}
SECTIONS = {
    "grpc-go": [
        "### What version of gRPC are you using?",
        "### What version of Go are you using (`go version`)?",
        "### What operating system (Linux, Windows, …) and version?",
        "### What did you do?",
        "### What did you expect to see?",
        "### What did you see instead?",
    ],
    "grpc": [
        "### What version of gRPC and what language are you using?",
        "### What operating system (Linux, Windows,...) and version?",
        "### What runtime / compiler are you using (e.g. python version or version of gcc)",
        "### What did you do?",
        "### What did you expect to see?",
        "### What did you see instead?",
        "### Anything else we should know about your project / environment?",
    ],
    "grpc-java": [
        "### What version of gRPC-Java are you using?",
        "### What is your environment?",
        "### What did you expect to see?",
        "### What did you see instead?",
        "### Steps to reproduce the bug",
    ],
    "grpc-node": [
        "**Problem description**",
        "**Reproduction steps**",
        "**Environment**",
        "**Additional context**",
    ],
    "tonic": ["## Bug Report", "### Version", "### Platform", "### Crates", "### Description"],
    "generic": [
        "### Summary",
        "### Versions",
        "### What was done",
        "### What was expected",
        "### What happened instead",
    ],
}
"""Headings of each project's form, copied from the forms themselves."""


def attached(*arguments: str, output: Path) -> str:
    """Runs the command, in this process for speed, and gives what it said."""
    result = invoke(["attach", *arguments, "-o", str(output)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    return result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("attach") / "out"
    attached(recorded("rtt205-go-16000.pcap"), output=path)
    return path


def test_the_files_tell_what_the_capture_tells(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES | {"capture.pcap"}
    again = json.loads(analysis_json.render(analyze([str(folder / "capture.pcap")])))
    assert json.loads((folder / "analysis.json").read_text()) == again | {"files": ["capture.pcap"]}
    original = analyze([recorded("rtt205-go-16000.pcap")])
    assert again["budget"] == original.budget
    assert [f["id"] for f in again["findings"]] == [f.id for f in original.findings]
    issue = (folder / "issue.md").read_text()
    for finding in original.findings:
        assert finding.id in issue
    assert "821 ms" in issue
    assert (folder / "report.html").read_text().lower().startswith("<!doctype html>")


def test_addresses_are_those_of_the_scrubbed_capture(folder: Path) -> None:
    client = analyze([str(folder / "capture.pcap")]).connections[0].client
    for path in folder.iterdir():
        assert b"10.77.0." not in path.read_bytes(), path.name
    assert client in (folder / "issue.md").read_text()


def test_everybody_may_read_them_who_may_read_new_files(folder: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~umask
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o666 & ~umask}


def test_a_zip_holds_the_same_files_and_nothing_of_this_machine(tmp_path: Path) -> None:
    err = attached(recorded("rtt205-go-16000.pcap"), output=tmp_path / "out.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["out.zip"]
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert {entry.filename for entry in archive.infolist()} == FILES | {"capture.pcap"}
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert all(not entry.extra and not entry.comment for entry in archive.infolist())
        assert archive.testzip() is None
        blanks = archive.read("issue.md").decode().count("<!-- TO FILL: ")
    assert f"fill in its {blanks} blanks" in err


@pytest.mark.parametrize("form", SECTIONS)
def test_headings_are_those_of_the_form(form: str, tmp_path: Path) -> None:
    attached(recorded("impl-go.pcap"), "--for", form, output=tmp_path / "out")
    lines = (tmp_path / "out" / "issue.md").read_text().splitlines()
    found = [line for line in lines if re.match(r"#{1,3} |\*\*[^*]+\*\*$", line)]
    assert found == SECTIONS[form]
    text = "\n".join(lines)
    assert text.count("<!-- TO FILL: ") == text.count("_____ <!-- TO FILL: ") >= 4
    assert text.count("-->") == text.count("<!--")


@pytest.mark.parametrize(
    ("capture", "form"),
    [
        ("impl-go", "grpc-go"),
        ("impl-cpp", "grpc"),
        ("impl-py", "grpc"),
        ("impl-java", "grpc-java"),
        ("impl-js", "grpc-node"),
        ("impl-tonic", "tonic"),
    ],
)
def test_the_form_is_that_of_the_implementation(capture: str, form: str, tmp_path: Path) -> None:
    assert f": for {form};" in attached(recorded(f"{capture}.pcap"), output=tmp_path / "out")


def test_without_an_implementation_it_is_generic(tmp_path: Path) -> None:
    assert ": for generic;" in attached(nameless(tmp_path), output=tmp_path / "o")


def nameless(tmp_path: Path) -> str:
    from grpcdiag.fixtures.synthetic.files import write_pcap
    from grpcdiag.fixtures.synthetic.scene import opened
    from grpcdiag.fixtures.synthetic.wire import Link

    talk = opened()
    talk.unary("/a.B/C", metadata=[(b"user-agent", b"own/1")])
    (tmp_path / "own.pcap").write_bytes(write_pcap(Link().carry(talk)))
    return str(tmp_path / "own.pcap")


def test_frames_of_unknown_types_are_no_difference(tmp_path: Path) -> None:
    """Scrubbing keeps their lengths alone."""
    attached(synthetic("unknown_frame").file, output=tmp_path / "out")


def test_parts_can_be_left_out(tmp_path: Path) -> None:
    file = recorded("rtt205-go-16000.pcap")
    left = [f"--without={part}" for part in ("html", "json", "capture", "timeline", "ruled-out")]
    attached(file, *left, output=tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["issue.md"]
    text = (tmp_path / "out" / "issue.md").read_text()
    for word in ("capture.pcap", "analysis.json", "report.html", "against time", "ruled out", "Attached"):
        assert word not in text
    assert "`slow-start-after-idle`" in text


def test_methods_can_be_hidden(tmp_path: Path) -> None:
    attached(recorded("rtt205-go-16000.pcap"), "--hide-methods", output=tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert b"lab.v1" not in path.read_bytes(), path.name


# --- what must not be in it ---


def sidecar(file: Path, places: Places, packets: int) -> dict[str, Any]:
    """A description with canaries wherever a name or a word may stand."""
    return {
        "schema": "grpcdiag.recording/1",
        "version": places.text("version"),
        "started_time_ns": 1_699_999_999_000_000_000,
        "ended_time_ns": 1_700_000_100_000_000_000,
        "packets": {"captured": packets, "received": packets, "dropped": 0, "dropped_by_interface": 0},
        "capture": {"file": places.text("file"), "interface": places.text("interface"), "rotate": None},
        "command": {
            "arguments": [
                f"/home/{places.text('user')}/bin/{places.text('program')}",
                f"--target={places.text('target')}",
                f"-p{places.text('short')}",
                "--token",
                places.text("token"),
                "--pin",
                "123456",
                places.text("word"),
                "--calls",
                "1000",
                "--for=30s",
            ],
            "user": places.text("command-user"),
            "exit_code": 3,
        },
        "problems": [places.text("problem")],
        "host": {
            "name": places.text("host"),
            "kernel": f"Linux 6.12.3-{places.text('kernel')} #1 SMP {places.text('build')}",
            "machine": "x86_64",
            "addresses": ["127.0.0.1", "8.20.30.40"],
            "sysctls": {
                "net.ipv4.tcp_slow_start_after_idle": "1",
                "net.ipv4.tcp_congestion_control": places.text("sysctl"),
            },
            "routes": [{"dev": places.text("device"), "metrics": [{"initcwnd": 12, places.text("metric"): 1}]}],
            "interfaces": {places.text("link"): {}},
            "versions": {"tcpdump": places.text("tcpdump")},
        },
    }


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Places, Path]:
    places = Places()
    packets = [*conversation(places, 40_000), *other_traffic(places)]
    home = tmp_path / canary("folder")
    home.mkdir()
    file = home / f"{canary('name')}.pcapng"
    for place in ("folder", "name"):
        places.text(place)
    file.write_bytes(pcapng(places, packets))
    description = file.with_name(file.name + ".grpcdiag.json")
    description.write_text(json.dumps(sidecar(file, places, len(packets))))
    return places, file


@pytest.mark.parametrize("options", [(), ("--hide-methods", "--for", "generic")], ids=["plain", "hidden"])
def test_no_canary_survives_in_any_file(planted: tuple[Places, Path], tmp_path: Path, options: tuple[str, ...]) -> None:
    places, file = planted
    assert len(places.planted) > 60
    out = tmp_path / "out"
    err = attached(str(file), *options, output=out)
    assert {path.name for path in out.iterdir()} == FILES | {"capture.pcapng"}
    for path in out.iterdir():
        assert list(places.survivors(path.read_bytes())) == [], path.name
        assert b"8.20.30." not in path.read_bytes()
        assert b"canary" not in path.read_bytes()
    assert list(places.survivors(err.encode())) == []
    issue = (out / "issue.md").read_text()
    assert "Linux 6.12.3 x86_64" in issue  # the file beside was used
    assert "PROGRAM --target=… … --token … --pin … … --calls 1000 --for=30s" in issue
    assert "123456" not in issue
    assert "It ended with exit code 3" in issue
    attached(str(file), *options, output=tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        for entry in archive.infolist():
            assert list(places.survivors(archive.read(entry))) == []


def test_a_command_is_shown_whole_only_when_asked_for(planted: tuple[Places, Path], tmp_path: Path) -> None:
    file = planted[1]
    attached(str(file), "--with", "command", output=tmp_path / "whole")
    assert canary("token") in (tmp_path / "whole" / "issue.md").read_text()
    attached(str(file), "--without", "command", output=tmp_path / "none")
    text = (tmp_path / "none" / "issue.md").read_text()
    assert "PROGRAM" not in text
    assert "Command or program: _____" in text


def test_a_description_of_another_capture_is_not_used_and_names_nothing(
    planted: tuple[Places, Path], tmp_path: Path
) -> None:
    places, file = planted
    description = file.with_name(file.name + ".grpcdiag.json")
    said = json.loads(description.read_text())
    said["host"]["addresses"] = ["192.0.2.1"]
    description.write_text(json.dumps(said))
    attached(str(file), output=tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert list(places.survivors(path.read_bytes())) == [], path.name
    assert "6.12.3" not in (tmp_path / "out" / "issue.md").read_text()
    assert "is not used" in (tmp_path / "out" / "issue.md").read_text()


# --- all or nothing ---


def names(folder: Path) -> Iterator[str]:
    yield from (path.name for path in folder.iterdir())


@pytest.mark.parametrize("output", ["out", "out.zip"])
@pytest.mark.parametrize("what", ["analysis", "rows", "time line"])
def test_a_difference_leaves_nothing(what: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpcdiag.analyzer import scrub as rewriting
    from grpcdiag.reports import scrub, timeline

    if what == "analysis":
        monkeypatch.setattr(scrub, "differences", lambda *_: iter(["budget.client"]))
    elif what == "rows":
        monkeypatch.setattr(rewriting, "row_differences", lambda *_: iter(["frames"]))
    else:
        texts = iter(("one", "other"))
        monkeypatch.setattr(timeline, "render", lambda *_: next(texts))
    arguments = ["attach", recorded("impl-go.pcap"), "-o", str(tmp_path / output)]
    result = invoke(arguments)
    assert result.exit_code == DIFFERS
    assert "nothing is written: the scrubbed capture would differ in" in result.stderr
    assert list(names(tmp_path)) == []


def test_an_error_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(analysis_json, "render", full)
    result = invoke(["attach", recorded("impl-go.pcap"), "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert list(names(tmp_path)) == []


def test_tls_is_refused_with_its_reason(tmp_path: Path) -> None:
    outcome = run_here("attach", recorded("tls13-go-secrets.pcapng"), "-o", str(tmp_path / "out"))
    assert outcome.code == 4
    assert "TLS stays encrypted" in outcome.err
    assert list(names(tmp_path)) == []


def test_wrong_uses(tmp_path: Path) -> None:
    file = recorded("impl-go.pcap")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    (tmp_path / "plain").write_text("")
    for output, why in (("full", "is not empty"), ("plain", "it is a file"), ("no/such", "cannot write")):
        outcome = run_here("attach", file, "-o", str(tmp_path / output))
        assert (outcome.code, why in outcome.err) == (2, True), outcome.err
    both = run_here("attach", recorded("rtt205-go-16000.pcap"), recorded("rtt205-go-16000.server.pcap"), "-o", "x")
    assert both.code == 2
    assert "two places" in both.err
    assert run_here("attach", str(tmp_path / "plain"), "-o", str(tmp_path / "y")).code == 3
    assert sorted(names(tmp_path)) == ["full", "plain"]


def test_an_empty_folder_and_an_old_zip_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out.zip").write_text("old")
    for output in ("out", "out.zip"):
        attached(recorded("impl-go.pcap"), output=tmp_path / output)
    assert (tmp_path / "out" / "issue.md").is_file()
    assert zipfile.is_zipfile(tmp_path / "out.zip")


def test_standard_input(tmp_path: Path) -> None:
    capture = Path(recorded("impl-go.pcap")).read_bytes()
    outcome = grpcdiag("attach", "-", "-o", str(tmp_path / "out"), stdin=capture)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "out" / "capture.pcap").stat().st_size == len(capture)
