"""Make one recording: start tcpdump, run the command, wait for the last packets, report problems."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..analyzer.sidecar.names import PROCESSES_SUFFIX, SAMPLES_SUFFIX
from . import command, ending, machine, namespaces, processes, savefile, signals, tcpdump
from .errors import RecordingError, UsageError
from .keys import KeyLog
from .output import LEAST_FREE, STDOUT, Output
from .plan import Plan
from .relay import Relay, make_pipe
from .remote import Remote
from .sockets import Sampler
from .tcpdump import Counts, Tcpdump
from .thread_times import ThreadTimes
from .tracer import tracefs

LEAST_FREE_FOR_THREADS = 16 * LEAST_FREE
"""Free bytes on the disk needed to record threads (heuristic: their record grows as fast as the packets' may)."""
_NO_THREADS = "threads are not recorded, only packets: {}"
MOST_COUNTED = 2_000_000
"""Most packets of a file that is checked at the end, which takes two seconds."""


@dataclass
class Outcome:
    """The result of a recording."""

    code: int = 0
    """The command's exit code."""
    files: list[str] = field(default_factory=list)
    counts: Counts | None = None
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """Problems that make the recording incomplete."""
    remote_files: list[str] = field(default_factory=list)
    threads_cost_ns: int | None = None
    """Processor time that the record of threads took; None without a record."""
    samples: int = 0


class Recording:
    """The state of a recording from the first check to the end."""

    def __init__(self, plan: Plan, tell: Callable[[str], None]) -> None:
        """Check everything possible before anything starts. Raises RecordingError."""
        self.plan = plan
        self._tell = tell
        self.outcome = Outcome()
        self.user = command.choose_user(plan.user)
        if plan.arguments:
            command.locate(plan.arguments[0])
        self._output: Output | None = None
        self._tcpdump: Tcpdump | None = None
        self._sampler: Sampler | None = None
        self._tracer: processes.Tracer | None = None
        self._times: ThreadTimes | None = None
        self._document: dict[str, Any] = {}
        self._full = False
        self._relay: Relay | None = None
        self._keys: KeyLog | None = None

    def run(self) -> Outcome:
        """Record. Raises RecordingError only before the command has started."""
        plan = self.plan
        with contextlib.ExitStack() as stack:
            if plan.output != STDOUT:
                self._output = Output(Path(plan.output), self.user, plan.mode, plan.rotate)
                stack.callback(self._output.discard)
                if plan.keys != "off":
                    self._keys = KeyLog(self._output, embedded=plan.keys == "embedded")
            remotes = [stack.enter_context(contextlib.closing(Remote(host, self.user))) for host in plan.also]
            for remote in remotes:
                remote.start(plan)
            self._tcpdump = stack.enter_context(self._recording())
            self._tcpdump.listen()
            for remote in remotes:
                remote.listen()
            self._begin()
            self._trace(stack)
            self._command()
            self._end()
            for remote in remotes:
                self._fetch(remote)
            self._judge()
            self._finish()
        return self.outcome

    @contextlib.contextmanager
    def _recording(self) -> Iterator[Tcpdump]:
        """Run tcpdump until the end of the block. Raises RecordingError."""
        try:
            stdout, where, user = self._output.open() if self._output else (os.dup(1), STDOUT, self.user)
        except OSError as error:
            raise UsageError(f"cannot write {self.plan.output}: {error.strerror}") from None
        if self._output is None or self._output.device:
            source, target = make_pipe()
            self._relay = Relay(source, stdout)
            stdout = target
        try:
            self._words = self._line(where, stay_root=os.geteuid() == 0 and user is None)
            running = Tcpdump(self._words, stdout, user=user, mode=self.plan.mode)
        finally:
            os.close(stdout)
        try:
            yield running
        finally:
            running.stop()

    def _line(self, output: str, *, stay_root: bool) -> list[str]:
        plan = self.plan
        return tcpdump.arguments(
            tcpdump.find(),
            interface=plan.interface,
            expression=plan.expression,
            output=output,
            snaplen=plan.snaplen,
            buffer_kib=plan.buffer_kib,
            rotate=plan.rotate,
            stay_root=stay_root,
        )

    def _begin(self) -> None:
        """Write the sidecar, and start sampling sockets."""
        plan = self.plan
        output = self._output
        if output is None or output.device:
            return
        samples = output.name + SAMPLES_SUFFIX
        self._document = {
            "version": plan.version,
            "capture": {
                "file": output.name,
                "interface": plan.interface,
                "filter": plan.expression,
                "ports": list(plan.ports),
                "snaplen": plan.snaplen or 262_144,
                "buffer_kib": plan.buffer_kib,
                "rotate": {"megabytes": plan.rotate.megabytes, "files": plan.rotate.files} if plan.rotate else None,
                "arguments": list(self._words),
            },
            "command": {"arguments": list(plan.arguments), "user": self.user.pw_name if self.user else None},
            "started_time_ns": time.time_ns(),
            "ended_time_ns": None,
            "packets": None,
            "host": machine.snapshot(plan.interface, plan.targets),
            "samples": {"file": samples, "every_ms": plan.sample_every_s * 1000} if plan.sample_every_s else None,
        }
        try:
            output.write_side(self._document)
            if plan.sample_every_s:
                self._sampler = Sampler(output.make(SAMPLES_SUFFIX), plan.ports, plan.sample_every_s)
        except OSError as error:
            self.outcome.problems.append(f"the sidecar with the settings could not be written: {error.strerror}")

    def _trace(self, stack: contextlib.ExitStack) -> None:
        """Start recording threads if that is wanted and possible."""
        output, plan = self._output, self.plan
        overwrites = plan.rotate is not None and plan.rotate.files is not None  # and connections lose their openings
        if plan.processes == "off" or (plan.processes == "auto" and overwrites):
            return
        if output is None or output.device or not (plan.arguments or plan.pids):
            if plan.processes != "auto":
                self._tell(_NO_THREADS.format("that needs a COMMAND or --pid, and a file"))
            return
        try:
            record, command = output.make(PROCESSES_SUFFIX), bool(plan.arguments)
            self._tracer = processes.Tracer(record, plan.ports, plan.processes, plan.pids, children=command)
        except (RecordingError, OSError) as error:
            output.drop(PROCESSES_SUFFIX)
            if plan.processes != "auto" or not isinstance(error, processes.UnsuitableError):
                self._tell(_NO_THREADS.format(error))
            return
        stack.callback(self._tracer.stop)
        detail = "full" if plan.processes == "full" else "on"
        self._document["processes"] = {"file": output.name + PROCESSES_SUFFIX, "detail": detail}

    def _command(self) -> None:
        """Run the command, and wait for its last packets."""
        assert self._tcpdump is not None
        if not self.plan.arguments:
            self._record_until_interrupted()
            return
        # a stream and a command cannot both write to standard output
        variables = self._keys.variables if self._keys else {}
        running = command.Command(self.plan.arguments, self.user, None if self._output else 2, variables)
        if self._tracer:
            self._tracer.follow(running.pid)
        elif self._document and self.plan.processes != "off":
            with contextlib.suppress(tracefs.Refused, OSError):  # it may have ended
                self._times = ThreadTimes(running.pid)
        self._keep()
        started = time.time_ns()
        try:
            self.outcome.code = running.wait(self._tick)
            described = self._document.get("command", {})
            described |= {"started_time_ns": started, "ended_time_ns": time.time_ns(), "exit_code": self.outcome.code}
            self._wait_for_last_packets(running.interrupted)
        finally:
            running.release()

    def _keep(self) -> None:
        if self._output:
            self._output.keep()

    def _record_until_interrupted(self) -> None:
        """Record without a command until Ctrl-C or a signal."""
        mine = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, mine)
        self._keep()
        try:
            assert self._tcpdump is not None
            while self._tcpdump.alive and signals.take(mine, command.TICK_S) is None:
                self._tick()
            self._wait_for_last_packets(lambda s: signals.take(mine, s) is not None)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _tick(self) -> None:
        """Stop tcpdump before the disk is full, so that the file stays intact."""
        assert self._tcpdump is not None
        if self._times:
            self._times.look()
        if self._tracer and self._tracer.has_ended:
            self._drop_threads(self._tracer.stop())
        if self._full or self._output is None or self._output.device or not self._tcpdump.alive:
            return
        with contextlib.suppress(OSError):
            free = self._output.free_bytes()
            if free < LEAST_FREE_FOR_THREADS:
                self._drop_threads(f"only {free:,} bytes are free on the disk")
                free = self._output.free_bytes()
            if free < LEAST_FREE:
                self._full = True
                self._tcpdump.stop()
                self._tell(f"the disk is almost full ({free:,} bytes free): {self.plan.output} ends here")

    def _wait_for_last_packets(self, interrupted: Callable[[float], bool]) -> None:
        assert self._tcpdump is not None
        seen = self._sampler is not None and self._sampler.sockets_seen
        still_open = ending.wait(
            self._tcpdump,
            self.plan.ports,
            patience_s=self.plan.patience_s,
            blind=not seen,
            loopback=self.plan.interface == "lo",
            interrupted=interrupted,
        )
        if still_open:
            self.outcome.problems.append(
                f"{still_open:,} connections were still open {self.plan.patience_s:g} s after the end: "
                "their last packets may be missing from the file (--linger sets a longer time)"
            )

    def _end(self) -> None:
        """Stop everything that runs here."""
        assert self._tcpdump is not None
        gone = not self._tcpdump.alive and not self._full
        if self._sampler:
            self._sampler.stop()
        self._end_threads()
        code = self._tcpdump.stop()
        problems, words = self.outcome.problems, self._tcpdump.words
        if self._relay:
            self._relay.wait()
        if self._relay and self._relay.error:
            why = self._relay.error.strerror
            problems.append(f"cannot write {self._place}: {why}: later packets are not recorded")
        elif self._full:
            problems.append("the disk was full before the end: later packets are not recorded")
        elif gone:
            problems.append(f"tcpdump ended before the command (exit code {code}): {words or 'no message'}")
        elif code:
            problems.append(f"tcpdump ended with exit code {code}: {words or 'no message'}")
        elif words:
            self._tell(f"tcpdump: {words}")
        self.outcome.counts = self._tcpdump.counts

    def _end_threads(self) -> None:
        """Stop recording threads; a record that cannot be used is removed."""
        if self._tracer is None:
            return
        if lacking := self._tracer.stop():
            self._drop_threads(lacking)
            return
        self.outcome.threads_cost_ns = self._tracer.cost_ns

    def _drop_threads(self, why: str) -> None:
        """Stop recording threads, and remove their record: it needs its last block, and packets need the disk."""
        if self._tracer is None or self._output is None:
            return
        self._tracer.stop()
        self._tracer = None
        self._output.drop(PROCESSES_SUFFIX)
        self._document.pop("processes", None)
        text = _NO_THREADS.format(why)
        if self.plan.processes == "auto":
            self._tell(text)
        else:
            self.outcome.problems.append(text)

    @property
    def _place(self) -> str:
        return self.plan.output if self._output else "standard output"

    def _fetch(self, remote: Remote) -> None:
        try:
            assert self._output is not None
            self.outcome.remote_files += remote.fetch(self._output)
            self.outcome.problems += remote.problems
        except (RecordingError, OSError) as error:
            self.outcome.problems.append(str(error))

    def _judge(self) -> None:
        """Check whether all packets were recorded."""
        counts, problems = self.outcome.counts, self.outcome.problems
        if counts and counts.dropped:
            problems.append(
                f"{counts.dropped:,} of {counts.captured + counts.dropped:,} packets were dropped because the buffer "
                "was full: use a larger --buffer, a narrower filter, or --snaplen"
            )
        if counts and counts.dropped_by_interface:
            problems.append(f"{counts.dropped_by_interface:,} packets were dropped by the interface, before tcpdump")
        if counts and not counts.captured and not problems:
            problems.append("no packet matched the filter: check the port, the host and the interface")
            problems += namespaces.list_hints(self.plan.namespace, self.plan.ports, self.plan.pids)
        if self._sampler and self._sampler.error:
            problems.append(self._sampler.error)
        descriptor = self._output.descriptor() if self._output else None
        if descriptor is not None and counts and counts.captured <= MOST_COUNTED:
            self._compare(descriptor, counts)

    def _compare(self, descriptor: int, counts: Counts) -> None:
        """Check whether the file has all packets that tcpdump wrote."""
        with contextlib.suppress(OSError):
            found = savefile.look(descriptor)
            if found.cut_at is not None or found.packets < counts.captured:
                cut = f", and is cut at byte {found.cut_at:,}" if found.cut_at is not None else ""
                self.outcome.problems.append(
                    f"the file has {found.packets:,} complete packets of the {counts.captured:,} that tcpdump wrote"
                    f"{cut}: is the disk full, or a limit of file sizes reached?"
                )

    def _finish(self) -> None:
        """Complete the sidecar, and give the files their final names."""
        output, problems = self._output, self.outcome.problems
        if output is None:
            return
        descriptor = output.descriptor()
        if descriptor is not None and os.fstat(descriptor).st_size < savefile.HEADER:
            problems.append(f"nothing was recorded: {self.plan.output} is unchanged")
            output.withdraw()
            return
        if self._document:
            try:
                output.write_side(self._complete_document())
            except OSError as error:
                problems.append(f"the end of the recording could not be written to the sidecar: {error.strerror}")
        if self._keys:
            try:
                self._tell(self._keys.settle())
            except (RecordingError, OSError) as error:
                problems.append(f"TLS secrets are not in the capture: {error}")
        self.outcome.files, wrong = output.publish()
        problems += wrong
        with contextlib.suppress(OSError):
            self.outcome.bytes = sum(Path(name).stat().st_size for name in self.outcome.files)

    def _complete_document(self) -> dict[str, Any]:
        counts, sampler = self.outcome.counts, self._sampler
        self._document |= {
            "ended_time_ns": time.time_ns(),
            "packets": vars(counts) if counts else None,
            "problems": self.outcome.problems,
            "sysctls_at_end": machine.sysctls(),
            "cpu_pressure_at_end": machine.cpu_pressure(),
            "interfaces_at_end": machine.links(self.plan.interface),
        }
        if self._times and (times := self._times.describe()):
            self._document["threads"] = times
        if sampler:
            self.outcome.samples = sampler.samples
            figures = {"count": sampler.samples, "every_ms_at_end": sampler.every_s * 1000, "cost_s": sampler.cost_s}
            self._document["samples"] |= figures
        return self._document


def record(plan: Plan, tell: Callable[[str], None]) -> Outcome:
    """Record as planned; `tell` gets messages for the user. Raises RecordingError."""
    return Recording(plan, tell).run()
