"""What a file in `analyzer/software/known` says of one implementation: data only, each with its source and version."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

C_CORE = "C-core (C++, Python, Ruby, PHP)"
"""How remedies name the implementations that share grpc-core."""

SILENCE, DURATION, CONNECT = "silence", "duration", "connect"
"""What a timer measures: time without a byte of the stream, the stream's age, or the wait for a backend's connection or
its first answer, which ends no stream that had a response."""

T = TypeVar("T")
BySource = Mapping[str, tuple[T, ...]]
"""Facts by where they are described: a file or a page, and the version read."""


class Setting(Struct, array_like=True, frozen=True):
    """A setting as one types it."""

    intents: str | tuple[str, ...]
    """One of those in `intents`, or several."""
    knob: str
    note: str = ""
    """What is to be known of it; `{}` stands for what the finding says, which it otherwise replaces."""
    default: str = ""


class Timer(Struct, array_like=True, frozen=True):
    """A setting that ends streams."""

    setting: str
    measures: str
    default_s: int | None
    """None where it is off, or has no default."""
    status: int = 504
    """The HTTP status with which it answers an RPC without a response, 0 for none."""
    reset_code: int | None = None
    """The error code with which it resets a stream that has a response, None where that is not known."""


class Text(Struct, array_like=True, frozen=True):
    """Texts of `grpc-message` that mean the same, and the setting that they are about."""

    texts: tuple[str, ...]
    """Word for word; `#` stands for hexadecimal digits, and `*` at the end for what is left out."""
    says: str = ""
    """Empty for texts that the core keeps and nobody explains."""
    setting: str = ""
    note: str = ""


class Goaway(Text, array_like=True, frozen=True):
    """Texts in the debug data of a GOAWAY."""

    cause: str = ""
    """`stop`, `idle` or `age`: why the server ended the connection."""


class Fault(Struct, array_like=True, frozen=True):
    """A fault of some versions."""

    versions: str
    says: str


class Implementation(Struct, frozen=True, eq=False, kw_only=True, forbid_unknown_fields=True):
    """What is known of a gRPC implementation, a proxy, a server, or a device between."""

    name: str
    """How remedies name it."""
    tokens: tuple[str, ...] = ()
    """Products of its `user-agent`, `server` and `via` fields, in lower case."""
    is_proxy: bool = False
    collects_garbage: bool = True
    """Whether its language has a garbage collector."""
    frames: str = ""
    """What it sends by which the core recognises it where no header names it."""
    settings: BySource[Setting] = {}
    timers: BySource[Timer] = {}
    idle_limits: BySource[int] = {}
    """For how long it keeps an idle TCP connection by default, in seconds."""
    texts: BySource[Text] = {}
    goaways: BySource[Goaway] = {}
    faults: BySource[Fault] = {}

    def find(self, intent: str) -> Iterator[Setting]:
        """Find the settings for an intent."""
        for one in (one for settings in self.settings.values() for one in settings):
            if intent == one.intents or (isinstance(one.intents, tuple) and intent in one.intents):
                yield one
