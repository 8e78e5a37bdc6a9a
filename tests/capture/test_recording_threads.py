"""Recording threads beside packets: what is written, what is left behind, and what happens where it is not possible."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorder import AS_NOBODY, NOBODY, arguments, benchmark, capture, free_port, may_record, sidecar
from support import PATIENCE_S, wait_until

from grpcdiag.analyzer.sidecar.processes.record import RecordError, read_record
from grpcdiag.capture import ending, processes, recording, thread_times
from grpcdiag.capture.errors import RecordingError
from grpcdiag.capture.plan import Plan
from grpcdiag.capture.tcpdump import Rotation
from grpcdiag.capture.thread_times import ThreadTimes
from grpcdiag.capture.tracer import quota as quotas
from grpcdiag.capture.tracer import tracefs
from grpcdiag.capture.tracer.quota import Quota, list_cgroups
from grpcdiag.capture.tracer.running import Running, belongs_to, open_child, read_cgroups

TRACEFS = Path("/sys/kernel/tracing")
RECORD = "run.pcap.grpcdiag-processes"


@pytest.fixture
def traced() -> Iterator[None]:
    """Skip the test where threads cannot be recorded; afterwards no instance is left."""
    may_record()
    try:
        instances = TRACEFS / "instances"
        before = {path.name for path in instances.iterdir()}
    except OSError:
        pytest.skip("tracefs is not mounted, or only root may read it")
    yield
    wait_until(lambda: {path.name for path in instances.iterdir()} <= before)


def record(folder: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    port = free_port()
    where = ("-o", str(folder / "run.pcap"), "-i", "lo", "-p", str(port))
    return capture(*where, *words, "--", *benchmark(port), **options)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("words", "detail"), [(("--processes", "auto"), "on"), (("--processes", "full"), "full")])
def test_the_command_is_recorded_and_nobody_else(words: tuple[str, ...], detail: str, tmp_path: Path) -> None:
    """As by default, and with waits for locks."""
    done = record(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    path = tmp_path / RECORD
    assert path.stat().st_mode & 0o777 == 0o600
    found = read_record(path.read_bytes())
    names = {name for *_, name in found.events.tasks()}
    assert any(name.startswith("python") for name in names), names
    assert not names & {"systemd", "init", "kthreadd", "tcpdump"}
    assert found.full == (detail == "full")
    sockets = found.events.sockets()
    assert sum(sent > 0 for *_, sent in sockets) >= 3, "the benchmark opens three connections"
    assert sidecar(tmp_path / "run.pcap")["processes"] == {"file": RECORD, "detail": detail}
    assert f"threads: recorded, which took {found.cost_ns / 1e9:,.2f} s of processor time" in done.stderr


@pytest.mark.usefixtures("traced")
def test_a_user_gets_the_file(home: Path) -> None:
    home.chmod(0o755)
    words = ("-o", str(home / "run.pcap"), "-i", "lo", "-p", "1", "--processes", "on", "--", "sleep", "0.1")
    done = capture(*words, env={**os.environ, **AS_NOBODY})
    assert (home / RECORD).stat().st_uid == NOBODY, done.stderr


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_after_a_kill(number: int, tmp_path: Path) -> None:
    """The fixture looks for instances; the tracer ends with the pipe that its caller held."""
    words = ("-o", str(tmp_path / "run.pcap"), "-i", "lo", "-p", "1", "--processes", "on", "--", "sleep", "600")
    running = subprocess.Popen(arguments(*words), stderr=subprocess.DEVNULL, start_new_session=True)
    mine = re.compile(rf"{tracefs.PREFIX}\d+-own")
    wait_until(lambda: any(mine.fullmatch(path.name) for path in (TRACEFS / "instances").iterdir()))
    wait_until(lambda: _has_child(running.pid, "sleep"))
    os.killpg(running.pid, number)
    running.wait()


def _has_child(pid: int, name: str) -> bool:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    pids = found.read_text().split() if found.exists() else []
    for child in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                return True
    return False


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("ports", "states"), [([], ["0", "1"]), (list(range(1, 33)), ["1", "0"])])
def test_without_ports_only_connections_of_the_command_are_recorded(ports: list[int], states: list[str]) -> None:
    """The other instance records all processes of the machine."""
    sink = os.open("/dev/null", os.O_WRONLY)
    running = processes.Tracer(sink, ports, "on")
    try:
        found = sorted(
            TRACEFS.glob(f"instances/{tracefs.PREFIX}{running.pid}-*/events/sock/inet_sock_set_state/enable")
        )
        assert [path.read_text().strip() for path in found] == states
    finally:
        assert running.stop() == ""
        os.close(sink)


@pytest.mark.usefixtures("traced")
def test_connections_of_the_command_are_recorded_without_ports(tmp_path: Path) -> None:
    port = free_port()
    words = ("-o", str(tmp_path / "run.pcap"), "-i", "lo", "--filter", f"port {port}", "--processes", "on", "--")
    done = capture(*words, *benchmark(port))
    assert done.returncode == 0, done.stderr
    assert any(sent for *_, sent in read_record((tmp_path / RECORD).read_bytes()).events.sockets())


def test_too_many_ports_are_refused() -> None:
    assert tracefs.filter_ports([1, 2]) == "sport == 1 || dport == 1 || sport == 2 || dport == 2"
    assert tracefs.filter_ports(list(range(1, 33))).count("sport") == 32
    with pytest.raises(tracefs.Refused, match="33 ports are too many"):
        tracefs.filter_ports(list(range(1, 34)))


@pytest.mark.usefixtures("traced")
def test_a_full_disk_ends_the_record_and_is_told() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(RecordingError, match="No space left on device"):
            processes.Tracer(full, [], "on")
    finally:
        os.close(full)


def test_only_root_records_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(processes.UnsuitableError, match="only root may record them"):
        processes.Tracer(1, [], "on")


@pytest.mark.parametrize(("rights", "changeable"), [("000001ffffffffff", True), ("00000000a80425fb", False)])
def test_only_what_the_user_can_change_is_said_by_default(
    rights: str, changeable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container without CAP_SYS_ADMIN, root cannot mount tracefs."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tracefs, "ROOTS", ())
    monkeypatch.setattr(processes.tools, "read", lambda path: f"CapPrm:\t0\nCapEff:\t{rights}\n")
    with pytest.raises(RecordingError, match="tracefs is not mounted") as raised:
        processes.check_possible()
    assert isinstance(raised.value, processes.UnsuitableError) != changeable


FAILURES: dict[str, tuple[processes.Detail, str, str]] = {
    "it cannot start": ("auto", "exit 3", "the tracer does not answer"),
    "it refuses": ("on", "echo not here >&2; exit 1", "not here"),
    "it hangs at its start": ("auto", "exec sleep 600", "the tracer does not answer"),
    "it fails as soon as it runs": ("on", "echo ready >&2; exit 3", "exit code 3"),
    "it is killed": ("auto", "echo ready >&2; kill -KILL $$", "exit code -9"),
    "it fails at its end": ("on", "echo ready >&2; cat > /dev/null; echo disk full >&2; exit 1", "disk full"),
    "it hangs at its end": ("auto", "echo ready >&2; exec sleep 600", "exit code -9"),
}
"""What the tracer may do instead of recording, and what is said of it."""


@pytest.mark.parametrize(("detail", "script", "why"), FAILURES.values(), ids=FAILURES)
def test_a_tracer_that_fails_changes_nothing_else(
    detail: processes.Detail, script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMMAND's exit code, its packets and the sidecar are as without it, and no part of the record stays."""
    may_record()
    program = tmp_path / "setpriv"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes, "check_possible", lambda: str(program))
    monkeypatch.setattr(processes, "START_PATIENCE_S", 0.5 if script.startswith("exec") else PATIENCE_S)
    monkeypatch.setattr(processes, "STOP_PATIENCE_S", 0.5 if "sleep" in script else PATIENCE_S)
    monkeypatch.setattr(ending, "BLOCK_S", 0)
    said: list[str] = []
    command = ("sh", "-c", "kill -TERM $$" if detail == "auto" else "exit 7")
    plan = Plan(command, str(tmp_path / "run.pcap"), "lo", "port 1", (1,), processes=detail, patience_s=0)
    outcome = recording.record(plan, said.append)
    assert outcome.code == (128 + signal.SIGTERM if detail == "auto" else 7)
    assert outcome.files == [str(tmp_path / "run.pcap")]
    assert outcome.threads_cost_ns is None
    told = [*said, *(line for line in outcome.problems if "threads" in line)]
    assert told == [f"threads are not recorded, only packets: {why}"]
    assert "processes" not in sidecar(tmp_path / "run.pcap")
    assert not list(tmp_path.glob("*grpcdiag-processes"))


