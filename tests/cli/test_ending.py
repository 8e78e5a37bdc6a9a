"""Ctrl-C, a request to end, a reader that has gone: the command is over soon and leaves nothing unfinished."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from support import PATIENCE_S, recorded, require_tool, wait_until

from grpcdiag.cli import COMMANDS
from grpcdiag.fixtures.bench.kinds import KINDS

OLD = "what was there before"
STARTED = 60_000
"""Bytes of a capture after which a pipe stalls."""

READS_A_PIPE: dict[str, list[str]] = {
    "analyze": ["analyze", "-"],
    "analyze json": ["analyze", "-", "--json", "-o", "OUT/old"],
    "analyze markdown": ["analyze", "-", "--format", "markdown", "-o", "OUT/old"],
    "analyze html": ["analyze", "-", "--format", "html", "-o", "OUT/old"],
    "analyze perfetto": ["analyze", "-", "--format", "perfetto", "-o", "OUT/old"],
    "analyze a part": ["analyze", "-", "--to", "1"],
    "rpcs csv": ["rpcs", "-", "--format", "csv", "-o", "OUT/old"],
    "rpcs parquet": ["rpcs", "-", "--format", "parquet", "-o", "OUT/new"],
    "waits": ["waits", "-", "-o", "OUT/new"],
    "connections": ["connections", "-", "--format", "jsonl"],
    "messages": ["messages", "-", "--format", "csv", "-o", "OUT/old"],
    "frames": ["frames", "-", "--format", "parquet", "-o", "OUT/old"],
    "packets": ["packets", "-", "--format", "jsonl", "-o", "OUT/new"],
    "timeline": ["timeline", "-", "-c", "0", "-o", "OUT/old"],
    "export": ["export", "-", "-o", "OUT/tables"],
    "export spans": ["export", "-", "--format", "otlp", "-o", "OUT/old"],
    "compare": ["compare", "-", "FILE"],
    "scrub": ["scrub", "-", "-o", "OUT/old"],
    "annotate": ["annotate", "-", "-o", "OUT/old"],
    "attach": ["attach", "-", "-o", "OUT/new.zip"],
    "verify": ["verify", "-", "-o", "OUT/old"],
    "watch": ["watch", "-", "--json"],
}


def _heeds_signals() -> None:
    """Tests in the background of a script have them ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Running:
    """A command in a session of its own, so that what it leaves can be found."""

    def __init__(
        self, command: list[str], folder: Path, program: Sequence[str] = ("-m", "grpcdiag"), **streams: int
    ) -> None:
        self.folder = folder
        for name in ("out", "scratch"):
            (folder / name).mkdir()
        (folder / "out" / "old").write_text(OLD)
        paths = {
            "LARGE": str(folder.parent / "large.pcap"),
            "FILE": recorded("rtt205-go-32000.pcap"),
            "CLIENT": recorded("rtt205-go-16000.pcap"),
            "SERVER": recorded("rtt205-go-16000.server.pcap"),
        }
        if "LARGE" in command and not Path(paths["LARGE"]).exists():
            KINDS["unary"].build(Path(paths["LARGE"]), 30_000_000)
        arguments = [paths.get(a, a.replace("OUT", str(folder / "out"))) for a in command]
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(folder / "scratch"), "PYTHONFAULTHANDLER": "1"},
            start_new_session=True,
            preexec_fn=_heeds_signals,
            **({"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL} | streams),
        )

    def heeds(self) -> bool:
        """Check whether it has begun to heed signals: nothing else shows that where it reads nothing."""
        caught = Path(f"/proc/{self.process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
        return bool(int(caught, 16) >> signal.SIGTERM - 1 & 1)

    def ended(self) -> tuple[int, str]:
        """Exit code and messages; fails when it, or a process that it began, is still there."""
        try:
            _, said = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
            pytest.fail("the command goes on")
        try:
            wait_until(lambda: not self._processes())
        except AssertionError:
            left = self._processes()
            os.killpg(self.process.pid, signal.SIGKILL)
            pytest.fail(f"processes stay behind: {left}")
        return self.process.returncode, said.decode()

    def _processes(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                name, _, rest = (folder / "stat").read_text().rpartition(") ")
            except OSError:
                continue
            state, _, group, *_ = rest.split()
            if int(group) == self.process.pid and state != "Z":
                found.append(name)
        return found

    def left(self) -> list[str]:
        """Files besides the one that was there before, as long as it is as it was."""
        old = self.folder / "out" / "old"
        known = (old, old.parent, self.folder / "scratch") if old.read_text(errors="replace") == OLD else ()
        files = [path for path in self.folder.rglob("*") if path not in known]
        return sorted(str(path.relative_to(self.folder)) for path in files)


@contextmanager
def stalled(command: list[str], folder: Path, content: bytes) -> Iterator[Running]:
    """The command while it waits for more of a pipe."""
    reading, writing = os.pipe()
    try:
        running = Running(command, folder, stdin=reading)
        os.write(writing, content)
        wait_until(lambda: (running.heeds() and not waiting(writing)) or running.process.poll() is not None)
        assert running.process.poll() is None, "nothing is read"
        yield running
    finally:
        os.close(writing)
        os.close(reading)


def waiting(pipe: int) -> int:
    """Bytes in a pipe that nobody has read."""
    count: int = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
    return count


def need(name: str) -> None:
    if name.startswith("verify"):
        require_tool("tshark")
    if name.startswith(("capture, tcpdump", "capture -", "watch, tcpdump")):
        require_tool("tcpdump")


@pytest.mark.parametrize("name", READS_A_PIPE)
def test_ctrl_c_while_a_pipe_stalls(name: str, tmp_path: Path) -> None:
    need(name)
    content = Path(recorded("rtt205-go-32000.pcap")).read_bytes()[:STARTED]
    with stalled(READS_A_PIPE[name], tmp_path, content) as running:
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == (130, "")
    assert running.left() == []


PACKED = gzip.compress(Path(recorded("impl-go.pcap")).read_bytes(), mtime=0)


@pytest.mark.parametrize("content", [b"", b"\xd4", PACKED[:30_000]])
def test_ctrl_c_before_the_first_packet_and_in_compressed_data(content: bytes, tmp_path: Path) -> None:
    with stalled(["frames", "-", "--format", "csv", "-o", "OUT/new"], tmp_path, content) as running:
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == (130, "")
    assert running.left() == []


@pytest.mark.parametrize(
    ("name", "number", "code"),
    [
        ("analyze json", signal.SIGTERM, 143),
        ("frames", signal.SIGHUP, 129),
        ("export", signal.SIGTERM, 143),
        ("attach", signal.SIGHUP, 129),
    ],
)
def test_asked_to_end_while_a_pipe_stalls(name: str, number: signal.Signals, code: int, tmp_path: Path) -> None:
    content = Path(recorded("rtt205-go-32000.pcap")).read_bytes()[:STARTED]
    with stalled(READS_A_PIPE[name], tmp_path, content) as running:
        running.process.send_signal(number)
        assert running.ended() == (code, "")
    assert running.left() == []


AT_EVENT = """
import os, sys
number, event, word, times = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
sys.argv[1:] = sys.argv[5:]

def hook(name, arguments):
    global times
    if name == event and word in str(arguments):
        times -= 1
        if times == 0:
            os.kill(os.getpid(), number)

sys.addaudithook(hook)
from grpcdiag.__main__ import main
main()
"""
"""The command, which gets a signal at an event that Python audits: the n-th in whose arguments a word is."""

IMPORTED, MADE, OPENED, RENAMED = "open", "tempfile.mkdtemp", "open", "os.rename"
"""A module is imported, be it from its source or compiled, when a file of its name is opened."""
MOMENTS: dict[str, tuple[list[str], str, str, int]] = {
    "analyze, the command line": (["analyze", "FILE", "--details"], IMPORTED, "/analyze.", 1),
    "analyze, the short way": (["analyze", "FILE"], IMPORTED, "/analysis.", 1),
    "analyze, numpy": (["analyze", "FILE"], IMPORTED, "/multiarray.", 1),
    "analyze, the report": (["analyze", "FILE"], IMPORTED, "reports/terminal/__", 1),
    "analyze, while it reads": (["analyze", "FILE", "-q"], IMPORTED, "/analysis.", 2),
    "analyze, the file": (["analyze", "FILE", "--json", "-o", "OUT/old"], OPENED, ".grpcdiag-", 1),
    "analyze, the file's name": (["analyze", "FILE", "--json", "-o", "OUT/old"], RENAMED, ".grpcdiag-", 1),
    "html, the file": (["analyze", "FILE", "--format", "html", "-o", "OUT/new"], OPENED, ".grpcdiag-", 1),
    "perfetto, the file": (["analyze", "FILE", "--format", "perfetto", "-o", "OUT/old"], OPENED, ".grpcdiag-", 1),
    "both ends": (["analyze", "CLIENT", "SERVER"], IMPORTED, "/together.", 1),
    "compare, its folder": (["compare", "FILE", "FILE"], MADE, "", 2),
    "compare, the folder's end": (["compare", "FILE", "FILE"], "shutil.rmtree", "", 1),
    "connections": (["connections", "FILE"], IMPORTED, "/rows.", 1),
    "rpcs, its columns": (["rpcs", "FILE"], IMPORTED, "/frame.", 1),
    "rpcs, the file": (["rpcs", "FILE", "--format", "csv", "-o", "OUT/old"], OPENED, ".grpcdiag-", 1),
    "messages, the file": (["messages", "FILE", "--format", "parquet", "-o", "OUT/old"], OPENED, ".grpcdiag-", 1),
    "frames": (["frames", "FILE"], IMPORTED, "/decode.", 1),
    "packets, the file": (["packets", "FILE", "--format", "jsonl", "-o", "OUT/new"], OPENED, ".grpcdiag-", 1),
    "waits": (["waits", "FILE"], IMPORTED, "/waits.", 1),
    "timeline": (["timeline", "FILE", "--worst", "3"], IMPORTED, "/timeline.", 1),
    "export, the folder": (["export", "FILE", "-o", "OUT/tables"], "os.mkdir", "tables", 1),
    "export, the fourth file": (["export", "FILE", "-o", "OUT/tables"], OPENED, ".grpcdiag-", 4),
    "export, the spans": (["export", "FILE", "--format", "otlp", "-o", "OUT/old"], OPENED, ".grpcdiag-", 1),
    "explain": (["explain", "ping-storm"], IMPORTED, "/explain.", 1),
    "verify, tshark": (["verify", "FILE", "-o", "OUT/old"], "subprocess.Popen", "-J", 1),
    "scrub, the file": (["scrub", "FILE", "-o", "OUT/old"], OPENED, ".grpcdiag-", 1),
    "scrub, the comparison": (["scrub", "FILE", "-o", "OUT/old"], IMPORTED, "/scrub.", 1),
    "annotate, the file": (["annotate", "FILE", "-o", "OUT/old"], OPENED, ".grpcdiag-", 1),
    "attach, the folder": (["attach", "FILE", "-o", "OUT/new.zip"], MADE, "", 1),
    "attach, the file": (["attach", "FILE", "-o", "OUT/new.zip"], OPENED, ".grpcdiag-", 1),
    "doctor": (["doctor"], IMPORTED, "/doctor.", 1),
    "fleet report": (["fleet", "report", "OUT"], IMPORTED, "/report.", 1),
    "fleet analyze, the folder": (["fleet", "analyze", "FILE", "-q", "-o", "OUT/tables"], MADE, "fleet", 1),
    "lab": (["lab"], IMPORTED, "lab/cases/__", 1),
    "capture": (["capture", "-o", "OUT/new", "--", "true"], IMPORTED, "/recording.", 1),
    "capture, tcpdump": (["capture", "-o", "OUT/new", "--", "true"], "subprocess.Popen", "guard.py", 1),
    "watch": (["watch", "--json", "-i", "lo"], IMPORTED, "/loop.", 1),
    "watch, tcpdump": (["watch", "--json", "-i", "lo"], "subprocess.Popen", "guard.py", 1),
    "--help": (["--help"], IMPORTED, "/verify.", 1),
    "--version": (["--version"], IMPORTED, "grpcdiag/analyzer/__", 1),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_every_command_is_interrupted() -> None:
    tried = {arguments[0] for arguments, *_ in MOMENTS.values()}
    assert tried == {*COMMANDS, "--help", "--version"}


@pytest.mark.parametrize("name", MOMENTS)
def test_a_signal_at_a_moment_leaves_nothing(name: str, tmp_path: Path) -> None:
    need(name)
    arguments, *moment = MOMENTS[name]
    number = SIGNALS[list(MOMENTS).index(name) % len(SIGNALS)]
    running = Running(arguments, tmp_path, program=["-c", AT_EVENT, str(number.value), *map(str, moment)])
    assert running.ended() == (128 + number, "")
    if "name" not in name:  # the report was about to take its name
        assert running.left() == []


IN_A_CALLBACK = """
import gc, os, sys, weakref

class Dies:
    pass

class Finds:
    def find_spec(self, name, path=None, target=None):
        if name == "grpcdiag.cli.explain":
            dies = Dies()
            gone = weakref.ref(dies, lambda _: [os.kill(os.getpid(), {number}), sum(range(1000))])
            del dies

sys.meta_path.insert(0, Finds())
sys.argv = ["grpcdiag", "explain", "ping-storm"]
from grpcdiag.__main__ import main
main()
"""
"""Python drops every exception of such a callback, KeyboardInterrupt too."""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_heard_where_exceptions_are_dropped(number: signal.Signals) -> None:
    program = IN_A_CALLBACK.format(number=number.value)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, preexec_fn=_heeds_signals
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, b"", b"")


IN_A_BLOCK = """
import os
from grpcdiag import interruption

def ask():
    os.kill(os.getpid(), {number})
    sum(range(1000))  # calls, between which signals are heard

interruption.heed_signals()
with interruption.scratch("grpcdiag-") as folder, interruption.{block}():
    try:
        ask()
    finally:
        os.write(1, b"went on")
        ask()
        os.write(1, b" to the end")
os.write(1, b" and beyond")
"""


@pytest.mark.parametrize(
    ("block", "number", "written"),
    [("Indivisible", signal.SIGTERM, b"went on to the end"), ("Raising", signal.SIGHUP, b"went on")],
)
def test_blocks_that_a_signal_does_not_end_at_once(
    block: str, number: signal.Signals, written: bytes, tmp_path: Path
) -> None:
    """One is carried through; in the other the first signal is an exception, and the second ends the process."""
    program = IN_A_BLOCK.format(number=number.value, block=block)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        timeout=PATIENCE_S,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        preexec_fn=_heeds_signals,
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, written, b"")
    assert (block == "Raising") == any(tmp_path.iterdir())  # what is ended by force tidies nothing up


IN_A_CALLBACK_OF_A_BLOCK = """
import os, time, weakref
from grpcdiag import interruption

class Dies:
    pass

interruption.heed_signals()
dies = Dies()
gone = weakref.ref(dies, lambda _: [os.kill(os.getpid(), {number}), sum(range(1000))])
with interruption.Raising():
    try:
        del dies
        time.sleep(1000)
    except KeyboardInterrupt:
        os.write(1, b"an orderly end")
"""


def test_a_block_hears_a_signal_that_python_dropped() -> None:
    program = IN_A_CALLBACK_OF_A_BLOCK.format(number=signal.SIGTERM.value)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, preexec_fn=_heeds_signals
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"an orderly end", b"")


TWO_SIGNALS_OF_A_BLOCK = """
import _thread, os, time, types, weakref
from grpcdiag import interruption

class Dies:
    pass

def ask(number):
    while dies:  # what is raised until then is dropped
        sleep(0.001)
    interrupt(os.getpid(), number)
    while not interruption._raised:
        sleep(0.001)

def wait(seconds):
    if {place!r} == "before it is sent again" and not interruption._raised:
        ask({second})
    sleep(seconds)

def send(process, number):
    if {place!r} == "as it is sent again" and _thread.get_ident() != main:
        ask({second})
    interrupt(process, number)

main, sleep, interrupt = _thread.get_ident(), time.sleep, os.kill
interruption.time = types.SimpleNamespace(sleep=wait, monotonic=time.monotonic)
os.kill = send
interruption.heed_signals()
dies = [Dies(), True]
gone = weakref.ref(dies[0], lambda _: [os.kill(os.getpid(), {first}), sum(range(1000))])
with interruption.Raising():
    try:
        dies[0] = None
        dies.clear()
        while True:  # one long sleep may begin just after a signal
            sleep(0.001)
    except KeyboardInterrupt:
        while _thread._count() > 1:  # the other one watches for signals
            sleep(0.001)
        os.write(1, b"an orderly end")
        interrupt(os.getpid(), {second})
        sum(range(1000))
        os.write(1, b" that is not broken off")
"""


@pytest.mark.parametrize("place", ["before it is sent again", "as it is sent again"])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_one_that_python_dropped_begins_an_orderly_end(place: str, second: signal.Signals) -> None:
    """The first is not heard as a second one then; a third ends the process at once."""
    program = TWO_SIGNALS_OF_A_BLOCK.format(place=place, first=signal.SIGTERM.value, second=second.value)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, preexec_fn=_heeds_signals
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + second, b"an orderly end", b"")


