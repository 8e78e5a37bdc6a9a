"""Find the network namespace to record in: by its name, its path, or a container."""

import fcntl
import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path

from . import containers, tools
from .errors import RecordingError, UsageError

NAMED = "/run/netns"
"""Folder of named namespaces (ip-netns(8))."""
_OWN = "/proc/self/ns/net"
_HINT = "the network namespace of process {0} is another one{1}: record there with --netns /proc/{0}/ns/net"
_MOST_HINTS = 3
_MOST_SOCKETS = 100_000
"""Most sockets of a namespace that are looked at."""
_NS_GET_NSTYPE, _CLONE_NEWNET = 0xB703, 0x40000000
"""linux/nsfs.h, linux/sched.h"""


def locate(named: str | None, container: str | None, pids: Sequence[int] = ()) -> str | None:
    """Give the path of a network namespace; None for the present one. Raises UsageError, and RecordingError.

    Without `named` and `container` it is the one of the processes `pids`.
    """
    if named and container:
        raise UsageError("--netns and --container both name the network namespace: give one")
    if container:
        return f"/proc/{containers.find(container)}/ns/net"
    if named:
        return named if "/" in named else f"{NAMED}/{named}"
    spaces = {_identify_of(pid): pid for pid in pids}
    if len(spaces) > 1:
        named_pids = " and ".join(str(pid) for pid in list(spaces.values())[:2])
        raise UsageError(f"the processes {named_pids} are in several network namespaces: give --netns")
    others = spaces.keys() - {_identify(_OWN)}
    return f"/proc/{spaces[others.pop()]}/ns/net" if others else None


def _identify_of(pid: int) -> int:
    try:
        return _identify(f"/proc/{pid}/ns/net")
    except PermissionError:
        raise RecordingError(f"--pid {pid}: finding its network namespace needs root: use sudo") from None
    except OSError:
        raise UsageError(f"--pid {pid}: no process has this number") from None


@contextmanager
def held(pids: Sequence[int]) -> Iterator[Callable[[], None]]:
    """Hold processes, so that a number that was given to another one is noticed. Raises UsageError.

    Gives a function that raises UsageError unless all of them still run: until then their numbers were theirs.
    """
    with ExitStack() as stack:
        held = {}
        for pid in pids:
            try:
                held[pid] = os.pidfd_open(pid)
            except OSError as error:
                raise UsageError(f"--pid {pid}: {error.strerror}") from None
            stack.callback(os.close, held[pid])

        def check() -> None:
            for pid, descriptor in held.items():
                if select.select([descriptor], [], [], 0)[0]:  # it becomes readable when the process ends
                    raise UsageError(f"--pid {pid}: it has ended")

        yield check


@contextmanager
def entered(path: str | None) -> Iterator[None]:
    """Let tcpdump and the tools that describe the machine run in a network namespace; this process stays outside.

    Raises RecordingError.
    """
    if path is None:
        yield
        return
    namespace = _open(path)
    try:
        if tools.find("nsenter") is None:
            raise RecordingError("entering a network namespace needs nsenter: apt install util-linux")
        # the open file stays the same namespace, whatever the path leads to later
        with tools.run_inside("nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace}", "--"):
            if tools.output("true") is None:
                raise RecordingError(f"{path}: entering it needs root (CAP_SYS_ADMIN, CAP_SYS_PTRACE): use sudo")
            yield
    finally:
        os.close(namespace)


def list_hints(path: str | None, ports: Sequence[int], pids: Sequence[int]) -> list[str]:
    """Say which processes of other network namespaces a recording without packets may have been for."""
    hints = {}
    with suppress(OSError):
        recorded = _identify(path or _OWN)
        hints = {pid: "" for pid in pids if _identify(f"/proc/{pid}/ns/net") != recorded}
        if not hints:
            others = {space: pid for space, pid in _list_namespaces() if space != recorded}
            hints = {pid: " and has a TCP socket with that port" for pid in others.values() if _uses_port(pid, ports)}
    return [_HINT.format(pid, why) for pid, why in islice(hints.items(), _MOST_HINTS)]


def _identify(path: str) -> int:
    return Path(path).stat().st_ino


def _list_namespaces() -> Iterator[tuple[int, int]]:
    """List the network namespaces of all processes that are visible here, each with its processes, the oldest last."""
    for pid in sorted((int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit()), reverse=True):
        with suppress(OSError):  # it has ended, or it is somebody else's
            yield _identify(f"/proc/{pid}/ns/net"), pid


def _uses_port(pid: int, ports: Sequence[int]) -> bool:
    """Say whether a TCP socket of a process's network namespace has one of the ports."""
    wanted = {f"{port:04X}" for port in ports}
    for name in ("tcp", "tcp6"):
        with suppress(OSError), Path(f"/proc/{pid}/net/{name}").open(encoding="ascii", errors="replace") as lines:
            for line in islice(lines, 1, _MOST_SOCKETS):
                if not wanted.isdisjoint(end.rpartition(":")[2] for end in line.split()[1:3]):
                    return True
    return False


def _open(path: str) -> int:
    """Open a network namespace, and nothing else: opening a device or a pipe may have effects. Raises UsageError."""
    try:
        if Path(path).stat().st_dev != Path(_OWN).stat().st_dev:
            raise UsageError(f"{path} is not a network namespace")
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        raise RecordingError(f"{path}: entering it needs root (CAP_SYS_ADMIN, CAP_SYS_PTRACE): use sudo") from None
    except OSError as error:
        known = f"; known: {', '.join(names)}" if (names := _list_names()) else ""
        raise UsageError(f"{path}: {error.strerror}{known}") from None
    try:
        if fcntl.ioctl(opened, _NS_GET_NSTYPE) == _CLONE_NEWNET:
            return opened
    except OSError:
        pass  # it is no namespace
    os.close(opened)
    raise UsageError(f"{path} is not a network namespace")


def _list_names() -> list[str]:
    folder = Path(NAMED)
    return sorted(one.name for one in folder.iterdir())[:20] if folder.is_dir() else []