def test_where_tracefs_is_not_mounted_it_is_said(tmp_path: Path) -> None:
    may_record()
    if (TRACEFS / "instances").is_dir() or os.geteuid() != 0:
        pytest.skip("tracefs is mounted, or only root may read it")
    done = record(tmp_path, "--processes", "on")
    assert "threads are not recorded, only packets: tracefs is not mounted" in done.stderr
    assert (done.returncode, (tmp_path / RECORD).exists()) == (0, False)
    assert "processes" not in json.loads((tmp_path / "run.pcap.grpcdiag.json").read_text())


@pytest.mark.usefixtures("traced")
def test_threads_are_not_recorded_if_that_is_switched_off(tmp_path: Path) -> None:
    assert "threads:" not in record(tmp_path, "--processes", "off").stderr
    assert not (tmp_path / RECORD).exists()


@pytest.mark.usefixtures("traced")
def test_a_quiet_recording_says_nothing_of_threads(tmp_path: Path) -> None:
    assert record(tmp_path, "--quiet").stderr == ""


@pytest.mark.parametrize("words", [("-o", "-", "--", "true"), ("-o", "/dev/null", "--", "true")])
def test_without_a_file_it_is_said(words: tuple[str, ...]) -> None:
    may_record()
    done = subprocess.run(
        arguments("-i", "lo", "-p", "1", "--processes", "on", *words), capture_output=True, check=True
    )
    assert b"threads are not recorded, only packets: that needs a COMMAND or --pid, and a file" in done.stderr


