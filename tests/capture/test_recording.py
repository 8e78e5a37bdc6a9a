"""Real recordings on the loopback device: complete files, exit codes, signals, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recorder import arguments, benchmark, capture, check_whole, free_port, gone, may_record, sidecar
from support import PATIENCE_S, wait_until
from terminals import Terminal

RUNS = int(os.environ.get("GRPCDIAG_CAPTURE_RUNS", "3"))
"""Recordings in a row; the acceptance run has 50."""


@pytest.fixture(autouse=True, scope="module")
def _right() -> None:
    may_record()


@pytest.mark.parametrize("run", range(RUNS))
def test_every_rpc_from_the_first_syn_to_the_last_fin(run: int, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    port, file = free_port(), tmp_path / "run.pcap"
    how, code = [("0", 0), ("3", 3), ("kill-15", 143)][run % 3]
    interface = ["-t", f"127.0.0.1:{port}"] if run % 2 else ["-i", "any", "-p", str(port)]
    done = capture("-o", str(file), *interface, "--", *benchmark(port, how=how))
    assert done.returncode == code, done.stderr
    check_whole(file, json.loads(done.stdout))  # and standard output is the command's alone
    assert "none dropped" in done.stderr
    assert gone(str(file))
    told = sidecar(file)
    assert told["command"]["exit_code"] == code
    assert told["packets"]["dropped"] == 0
    assert told["host"]["sysctls"]["net.ipv4.tcp_slow_start_after_idle"] in ("0", "1")
    assert told["capture"]["interface"] == ("lo" if run % 2 else "any")


def test_killed_in_the_middle_the_file_is_whole_so_far(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    port, file = free_port(), tmp_path / "run.pcap"
    command = benchmark(port, connections=1, calls=50, how="forever")
    with subprocess.Popen(
        arguments("-o", str(file), "-p", str(port), "--", *command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        try:
            wait_until(lambda: any(part.stat().st_size > 400_000 for part in tmp_path.glob("run.recording-*.pcap")))
            running.kill()
            running.wait(PATIENCE_S)
            assert gone(f"tcp and port {port}"), "tcpdump was left behind"
        finally:
            os.killpg(running.pid, signal.SIGKILL)  # the command goes on by itself: nobody asked it to stop
    assert gone(f" {port} ")
    (file,) = tmp_path.glob("run.recording-*.pcap")
    whole = subprocess.run(
        [sys.executable, "-m", "grpcdiag", "analyze", "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert whole.returncode == 0, whole.stderr
    document = json.loads(whole.stdout)
    assert document["totals"]["rpcs"] > 50  # some 4.5 kB each
    assert not [w for w in document["quality"]["warnings"] if "byte" in w]  # no cut or damaged record
    assert sidecar(file)["ended_time_ns"] is None
    lines = file.with_name(file.name + ".grpcdiag-ss.jsonl").read_bytes().splitlines()
    assert [json.loads(line) for line in lines[:-1]]


SAYS = (
    "import signal,sys,time;signal.signal(signal.{0}, lambda *_: sys.exit(7));print('up',flush=True);time.sleep(1000)"
)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_sent_to_us_are_the_commands(name: str, tmp_path: Path) -> None:
    if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored where the tests run, as by nohup, and so by every program they start")
    file = tmp_path / "run.pcap"
    words = arguments("-o", str(file), "-p", "1", "-q", "--", sys.executable, "-c", SAYS.format(name))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        running.send_signal(getattr(signal, name))
        assert running.wait(PATIENCE_S) == 7
    assert gone(str(file))


COUNTS_KEYS = """
import signal, sys, time
keys = []
signal.signal(signal.SIGINT, lambda *_: keys.append(1))
print("up", sys.stdin.readline().strip(), flush=True)
while not keys:
    time.sleep(0.05)
time.sleep(1.5)  # a second one would come now
print("keys", len(keys), flush=True)
sys.exit(5)
"""


def test_the_terminal_belongs_to_the_command(tmp_path: Path) -> None:
    """What is typed reaches it, and Ctrl-C reaches it once."""
    file = tmp_path / "run.pcap"
    words = arguments("-o", str(file), "-p", "1", "-q", "--", sys.executable, "-c", COUNTS_KEYS)
    with Terminal(words) as terminal:
        terminal.type("hello\n")
        terminal.read_until("up hello")
        terminal.type("\x03")
        assert terminal.read_until(r"keys \d").endswith("keys 1")
        assert terminal.process.wait(PATIENCE_S) == 5
    assert gone(str(file))


def test_a_stream_is_the_capture_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    port = free_port()
    with subprocess.Popen(
        arguments("-o", "-", "-p", str(port), "--", *benchmark(port, how="3")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 3
    counted = next(json.loads(line) for line in err.splitlines() if line.startswith(b"{"))
    file = tmp_path / "stream.pcap"
    file.write_bytes(out)
    check_whole(file, counted)


def test_rotation_keeps_the_last_files(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    port, file = free_port(), tmp_path / "ring.pcap"
    done = capture(
        *("-o", str(file), "-p", str(port), "--rotate", "1Mx2", "--"),
        *benchmark(port, connections=1, calls=40, size=50_000),
    )
    assert done.returncode == 0, done.stderr
    files = sorted(p.name for p in tmp_path.glob("ring.pcap[0-9]*"))
    assert files == ["ring.pcap0", "ring.pcap1"]
    assert all(p.stat().st_size < 1_200_000 for p in tmp_path.glob("ring.pcap[0-9]*"))
    assert sidecar(file)["capture"]["rotate"] == {"megabytes": 1, "files": 2}


def test_then_analyze_prints_the_diagnosis_and_keeps_the_exit_code(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    port, file = free_port(), tmp_path / "run.pcap"
    done = capture("-o", str(file), "-p", str(port), "--then", "analyze", "--", *benchmark(port, how="3"))
    assert done.returncode == 3
    first, _, rest = done.stdout.partition("\n")
    assert json.loads(first)["rpcs"] == 60
    assert "verdict" in rest and "/demo.Bench/Echo" in rest


def test_without_a_command_it_records_until_it_is_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    port, file = free_port(), tmp_path / "run.pcap"
    with subprocess.Popen(
        arguments("-o", str(file), "-i", "lo", "-p", str(port)), stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        wait_until(lambda: list(tmp_path.glob("run.recording-*.pcap.grpcdiag-ss.jsonl")))
        counted = json.loads(
            subprocess.run(benchmark(port), capture_output=True, check=True, timeout=PATIENCE_S).stdout
        )
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == 0
        assert "none dropped" in running.stderr.read()
    check_whole(file, counted)


def test_no_thread_but_the_main_one_takes_signals(tmp_path: Path) -> None:
    """A signal that another thread takes is lost to the command."""
    look = "for t in /proc/$PPID/task/*; do echo $PPID ${t##*/} $(grep SigBlk $t/status); done"
    done = capture("-o", str(tmp_path / "run.pcap"), "-q", "-i", "lo", "-p", "1", "--", "sh", "-c", look)
    lines = [line.split() for line in done.stdout.splitlines()]
    others = {thread: int(blocked, 16) for process, thread, _, blocked in lines if process != thread}
    wanted = 1 << signal.SIGTERM - 1 | 1 << signal.SIGINT - 1
    assert others and all(blocked & wanted == wanted for blocked in others.values()), done.stdout
