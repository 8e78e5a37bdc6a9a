"""The guard lets tcpdump write what it has buffered, and never while tcpdump itself writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from recorder import free_port, may_record
from support import wait_until

from grpcdiag.capture import guard, savefile, tcpdump

# The guard looks whether SIGUSR2 is handled once SIGUSR1 is: so the handler of SIGUSR2 comes first.
PROGRAM = """
import os, signal, sys
said = os.dup(2)
{more}
signal.signal(signal.SIGUSR1, lambda *_: None)
os.write(said, ("began " + " ".join(sys.argv[1:]) + "\\n").encode())
{body}
while True: signal.pause()
"""
FLUSHES = "signal.signal(signal.SIGUSR2, lambda *_: os.write(said, b'flushed\\n'))"


def is_in_call(pid: int, *first: str) -> bool:
    """Say whether a process waits in a system call, whose first argument may be given."""
    number, *words = Path(f"/proc/{pid}/syscall").read_text().split()
    return number.isdigit() and words[:1] == list(first or words[:1])


def run_guard(program: str) -> subprocess.Popen[str]:
    line = [sys.executable, str(guard.__file__), "--flush", sys.executable, "-c", program, "--", "any"]
    return subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_output_is_flushed_without_being_asked() -> None:
    with run_guard(PROGRAM.format(more=FLUSHES, body="")) as running:
        assert running.stderr and running.stdin
        assert running.stderr.readline() == "began -- any\n"
        assert running.stderr.readline() == "flushed\n"
        running.stdin.close()


def test_a_program_that_cannot_flush_writes_each_packet() -> None:
    """As an old tcpdump, which the signal would end. The guard ends the first one, perhaps before it says anything."""
    with run_guard(PROGRAM.format(more="", body="")) as running:
        assert running.stderr and running.stdin
        assert next(line for line in running.stderr if "-U" in line) == "began -U -- any\n"
        running.stdin.close()


@pytest.mark.parametrize(
    ("user", "capabilities", "may"), [(1000, "0", True), (0, "80020", True), (0, "20", False), (0, "80000", False)]
)
def test_root_without_capabilities_does_not_flush(
    monkeypatch: pytest.MonkeyPatch, user: int, capabilities: str, may: bool
) -> None:
    """CAP_KILL is bit 5, CAP_SYS_PTRACE bit 19: containers lack the latter."""
    monkeypatch.setattr(guard.os, "geteuid", lambda: user)
    monkeypatch.setattr(guard, "_read", lambda *_: f"CapEff:\t{capabilities}\n")
    assert guard._has_rights() == may


def test_nothing_is_flushed_while_a_packet_is_written() -> None:
    program = PROGRAM.format(more=FLUSHES, body='open(1, "wb").write(bytes(1 << 22)); os.write(said, b"written\\n")')
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout and running.stderr
        assert running.stderr.readline() == b"began \n"
        wait_until(lambda: is_in_call(running.pid, "0x1"))
        for _ in range(3):
            guard._flush(running.pid)
            wait_until(lambda: is_in_call(running.pid, "0x1"))
        assert len(running.stdout.read(1 << 22)) == 1 << 22
        assert running.stderr.readline() == b"written\n"
        wait_until(lambda: is_in_call(running.pid))
        guard._flush(running.pid)
        assert running.stderr.readline() == b"flushed\n"
        running.kill()


def start(path: Path, port: int) -> tcpdump.Tcpdump:
    """Run tcpdump, which the guard flushes, on packets to a port."""
    may_record()
    if os.geteuid() != 0:
        pytest.skip("a tcpdump with capabilities of its own hides its state")
    expression = f"udp dst port {port}"
    line = tcpdump.arguments(
        tcpdump.find(), interface="lo", expression=expression, output="-", stay_root=True, flushes=True
    )
    out = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        running = tcpdump.Tcpdump(line, out, flushes=True)
    finally:
        os.close(out)
    running.listen()
    (line,) = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in list_children(running)]
    assert b"-U" not in line  # otherwise it would write each packet at once
    return running


def list_children(running: tcpdump.Tcpdump) -> list[str]:
    pid = running._process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_one_packet_does_not_wait_for_others(tmp_path: Path) -> None:
    path, port = tmp_path / "run.pcap", free_port()
    running = start(path, port)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"alone", ("127.0.0.1", port))
        wait_until(lambda: path.stat().st_size > savefile.HEADER)
    finally:
        running.stop()


def test_packets_stay_whole_while_the_output_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "guard.py"
    script.write_text(Path(guard.__file__).read_text().replace("FLUSH_S = 0.2", "FLUSH_S = 0.001"))
    assert "FLUSH_S = 0.001" in script.read_text()
    monkeypatch.setattr(tcpdump, "GUARD", script)
    path, port = tmp_path / "run.pcap", free_port()
    running = start(path, port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(20_000):
            sender.sendto(bytes(number % 100), ("127.0.0.1", port))
    wait_until(lambda: (counts := running.ask()) is not None and counts.captured + counts.dropped >= 20_000)
    running.stop()
    counts = running.counts
    with path.open("rb") as file:
        found = savefile.look(file.fileno())
    assert counts and (found.packets, found.cut_at) == (counts.captured, None)