@pytest.mark.usefixtures("traced")
def test_an_incomplete_record_is_told_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full disk stops the tracer first, the end of the recording a second time."""

    class Killed(processes.Tracer):
        def follow(self, pid: int) -> None:
            os.kill(self.pid, signal.SIGKILL)

    monkeypatch.setattr(processes, "Tracer", Killed)
    monkeypatch.setattr(recording, "LEAST_FREE", 1 << 62)
    output = str(tmp_path / "run.pcap")
    told = tmp_path / "told"
    command = ("sh", "-c", 'until [ -e "$0" ]; do sleep 0.02; done', str(told))
    plan = Plan(command, output, "lo", "port 1", (1,), processes="on", patience_s=0)
    said: list[str] = []

    def tell(line: str) -> None:
        said.append(line)
        if "the disk is almost full" in line:
            told.touch()

    problems = recording.record(plan, tell).problems
    assert any("the disk is almost full" in line for line in said)
    assert any(line.startswith("threads are not recorded, only packets: ") for line in problems)
    assert not (tmp_path / RECORD).exists()


def test_an_instance_without_room_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "instances").mkdir()
    tried = []

    def refuse(path: str, text: str) -> None:
        tried.append(path.rpartition("/")[2])
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)

    monkeypatch.setattr(tracefs, "write", refuse)
    with pytest.raises(OSError, match="Cannot allocate"):
        tracefs.Instance(str(tmp_path), "own", 2)
    assert tried == ["trace_clock", "tracing_on"]
    assert not list((tmp_path / "instances").iterdir())


def test_instances_of_processes_that_are_no_tracers_are_removed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "input()"]
    folder = str(Path(tracefs.__file__).parent)
    with (
        subprocess.Popen([*words, folder], stdin=subprocess.PIPE) as like,
        subprocess.Popen(words, stdin=subprocess.PIPE) as other,
    ):
        names = {pid: f"{tracefs.PREFIX}{pid}-own" for pid in (like.pid, other.pid, os.getpid(), 1 << 30)}
        for name in (*names.values(), "another"):
            (tmp_path / "instances" / name).mkdir(parents=True)
        wait_until(lambda: tracefs.is_tracer(like.pid))
        tracefs.remove_stale(str(tmp_path))
        assert {path.name for path in (tmp_path / "instances").iterdir()} == {names[like.pid], "another"}
        like.communicate(b"\n")
        other.communicate(b"\n")


@pytest.mark.usefixtures("traced")
def test_a_killed_tracer_leaves_no_instance_and_is_told_each_time() -> None:
    sink = os.open("/dev/null", os.O_WRONLY)
    running = processes.Tracer(sink, [], "on")
    assert list(TRACEFS.glob(f"instances/{tracefs.PREFIX}{running.pid}-*"))
    os.kill(running.pid, signal.SIGKILL)
    assert running.stop() == running.stop() == "exit code -9"
    assert not list(TRACEFS.glob(f"instances/{tracefs.PREFIX}{running.pid}-*"))
    os.close(sink)


def test_namespaces_with_numbers_or_clocks_of_their_own_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, set_event_pid would name processes of the host, and the offset of the clocks would be wrong."""
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "header_page").write_text("field: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n")
    found = {"/proc/self/ns/pid": "pid:[4026531836]", "/proc/self/ns/time": "time:[4026531834]"}

    def read_link(path: str) -> str:
        if path not in found:
            raise FileNotFoundError
        return found[path]

    monkeypatch.setattr(os, "readlink", read_link)
    tracefs.check_kernel(str(tmp_path))
    found["/proc/self/ns/time"] = "time:[4026532202]"
    with pytest.raises(tracefs.Unsuitable, match="the clock of this container is not the kernel's"):
        tracefs.check_kernel(str(tmp_path))
    del found["/proc/self/ns/time"]  # before Linux 5.6
    tracefs.check_kernel(str(tmp_path))
    found["/proc/self/ns/pid"] = "pid:[4026532201]"
    with pytest.raises(tracefs.Unsuitable, match="process numbers in this container are not the kernel's"):
        tracefs.check_kernel(str(tmp_path))


