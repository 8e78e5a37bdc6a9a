"""Run small tools such as `ip`, and read files of /proc and /sys; any of them may be missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

SBIN = ("/usr/sbin", "/sbin", "/usr/local/sbin")
"""Folders of tcpdump and ip on systems where they are not on a user's PATH."""


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
            [path, *arguments[1:]],
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


def read(path: str) -> str | None:
    """Read a small file of /proc or /sys; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
