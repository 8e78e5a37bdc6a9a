"""What every engine has in common: what it runs, how it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ..recordings.credentials import without_credentials
from .task import Outcome, Task

Work = Callable[[Task], Outcome]
"""What is done with each task; a function that workers import by its name."""

LOSSES = 3
"""Workers that one task may lose: a task that kills every worker it meets must not kill them all."""


class EngineError(Exception):
    """An engine that is not there, or is gone."""

    def __init__(self, text: str, url: str = "") -> None:
        """Name `url` as the one whose credentials `text` may repeat."""
        super().__init__(without_credentials(text, url))


class Engine(Protocol):
    """Runs independent tasks somewhere."""

    workers: int
    """Tasks that run at once."""

    def run(self, work: Work, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """Outcomes in the order in which they come; a task whose workers were lost is not done. Raises EngineError."""


def lost(task: Task, reason: str) -> Outcome:
    """The outcome of a task whose workers were lost."""
    recording = task.recording
    return Outcome(recording=recording.id, host=recording.host, size=recording.size, done=False, reason=reason)
