"""The configuration file: `grpcdiag.toml`, or `[tool.grpcdiag]` of `pyproject.toml`.

A downloaded folder may hold one. So it can name no commands and no outputs, reports say what it changes, and files of
other users are not read. The command line takes precedence.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from .messages import fail, say, suggest

if TYPE_CHECKING:
    from ...analyzer.model.analysis import Analysis, MethodFacts

VARIABLE = "GRPCDIAG_CONFIG"
"""Environment variable with the file's path; empty for none."""
MOST_BYTES = 1 << 20
"""Largest configuration file."""
OWN, SHARED = "grpcdiag.toml", "pyproject.toml"
_TABLE = "tool.grpcdiag"
_MOST_DOTS = 200
"""Most dots of a line: a key of many parts costs their square in time and memory."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    ports: Annotated[tuple[Annotated[int, Meta(ge=1, le=65535)], ...], Meta(max_length=1000)] = ()
    """Ports to decode as HTTP/2, as --port."""
    keylog: str | None = None
    """TLS secrets, as --keylog; relative to the file."""
    hide: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=100)] = ()
    """Methods that are left out of reports, as patterns."""
    limits: Mapping[str, Mapping[str, int | float]] = {}
    """Limits of detectors, by finding and name."""


class Config(Struct, frozen=True):
    """The file that was found, and what it says."""

    file: Path | None = None
    settings: Settings = Settings()
    refused: tuple[str, ...] = ()
    """Files that were not read, and why."""

    @property
    def keylog(self) -> Path | None:
        """Give the path of the key log, which is relative to the file."""
        named = self.settings.keylog
        return self.file.parent / named if self.file and named else None

    @property
    def name(self) -> str:
        """Give the file's name for reports, which folders do not belong into."""
        return self.file.name if self.file else ""

    def describe(self) -> str:
        """Say which file is read, and which settings it has."""
        own = Settings()
        keys = [key for key in Settings.__struct_fields__ if getattr(self.settings, key) != getattr(own, key)]
        found = f"{self.file} ({', '.join(keys) or 'no settings'})" if self.file else "none found"
        return "; ".join([found, *self.refused])


APPLIED: ContextVar[Config] = ContextVar("APPLIED", default=Config())  # noqa: B039 it is frozen
"""The configuration that this command uses: that of a command that decodes with `apply_config`."""


class ConfigError(Exception):
    """A configuration file is invalid; the message says why."""


def read_config() -> Config:
    """Find and read the configuration; an invalid one ends the command."""
    try:
        return _find_config()
    except ConfigError as error:
        fail(str(error), 2)


def _find_config() -> Config:
    """Read the file that the environment names, or the nearest one in this folder or above. Raises ConfigError."""
    if VARIABLE in os.environ:
        named = os.environ[VARIABLE]
        return _read_named(Path(named)) if named else Config()
    refused: list[str] = []
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return Config()
    for path in (folder / name for folder in (here, *here.parents) for name in (OWN, SHARED)):
        try:
            text = _read_own(path)
        except OSError:
            continue
        except ConfigError as error:
            refused.append(str(error))
            continue
        if path.name == OWN or _TABLE.encode() in text:
            return _parse(path, text, tuple(refused))
    return Config(refused=tuple(refused))


def _read_named(path: Path) -> Config:
    try:
        return _parse(path.absolute(), _read_own(path), ())
    except OSError as error:
        raise ConfigError(f"{path}: the configuration cannot be read: {error.strerror}") from None


def _read_own(path: Path) -> bytes:
    """Read a regular file that, as a link to it, belongs to this user or to root. Raises OSError, ConfigError."""
    linked = path.lstat()
    with open(path, "rb", opener=_open_at_once) as file:
        facts = os.fstat(file.fileno())
        if hasattr(os, "geteuid") and not {linked.st_uid, facts.st_uid} <= {os.geteuid(), 0}:
            raise ConfigError(f"{path} is not read: it belongs to another user")
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MOST_BYTES:
            raise ConfigError(f"{path} is not read: it is no regular file below {MOST_BYTES >> 20} MiB")
        return file.read(MOST_BYTES)


