"""Options, exit codes and errors of the commands that record: `capture` and `watch`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from .messages import fail

USAGE = 2
"""Exit code: a wrong filter, interface, target, trigger, size, folder or user."""
CANNOT_RECORD = 125
"""Exit code: recording is impossible here, and the command of `capture` has not run (like timeout(1) and env(1))."""

RecordedPorts = Annotated[
    list[int] | None,
    typer.Option("-p", "--port", metavar="PORT", min=1, max=65535, help="Record only this port; repeatable."),
]
Filter = Annotated[
    str | None,
    typer.Option("--filter", metavar="EXPR", help="Extra pcap filter, combined with AND; see pcap-filter(7)."),
]
Container = Annotated[
    str | None,
    typer.Option("--container", metavar="ID|NAME", help="Record in the network namespace of this container or pod."),
]


@contextmanager
def enter_namespace(netns: str | None, container: str | None, pids: tuple[int, ...]) -> Iterator[str | None]:
    """Enter the network namespace to record in, and give its path; None is the present one. Raises RecordingError.

    The processes are held before their namespace is looked up: their numbers must be theirs until then.
    """
    from ...capture import namespaces

    with (
        namespaces.held(pids) as check_alive,
        namespaces.entered(path := namespaces.locate(netns, container, pids)),
    ):
        check_alive()
        yield path


@contextmanager
def end_on_error() -> Iterator[None]:
    """End the command with a message and its exit code if it cannot record."""
    from ...capture.errors import CommandError, RecordingError, UsageError

    try:
        yield
    except CommandError as error:
        fail(str(error), error.code)
    except UsageError as error:
        fail(str(error), USAGE)
    except RecordingError as error:
        fail(str(error), CANNOT_RECORD)
