"""Run small tools such as `ip`, and read files of /proc and /sys; any of them may be missing.

They run in the network namespace that is recorded, see `run_inside`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SBIN = ("/usr/sbin", "/sbin", "/usr/local/sbin")
"""Folders of tcpdump and ip on systems where they are not on a user's PATH."""


_inside: list[str] = []
"""Words in front of each tool, which let it run in another network namespace; one recording at a time sets them."""


@contextmanager
def run_inside(*words: str) -> Iterator[None]:
    """Put words in front of every tool that runs during the block."""
    _inside[:] = [find(words[0]) or words[0], *words[1:]]
    try:
        yield
    finally:
        _inside.clear()


def list_prefix() -> list[str]:
    """List the words that let a program run in the network namespace that is recorded; none for the present one."""
    return list(_inside)


def find(name: str) -> str | None:
    """Find the path of a tool, also in the folders of root's PATH."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SBIN))


def output(*arguments: str, timeout_s: float = 5.0) -> str | None:
    """Run a tool and return its standard output; None if it is missing, fails or takes too long."""
    path = find(arguments[0])
    if path is None:
        return None
    try:
        done = subprocess.run(
            [*_inside, path, *arguments[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=True,
            start_new_session=True,  # Ctrl-C must not reach it
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def answer(*arguments: str) -> Any:
    """Run a tool and parse its JSON output; None if there is none."""
    try:
        return json.loads(output(*arguments) or "null")
    except ValueError:
        return None


def read_settings(paths: Sequence[str]) -> dict[str, str]:
    """Read files of one line that may differ in each network namespace, without those that cannot be read."""
    if not _inside:
        return {path: text for path in paths if (text := read(path)) is not None}
    script = 'for f; do [ -r "$f" ] && echo "$f $(cat "$f")"; done; :'  # the kernel gives a number in one read only'
    lines = (output("sh", "-c", script, "sh", *paths) or "").splitlines()
    return {path: text.strip() for path, _, text in (line.partition(" ") for line in lines)}


def read(path: str) -> str | None:
    """Read a small file of /proc or /sys; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
