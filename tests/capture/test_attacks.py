"""What the user for whom root records may plant in the folder: root never reaches outside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorder import AS_NOBODY, NOBODY, capture, gone, may_record
from test_refusals import LISTEN, WAIT, player

PYTHON = "/usr/bin/python3"
"""An interpreter that every user may run."""
OLD = b"root's own\n"
NAMES = [
    "run.pcap",
    "run.pcap.grpcdiag.json",
    "run.pcap.grpcdiag.json.new",
    "run.pcap.grpcdiag-ss.jsonl",
    "run.there.pcap",
]
PLANT = (
    "import os, sys\nfor name in sys.argv[2:]: os.path.lexists(name) and os.unlink(name); os.symlink(sys.argv[1], name)"
)
ON = """
import os, sys, time
recorder, rounds, told = os.getppid(), 0, os.pipe()
def behind(swap):
    "Swap in the background, until the recorder has gone; the command ends after a hundred rounds."
    global rounds
    if os.fork():
        os.close(told[1])
        os.read(told[0], 1)
        return
    while os.path.exists(f"/proc/{recorder}"):
        try:
            swap()
        except OSError:
            pass
        rounds += 1
        if rounds == 100:
            os.close(told[1])
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
"""
SWAPS = (
    ON
    + """
def swap():
    for name in [*os.listdir("."), "run.pcap.grpcdiag.json.new", "run.pcap.grpcdiag-ss.jsonl"]:
        if name.startswith("aside-"):
            continue
        aside = "aside-" + name
        if os.path.lexists(name):
            os.rename(name, aside)
        os.symlink(sys.argv[1], name)
        os.unlink(name)
        if os.path.lexists(aside):
            os.rename(aside, name)
behind(swap)
"""
)
SWAPS_FOLDER = (
    ON
    + """
home, target = sys.argv[1:]
def swap():
    os.rename(home, home + "-aside")
    os.symlink(target, home)
    time.sleep(0.002)
    os.unlink(home)
    os.rename(home + "-aside", home)
behind(swap)
"""
)


@pytest.fixture(autouse=True, scope="module")
def _right() -> None:
    may_record()


@pytest.fixture
def roots(home: Path) -> Iterator[Path]:
    """A folder of root's with a file, which nobody else can change."""
    folder = home.parent / "roots"
    folder.mkdir(mode=0o755)
    (folder / "file").write_bytes(OLD)
    yield folder
    status = (folder / "file").stat()
    assert ((folder / "file").read_bytes(), status.st_uid) == (OLD, 0)
    assert [path.name for path in folder.iterdir()] == ["file"], "root has made a file for somebody"


def as_nobody(program: str, *words: str, cwd: Path) -> None:
    subprocess.run([PYTHON, "-c", program, *words], cwd=cwd, user=NOBODY, group=NOBODY, extra_groups=[], check=True)


def false_ssh(folder: Path) -> None:
    """A program called ssh that runs its command here."""
    script = folder / "ssh"
    script.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nexec sh -c "$*"\n')
    script.chmod(0o755)


@pytest.mark.parametrize("target", ["file", "new"])
def test_links_planted_before_and_by_the_command(target: str, home: Path, roots: Path) -> None:
    """To a file of root's, and dangling."""
    env = {**os.environ, **AS_NOBODY}
    as_nobody(PLANT, str(roots / target), *NAMES[1:], cwd=home)
    command = [PYTHON, "-c", PLANT, str(roots / target), *NAMES]
    done = capture("-o", "run.pcap", "-i", "lo", "-p", "1", "--", *command, cwd=home, env=env)
    assert done.returncode == 0, done.stderr
    assert (home / "run.pcap").stat().st_uid == NOBODY
    assert json.loads((home / "run.pcap.grpcdiag.json").read_bytes())["command"]["user"] == "nobody"
    assert not any((home / name).is_symlink() for name in NAMES[:2])


@pytest.mark.parametrize("target", ["file", "new"])
def test_an_output_that_is_a_link_to_what_is_roots(target: str, home: Path, roots: Path) -> None:
    as_nobody(PLANT, str(roots / target), "run.pcap", cwd=home)
    for user in (AS_NOBODY, {}):
        env = {**os.environ, **user}
        done = capture("-o", "run.pcap", "-i", "lo", "-p", "1", "--", "true", cwd=home, env=env)
        assert (done.returncode, "cannot write run.pcap" in done.stderr) == (2, True), done.stderr


