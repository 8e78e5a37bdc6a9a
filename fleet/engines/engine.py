"""The interface of all engines: what an engine runs, and how it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ..recordings.credentials import without_credentials
from .task import Outcome, Task

Work = Callable[[Task], Outcome]
"""The function that runs a task; workers import it by its name."""

LOSSES = 3
"""Workers that a task may lose before it is given up: a task that kills its workers must not kill all of them."""


class EngineError(Exception):
    """An engine is not available, or no longer available."""

    def __init__(self, text: str, url: str = "") -> None:
        """Store the error; `text` may repeat credentials of `url`."""
        super().__init__(without_credentials(text, url))


class Engine(Protocol):
    """Runs independent tasks somewhere."""

    workers: int
    """Number of concurrent tasks."""

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """Yield outcomes as tasks end; a task that lost its workers is not done. Raises EngineError."""


def lost(task: Task, reason: str) -> Outcome:
    """Make the outcome of a task whose workers were lost."""
    recording = task.recording
    return Outcome(recording=recording.id, host=recording.host, size=recording.size, done=False, reason=reason)