def test_rings_leave_room_in_the_memory() -> None:
    assert tracefs.choose_buffer_kib(2, "MemAvailable: 16777216 kB\n") == tracefs.BUFFER_KIB
    assert tracefs.choose_buffer_kib(2, "MemAvailable: 524288 kB\n") == tracefs.BUFFER_KIB
    assert tracefs.choose_buffer_kib(2, "MemAvailable: 524224 kB\n") < tracefs.BUFFER_KIB
    assert tracefs.choose_buffer_kib(256, "MemAvailable: 999999999 kB\n") == 1024
    assert tracefs.choose_buffer_kib(256, "") == 1024


def test_cgroups_of_both_versions_are_found() -> None:
    base = quotas.CGROUPS
    unified = f"{base}/unified"
    assert list_cgroups("0::/a/b\n") == [f"{base}/a/b", f"{base}/a", base, f"{unified}/a/b", f"{unified}/a", unified]
    both = [f"{base}/cpu,cpuacct/a", f"{base}/cpu,cpuacct", f"{base}/cpu/a", f"{base}/cpu"]
    assert list_cgroups("3:cpu,cpuacct:/a\n2:memory:/b\n") == both
    assert list_cgroups("1:cpu:/../a\n0::/../../b\n") == [], "another cgroup may have that name here"


def test_throttled_time_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "CGROUPS", str(tmp_path))
    place = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), None)
    if place is None or place == "0::/":
        pytest.skip("this process is in no cgroup of version 2")
    folder = tmp_path / place[3:].strip("/")
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text("40000 100000\n")
    quota = Quota(Running(os.getpid()))
    for throttled in (0, 0, 30_000, 30_000, 31_000):
        (folder / "cpu.stat").write_text(f"usage_usec 5\nnr_throttled 1\nthrottled_usec {throttled}\n")
        quota.look()
    assert quota.processors == 0.4
    assert quota.throttled_ns == 31_000_000
    assert len(quota.throttled) == 2
    (first, end), (second, last) = quota.throttled
    assert first < end <= second < last


def test_cgroups_that_are_throttled_at_once_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "list_cgroups", lambda text: [str(tmp_path / "pod/app"), str(tmp_path / "pod")])
    (tmp_path / "pod/app").mkdir(parents=True)
    quota = Quota(Running(os.getpid()))
    for app, pod in ((5, 7), (25, 57), (65, 57)):
        (tmp_path / "pod/app/cpu.stat").write_text(f"throttled_usec {app}\n")  # version 2
        (tmp_path / "pod/cpu.stat").write_text(f"throttled_time {pod}000\n")  # version 1
        quota.look()
    assert quota.throttled_ns == 90_000
    assert len(quota.throttled) == 2


