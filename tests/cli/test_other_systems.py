"""What reads captures runs without Linux: on macOS, and on Windows, which has no POSIX functions either."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE_S, recorded

CAPTURE = recorded("rtt205-go-14000.pcap")
OTHER = recorded("rtt205-go-16000.pcap")

# Takes away what the system lacks, then runs commands in one process. Libraries are imported before: each of them has
# its own ways for that system.
PROGRAM = """
import _signal, importlib, io, json, mmap, os, sys, time
system, lacks, folders, libraries, runs = json.loads(sys.argv[1])
for name in libraries:
    importlib.import_module(name)
sys.platform = system
for name in lacks:
    owner, _, attribute = name.rpartition(".")
    if owner:
        for module in (owner, f"_{owner}"):
            vars(sys.modules.get(module, sys)).pop(attribute, None)
    else:
        sys.modules[name] = None
def list_open_files():
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the listing's own
            pass
if not folders:
    def refuse(function):
        def careful(path, *others, dir_fd=None, **named):
            if dir_fd is not None or (function is open_file and os.path.isdir(path)):
                raise PermissionError(13, "no folder can be opened", path)
            if function is not open_file and any(os.path.realpath(path) == held for held in list_open_files()):
                raise PermissionError(32, "it is open", path)
            return function(path, *others, **{name: what for name, what in named.items() if what is not None})
        return careful
    open_file = os.open
    for name in ("open", "replace", "rename", "unlink"):
        setattr(os, name, refuse(getattr(os, name)))
from grpcdiag import interruption, streams
from grpcdiag.__main__ import run
interruption.heed_signals()
streams.prepare()
told = []
for arguments in runs:
    sys.argv[1:] = arguments
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code = run()
    told.append([code, *(stream.buffer.getvalue().decode() for stream in (sys.stdout, sys.stderr))])
sys.stdout = sys.__stdout__
print(json.dumps(told))
"""
LIBRARIES = "asyncio multiprocessing numpy jinja2 pyarrow.parquet rich.progress rich.table shutil subprocess "
LIBRARIES += "tempfile typer.testing typer.rich_utils socket uuid platform xml.etree.ElementTree"
NOT_MACOS = "os.O_PATH os.sched_getaffinity os.pidfd_open signal.sigtimedwait signal.pidfd_send_signal"
NOT_WINDOWS = (
    NOT_MACOS
    + """
fcntl grp pwd resource termios tty pty readline syslog
os.O_CLOEXEC os.O_DIRECTORY os.O_NOCTTY os.O_NOFOLLOW os.O_NONBLOCK
os.chown os.fchmod os.fchown os.fork os.fstatvfs os.getegid os.geteuid os.getgid os.getgrouplist os.getloadavg os.getuid
os.killpg os.mkfifo os.posix_spawn os.set_blocking os.setgroups os.setsid os.statvfs
signal.SIGHUP signal.SIGKILL signal.SIGQUIT signal.SIGUSR1 signal.SIGUSR2 signal.pthread_sigmask
mmap.MADV_DONTNEED time.clock_gettime time.clock_gettime_ns
"""
)
SYSTEMS = {"darwin": NOT_MACOS, "win32": NOT_WINDOWS}


def run_on(system: str, *runs: list[str]) -> list[Any]:
    """Exit code, output and errors of each command."""
    given = [system, SYSTEMS[system].split(), system != "win32", LIBRARIES.split(), runs]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("system", SYSTEMS)
def test_captures_are_analyzed(system: str, tmp_path: Path) -> None:
    written = {name: str(tmp_path / name) for name in ("a.json", "a.html", "rpcs.csv", "s.pcap", "tables", "issue")}
    Path(written["a.json"]).write_text("of an earlier run")
    runs = [
        ["--version"],
        ["--help"],
        ["analyze", CAPTURE],
        ["analyze", "--json", CAPTURE, "-o", written["a.json"]],
        ["analyze", "--memory", "200M", "--format", "html", CAPTURE, "-o", written["a.html"]],
        ["compare", CAPTURE, OTHER],
        ["rpcs", "--format", "csv", CAPTURE, "-o", written["rpcs.csv"]],
        ["export", CAPTURE, "-o", written["tables"]],
        ["timeline", CAPTURE, "--connection", "0"],
        ["explain", "slow-start-after-idle"],
        ["scrub", CAPTURE, "-o", written["s.pcap"]],
        ["fleet", "--help"],
    ]
    for arguments, (code, out, errors) in zip(runs, told := run_on(system, *runs), strict=True):
        assert code == 0, (arguments, errors)
        assert out or "-o" in arguments
    plain = subprocess.run([sys.executable, "-m", "grpcdiag", *runs[2]], capture_output=True, text=True, check=True)
    assert told[2][1] == plain.stdout
    assert json.loads(Path(written["a.json"]).read_text())["schema"] == "grpcdiag.analysis/1"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".grpcdiag-")]


@pytest.mark.parametrize("system", SYSTEMS)
def test_recording_says_that_it_needs_linux(system: str) -> None:
    capture, lab, doctor = run_on(system, ["capture", "--", "true"], ["lab"], ["doctor", "--for", "recording"])
    assert capture[::2] == [
        125,
        "grpcdiag: recording needs Linux: record with tcpdump or Wireshark, then run grpcdiag analyze\n",
    ]
    assert lab[::2] == [2, "grpcdiag: the lab needs network namespaces, which only Linux has\n"]
    assert doctor[0] == 1 and "recording needs Linux" in " ".join(doctor[1].split()), doctor
