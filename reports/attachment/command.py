"""Mask a command line for publication: programs and figures stay, words that may be secret are hidden."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

HIDDEN = "…"
"""Replaces hidden words."""
MOST_WORDS = 60
"""Most words shown."""

# fmt: off
_PROGRAMS = frozenset((
    "bash", "bazel", "bun", "bundle", "cargo", "deno", "docker", "dotnet", "env", "ghz", "go", "gradle", "gradlew",
    "grpc_cli", "grpcurl", "h2load", "java", "k6", "kubectl", "make", "mvn", "nice", "node", "npm", "npx", "perl",
    "php", "podman", "poetry", "pytest", "python", "ruby", "sbt", "sh", "sudo", "swift", "taskset", "time",
    "timeout", "uv", "wrk", "yarn",
))
# fmt: on
"""Programs whose names are not secret; others are shown as PROGRAM."""
_FIGURE = re.compile(r"\d{1,6}(?:\.\d{1,3})?(?:ns|us|ms|s|m|h|k|kb|kib|m|mb|mib|%)?|true|false|on|off", re.IGNORECASE)
_SECRET = re.compile(r"pass|secret|token|key|auth|cred|pin|user|login|account|session|cookie|otp|code", re.IGNORECASE)
_LONG = re.compile(r"(--?[A-Za-z][A-Za-z-]{0,30})(=?)(.*)", re.DOTALL)
_SHORT = re.compile(r"-[A-Za-z]")


def masked(arguments: Sequence[str]) -> str:
    """Mask a command: names of options and plain figures stay, all other words are hidden."""
    more = f" {HIDDEN}" if len(arguments) > MOST_WORDS else ""
    return " ".join(_mask_words(arguments[:MOST_WORDS])) + more


def whole(arguments: Sequence[str]) -> str:
    """Quote the command as it was typed."""
    return shlex.join(arguments)


def _mask_words(arguments: Sequence[str]) -> Iterator[str]:
    secret = False  # whether the last option names a secret
    for place, word in enumerate(arguments):
        if place == 0:
            yield _mask_program(word)
            continue
        option = _LONG.fullmatch(word)
        if option and (word.startswith("--") or option[2] or _SHORT.fullmatch(word)):
            named, equals, value = option[1], option[2], option[3]
            secret = bool(_SECRET.search(named))
            yield f"{named}{equals}{_mask_value(value, secret) if equals else HIDDEN * bool(value)}"
            secret = secret and not equals
        else:
            yield _mask_program(word) if _is_known(word) else _mask_value(word, secret)
            secret = False


def _mask_program(word: str) -> str:
    return PurePath(word).name if _is_known(word) else "PROGRAM"


def _is_known(word: str) -> bool:
    return re.sub(r"(?<=[a-z])[\d.]+$", "", PurePath(word).name) in _PROGRAMS or PurePath(word).name in _PROGRAMS


def _mask_value(word: str, secret: bool) -> str:
    return word if not secret and _FIGURE.fullmatch(word) else HIDDEN
