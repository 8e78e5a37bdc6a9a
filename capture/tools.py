"""Running small tools, such as `ip` and `sysctl`'s files, whose answers may be missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

SBIN = ("/usr/sbin", "/sbin", "/usr/local/sbin")
"""Where tcpdump and ip are on systems whose users do not have these on PATH."""


def find(name: str) -> str | None:
    """Path of a tool, also where only root's PATH leads to."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SBIN))


def output(*arguments: str, timeout_s: float = 5.0) -> str | None:
    """Standard output of a tool; None when it is missing, fails or takes too long."""
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
            start_new_session=True,  # Ctrl-C is not for it
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def answer(*arguments: str) -> Any:
    """What a tool prints as JSON; None when it does not."""
    try:
        return json.loads(output(*arguments) or "null")
    except ValueError:
        return None


def read(path: str) -> str | None:
    """A small file of /proc or /sys; None when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
