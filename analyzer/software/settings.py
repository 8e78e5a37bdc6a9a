"""The setting of an implementation for what a finding wants changed."""

from collections.abc import Collection, Iterable, Iterator

from ..model.finding import Remedy
from . import intents
from .implementation import C_CORE, Implementation, Setting
from .known import read_all
from .recognise import recognise

Seen = str | Collection[str | None] | None
"""The software at an end of one or of several connections."""
COMMON = (C_CORE, "envoy", "grpc-dotnet", "grpc-go", "grpc-java", "grpc-js", "tonic")
"""Software whose settings are listed when none was recognised: the most used, by name."""


WAITS = "server: waits for open RPCs"
"""What several findings say of a stop."""
_MORE = "more RPCs at a time, which need more memory"


def list_settings(
    intent: str,
    seen: Seen,
    says: str = "",
    *,
    where: str = "",
    general: tuple[Remedy, ...] = (),
) -> tuple[Remedy, ...]:
    """List the settings of the software that was seen, and after them what fits any software.

    Where no setting of it is known, or no software was seen, the settings of the most used come last.
    """
    own = list_own(intent, seen, says, where=where)
    if own:
        return (*own, *general)
    none = () if general else tuple(find_none(name) for name in _name(seen))
    return (*none, *general, *list_common(intent, says, where=where))


def list_own(intent: str, seen: Seen, says: str = "", *, where: str = "") -> tuple[Remedy, ...]:
    """List the settings of the software that was seen alone."""
    names = _name(seen)
    return tuple(_write(intent, (one for name, one in read_all().items() if name in names), says, where))


def list_known(intent: str, software: str | None, says: str = "") -> tuple[Remedy, ...]:
    """List the settings of the software that was seen, perhaps none; of the most used where it is unknown."""
    return list_own(intent, software, says) if software else list_common(intent, says)


def list_common(intent: str, says: str = "", *, where: str = "") -> tuple[Remedy, ...]:
    """List the settings of the most used software; of all where they have none."""
    return list_own(intent, COMMON, says, where=where) or list_all(intent, says, where=where)


def list_all(intent: str, says: str = "", *, where: str = "") -> tuple[Remedy, ...]:
    """List the settings of all software."""
    return tuple(_write(intent, read_all().values(), says, where))


def list_metadata(software: str | None) -> tuple[Remedy, ...]:
    """List the limits on metadata of a server's software; of all if it is unknown, none if none of it is known."""
    limit, less = intents.METADATA[intents.SERVER], "send less metadata if you can"
    if software:
        return list_own(limit, software, less)
    look = Remedy("application", "the server's limit on metadata (header list size)", less)
    return (look, *list_all(limit, less))


def name_settings(intent: str) -> str:
    """Name all settings for an intent in one sentence: `keepalive_timeout (nginx), ...`."""
    return ", ".join(f"{one.knob} ({one.implementation})" for one in list_all(intent))


def list_windows(intent: str | tuple[str, str], implementation: str | None, direction: int) -> tuple[Remedy, ...]:
    """List the settings of a window, or of the number of streams, of the software seen at one end, then Envoy's.

    For unknown software what to look for comes first, and then the settings of the most used.
    """
    end, seen = ("client", "server")[direction], recognise(implementation)
    one = intent if isinstance(intent, str) else intent[direction]
    says, where = _MORE if one == intents.STREAM_LIMIT else "", f"on the {end}"
    if seen is None:
        what = "stream limit" if says else one.removeprefix("enlarge the ").partition(" of ")[0]
        look = f"the {what} in the settings of the {end}'s library"
        general = Remedy("any gRPC implementation", look, "a larger one needs more memory")
        return list_settings(one, None, says, where=where, general=(general,))
    own = list_own(one, {seen, "envoy"}, says, where=where)
    found = sorted(own, key=lambda remedy: remedy.implementation != seen)
    return tuple(found) if found and found[0].implementation == seen else (find_none(seen), *found)


def find_none(software: str) -> Remedy:
    """Say that no setting of the software that was seen is known."""
    return Remedy(software, "no setting is known", "none is known for this; the others are of other software")


def _name(seen: Seen) -> list[str]:
    return [one for one in ([seen] if seen is None or isinstance(seen, str) else sorted(filter(None, seen))) if one]


def _write(intent: str, implementations: Iterable[Implementation], says: str, where: str) -> Iterator[Remedy]:
    for one in implementations:
        yield from (Remedy(one.name, setting.knob, _note(setting, says, where)) for setting in one.find(intent))


def _note(setting: Setting, says: str, where: str) -> str:
    words = (f"{setting.default} by default" if setting.default else "", setting.note.replace("{}", says) or says)
    return (f"{where}: " if where else "") + "; ".join(filter(None, words))