def test_a_ring(home: Path, roots: Path) -> None:
    names = ["ring.pcap", "ring.pcap0", "ring.pcap1", "ring.pcap.grpcdiag.json"]
    as_nobody(PLANT, str(roots / "file"), *names, cwd=home)
    done = capture(
        *("-o", "ring.pcap", "--rotate", "1Mx2", "-i", "lo", "-p", "1", "--"),
        *(PYTHON, "-c", PLANT, str(roots / "file"), *names[1:]),
        cwd=home,
        env={**os.environ, **AS_NOBODY},
    )
    assert (done.returncode, "cannot write ring.pcap" in done.stderr) == (2, True), done.stderr  # it is root's file
    (home / "ring.pcap").unlink()
    done = capture(
        *("-o", "ring.pcap", "--rotate", "1Mx2", "-i", "lo", "-p", "1", "--"),
        *(PYTHON, "-c", PLANT, str(roots / "file"), *names[1:]),
        cwd=home,
        env={**os.environ, **AS_NOBODY},
    )
    assert done.returncode == 0, done.stderr
    assert (home / "ring.pcap0").stat().st_uid == NOBODY


def test_a_file_of_another_host(home: Path, roots: Path) -> None:
    env = player(home.parent, LISTEN + WAIT, python=PYTHON) | AS_NOBODY | {"TMPDIR": str(home)}
    false_ssh(home.parent / "bin")
    as_nobody(PLANT, str(roots / "file"), "run.there.pcap", cwd=home)
    words = ["-o", "run.pcap", "-i", "lo", "-p", "1", "--also", "there", "--", "true"]
    done = capture(*words, cwd=home, env=env)
    assert (done.returncode, "run.there.pcap: from the other host" in done.stderr) == (0, True), done.stderr
    status = (home / "run.there.pcap").lstat()
    assert (status.st_uid, status.st_mode & 0o777) == (NOBODY, 0o600)


@pytest.mark.parametrize("samples", ["0", "20"])
def test_a_command_that_swaps_files_for_links_all_the_time(samples: str, home: Path, roots: Path) -> None:
    command = [PYTHON, "-c", SWAPS, str(roots / "file")]
    done = capture(
        *("-o", "run.pcap", "-i", "lo", "-p", "1", "--samples", samples, "--", *command),
        cwd=home,
        env={**os.environ, **AS_NOBODY},
    )
    assert done.returncode == 0, done.stderr
    assert gone(str(roots / "file"))


def test_a_command_that_swaps_the_folder(home: Path, roots: Path) -> None:
    inner = home / "inner"
    as_nobody("import os; os.mkdir('inner')", cwd=home)
    command = [PYTHON, "-c", SWAPS_FOLDER, str(inner), str(roots)]
    done = capture(
        *("-o", str(inner / "run.pcap"), "-i", "lo", "-p", "1", "--samples", "20", "--", *command),
        env={**os.environ, **AS_NOBODY},
    )
    assert done.returncode == 0, done.stderr
    assert gone(str(inner))
    assert sorted(path.name for path in inner.iterdir()) == [
        "run.pcap",
        "run.pcap.grpcdiag-ss.jsonl",
        "run.pcap.grpcdiag.json",
    ]


def test_tcpdump_has_two_capabilities_and_nothing_else_of_roots(home: Path) -> None:
    looks = "for p in /proc/[0-9]*; do grep -aq '^tcpdump' $p/comm && tr '\\0' ' ' <$p/cmdline && cat $p/status; done"
    port = "48613"
    done = capture(
        *("-o", str(home / "run.pcap"), "-i", "lo", "-p", port, "--", "sh", "-c", looks),
        env={**os.environ, **AS_NOBODY},
    )
    ours = done.stdout[done.stdout.index(f"port {port}") :]
    lines = reversed(ours.splitlines()[1:])  # those of another tcpdump may follow
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert status["Uid"].split() == [str(NOBODY)] * 4
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")} == {1 << 12 | 1 << 13}


def test_files_are_the_users_alone_unless_a_mode_is_given(home: Path) -> None:
    env = {**os.environ, **AS_NOBODY}
    for mode, words in ((0o600, []), (0o640, ["--mode", "640"])):
        for ring in ([], ["--rotate", "1M"]):
            done = capture("-o", str(home / "run.pcap"), "-i", "lo", "-p", "1", *words, *ring, "--", "true", env=env)
            assert done.returncode == 0, done.stderr
            found = {path.name: (path.stat().st_mode & 0o777, path.stat().st_uid) for path in home.iterdir()}
            assert len(found) == 3 and set(found.values()) == {(mode, NOBODY)}, found
    assert capture("-o", str(home / "x.pcap"), "--mode", "9", "--", "true").returncode == 2


