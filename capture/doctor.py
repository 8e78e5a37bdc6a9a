"""What this machine lacks for recording, for verifying and for the lab: tried, not guessed, and nothing left behind."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from . import filters, machine, tcpdump, tools
from .errors import RecordingError

Area = Literal["recording", "verifying", "lab"]
State = Literal["ok", "missing", "optional"]
"""`optional`: it is missing, and less is told without it."""

AREAS: tuple[Area, ...] = ("recording", "verifying", "lab")
"""What a machine can be fit for."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked for."""

    area: Area
    name: str
    state: State
    found: str
    """What is here: a version, a value, or why not."""
    do: str = ""
    """What to do when it is missing."""


def examine() -> Iterator[Check]:
    """Look for everything."""
    for area, checks in _CHECKS.items():
        for check in checks:
            yield from check(area)


def _tool(name: str, package: str, why: str, *, needed: bool) -> Callable[[Area], Iterator[Check]]:
    def look(area: Area) -> Iterator[Check]:
        path = tools.find(name)
        state: State = "ok" if path else ("missing" if needed else "optional")
        version = _version(name) if path else ""
        yield Check(area, name, state, version or path or "not here", "" if path else f"apt install {package}: {why}")

    return look


def _version(name: str) -> str:
    option = {"ip": "-V", "tc": "-V", "ssh": "-V"}.get(name, "--version")
    line = next(iter((tools.output(name, option) or "").splitlines()), "")
    match = re.search(r"\d+(\.\d+)+\S*", line)
    return match[0].rstrip(",.") if match else ""


def _module(name: str, why: str, extra: str, *, needed: bool) -> Callable[[Area], Iterator[Check]]:
    def look(area: Area) -> Iterator[Check]:
        version = machine.package(name)
        state: State = "ok" if version else ("missing" if needed else "optional")
        yield Check(area, name, state, version or "not here", "" if version else f"pip install {extra}: {why}")

    return look


def _kernel(area: Area) -> Iterator[Check]:
    release = platform.release()
    fit = sys.platform.startswith("linux") and hasattr(os, "pidfd_open")
    yield Check(area, "Linux", "ok" if fit else "missing", release, "" if fit else "Linux 5.3 or later records")


def _right_to_record(area: Area) -> Iterator[Check]:
    """tcpdump is started, on the loopback device, with a filter that nothing passes."""
    name = "right to record"
    try:
        path = tcpdump.find()
        line = tcpdump.arguments(path, interface="lo", expression="less 1", output="-", buffer_kib=1024)
        running = tcpdump.Tcpdump(line)
        try:
            running.listen()
        finally:
            running.stop()
    except RecordingError as error:
        said = str(error).splitlines()
        yield Check(area, name, "missing", said[0], said[1] if len(said) > 1 else "")
        return
    who = "root" if os.geteuid() == 0 else "tcpdump has the capabilities"
    yield Check(area, name, "ok", who)


def _filters(area: Area) -> Iterator[Check]:
    checked = filters.check("tcp")
    yield Check(
        area,
        "filter check (cypcap)",
        "ok" if checked else "optional",
        (machine.package("cypcap") or "here") if checked else "not here",
        "" if checked else "pip install 'grpcdiag[capture]': wrong filters are found before anything starts",
    )


def _namespaces(area: Area) -> Iterator[Check]:
    """Devices are made in a network namespace that ends with the process."""
    root = os.geteuid() == 0
    trials = (
        ("network namespaces", ("true",), "the lab needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN"),
        (
            "veth pairs",
            ("ip", "link", "add", "grpcdiag0", "type", "veth", "peer", "name", "grpcdiag1"),
            "modprobe veth",
        ),
        (
            "TUN devices",
            ("ip", "tuntap", "add", "dev", "grpcdiag0", "mode", "tun"),
            "modprobe tun; /dev/net/tun must be there",
        ),
    )
    for name, words, do in trials:
        works = tools.output("unshare", "--net", "--", *words) is not None
        found = "works" if works else ("does not work" if root else "not allowed, or not here")
        yield Check(area, name, "ok" if works else "missing", found, "" if works else do)


def _cubic(area: Area) -> Iterator[Check]:
    here = machine.sysctls().get("net.ipv4.tcp_available_congestion_control", "")
    has = "cubic" in here.split()
    yield Check(area, "cubic", "ok" if has else "missing", here or "not known", "" if has else "modprobe tcp_cubic")


def settings() -> Iterator[tuple[str, str, str]]:
    """Kernel settings that change what a diagnosis says: name, value, what the value means."""
    values = machine.sysctls()
    means: tuple[tuple[str, Callable[[str], str]], ...] = (
        (
            "net.ipv4.tcp_congestion_control",
            lambda v: (
                "windows are estimated as cubic keeps them"
                if v == "cubic"
                else f"{v} keeps its window otherwise "
                "than cubic: windows are measured with ss, or told as bytes in flight"
            ),
        ),
        (
            "net.ipv4.tcp_slow_start_after_idle",
            lambda v: "windows stay over idle time" if v == "0" else "windows fall back after idle time",
        ),
        (
            "net.ipv4.tcp_autocorking",
            lambda v: "small writes leave at once" if v == "0" else "small writes may be joined",
        ),
        ("net.ipv4.tcp_rmem", lambda v: "least, first and largest receive buffer"),
        ("net.ipv4.tcp_wmem", lambda v: "least, first and largest send buffer"),
        ("net.ipv4.tcp_notsent_lowat", lambda v: "bytes not yet sent at which a socket is writable again"),
        ("net.core.default_qdisc", lambda v: "queues of new interfaces"),
    )
    for name, meaning in means:
        if name in values:
            yield name, values[name], meaning(values[name])


_CHECKS: dict[Area, tuple[Callable[[Area], Iterator[Check]], ...]] = {
    "recording": (
        _kernel,
        _tool("tcpdump", "tcpdump", "it records", needed=True),
        _right_to_record,
        _tool("setpriv", "util-linux", "root runs tcpdump as the user who called sudo", needed=False),
        _filters,
        _tool("ss", "iproute2", "congestion windows are measured", needed=False),
        _tool("ip", "iproute2", "interfaces are found by route, routes and MTUs are told", needed=False),
        _tool("tc", "iproute2", "queueing disciplines are told", needed=False),
        _tool("ethtool", "ethtool", "offloads are told", needed=False),
        _tool("ssh", "openssh-client", "--also records on another host", needed=False),
    ),
    "verifying": (
        _tool("tshark", "tshark", "Wireshark's reading is compared", needed=True),
        _module("pyshark", "it drives tshark", "pyshark", needed=True),
    ),
    "lab": (
        _module("grpcio", "its clients and servers", "grpcio", needed=True),
        _tool("ip", "iproute2", "it makes namespaces and links", needed=True),
        _namespaces,
        _cubic,
    ),
}
