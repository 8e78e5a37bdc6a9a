"""Run tasks in processes of this machine; a killed process loses only its task."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from time import monotonic

from ... import interruption
from .engine import LOSSES, Work, lost
from .task import Outcome, Task

_PATIENCE_S = 0.5
"""Longest time in seconds for processes to end before their folder is removed."""


class Local:
    """Runs tasks in processes of this machine."""

    def __init__(self, workers: int | None = None) -> None:
        """Use `workers` processes; the default is the number of cores."""
        self.workers = workers or _cores()
        self._stopped = threading.Event()
        self._scratch = interruption.scratch("grpcdiag-fleet-")
        self._workers = interruption.Unfinished(lambda: None, lambda _: self._end_workers())
        self._working: list[_Worker] = []
        self._lock = threading.RLock()  # a signal may interrupt the main thread where it has it

    def __enter__(self) -> Local:
        """Make the folder of the processes, which start in `run`."""
        self._folder = self._scratch.__enter__()
        self._workers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes and remove their folder."""
        self._workers.__exit__()
        self._scratch.__exit__()

    def _end_workers(self) -> None:
        """End the processes: the next run analyzes recordings that are not in the dataset."""
        self._stopped.set()
        with self._lock:  # the processes that are being started are here, too, and none follows
            working = list(self._working)
        for worker in working:
            worker.process.terminate()
        deadline = monotonic() + _PATIENCE_S
        for worker in working:
            worker.process.join(max(deadline - monotonic(), 0))

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """Run tasks, see `Engine.run`."""
        todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
        every = list(tasks)
        for task in every:
            todo.put(task)
        outcomes: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        if sys.platform != "win32":
            resource_tracker.ensure_running()  # the first process would, and let Ctrl-C reach the thread that starts it
        lanes = [
            threading.Thread(target=self._lane, args=(work, todo, outcomes), daemon=True)
            for _ in range(min(self.workers, len(every)))
        ]
        for lane in lanes:
            lane.start()
        for _ in every:
            outcome = outcomes.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome

    def _lane(
        self, work: Work, todo: queue.SimpleQueue[Task], outcomes: queue.SimpleQueue[Outcome | BaseException]
    ) -> None:
        worker: _Worker | None = None
        _leave_ctrl_c()
        try:
            while not self._stopped.is_set():
                task = todo.get_nowait()
                for loss in range(1, LOSSES + 1):
                    try:
                        worker = worker or self._start(work)
                        outcomes.put(worker.do(task))
                        break
                    except (EOFError, OSError) as error:  # the process has ended
                        if worker:
                            self._end(worker)
                        elif not isinstance(error, BrokenPipeError):  # there was none: no descriptors, no memory
                            raise
                        worker = None
                        if self._stopped.is_set():
                            return
                        if loss == LOSSES:
                            outcomes.put(lost(task, f"{loss} workers ended while they had it: out of memory?"))
        except (queue.Empty, _StoppedError):
            pass
        except BaseException as error:  # `run` raises it
            outcomes.put(error)
        finally:
            if worker and not self._stopped.is_set():
                self._end(worker)

    def _start(self, work: Work) -> _Worker:
        """Start a process. Raises _StoppedError, OSError."""
        with self._lock:
            if self._stopped.is_set():
                raise _StoppedError
            worker = _Worker(work, str(self._folder))
            self._working.append(worker)
        return worker

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            self._working.remove(worker)
        worker.connection.close()
        worker.process.join()


class _StoppedError(Exception):
    """The run has ended: no process is started any more."""


class _Worker:
    """One process, with a new interpreter because the core has threads."""

    def __init__(self, work: Work, scratch: str) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work, scratch), daemon=True)
        self.process.start()
        theirs.close()

    def do(self, task: Task) -> Outcome:
        """Run a task in the process. Raises EOFError or OSError if the process ends first."""
        self.connection.send(task)
        outcome: Outcome = self.connection.recv()
        return outcome


def _serve(tasks: Connection, work: Work, scratch: str) -> None:
    """Run tasks until none is left."""
    _begin(scratch)
    with suppress(EOFError):
        while True:
            tasks.send(work(tasks.recv()))


def _cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _leave_ctrl_c() -> None:
    """Leave Ctrl-C to other threads; processes that this thread starts do not hear it while they import."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _begin(scratch: str) -> None:
    """Prepare a worker: it ends with its parent, leaves Ctrl-C to the parent, and writes to `scratch`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interruption.heed_signals()  # SIGTERM, with which the parent ends it
    if not sys.warnoptions:  # as in the command
        warnings.simplefilter("ignore")
    tempfile.tempdir = scratch
    parent = parent_process()

    def watch() -> None:
        if parent:
            parent.join()
        shutil.rmtree(scratch, ignore_errors=True)  # a killed parent does not
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
