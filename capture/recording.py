"""One recording: tcpdump listens, the command runs, the last packets come in, everything is told."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import command, ending, machine, savefile, sidefile, tcpdump
from .errors import RecordingError, UsageError
from .remote import Remote
from .sockets import Sampler
from .tcpdump import Counts, Rotation, Tcpdump

STDOUT = "-"
"""Output that is a stream."""
LEAST_FREE = 2_000_000
"""Bytes that must be free on the disk to begin, and at which a recording ends (own choice)."""
MOST_COUNTED = 2_000_000
"""Packets up to which the file is counted at the end: two seconds of work."""


@dataclass(frozen=True)
class Plan:
    """What shall be recorded."""

    arguments: tuple[str, ...]
    """The command; without one the recording lasts until it is interrupted."""
    output: str
    interface: str
    expression: str
    ports: tuple[int, ...] = ()
    targets: tuple[str, ...] = ()
    """IP addresses of the targets, whose routes are told."""
    snaplen: int = 0
    buffer_kib: int = 65_536
    rotate: Rotation | None = None
    user: str | None = None
    patience_s: float = 5.0
    """How long connections may take to close after the command."""
    sample_every_s: float = 0.1
    """Time between two samples of sockets; 0 for none."""
    also: tuple[str, ...] = ()
    """Hosts on which the same is recorded, over ssh."""
    version: str = ""


@dataclass
class Outcome:
    """What became of it."""

    code: int = 0
    """The command's exit code."""
    files: list[str] = field(default_factory=list)
    counts: Counts | None = None
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """What makes the recording less than it should be."""
    remote_files: list[str] = field(default_factory=list)
    samples: int = 0


