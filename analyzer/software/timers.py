"""Timers of proxies and servers that end streams and idle connections.

Defaults are those of the versions named. They are shown as what to look at, never as a proof.
"""

from collections.abc import Iterable, Iterator

from ..model.finding import Remedy
from . import intents, settings
from .implementation import SILENCE, Timer
from .known import read_all

Known = tuple[str, str, Timer]
"""A timer with its software and its source."""

_S = 1_000_000_000
_NEAR = 0.10
"""How far a measured time may be from a default to be compared with it (heuristic: a round trip and the wheel)."""


def list_all() -> Iterator[Known]:
    """List all timers known, those of one product together."""
    for one in read_all().values():
        yield from ((one.name, source, timer) for source, timers in one.timers.items() for timer in timers)


def list_timers(
    measures: str, time_ns: float, software: str | None, reset_code: int | None = None
) -> tuple[Remedy, ...]:
    """List the timers of the software that was seen; without any, those whose default is near the time, or all.

    Timers that reset streams with another error code than `reset_code` are left out.
    """
    mine = [known for known in list_all() if known[2].measures == measures]
    alike = [known for known in mine if None in (reset_code, known[2].reset_code) or known[2].reset_code == reset_code]
    return _choose(alike, time_ns, software)


def list_answering_timers(status: int, time_ns: float, software: str | None) -> tuple[Remedy, ...]:
    """List the timers that answer with an HTTP status in the same way."""
    return _choose((known for known in list_all() if known[2].status == status), time_ns, software)


def list_statuses(software: str | None) -> list[int]:
    """List the HTTP statuses with which timers of one software answer."""
    return [timer.status for name, _, timer in list_all() if name == software]


def _choose(timers: Iterable[Known], time_ns: float, software: str | None) -> tuple[Remedy, ...]:
    mine = list(timers)
    own = [known for known in mine if known[0] == software]
    near = [known for known in mine if (s := known[2].default_s) is not None and abs(time_ns / _S - s) <= _NEAR * s]
    return tuple(Remedy(name, timer.setting, _describe(timer, source)) for name, source, timer in own or near or mine)


def _describe(timer: Timer, source: str) -> str:
    default = "no default" if timer.default_s is None else f"{timer.default_s} s by default"
    ends = "after that time without a byte of it" if timer.measures == SILENCE else "that long after its request"
    return f"ends a stream {ends}; {default} ({source}); a longer time keeps dead streams open longer"


def list_idle_limits(silence_ns: int) -> tuple[Remedy, ...]:
    """List the default limits that a silence has passed, the longest first; a generic hint where it passed none."""
    everything = [
        (limit, one.name, at) for one in read_all().values() for at, many in one.idle_limits.items() for limit in many
    ]
    passed = sorted((limit for limit in everything if limit[0] * _S <= silence_ns), key=lambda limit: limit[0])[::-1]
    note = "forgets or closes a connection after {} s without a packet by default ({})"
    hint = "all known defaults are longer: look for a changed one in devices between client and server"
    return tuple(Remedy(name, "idle timeout", note.format(limit, source)) for limit, name, source in passed) or (
        Remedy("network", "idle timeouts of proxies, NAT and firewalls", hint),
    )


def make_idle_timeout(software: str | None) -> Remedy:
    """Name the idle timeout of the server's software; of all that are known where it is unknown."""
    longer = "the idle timeout of the server or proxy: longer than the time between calls"
    intent = intents.IDLE_TIMEOUT[intents.SERVER]
    if own := settings.list_own(intent, software, longer):
        return own[0]
    known = f"no setting of {software} is known here" if software else settings.name_settings(intent)
    return Remedy("application", longer, known)
