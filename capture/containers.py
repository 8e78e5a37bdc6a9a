"""Find a process of a container by the container's name or id, from files of the runtime and of the kernel.

No runtime is asked, so this needs no socket and no client, and it works for containers whose runtime does not answer.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import tools
from .errors import UsageError

LEAST_ID = 6
"""Fewest digits of an id that is shortened (heuristic: fewer are more likely to be of several containers)."""
MOST_STATE = 8_000_000
"""Largest state file of a runtime that is read."""
_ID = re.compile(r"[0-9a-f]{64}")
_ANNOTATIONS = (
    "io.kubernetes.cri.container-name",
    "io.kubernetes.cri.sandbox-name",
    "io.kubernetes.container.name",
    "io.kubernetes.pod.name",
    "nerdctl/name",
)
"""Annotations with names of containers and pods: of containerd, CRI-O and nerdctl."""


def find(text: str, root: str = "/") -> int:
    """Find a process of a running container by a name, or by an id or its first digits. Raises UsageError."""
    named = {id_ for id_, names in _list_named(Path(root)) if text in names}
    short = re.fullmatch(rf"[0-9a-f]{{{LEAST_ID},}}", text) is not None
    spaces: dict[int, tuple[int, str]] = {}
    for id_, pid in _list_running(Path(root)):
        if id_ in named or (short and _ID.fullmatch(id_) and id_.startswith(text)):
            spaces.setdefault(_identify_namespace(root, pid), (pid, id_))
    if len(spaces) > 1:
        spaces.pop(0, None)
    if len(spaces) > 1:  # the containers of one pod share theirs
        listed = ", ".join(f"{id_[:12]} (process {pid})" for pid, id_ in sorted(spaces.values()))
        raise UsageError(
            f"--container {text}: several network namespaces: {listed}: give --netns /proc/PID/ns/net of one"
        )
    if not spaces:
        why = "it is known, but none of its processes is visible here" if named else "no such name or id is known here"
        raise UsageError(
            f"--container {text}: {why}: give --netns /proc/PID/ns/net with the PID of one of its processes"
        )
    return spaces.popitem()[1][0]


def _identify_namespace(root: str, pid: int) -> int:
    """Identify the network namespace of a process; 0 if it has ended, or is another user's: entering reports that."""
    try:
        return Path(root, f"proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


def _list_running(root: Path) -> Iterator[tuple[str, int]]:
    """List ids in the names of cgroups, each with a process: the names of cgroups have them, whatever the runtime.

    Below user.slice users make cgroups with any name, so an id there identifies no container.
    """
    for pid in sorted(int(one.name) for one in (root / "proc").iterdir() if one.name.isdigit()):
        for line in (tools.read(str(root / f"proc/{pid}/cgroup")) or "").splitlines():
            path = line.split(":", 2)[-1]
            if "user.slice" in path.split("/"):
                continue
            yield from ((id_, pid) for id_ in _ID.findall(path)[-1:])  # the last one is of the innermost container
            yield path.rpartition("/")[2], pid  # of containerd's other clients, who choose their ids


def _list_named(root: Path) -> Iterator[tuple[str, set[str]]]:
    """List ids with the names that runtimes gave them."""
    readers: dict[str, Callable[[Path, Any], Iterator[tuple[str, set[str]]]]] = {
        "var/lib/docker/containers/*/config.v2.json": _read_docker,
        "run/containerd/io.containerd.runtime.v2.task/*/*/config.json": _read_specification,
        "var/lib/containers/storage/*-containers/containers.json": _read_storage,
        "run/containers/storage/*-containers/*/userdata/config.json": _read_specification,
    }
    for pattern, reader in readers.items():
        for path in root.glob(pattern):
            try:
                with path.open("rb") as file:
                    yield from reader(path, json.loads(file.read(MOST_STATE)))
            except (OSError, ValueError, LookupError, TypeError, AttributeError):
                continue  # its container has just ended, or it is of another version


def _read_docker(path: Path, state: Any) -> Iterator[tuple[str, set[str]]]:
    yield state["ID"], {state["Name"].removeprefix("/")}


def _read_storage(path: Path, state: Any) -> Iterator[tuple[str, set[str]]]:
    """Of podman and CRI-O."""
    for one in state:
        yield one["id"], set(one["names"])


def _read_specification(path: Path, state: Any) -> Iterator[tuple[str, set[str]]]:
    """Read the OCI runtime specification of a container, from a folder that has its id."""
    folder = path.parent.parent if path.parent.name == "userdata" else path.parent
    annotations = state.get("annotations") or {}
    yield folder.name, {folder.name, *(annotations[key] for key in _ANNOTATIONS if key in annotations)}