class Recording:
    """The state between the first check and the last word."""

    def __init__(self, plan: Plan, tell: Callable[[str], None]) -> None:
        """Check everything that can be checked before anything starts. Raises RecordingError."""
        self.plan = plan
        self._tell = tell
        self.outcome = Outcome()
        self.path = None if plan.output == STDOUT else Path(plan.output)
        self.user = command.choose_user(plan.user)
        if plan.arguments:
            command.locate(plan.arguments[0])
        if self.path:
            _prepare(self.path, self.user, plan.rotate)
        self._tcpdump: Tcpdump | None = None
        self._sampler: Sampler | None = None
        self._document: dict[str, Any] = {}
        self._full = False
        self._started = False

    def run(self) -> Outcome:
        """Record. Raises RecordingError before the command has started, never afterwards."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove_unstarted)
            remotes = [stack.enter_context(contextlib.closing(Remote(host))) for host in self.plan.also]
            for remote in remotes:
                remote.start(self.plan)
            self._tcpdump = Tcpdump(self._line(), stdout=_stdout(self.path))
            stack.callback(self._tcpdump.stop)
            self._tcpdump.listen()
            for remote in remotes:
                remote.listen()
            self._begin()
            self._command()
            self._end()
            for remote in remotes:
                self._fetch(remote)
        self._judge()
        self._finish()
        return self.outcome

    def _line(self) -> list[str]:
        plan = self.plan
        # as root tcpdump would become a user of its own, who may not write here
        user = (self.user.pw_name if self.user else "root") if os.geteuid() == 0 else None
        return tcpdump.arguments(
            tcpdump.find(),
            interface=plan.interface,
            expression=plan.expression,
            output=plan.output,
            snaplen=plan.snaplen,
            buffer_kib=plan.buffer_kib,
            rotate=plan.rotate,
            user=user,
        )

    def _remove_unstarted(self) -> None:
        """Remove the files of a recording that ended before its command started."""
        if self._started or self.path is None:
            return
        if self._sampler:
            self._sampler.stop()
        for path in [*map(Path, written(self.path, self.plan.rotate)), *leftovers(self.path)]:
            path.unlink(missing_ok=True)

    def _begin(self) -> None:
        """Write down what is known, and begin to look at sockets."""
        plan = self.plan
        if self.path is None:
            return
        samples = self.path.with_name(self.path.name + sidefile.SAMPLES_SUFFIX)
        self._document = {
            "version": plan.version,
            "capture": {
                "file": self.path.name,
                "interface": plan.interface,
                "filter": plan.expression,
                "ports": list(plan.ports),
                "snaplen": plan.snaplen or 262_144,
                "buffer_kib": plan.buffer_kib,
                "rotate": {"megabytes": plan.rotate.megabytes, "files": plan.rotate.files} if plan.rotate else None,
                "arguments": list(self._line()),
            },
            "command": {"arguments": list(plan.arguments), "user": self.user.pw_name if self.user else None},
            "started_time_ns": time.time_ns(),
            "ended_time_ns": None,
            "packets": None,
            "host": machine.snapshot(plan.interface, plan.targets),
            "samples": {"file": samples.name, "every_ms": plan.sample_every_s * 1000} if plan.sample_every_s else None,
        }
        try:
            self._write()
            if plan.sample_every_s:
                self._sampler = Sampler(samples, plan.ports, plan.sample_every_s)
                self._give(samples)
            else:
                samples.unlink(missing_ok=True)
        except OSError as error:
            self.outcome.problems.append(f"the settings could not be written beside it: {error.strerror}")

    def _write(self) -> None:
        if self.path is not None and self._document:
            beside = self.path.with_name(self.path.name + sidefile.SUFFIX)
            sidefile.write(beside, self._document)
            self._give(beside)

    def _give(self, path: Path) -> None:
        if self.user:
            os.chown(path, self.user.pw_uid, self.user.pw_gid, follow_symlinks=False)

    def _command(self) -> None:
        """Run the command to its end, and wait for its last packets."""
        assert self._tcpdump is not None
        if not self.plan.arguments:
            self._started = True
            self._until_interrupted()
            return
        # a stream and a command cannot both write to standard output
        running = command.Command(self.plan.arguments, self.user, 2 if self.path is None else None)
        started = time.time_ns()
        self._started = True
        try:
            self.outcome.code = running.wait(self._tick)
            said = self._document.get("command", {})
            said |= {"started_time_ns": started, "ended_time_ns": time.time_ns(), "exit_code": self.outcome.code}
            self._last_packets(running.interrupted)
        finally:
            running.release()

    def _until_interrupted(self) -> None:
        """Without a command: record until Ctrl-C or a signal."""
        mine = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, mine)
        try:
            assert self._tcpdump is not None
            while self._tcpdump.alive and signal.sigtimedwait(mine, command.TICK_S) is None:
                self._tick()
            self._last_packets(lambda s: signal.sigtimedwait(mine, s) is not None)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _tick(self) -> None:
        """Now and then: stop before a full disk tears the file, and say at once when tcpdump has gone."""
        assert self._tcpdump is not None
        if self._full or self.path is None or not self._tcpdump.alive:
            return
        with contextlib.suppress(OSError):
            if _free(self.path) < LEAST_FREE:
                self._full = True
                self._tcpdump.stop()
                self._tell(f"the disk is full: {self.path} ends here")

    def _last_packets(self, interrupted: Callable[[float], bool]) -> None:
        assert self._tcpdump is not None
        seen = self._sampler is not None and self._sampler.sockets_seen
        ended = ending.wait(
            self._tcpdump,
            self.plan.ports,
            patience_s=self.plan.patience_s,
            blind=not seen,
            loopback=self.plan.interface == "lo",
            interrupted=interrupted,
        )
        if ended.open_connections:
            self.outcome.problems.append(
                f"{ended.open_connections:,} connections had not closed {self.plan.patience_s:g} s after the end: "
                "their last packets may not be in the file (--linger gives them more time)"
            )

    def _end(self) -> None:
        """Stop everything that runs here."""
        assert self._tcpdump is not None
        gone = not self._tcpdump.alive and not self._full
        if self._sampler:
            self._sampler.stop()
        code = self._tcpdump.stop()
        problems, words = self.outcome.problems, self._tcpdump.words
        if self._full:
            problems.append("the disk was full before the end: what came later is not recorded")
        elif gone:
            problems.append(f"tcpdump ended before the command (exit code {code}): {words or 'it said nothing'}")
        elif code:
            problems.append(f"tcpdump ended with exit code {code}: {words or 'it said nothing'}")
        elif words:
            self._tell(f"tcpdump: {words}")
        self.outcome.counts = self._tcpdump.counts

    def _fetch(self, remote: Remote) -> None:
        try:
            self.outcome.remote_files += remote.fetch(self.path or Path("capture.pcap"))
            self.outcome.problems += remote.problems
            for path in self.outcome.remote_files:
                self._give(Path(path))
        except (RecordingError, OSError) as error:
            self.outcome.problems.append(str(error))

    def _judge(self) -> None:
        """Whether all packets are there."""
        counts, problems = self.outcome.counts, self.outcome.problems
        if counts and counts.dropped:
            problems.append(
                f"{counts.dropped:,} of {counts.captured + counts.dropped:,} packets were dropped because the buffer "
                "was full: --buffer with more MiB, a narrower filter, or --snaplen"
            )
        if counts and counts.dropped_by_interface:
            problems.append(f"{counts.dropped_by_interface:,} packets were dropped by the interface, before tcpdump")
        if counts and not counts.captured and not problems:
            problems.append("no packet passed the filter: is the port, the host or the interface another one?")
        if self._sampler and self._sampler.error:
            problems.append(self._sampler.error)
        if self.path is None:
            return
        self.outcome.files = written(self.path, self.plan.rotate)
        with contextlib.suppress(OSError):
            self.outcome.bytes = sum(Path(name).stat().st_size for name in self.outcome.files)
            if counts and counts.captured <= MOST_COUNTED and not self.plan.rotate:
                found = savefile.look(self.path)
                if found.cut_at is not None or found.packets < counts.captured:
                    cut = f", and is cut at byte {found.cut_at:,}" if found.cut_at is not None else ""
                    problems.append(
                        f"the file holds {found.packets:,} whole packets of the {counts.captured:,} that tcpdump wrote"
                        f"{cut}: is the disk full, or a limit of file sizes reached?"
                    )

    def _finish(self) -> None:
        """Write down how it ended."""
        counts, sampler = self.outcome.counts, self._sampler
        if not self._document:
            return
        self._document |= {
            "ended_time_ns": time.time_ns(),
            "packets": vars(counts) if counts else None,
            "problems": self.outcome.problems,
            "sysctls_at_end": machine.sysctls(),
            "interfaces_at_end": machine.links(self.plan.interface),
        }
        if sampler:
            self.outcome.samples = sampler.samples
            said = {"count": sampler.samples, "every_ms_at_end": sampler.every_s * 1000, "cost_s": sampler.cost_s}
            self._document["samples"] |= said
        with contextlib.suppress(OSError):
            self._write()


def record(plan: Plan, tell: Callable[[str], None]) -> Outcome:
    """Record as planned; `tell` gets sentences for the user while it goes on. Raises RecordingError."""
    if not sys.platform.startswith("linux"):
        raise RecordingError("recording needs Linux: use tcpdump or Wireshark here, and grpcdiag analyze")
    return Recording(plan, tell).run()


def _stdout(path: Path | None) -> int:
    return 1 if path is None else -3  # subprocess.DEVNULL


def _free(path: Path) -> int:
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


def _prepare(path: Path, user: pwd.struct_passwd | None, rotate: Rotation | None) -> None:
    """Make the file, as its owner, so that tcpdump may write it after it has dropped root's rights."""
    try:
        for stale in leftovers(path):
            stale.unlink()
        if rotate is None:
            path.open("wb").close()
            if user:
                os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        free = _free(path if rotate is None else path.parent)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    if free < LEAST_FREE:
        raise RecordingError(f"cannot write {path}: {free:,} bytes are free on the disk, which is too little to begin")


def leftovers(path: Path) -> Iterator[Path]:
    """Files beside an older capture of the same name, which would be taken for the new one's."""
    for suffix in (sidefile.SUFFIX, sidefile.SAMPLES_SUFFIX):
        beside = path.with_name(path.name + suffix)
        if beside.is_file():
            yield beside


def written(path: Path, rotate: Rotation | None) -> list[str]:
    """The files of a recording, as far as they are there."""
    names: Sequence[Path] = [path]
    if rotate:
        ends = sorted(p for p in path.parent.glob(f"{path.name}*") if p.name[len(path.name) :].isdigit())
        names = [path, *ends]
    return [str(name) for name in names if name.is_file()]
