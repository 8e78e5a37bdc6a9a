"""Record on another host over OpenSSH or kubectl: start and stop the recording there, and fetch its file.

The other host runs a short shell script around tcpdump. It ends with the connection, so nothing keeps running there
when this process or the network fails.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from ..analyzer.sidecar.names import SUFFIX, encode_description
from . import remote_host, tcpdump, transports
from .command import identity
from .errors import RecordingError
from .tcpdump import start_deaf

if TYPE_CHECKING:
    from .output import Output
    from .plan import Plan

START_PATIENCE_S = 40.0
"""Longest time for ssh to connect and for tcpdump to listen there."""
STOP_PATIENCE_S = 30.0
FETCH_PATIENCE_S = 3600.0
_LONGEST_LINE = 1 << 16

_SCRIPT = r"""
set -u
PATH=$PATH:/usr/sbin:/sbin
f=$(mktemp "${TMPDIR:-/tmp}/grpcdiag-XXXXXXXX.pcap") || exit 1
HOST
command -v tcpdump >/dev/null || { echo 'tcpdump is not installed there' >&2; rm -f "$f"; exit 1; }
echo "grpcdiag-file $f"
z=''
[ "$(id -u)" = 0 ] && z='-Z root'
LC_ALL=C tcpdump -i any -p -n -U --time-stamp-precision=nano -s SNAPLEN -B BUFFER -w "$f" $z -- EXPRESSION \
    </dev/null >/dev/null &
p=$!
trap '' INT HUP
trap 'kill -INT $p 2>/dev/null' TERM
read stop || rm=1
if [ "${stop-}" = stop ]; then sleep 1.3; fi
kill -INT $p 2>/dev/null
wait $p
c=$?
[ "${stop-}" = stop ] || rm -f "$f"
exit $c
"""
"""`read` ends with the line `stop` or with the connection; only in the first case the file is kept."""


class Remote:
    """A recording on another host."""

    def __init__(self, host: str, user: pwd.struct_passwd | None = None) -> None:
        """Check the host: a name, user@name, an entry of ssh's configuration, or a container. Raises UsageError.

        ssh or kubectl runs as `user`, with the user's keys.
        """
        self._transport = transports.choose(host)
        self.host = host
        self._identity = identity(user)
        self.file: str | None = None
        self.problems: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._said: list[str] = []
        self._settings: list[str] = []
        self._news = threading.Condition()

    def start(self, plan: Plan) -> None:
        """Start to connect. Raises RecordingError."""
        script = _SCRIPT.replace("SNAPLEN", str(plan.snaplen)).replace("BUFFER", str(plan.buffer_kib))
        script = script.replace("EXPRESSION", shlex.quote(plan.expression)).replace("HOST\n", remote_host.SCRIPT)
        self._process = subprocess.Popen(
            self._transport.list_words(f"exec sh -c {shlex.quote(script)}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **self._identity,
        )
        start_deaf(threading.Thread(target=self._read, name=f"grpcdiag-{self.host}", daemon=True))

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        stdout = self._process.stdout
        for raw in iter(lambda: stdout.readline(_LONGEST_LINE), b""):
            line = raw.decode(errors="replace").strip()
            with self._news:
                if self.file is None and (match := re.fullmatch(r"grpcdiag-file (/.+/grpcdiag-\w+\.pcap)", line)):
                    self.file = match[1]
                elif line.startswith(remote_host.MARK):
                    if len(self._settings) < remote_host.MOST_LINES:
                        self._settings.append(line.removeprefix(remote_host.MARK))
                elif len(self._said) < tcpdump.LINES_KEPT:
                    self._said.append(line)
                self._news.notify_all()

    def listen(self) -> None:
        """Return when tcpdump listens there. Raises RecordingError with the messages from there."""
        assert self._process is not None
        until = time.monotonic() + START_PATIENCE_S
        with self._news:
            while not any("listening on" in line for line in self._said):
                left = until - time.monotonic()
                if left <= 0 or self._process.poll() is not None:
                    words = "; ".join(self._said[-5:]) or "no answer"
                    rights = f"\n{tcpdump.RIGHTS.format(path='tcpdump')}" if "permi" in words.lower() else ""
                    raise RecordingError(f"--also {self.host}: {words}{rights}")
                self._news.wait(min(left, 0.1))

    def fetch(self, output: Output) -> list[str]:
        """Stop the recording, fetch its file, and remove it there. Raises RecordingError and OSError."""
        code = self._stop()
        messages = "; ".join(self._said[-5:])
        if self.file is None or code not in (0, None):
            raise RecordingError(f"--also {self.host}: the recording there failed: {messages or 'no message'}")
        if dropped := self._read_counts().get("dropped"):
            self.problems.append(f"{dropped:,} packets were dropped on {self.host}")
        host = re.sub(r"[^A-Za-z0-9.-]+", "_", self.host.removeprefix(transports.POD))
        part, name = output.sidecar(host)
        there = shlex.quote(self.file)
        done = self._run(f"cat {there}", part.descriptor)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip()
            raise RecordingError(f"--also {self.host}: {self.file} there could not be fetched: {words}")
        size = os.fstat(part.descriptor).st_size
        part.publish(name)
        self._describe(output, host, name)
        # kubectl may lose the end of a file and report success
        if self._run(f'test "$(wc -c <{there})" -eq {size} && rm -f {there}', subprocess.DEVNULL).returncode:
            why = f"has not the {size:,} bytes that were fetched, or could not be removed: it stays there"
            self.problems.append(f"--also {self.host}: {self.file} {why}")
        return [output.shown(name)]

    def _describe(self, output: Output, host: str, name: str) -> None:
        """Write that host's settings next to its capture. Raises OSError."""
        counts = self._read_counts()
        document = remote_host.describe(self._settings, name, counts if "captured" in counts else None)
        if document is None:
            self.problems.append(f"--also {self.host}: its settings are unknown")
            return
        part, side = output.sidecar(host, SUFFIX)
        with os.fdopen(os.dup(part.descriptor), "wb") as out:
            out.write(encode_description(document))
        part.publish(side)

    def _read_counts(self) -> dict[str, int]:
        """Read tcpdump's counts, as far as it said them."""
        found = dict[str, int]()
        for name, words in (("captured", "captured"), ("dropped", "dropped by kernel")):
            numbers = [n for line in self._said for n in re.findall(rf"([0-9]{{1,18}}) packets? {words}", line)]
            found |= {name: int(numbers[-1])} if numbers else {}
        return found

    def _run(self, command: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
        """Run a command on the other host."""
        return subprocess.run(
            self._transport.list_words(command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=FETCH_PATIENCE_S,
            start_new_session=True,
            **self._identity,
        )

    def _stop(self) -> int | None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"stop\n")
            self._process.stdin.close()
        try:
            return self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """End the connection, and with it the script on the other host."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
