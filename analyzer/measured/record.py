"""Records of calls, the same for every format."""

import re
from functools import lru_cache

from msgspec import Struct, field

from .. import _core

MOST_BYTES = 256 << 20
"""Most bytes of a record: some three million calls of ghz."""
MOST_NS = 2**62
"""Latest time of a call, in the year 2116: differences of such times fit into 64 bits."""


BY_SERVER = frozenset(
    (
        "OK",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "DATA_LOSS",
    )
)
"""Statuses that gRPC libraries never generate (gRPC's page on status codes): the server answered such a call."""


class RecordError(ValueError):
    """A file is not a record of calls; the message says where and why."""


class Call(Struct):
    """One call as the client measured it."""

    start_ns: int
    """Nanoseconds since the epoch by the client's clock."""
    end_ns: int
    method: str | None = None
    """`/package.Service/Method`, or `Method` without its service."""
    status: str | None = None
    """Name of the gRPC status code."""
    trace: int = 0
    """Trace-id; 0 for none."""
    span: int = 0
    """The call's own span; 0 for none."""
    attempts: list[int] = field(default_factory=list)
    """Spans of its attempts, where they have their own."""
    is_exported: bool = False
    """Whether `grpcdiag export` wrote it, with ids that follow from the capture."""


class Record(Struct):
    """The calls of one file."""

    format: str
    calls: list[Call]
    server: str | None = None
    """The server that the client connected to, `address:port`."""
    has_zone: bool = True
    """Whether the times include a time zone."""


def make_call(
    start_ns: int, duration_ns: int, where: str, method: str | None = None, status: str | None = None
) -> Call:
    """Make a call after checking its times. Raises RecordError."""
    if duration_ns < 0:
        raise RecordError(f"{where}: the duration is negative")
    if not 0 <= start_ns <= start_ns + duration_ns <= MOST_NS:
        raise RecordError(f"{where}: the time is not between the years 1970 and 2116")
    return Call(start_ns, start_ns + duration_ns, parse_method(method), parse_status(status))


_CODES = {str(code): name for code, name in enumerate(_core.STATUSES)}
_OTHER_NAMES = {"CANCELED": "CANCELLED"}


@lru_cache(maxsize=1_024)
def parse_status(text: str | None) -> str | None:
    """Parse a status: `OK`, `DEADLINE_EXCEEDED`, `DeadlineExceeded`, `StatusCode.OK`, `4`; None for other text."""
    if text is None:
        return None
    last = text.strip().rpartition(".")[2]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last).upper()
    name = _CODES.get(words) or _OTHER_NAMES.get(words, words)
    return name if name in _core.STATUSES else None


@lru_cache(maxsize=1_024)
def parse_method(text: str | None) -> str | None:
    """Parse a method: `/pkg.Svc/Do`, `pkg.Svc/Do`, `pkg.Svc.Do`, `Do`; a name without a service stays as it is."""
    if not text or not (name := text.strip().lstrip("/")):
        return None
    if "/" not in name and "." in name:
        name = "/".join(name.rsplit(".", 1))
    return f"/{name}" if "/" in name else name