INTERRUPTIONS = int(os.environ.get("GRPCDIAG_INTERRUPTIONS", "0"))
LONG: dict[str, list[str]] = {
    **{" ".join(arguments): arguments for arguments, *_ in MOMENTS.values()},
    "large rpcs": ["rpcs", "LARGE", "--format", "csv", "-o", "OUT/old"],
    "large analyze": ["analyze", "LARGE", "-q"],
}
LONGEST_S = 5
"""A second is promised; machines that run tests are busy."""


@pytest.mark.skipif(not INTERRUPTIONS, reason="GRPCDIAG_INTERRUPTIONS=500 tries as many moments per command")
@pytest.mark.parametrize("name", LONG)
def test_interrupted_at_random_moments(name: str, tmp_path: Path) -> None:
    """Over the time that the command takes. Before `main` signals are Python's: SIGINT ends it with a traceback."""
    need(name)
    random = Random(name)
    began = time.monotonic()  # noqa: TID251
    Running(LONG[name], _folder(tmp_path, "usual")).process.communicate()
    usual_s = time.monotonic() - began  # noqa: TID251
    ends: dict[object, int] = {}
    longest_s = 0.0
    for number in range(INTERRUPTIONS):
        running = Running(LONG[name], folder := _folder(tmp_path, str(number)))
        sent = random.choice(SIGNALS)
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(random.uniform(0, usual_s))
        began = time.monotonic()  # noqa: TID251
        running.process.send_signal(sent)
        code, said = running.ended()
        longest_s = max(longest_s, time.monotonic() - began)  # noqa: TID251
        if code == 128 + sent:
            assert "Traceback" not in said, said
            assert not [path for path in running.left() if "/." in path or "scratch/" in path]
        elif sent == signal.SIGINT and "KeyboardInterrupt" in said:
            code = "before main"
            assert "grpcdiag/cli" not in said, said
        else:
            assert code in (0, 3, -sent), said  # 3: there is no dataset to report on
        ends[code] = ends.get(code, 0) + 1
        shutil.rmtree(folder)
    print(f"{name}: {ends}, the longest {longest_s:.2f} s")
    assert longest_s < LONGEST_S


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


@pytest.mark.parametrize(
    ("command", "form"),
    [("rpcs", "csv"), ("frames", "jsonl"), ("messages", "csv"), ("packets", "jsonl"), ("waits", "csv")],
)
def test_a_reader_that_has_gone_is_no_error(command: str, form: str) -> None:
    """As in `grpcdiag rpcs FILE --format csv | head -1`."""
    name = recorded("ydb-unary-single-inflight1.pcap")
    process = subprocess.Popen(
        [sys.executable, "-m", "grpcdiag", command, name, "--format", form],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert (process.wait(PATIENCE_S), process.stderr.read()) == (0, b"")
    process.stderr.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_in_a_folder_that_takes_no_others_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    (folder / "report").write_text(OLD)
    folder.chmod(0o500)
    subprocess.run(
        [sys.executable, "-m", "grpcdiag", "analyze", recorded("impl-go.pcap"), "-o", str(folder / "report")],
        check=True,
    )
    assert "verdict" in (folder / "report").read_text()