def _open_at_once(name: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe, where there are such files."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _parse(path: Path, text: bytes, refused: tuple[str, ...]) -> Config:
    """Parse the settings. Raises ConfigError."""
    import tomllib

    try:
        if any(line.count(b".") > _MOST_DOTS for line in text.splitlines()):
            raise ConfigError(f"a line has more than {_MOST_DOTS} dots")
        document: Any = tomllib.loads(text.decode())
        if path.name == SHARED:
            document = document.get("tool", {}).get("grpcdiag", {})
        _check_keys(document)
        settings = msgspec.convert(document, Settings)
        _make_limits(settings)
        _check_keylog(settings.keylog)
    except RecursionError:
        raise ConfigError(f"{path}: too deeply nested") from None
    except (ValueError, AttributeError, ConfigError) as error:  # of TOML, of UTF-8, of msgspec
        raise ConfigError(f"{path}: {error}") from None
    return Config(path, settings, refused)


def _check_keys(document: Mapping[str, Any]) -> None:
    known = list(Settings.__struct_fields__)
    for key in document:
        if key not in known:
            raise ConfigError(f"unknown key {key[:80]!r}; {suggest(key[:80], known)}")


def _check_keylog(named: str | None) -> None:
    """Refuse a key log outside the file's folder: a path of another system may name a host. Raises ConfigError."""
    if named and (".." in re.split(r"[/\\]", named) or re.match(r"[/\\]|[^/\\]*:", named)):
        raise ConfigError("keylog: it is a path below the folder of this file")


def _make_limits(settings: Settings) -> dict[str, Struct]:
    """Make the limits of the detectors that the file changes. Raises ConfigError."""
    if not settings.limits:
        return {}
    from ...analyzer.detectors import DETECTORS
    from ...analyzer.model.limits import LimitError, change_limits

    try:
        return {name: change_limits(DETECTORS, name, values) for name, values in settings.limits.items()}
    except LimitError as error:
        advice = f": {error.name[:80]!r}; {suggest(error.name[:80], error.known)}" if error.known else ""
        raise ConfigError(f"limits: {error}{advice}") from None


def apply_config() -> Config:
    """Read the configuration, and let detectors use its limits."""
    from ...analyzer.model.limits import CHANGED

    config = read_config()
    CHANGED.set(_make_limits(config.settings))
    APPLIED.set(config)
    return config


def list_notes() -> Iterator[str]:
    """Say what the configuration changes in a report besides hiding methods."""
    config = APPLIED.get()
    changed = [
        f"{finding}.{name} = {value:g}"
        for finding, values in config.settings.limits.items()
        for name, value in values.items()
    ]
    if changed:
        yield f"{config.name} changes limits of detectors: {', '.join(changed[:20])}"


def announce(*, quiet: bool) -> None:
    """Say on standard error what the configuration changes: a report on one screen shows no notes."""
    from ...analyzer.model.text import safe

    config = APPLIED.get()
    hides = (
        [f"{config.name} hides methods: {safe(', '.join(config.settings.hide[:20]))}"] if config.settings.hide else []
    )
    for note in () if quiet else (*list_notes(), *hides):
        say(note)


def hide_methods(analysis: Analysis) -> Analysis:
    """Leave out the methods that the configuration hides, with a note; totals and findings keep them."""
    from fnmatch import fnmatchcase

    from msgspec.structs import replace

    from ...analyzer.model.text import count

    config = APPLIED.get()
    if not config.settings.hide:
        return analysis

    def is_shown(method: MethodFacts) -> bool:
        return not method.method or not any(fnmatchcase(method.method, one) for one in config.settings.hide)

    shown = tuple(filter(is_shown, analysis.methods))
    if len(shown) == len(analysis.methods):
        return analysis
    methods = count(len(analysis.methods) - len(shown), "method")
    rpcs = count(sum(method.rpcs for method in analysis.methods) - sum(method.rpcs for method in shown), "RPC")
    note = f"{config.name} hides {methods} with {rpcs}; totals, time by cause and findings include them"
    quality = replace(analysis.quality, warnings=(*analysis.quality.warnings, note))
    return replace(analysis, methods=shown, quality=quality)
