"""Ctrl-C, a request to end, a reader that has gone: the command is over soon and leaves nothing unfinished."""

from __future__ import annotations

import fcntl
import gzip
import os
import signal
import struct
import subprocess
import sys
import termios
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import PATIENCE_S, recorded, require_tool, wait_until

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
    "compare": ["compare", "-", "FILE"],
    "scrub": ["scrub", "-", "-o", "OUT/old"],
    "attach": ["attach", "-", "-o", "OUT/new.zip"],
    "verify": ["verify", "-", "-o", "OUT/old"],
}
READS_FILES: dict[str, list[str]] = {
    **{
        name: [argument.replace("-", "FILE") if argument == "-" else argument for argument in command]
        for name, command in READS_A_PIPE.items()
        if name in ("analyze json", "analyze html", "rpcs csv", "export", "scrub", "attach", "verify")
    },
    "timeline --worst": ["timeline", "FILE", "--worst", "3"],
    "both ends": ["analyze", "CLIENT", "SERVER", "--json", "-o", "OUT/old"],
    "fleet": ["fleet", "analyze", "FILE", "-o", "OUT/tables"],
}


def _heeds_signals() -> None:
    """Tests in the background of a script have them ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Running:
    """A command in a session of its own, so that what it leaves can be found."""

    def __init__(self, command: list[str], folder: Path, **streams: int) -> None:
        self.folder = folder
        for name in ("out", "scratch"):
            (folder / name).mkdir()
        (folder / "out" / "old").write_text(OLD)
        paths = {
            "FILE": recorded("rtt205-go-32000.pcap"),
            "CLIENT": recorded("rtt205-go-16000.pcap"),
            "SERVER": recorded("rtt205-go-16000.server.pcap"),
        }
        arguments = [paths.get(a, a.replace("OUT", str(folder / "out"))) for a in command]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grpcdiag", *arguments],
            stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(folder / "scratch"), "PYTHONFAULTHANDLER": "1"},
            start_new_session=True,
            preexec_fn=_heeds_signals,
            **({"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL} | streams),
        )

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
        """Files besides the one that was there before."""
        files = [path for path in self.folder.rglob("*") if path.name not in ("out", "scratch", "old")]
        assert (self.folder / "out" / "old").read_text() == OLD
        return sorted(str(path.relative_to(self.folder)) for path in files)


@contextmanager
def stalled(command: list[str], folder: Path, content: bytes) -> Iterator[Running]:
    """The command while it waits for more of a pipe."""
    reading, writing = os.pipe()
    try:
        running = Running(command, folder, stdin=reading)
        os.write(writing, content)
        wait_until(lambda: not waiting(writing) or running.process.poll() is not None)
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
    if name == "verify":
        require_tool("tshark")


@pytest.mark.parametrize("name", READS_A_PIPE)
def test_ctrl_c_while_a_pipe_stalls(name: str, tmp_path: Path) -> None:
    need(name)
    content = Path(recorded("rtt205-go-32000.pcap")).read_bytes()[:STARTED]
    with stalled(READS_A_PIPE[name], tmp_path, content) as running:
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == (130, "")
    assert running.left() == []


@pytest.mark.parametrize("content", [b"", gzip.compress(Path(recorded("impl-go.pcap")).read_bytes())[:30_000]])
def test_ctrl_c_before_the_first_packet_and_in_compressed_data(content: bytes, tmp_path: Path) -> None:
    with stalled(["frames", "-", "--format", "csv", "-o", "OUT/new"], tmp_path, content) as running:
        time.sleep(0 if content else 0.5)  # nothing shows that it has begun to wait
        running.process.send_signal(signal.SIGINT)
        code, said = running.ended()
    assert code == 130 or (not content and code == -signal.SIGINT), said
    assert running.left() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("name", ["analyze json", "frames", "export", "attach", "rpcs csv"])
def test_asked_to_end_while_a_pipe_stalls(name: str, number: signal.Signals, code: int, tmp_path: Path) -> None:
    content = Path(recorded("rtt205-go-32000.pcap")).read_bytes()[:STARTED]
    with stalled(READS_A_PIPE[name], tmp_path, content) as running:
        running.process.send_signal(number)
        assert running.ended() == (code, "")
    assert running.left() == []


@pytest.mark.parametrize("moment_s", [0.3, 0.7])
@pytest.mark.parametrize("name", READS_FILES)
def test_whenever_it_is_interrupted_there_is_all_or_nothing(name: str, moment_s: float, tmp_path: Path) -> None:
    need(name)
    running = Running(READS_FILES[name], tmp_path)
    time.sleep(moment_s)
    running.process.send_signal(signal.SIGINT)
    code, said = running.ended()
    if code in (130, -signal.SIGINT):
        assert code != 130 or "Traceback" not in said, said  # else the interpreter itself was about to begin or to end
        if (tmp_path / "out" / "old").read_text() == OLD and name != "fleet":
            left = running.left()
            if left == ["out/new.zip"]:  # all, when Ctrl-C came right behind
                assert zipfile.is_zipfile(tmp_path / "out" / "new.zip")
            else:
                assert left == []
        assert not list((tmp_path / "scratch").iterdir())
    else:
        assert code in (0, 1), said


def test_ctrl_c_while_the_command_line_is_imported(tmp_path: Path) -> None:
    program = """
import sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "grpcdiag.cli.analyze":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
sys.argv = ["grpcdiag", "analyze", "x"]
from grpcdiag.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_large_file_is_interrupted_in_the_middle(tmp_path: Path) -> None:
    """Many times over, at moments spread over the time that the command takes."""
    capture = tmp_path / "large.pcap"
    KINDS["unary"].build(capture, 30_000_000)
    for round_ in range(4):
        folder = tmp_path / str(round_)
        folder.mkdir()
        running = Running(["rpcs", str(capture), "--format", "csv", "-o", "OUT/old"], folder)
        time.sleep(0.25 + round_ * 0.15)
        running.process.send_signal(signal.SIGTERM if round_ % 2 else signal.SIGINT)
        code, said = running.ended()
        text = (folder / "out" / "old").read_text()
        if code in (0, -signal.SIGINT, -signal.SIGTERM):  # Python was about to leave, or, on a busy machine, to begin
            assert text.startswith("connection,") or (text == OLD and code != 0 and running.left() == [])
        else:
            assert (code, said) in ((130, ""), (143, ""))
            assert running.left() == []


@pytest.mark.parametrize("command", ["rpcs", "frames", "messages", "packets", "waits", "connections"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
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
