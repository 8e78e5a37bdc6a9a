"""Choose the interface: by name, by the route to a target, or all of them."""

import re
import socket
from collections.abc import Sequence

from . import tools
from .errors import UsageError
from .filters import address

ANY = "any"
"""libpcap's name for all interfaces."""


def target(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT` or `[V6]:PORT`. Raises UsageError."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\s]+)):(\d{1,5})", text.strip())
    if not match or not 0 < int(match[3]) < 65_536:
        raise UsageError(f"{text!r} is not a target: write HOST:PORT, such as 10.0.0.2:50051 or [::1]:50051")
    return match[1] or match[2], int(match[3])


def addresses(host: str) -> tuple[str, ...]:
    """Look up all IP addresses of a host. Raises UsageError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{host}: {getattr(error, 'strerror', None) or 'no host has this name'}") from None
    return tuple(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def choose(named: str | None, targets: Sequence[str]) -> str:
    """Choose the interface to record on: the named one, the one of all routes to the targets, or any.

    `targets` are IP addresses. Raises UsageError for an unknown name.
    """
    if named:
        known = _list_names()
        if named != ANY and named not in known:
            raise UsageError(f"no interface has the name {named!r}; known: {', '.join(known)}, {ANY}")
        return named
    devices = {by_route(ip) for ip in targets}
    device = devices.pop() if len(devices) == 1 else None
    return device or ANY


def _list_names() -> list[str]:
    """List the interfaces of the network namespace that is recorded."""
    if not tools.list_prefix():
        return [name for _, name in socket.if_nameindex()]
    return [str(link["ifname"]) for link in tools.answer("ip", "-j", "link", "show") or () if "ifname" in link]


def by_route(ip: str) -> str | None:
    """Find the interface of the route to an address; None if `ip` does not say."""
    if address(ip) is None:
        return None
    match tools.answer("ip", "-j", "route", "get", ip):
        case [{"dev": str(device)}, *_]:
            return device
    return None