def test_a_record_of_another_kind_is_refused() -> None:
    for content in (b"", b"J\x02\0\0\0{}", b"J\xff\xff\xff\xff{}", os.urandom(100)):
        with pytest.raises(RecordError):
            read_record(content)


ECHO = """
import socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(flush=True)
while True:
    peer, _ = listener.accept()
    threading.Thread(target=lambda: peer.sendall(peer.recv(100))).start()
"""


@pytest.fixture
def server() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server that runs already, with two threads, and its port."""
    port = free_port()
    with process(sys.executable, "-c", ECHO, str(port)) as running:
        assert running.stdout
        running.stdout.readline()
        yield port, running


@pytest.mark.usefixtures("traced")
def test_a_running_server_is_recorded_with_its_threads(
    server: tuple[int, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    port, running = server
    with (tmp_path / "record").open("wb") as sink:
        tracing = processes.Tracer(sink.fileno(), [port], "on", [running.pid], children=False)
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
        assert tracing.stop() == ""
    found = read_record((tmp_path / "record").read_bytes())
    tasks = found.events.tasks()
    assert {(process, root) for _, process, root, _ in tasks} == {(running.pid, running.pid)}
    assert len(tasks) == 3, "two threads, and one for the connection"
    sent = {port: total for _, _, port, _, _, total in found.events.sockets()}
    assert sent[port] == 5
    assert not any(total for own, total in sent.items() if own != port), "the client is not recorded"
    assert [quota.process for quota in found.quotas] == [running.pid]


@pytest.mark.usefixtures("traced")
def test_another_users_process_is_not_recorded_for_a_user_of_sudo(
    server: tuple[int, subprocess.Popen[bytes]], home: Path
) -> None:
    port, running = server
    home.chmod(0o755)
    words = ("-o", str(home / "run.pcap"), "-i", "lo", "-p", str(port), "--processes", "on", "--pid", str(running.pid))
    done = capture(*words, "--user", "root", "--", "true", env={**os.environ, **AS_NOBODY})
    assert f"only packets: process {running.pid} is not the caller's: only a root login may record it" in done.stderr
    assert not (home / RECORD).exists()


@pytest.mark.usefixtures("traced")
def test_a_process_that_is_not_there_is_refused() -> None:
    sink = os.open("/dev/null", os.O_WRONLY)
    with pytest.raises(RecordingError, match=r"process 4194304: (No such process|Invalid argument)"):
        processes.Tracer(sink, [], "on", [1 << 22])
    os.close(sink)


@contextlib.contextmanager
def process(*words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    with subprocess.Popen([*words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options) as running:
        try:
            yield running
        finally:
            running.kill()


def test_a_process_that_ends_is_not_followed(tmp_path: Path) -> None:
    """Its number may be another's by then."""
    filter_ = tmp_path / "set_event_pid"
    filter_.touch()
    with process("sleep", "600") as running:
        followed = Running(running.pid)
        assert [task[:2] for task in followed.follow(str(filter_)) or []] == [(running.pid, running.pid)]
        assert filter_.read_text() == f"{running.pid} "
        running.kill()
        wait_until(lambda: not followed.is_alive())
        with pytest.raises(tracefs.Refused, match=f"process {running.pid} has ended"):
            followed.follow(str(filter_))


def test_a_command_is_told_from_a_process_that_got_its_number() -> None:
    """Otherwise the quota of another would be taken for the command's."""
    with process("sleep", "600") as running:
        assert open_child(running.pid, os.getpid())
        assert open_child(running.pid, 1) is None
        watched = Running(running.pid)
        assert watched.read_cgroups()
        running.kill()
        wait_until(lambda: not watched.is_alive())
        assert watched.read_cgroups() is None
        assert open_child(running.pid, os.getpid()) is None


def test_a_thread_that_ends_is_in_no_other_cgroup() -> None:
    """The kernel moves it to the first cgroup of version 1, whose quota is another."""
    with process("sleep", "600") as running:
        assert read_cgroups(str(running.pid)) == Path(f"/proc/{running.pid}/cgroup").read_text()
        running.kill()
        wait_until(lambda: read_cgroups(str(running.pid)) is None)
        assert Path(f"/proc/{running.pid}").exists(), "nobody has waited for it yet"


