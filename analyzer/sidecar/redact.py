"""Redact a sidecar for publication: no names of hosts, users, files or interfaces."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ..tables import DIRECTIONS, Tables
from .read import SYSCTL, Sidecar, metrics

HIDDEN_FILE, HIDDEN_HOST = "the sidecar file", "the recording host"
"""Replacements for names in `redact`."""
_KERNEL = re.compile(r"(Linux|Darwin|FreeBSD) (\d{1,3}(?:\.\d{1,5}){0,3})")
_MACHINES = ("x86_64", "aarch64", "arm64", "armv7l", "i686", "riscv64", "ppc64le", "s390x")
_VALUE = re.compile(r"[0-9 \t-]{1,60}|bbr|cubic|reno|fq|fq_codel|pfifo_fast")


def hidden(sidecar: Sidecar, before: Tables, after: Tables) -> Sidecar:
    """Redact the sidecar of a scrubbed capture: without names of files, hosts and interfaces, with new addresses.

    `before` and `after` are the tables before and after scrubbing: their connections match row by row.
    """
    document, host = sidecar.document, sidecar.document.host
    ends: dict[tuple[str, str], tuple[str, str]] = {}
    for row in range(len(before.connections.protocol)):
        old, new = (before.client(row), before.server(row)), (after.client(row), after.server(row))
        ends |= {old: new, old[::-1]: new[::-1]}
    addresses = dict(zip(before.addresses, after.addresses, strict=True))
    known = replace(
        host,
        name=HIDDEN_HOST,
        kernel=kernel(sidecar),
        machine=None,
        boot=None,
        addresses=tuple(addresses[address] for address in host.addresses if address in addresses),
        sysctls=_keep_plain(host.sysctls),
        routes=tuple({"metrics": _keep_initial_window(route)} for route in host.routes),
    )
    at_end = None if document.sysctls_at_end is None else _keep_plain(document.sysctls_at_end)
    interface = None if document.capture.interface is None else HIDDEN_HOST
    capture = replace(document.capture, interface=interface)
    redacted = replace(document, host=known, capture=capture, command=None, sysctls_at_end=at_end)
    windows = {ends[pair]: found for pair, found in sidecar.windows.items() if pair in ends}
    return replace(sidecar, file=HIDDEN_FILE, document=redacted, windows=windows, processes=None)


def _keep_plain(sysctls: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sysctls.items() if SYSCTL.fullmatch(name) and _VALUE.fullmatch(value)}


def _keep_initial_window(route: Mapping[str, Any]) -> list[dict[str, int]]:
    return [{"initcwnd": m["initcwnd"]} for m in metrics(route) if isinstance(m.get("initcwnd"), int)]


def kernel(sidecar: Sidecar) -> str:
    """Return name and version of the kernel and the architecture, without the name of a custom build."""
    found, machine = _KERNEL.match(sidecar.document.host.kernel), sidecar.document.host.machine
    return f"{found[0]}{f' {machine}' if machine in _MACHINES else ''}" if found else ""


def command(sidecar: Sidecar) -> tuple[tuple[str, ...], int | None]:
    """Return the arguments of the recorded command as typed, and its exit code."""
    recorded = sidecar.document.command if isinstance(sidecar.document.command, dict) else {}
    words, code = recorded.get("arguments"), recorded.get("exit_code")
    known = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return tuple(words or ()) if known else (), code if isinstance(code, int) else None


def side(sidecar: Sidecar, tables: Tables) -> str:
    """Find which end of the connections recorded: `client`, `server`, `both`, or empty when unknown."""
    local, c = set(sidecar.document.host.addresses), tables.connections
    clients, servers = ({tables.addresses[int(i)] for i in set(ips)} for ips in (c.client_ip, c.server_ip))
    here = [name for name, ends in zip(DIRECTIONS, (clients, servers), strict=True) if ends and ends <= local]
    return "both" if len(here) > 1 else here[0] if here else ""
