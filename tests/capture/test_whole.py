"""What was recorded before stays until there is something new; a full disk costs neither it nor the exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recorder import capture
from support import PATIENCE_S, recorded
from test_refusals import LISTEN, WAIT, player

SUFFIXES = ("", ".grpcdiag.json", ".grpcdiag-ss.jsonl")


def before(folder: Path, *names: str) -> dict[str, bytes]:
    """What lies in a folder where something was recorded: a ring, or one file."""
    for name in names or ("run.pcap",):
        shutil.copy(recorded("impl-go.pcap"), folder / name)
    side = {"capture": {"rotate": {"megabytes": 1, "files": 4} if names else None}}
    (folder / "run.pcap.grpcdiag.json").write_text(json.dumps(side))
    (folder / "run.pcap.grpcdiag-ss.jsonl").write_text("{}\n")
    return there(folder)


def there(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


REFUSALS = {
    "no capability": ('say("tcpdump: lo: You don\'t have permission"); sys.exit(1)', ["--", "true"], 125),
    "it says nothing": ("sys.exit(1)", ["--", "true"], 125),
    "no such command": (LISTEN + WAIT, ["--", "/nosuch"], 127),
    "no such host": (LISTEN + WAIT, ["--also", "there", "--", "true"], 125),
    "a command that is no program": (LISTEN + WAIT, ["--", "/etc/passwd"], 126),
}


@pytest.mark.parametrize("ring", [(), ("run.pcap0", "run.pcap1")], ids=["file", "ring"])
@pytest.mark.parametrize("why", REFUSALS)
def test_a_recording_that_cannot_begin_changes_nothing(why: str, ring: tuple[str, ...], tmp_path: Path) -> None:
    body, words, code = REFUSALS[why]
    env = player(tmp_path, body)
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text("#!/bin/sh\necho 'no such host' >&2\nexit 255\n")
    ssh.chmod(0o755)
    old = before(tmp_path, *ring)
    rotate = ["--rotate", "1Mx4"] if ring else []
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", "1", *rotate, *words, env=env)
    assert (done.returncode, there(tmp_path)) == (code, old), done.stderr


def test_without_tcpdump_nothing_changes(tmp_path: Path) -> None:
    old = before(tmp_path)
    program = (
        "from grpcdiag.capture import tools; tools.SBIN = ()\n"
        "import sys; sys.argv = ['grpcdiag', *sys.argv[1:]]\nfrom grpcdiag.__main__ import main; main()"
    )
    words = [sys.executable, "-c", program, "capture", "-o", str(tmp_path / "run.pcap"), "-i", "lo"]
    done = subprocess.run(
        words, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, "tcpdump is not installed" in done.stderr) == (125, True), done.stderr
    assert there(tmp_path) == old


def test_a_new_ring_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    env = player(tmp_path, LISTEN.replace("open(out,", 'open(out + "0",') + WAIT)
    before(tmp_path, "run.pcap0", "run.pcap1", "run.pcap2")
    (tmp_path / "run.pcap.gz").write_bytes(b"")
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", "1", "--rotate", "1Mx4", "--", "true", env=env)
    assert done.returncode == 0, done.stderr
    assert "more files" not in done.stderr
    assert set(there(tmp_path)) == {"run.pcap0", "run.pcap.gz", *(f"run.pcap{end}" for end in SUFFIXES[1:])}


def test_a_recording_of_nothing_changes_nothing(tmp_path: Path) -> None:
    body = 'say("tcpdump: listening on lo")\n' + WAIT
    env = player(tmp_path, body)
    old = before(tmp_path)
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", "1", "--", "sh", "-c", "exit 3", env=env)
    assert (done.returncode, "nothing was recorded" in done.stderr) == (3, True), done.stderr
    assert there(tmp_path) == old


def test_devices_and_links_stay_what_they_are(tmp_path: Path) -> None:
    env = player(tmp_path, LISTEN + WAIT)
    (tmp_path / "link").symlink_to("target")
    done = capture("-o", str(tmp_path / "link"), "-q", "-p", "1", "--", "true", env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").stat().st_size == 40
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        done = capture("-o", str(pipe), "-q", "-p", "1", "--", "echo", "hello", env=env)
        assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
        assert reader.stdout is not None
        assert len(reader.stdout.read()) == 40
    assert pipe.is_fifo()
    assert capture("-o", os.devnull, "-q", "-p", "1", "--", "true", env=env).returncode == 0
    assert not Path(os.devnull).is_file() and not Path(f"{os.devnull}.grpcdiag.json").exists()


SMALL = 'mount -t tmpfs -o size=4m tmpfs "$0" && "$@"; c=$?; ls -la --time-style=+ "$0"; exit $c'
OTHERS = "[ $(wc -w < /proc/$PPID/task/$PPID/children) -gt 1 ]"
FILLS = f'dd if=/dev/zero of="$0"/fill bs=4k 2>/dev/null; while {OTHERS}; do sleep 0.02; done; exit 3'
"""Fills the disk, and ends when tcpdump has: the recording looks at the disk now and then."""


def on_small_disk(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount namespace, in which the folder has 4 MiB."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a file system of its own needs root and unshare")
    done = subprocess.run(
        ["unshare", "--mount", "--", "sh", "-c", SMALL, str(folder), *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("samples", ["0", "20"])
def test_a_disk_that_the_command_fills(samples: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    words = ["-m", "grpcdiag", "capture", "-o", str(small / "run.pcap"), "-p", "1", "--samples", samples]
    command = ["--", "sh", "-c", FILLS, str(small)]
    done = on_small_disk(small, sys.executable, *words, *command, env=player(tmp_path, LISTEN + WAIT))
    assert done.returncode == 3, done.stderr
    # the space may be looked at while the command is still filling it
    assert re.search(r"the disk is almost full \([\d,]+ bytes free\)", done.stderr), done.stderr
    assert "none dropped" not in done.stderr
    assert " run.pcap\n" in done.stdout and " run.pcap.grpcdiag.json\n" in done.stdout
    assert "recording-" not in done.stdout


OUTPUTS = {
    "analyze": ["analyze", "FILE", "-o", "OUT"],
    "analyze html": ["analyze", "FILE", "--format", "html", "-o", "OUT"],
    "rpcs csv": ["rpcs", "FILE", "--format", "csv", "-o", "OUT"],
    "frames parquet": ["frames", "FILE", "--format", "parquet", "-o", "OUT"],
    "frames table": ["frames", "FILE", "--limit", "0", "-o", "OUT"],
    "scrub": ["scrub", "FILE", "-o", "OUT"],
    "attach": ["attach", "FILE", "-o", "OUT.zip"],
    "attach folder": ["attach", "FILE", "-o", "OUT.folder"],
    "export": ["export", "FILE", "-o", "OUT.folder"],
    "export spans": ["export", "FILE", "--format", "otlp", "-o", "OUT"],
    "compare": ["compare", "FILE", "FILE", "-o", "OUT"],
    "timeline": ["timeline", "FILE", "-c", "0", "-o", "OUT"],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_writer_on_a_full_disk(name: str, tmp_path: Path) -> None:
    """One line, exit code 2, and nothing left but what was there."""
    small = tmp_path / "small"
    small.mkdir()
    places = {"FILE": recorded("impl-go.pcap")}
    words = [places.get(word, word.replace("OUT", f"{small}/new")) for word in OUTPUTS[name]]
    script = f'dd if=/dev/zero of={small}/fill bs=4k 2>/dev/null; "$@"'
    done = on_small_disk(small, "sh", "-c", script, "sh", sys.executable, "-m", "grpcdiag", *words)
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1
    assert [line.split()[-1] for line in done.stdout.splitlines()[3:]] == ["fill"]


@pytest.mark.parametrize(("output", "redirected"), [("-", ">/dev/full"), ("-", ">&-"), ("/dev/full", "")])
def test_a_stream_that_takes_nothing(output: str, redirected: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "grpcdiag", "capture", "-o", output, "-p", "1", "--", "sh", "-c", "exit 3"]
    line = ["sh", "-c", f'"$@" {redirected}', "sh", *words]
    done = subprocess.run(line, env=player(tmp_path, LISTEN + WAIT), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 3, done.stderr
    place = "/dev/full" if output != "-" else "standard output"
    assert f"cannot write {place}: " in done.stderr and "none dropped" not in done.stderr
