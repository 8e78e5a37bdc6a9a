"""A command line that can be shown: which program it was and how it was set, without what it may have held."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

HIDDEN = "…"
"""Stands for what is not shown."""
MOST_WORDS = 60
"""Words shown."""

# fmt: off
_PROGRAMS = frozenset((
    "bash", "bazel", "bun", "bundle", "cargo", "deno", "docker", "dotnet", "env", "ghz", "go", "gradle", "gradlew",
    "grpc_cli", "grpcurl", "h2load", "java", "k6", "kubectl", "make", "mvn", "nice", "node", "npm", "npx", "perl",
    "php", "podman", "poetry", "pytest", "python", "ruby", "sbt", "sh", "sudo", "swift", "taskset", "time",
    "timeout", "uv", "wrk", "yarn",
))
# fmt: on
"""Programs whose names tell nobody's secrets; others are shown as PROGRAM."""
_FIGURE = re.compile(r"\d{1,6}(?:\.\d{1,3})?(?:ns|us|ms|s|m|h|k|kb|kib|m|mb|mib|%)?|true|false|on|off", re.IGNORECASE)
_SECRET = re.compile(r"pass|secret|token|key|auth|cred|pin|user|login|account|session|cookie|otp|code", re.IGNORECASE)
_LONG = re.compile(r"(--?[A-Za-z][A-Za-z-]{0,30})(=?)(.*)", re.DOTALL)
_SHORT = re.compile(r"-[A-Za-z]")


def masked(arguments: Sequence[str]) -> str:
    """The command with names of options and plain figures; every other word, which may be a secret, is hidden."""
    more = f" {HIDDEN}" if len(arguments) > MOST_WORDS else ""
    return " ".join(_words(arguments[:MOST_WORDS])) + more


def whole(arguments: Sequence[str]) -> str:
    """The command as it was typed."""
    return shlex.join(arguments)


def _words(arguments: Sequence[str]) -> Iterator[str]:
    secret = False  # what follows an option that names a secret
    for place, word in enumerate(arguments):
        if place == 0:
            yield _program(word)
            continue
        option = _LONG.fullmatch(word)
        if option and (word.startswith("--") or option[2] or _SHORT.fullmatch(word)):
            named, equals, value = option[1], option[2], option[3]
            secret = bool(_SECRET.search(named))
            yield f"{named}{equals}{_value(value, secret) if equals else HIDDEN * bool(value)}"
            secret = secret and not equals
        else:
            yield _program(word) if _known(word) else _value(word, secret)
            secret = False


def _program(word: str) -> str:
    return PurePath(word).name if _known(word) else "PROGRAM"


def _known(word: str) -> bool:
    return re.sub(r"(?<=[a-z])[\d.]+$", "", PurePath(word).name) in _PROGRAMS or PurePath(word).name in _PROGRAMS


def _value(word: str, secret: bool) -> str:
    return word if not secret and _FIGURE.fullmatch(word) else HIDDEN
