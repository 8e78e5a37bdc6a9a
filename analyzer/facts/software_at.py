"""Who is at an end of a connection: the gRPC implementation or the proxy there."""

from collections.abc import Iterable

from ..model.finding import Remedy
from ..software import settings
from ..software.recognise import is_proxy, recognise
from ..tables import Tables
from .hosts import implementation


def recognise_end(tables: Tables, connection: int, direction: int) -> str | None:
    """Recognise the software at the end of a connection that sends in `direction`."""
    return recognise(implementation(tables, connection, direction))


def recognise_server(tables: Tables, connections: Iterable[int]) -> str | None:
    """Recognise the software at the server's end of some connections; None unless all have the same."""
    return _recognise_all(tables, connections, 1)


def recognise_proxy(tables: Tables, connections: Iterable[int], direction: int = 1) -> str | None:
    """Recognise the proxy that sends in `direction` on some connections; None unless all have the same."""
    only = _recognise_all(tables, connections, direction)
    return only if is_proxy(only) else None


def _recognise_all(tables: Tables, connections: Iterable[int], direction: int) -> str | None:
    seen = {recognise_end(tables, connection, direction) for connection in connections}
    return seen.pop() if len(seen) == 1 else None


def list_settings(
    tables: Tables,
    connections: Iterable[int],
    direction: int,
    intent: str,
    says: str = "",
    *,
    where: str = "",
    general: tuple[Remedy, ...] = (),
) -> tuple[Remedy, ...]:
    """List the settings of the implementations seen at that end of the connections."""
    seen = {recognise_end(tables, connection, direction) for connection in connections}
    return settings.list_settings(intent, seen, says, where=where, general=general)