WAITS = """
while not __import__("os").path.exists(sys.argv[1]): time.sleep(0.02)
"""
BUSY = """
import sys, time
while time.process_time() < 0.1: pass
print(flush=True)
input()
"""


def test_every_user_learns_how_long_the_threads_of_a_command_and_its_children_ran() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count the time of threads (CONFIG_SCHED_INFO)")
    with process("sh", "-c", '"$0" -S -c "$1"; true', sys.executable, BUSY) as running:
        times = ThreadTimes(running.pid)
        assert times.describe() is None, "before the first look"
        assert running.stdout
        running.stdout.readline()
        times.look()
        found = times.describe()
        assert found
        assert 100_000_000 <= found["ran_ns"] <= 100_000_000 + found["elapsed_ns"]
        assert found["processors"] is None or found["processors"] > 0
        times.look()
        again = times.describe()
        assert again and again["ran_ns"] - found["ran_ns"] < 50_000_000, "what was counted is not counted again"
        running.communicate(b"\n")


def test_a_command_with_too_many_threads_is_looked_at_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    times, looks = ThreadTimes(os.getpid()), list[int]()

    def list_threads(pid: int) -> list[tuple[int, Path]]:
        looks.append(pid)
        return [(pid, Path("/proc/self"))]

    monkeypatch.setattr(thread_times, "MOST_THREADS", 0)
    monkeypatch.setattr(thread_times, "_list_threads", list_threads)
    times.look()
    times.look()
    assert looks == [os.getpid()] and times.describe() is None


def test_without_a_record_of_threads_their_times_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with --processes off nothing."""
    may_record()
    monkeypatch.setattr(processes, "check_possible", lambda: _refuse())
    monkeypatch.setattr(ending, "BLOCK_S", 0)
    real, looked = ThreadTimes.look, tmp_path / "looked"

    def look(times: ThreadTimes) -> None:
        real(times)
        if times.describe():
            looked.touch()

    monkeypatch.setattr(ThreadTimes, "look", look)
    until_looked = (sys.executable, "-S", "-c", BUSY.replace("input()", WAITS), str(looked))
    for detail, expected in (("auto", Path("/proc/self/schedstat").exists()), ("off", False)):
        command = until_looked if expected else (*until_looked[:3], str(tmp_path))
        plan = Plan(command, str(tmp_path / "run.pcap"), "lo", "port 1", (1,), processes=detail, patience_s=0)
        recording.record(plan, str)
        assert ("threads" in sidecar(tmp_path / "run.pcap")) == expected


def test_beside_a_ring_of_files_no_threads_are_recorded_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_record()
    made: list[object] = []
    monkeypatch.setattr(processes, "Tracer", lambda *words, **options: made.append(words))
    monkeypatch.setattr(ending, "BLOCK_S", 0)
    plan = Plan(("true",), str(tmp_path / "run.pcap"), "lo", "port 1", (1,), rotate=Rotation(1, 2), patience_s=0)
    assert recording.record(plan, str).code == 0
    assert not made


def _refuse() -> str:
    raise processes.UnsuitableError("only root may record them")


def test_only_processes_that_a_user_may_trace_are_the_users() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change its user")
    became = f"import os; os.setresuid({NOBODY}, {NOBODY}, {NOBODY}); print(flush=True); input()"
    with process("/bin/sleep", "600", user=NOBODY) as own, process(sys.executable, "-c", became) as dropped:
        assert dropped.stdout
        dropped.stdout.readline()
        assert belongs_to(own.pid, NOBODY)
        assert not belongs_to(own.pid, 0)
        assert not belongs_to(os.getpid(), NOBODY)
        kept = Path("/proc/sys/fs/suid_dumpable").read_text().strip() == "1"
        assert belongs_to(dropped.pid, NOBODY) == kept, "it was root, and may hold what root knew"


def test_a_process_whose_threads_are_recorded_needs_a_port() -> None:
    done = capture("-i", "lo", "--processes", "on", "--pid", "1", "--", "true")
    assert done.returncode == 2
    assert "--pid needs the server's port (-p or -t)" in done.stderr