def test_root_writes_where_root_alone_writes(home: Path) -> None:
    """As `sudo tcpdump -w /root/x.pcap` does; the files are the user's."""
    folder = home.parent / "roots"
    folder.mkdir(mode=0o700)
    for ring, name in (([], "run.pcap"), (["--rotate", "1M"], "ring.pcap")):
        words = ["-o", str(folder / name), "-i", "lo", "-p", "1", *ring, "--", "true"]
        done = capture(*words, env={**os.environ, **AS_NOBODY})
        assert done.returncode == 0, done.stderr
    status = {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in folder.iterdir()}
    assert (len(list(folder.iterdir())), status) == (6, {(NOBODY, 0o600)})


@pytest.mark.parametrize("by", ["group", "owner"])
def test_root_does_not_write_for_a_user_where_a_third_one_may(by: str, home: Path) -> None:
    folder = home.parent / "third"
    folder.mkdir()
    if by == "group":
        folder.chmod(0o775)
    else:
        os.chown(folder, 1, 1)
    done = capture(
        *("-o", str(folder / "run.pcap"), "-i", "lo", "-p", "1", "--", "true"), env={**os.environ, **AS_NOBODY}
    )
    assert (done.returncode, "nobody may not write there" in done.stderr) == (2, True), done.stderr
    assert not list(folder.iterdir())


def test_root_without_a_caller_rotates_only_where_root_alone_writes(home: Path, tmp_path: Path) -> None:
    words = ["-i", "lo", "-p", "1", "--rotate", "1M", "--", "true"]
    done = capture("-o", str(home / "run.pcap"), *words)
    assert (done.returncode, "a folder that only root can change" in done.stderr) == (2, True), done.stderr
    assert not list(home.iterdir())
    assert capture("-o", str(tmp_path / "run.pcap"), *words).returncode == 0


@pytest.mark.parametrize("command", ["analyze", "rpcs", "scrub", "attach", "export"])
def test_other_commands_as_root_follow_no_link_of_others(command: str, home: Path, roots: Path) -> None:
    from support import recorded

    as_nobody(PLANT, str(roots / "file"), "out.zip", cwd=home)
    as_nobody(PLANT, str(roots), "folder", cwd=home)
    output = home / "folder" if command == "export" else home / "out.zip"
    done = subprocess.run(
        [sys.executable, "-m", "grpcdiag", command, recorded("impl-go.pcap"), "-o", str(output)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, "which others can change" in done.stderr) == (2, True), done.stderr


def test_an_interpreter_that_the_commands_user_may_not_run(home: Path) -> None:
    hidden = home.parent / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "python").symlink_to(PYTHON)
    script = home.parent / "script"
    script.write_text(f"#!{hidden}/python\n")
    script.chmod(0o755)
    for command in (hidden / "python", script):
        done = capture(
            *("-o", str(home / "run.pcap"), "-q", "-i", "lo", "-p", "1", "--", str(command), "-c", ""),
            env={**os.environ, **AS_NOBODY},
        )
        assert (done.returncode, done.stderr) == (126, f"grpcdiag: {command}: Permission denied\n")
    assert not list(home.iterdir())


def test_what_the_lab_keeps_is_made_by_the_user(home: Path, roots: Path, tmp_path: Path) -> None:
    """In a process of its own: root takes over the user's groups."""
    (tmp_path / "a.pcap").write_bytes(b"new")
    as_nobody(PLANT, str(roots / "file"), "a.pcap", cwd=home)
    as_nobody(PLANT, str(roots), "elsewhere", cwd=home)
    program = (
        "import sys; from pathlib import Path; from grpcdiag.cli import lab; from grpcdiag.capture.command import *\n"
        "lab._keep(Path(sys.argv[1]), Path(sys.argv[2]), choose_user(None))"
    )

    def keep(folder: Path) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", program, str(tmp_path), str(folder)]
        return subprocess.run(words, env={**os.environ, **AS_NOBODY}, capture_output=True, text=True, timeout=60)

    for folder in (home, home / "elsewhere"):
        assert "PermissionError" in keep(folder).stderr
    assert keep(home / "kept").returncode == 0
    status = (home / "kept" / "a.pcap").stat()
    assert (status.st_uid, status.st_mode & 0o777) == (NOBODY, 0o600)
