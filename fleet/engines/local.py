"""This machine's cores: processes, each in a pool of its own, so that a process that is killed costs its task only."""

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
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context, parent_process
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from ..task import Outcome, Task
from . import LOSSES, Work, lost

_PATIENCE_S = 0.5
"""Seconds that ended processes may take until what they leave is removed."""


class Local:
    """Processes of this machine."""

    def __init__(self, workers: int | None = None) -> None:
        """`workers` processes, as many as there are cores by default."""
        self.workers = workers or _cores()
        self._stopped = threading.Event()
        self._scratch = TemporaryDirectory(prefix="grpcdiag-fleet-", ignore_cleanup_errors=True)
        self._pids: set[int] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Local:
        """Nothing to start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Processes that still work are ended: what they had not put into the dataset is done anew."""
        self._stopped.set()
        with self._lock:
            pids = set(self._pids)
        for pid in pids:
            _end(pid)
        deadline = monotonic() + _PATIENCE_S
        while any(map(_is_there, pids)) and monotonic() < deadline:
            sleep(0.01)
        self._scratch.cleanup()

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """See `Engine.run`."""
        todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
        every = list(tasks)
        for task in every:
            todo.put(task)
        outcomes: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
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
        pool, pid = None, 0
        try:
            while not self._stopped.is_set():
                task = todo.get_nowait()
                for loss in range(1, LOSSES + 1):
                    try:
                        if pool is None:
                            pool, pid = self._pool()
                        outcomes.put(pool.submit(work, task).result())
                        break
                    except BrokenProcessPool:
                        self._forget(pid)
                        pool = None
                        if self._stopped.is_set():
                            return
                        if loss == LOSSES:
                            outcomes.put(lost(task, f"{loss} workers ended while they had it: out of memory?"))
        except queue.Empty:
            pass
        except BaseException as error:  # told to whoever waits
            outcomes.put(error)
        finally:
            if pool:
                self._forget(pid)
                pool.shutdown(wait=not self._stopped.is_set())

    def _pool(self) -> tuple[ProcessPoolExecutor, int]:
        """One process; a fresh interpreter, for the core has threads."""
        pool = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=_begin, initargs=(self._scratch.name,)
        )
        pid = pool.submit(os.getpid).result()
        with self._lock:
            self._pids.add(pid)
        return pool, pid

    def _forget(self, pid: int) -> None:
        with self._lock:
            self._pids.discard(pid)


def _cores() -> int:
    """Cores this process may use, as far as the system tells."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _begin(scratch: str) -> None:
    """A worker ends with its parent, however that ends; Ctrl-C is the parent's to handle. It writes to `scratch`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not sys.warnoptions:  # as in the command
        warnings.simplefilter("ignore")
    tempfile.tempdir = scratch
    parent = parent_process()

    def watch() -> None:
        if parent:
            parent.join()
        shutil.rmtree(scratch, ignore_errors=True)  # the parent may have had no time for it
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
