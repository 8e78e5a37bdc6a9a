"""Run tasks on a running Dask cluster: its scheduler sends tasks of a lost worker to other workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .engine import EngineError, Work, lost
from .task import Outcome, Task


class Dask:
    """Runs tasks on the workers of a Dask scheduler."""

    def __init__(self, address: str) -> None:
        """Connect to the scheduler at `host:port`. Raises EngineError."""
        distributed = _distributed()
        try:
            self._client: Any = distributed.Client(f"tcp://{address}")
        except (OSError, ValueError) as error:
            raise EngineError(f"dask://{address}: {error}", f"dask://{address}") from None
        # threads of one process run concurrently: the core releases the GIL during a task
        self.workers = sum(self._client.nthreads().values())

    def __enter__(self) -> Dask:
        """Do nothing: the client is already connected."""
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect: waiting tasks are dropped, and the cluster keeps running."""
        self._client.close()

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """Run tasks, see `Engine.run`."""
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        of = {}
        for task in tasks:
            key = f"grpcdiag-{task.recording.id}.{task.version}"
            of[self._client.submit(work, task, key=key, pure=False)] = task
        for future in _distributed().as_completed(list(of)):
            task = of.pop(future)
            try:
                yield future.result()
            except KilledWorker:
                yield lost(task, "several workers ended while they had it: out of memory?")
            except FutureCancelledError as error:
                raise EngineError(f"the cluster is gone: {error}") from None
            except ImportError as error:
                raise EngineError(f"workers lack what they need: {error}: pip install 'grpcdiag[fleet]'") from None


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise EngineError("the engine is not installed: pip install 'grpcdiag[fleet]'") from None
    return distributed
