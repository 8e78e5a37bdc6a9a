"""Check what this machine lacks for recording, verifying and the lab, by trying it, without leaving anything behind."""

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
"""`optional`: it is missing, and reports say less without it."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    area: Area
    name: str
    state: State
    found: str
    """What was found: a version, a value, or the reason why not."""
    do: str = ""
    """What to do if it is missing."""


def examine() -> Iterator[Check]:
    """Run all checks; of recording and the lab only the first on systems that have neither."""
    for area, checks in _CHECKS.items():
        for check in checks if area == "verifying" or sys.platform == "linux" else (_check_kernel,):
            yield from check(area)


def _make_check(area: Area, name: str, is_there: bool, found: str, do: str, *, needed: bool = True) -> Check:
    """Make the result of a check; `do` says what to do if it is not there."""
    state: State = "ok" if is_there else "missing" if needed else "optional"
    return Check(area, name, state, found, "" if is_there else do)


def _check_tool(name: str, package: str, why: str, *, needed: bool) -> Callable[[Area], Iterator[Check]]:
    def look(area: Area) -> Iterator[Check]:
        path = tools.find(name)
        found = (path and _read_version(name)) or path or "not found"
        yield _make_check(area, name, path is not None, found, f"apt install {package}: {why}", needed=needed)

    return look


def _read_version(name: str) -> str:
    option = {"ip": "-V", "tc": "-V", "ssh": "-V"}.get(name, "--version")
    line = next(iter((tools.output(name, option) or "").splitlines()), "")
    match = re.search(r"\d+(\.\d+)+\S*", line)
    return match[0].rstrip(",.") if match else ""


def _check_module(name: str, why: str, extra: str, *, needed: bool) -> Callable[[Area], Iterator[Check]]:
    def look(area: Area) -> Iterator[Check]:
        version = machine.package(name)
        do = f"pip install {extra}: {why}"
        yield _make_check(area, name, version is not None, version or "not found", do, needed=needed)

    return look


def _check_kernel(area: Area) -> Iterator[Check]:
    fit = sys.platform.startswith("linux") and hasattr(os, "pidfd_open")
    yield _make_check(area, "Linux", fit, platform.release(), f"{area} needs Linux 5.3 or later")


def _check_right_to_record(area: Area) -> Iterator[Check]:
    """Start tcpdump on the loopback device with a filter that matches nothing."""
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
        lines = str(error).splitlines()
        yield Check(area, name, "missing", lines[0], lines[1] if len(lines) > 1 else "")
        return
    who = "root" if os.geteuid() == 0 else "tcpdump has the capabilities"
    yield Check(area, name, "ok", who)


def _check_filters(area: Area) -> Iterator[Check]:
    checked = filters.check("tcp")
    found = (machine.package("cypcap") or "found") if checked else "not found"
    do = "pip install 'grpcdiag[capture]': finds wrong filters before anything starts"
    yield _make_check(area, "filter check (cypcap)", checked, found, do, needed=False)


def _check_namespaces(area: Area) -> Iterator[Check]:
    """Create devices in a network namespace that ends with the process."""
    root = os.geteuid() == 0
    trials = (
        ("network namespaces", ["true"], "the lab needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN"),
        (
            "veth pairs",
            ["ip", "link", "add", "grpcdiag0", "type", "veth", "peer", "name", "grpcdiag1"],
            "modprobe veth",
        ),
        (
            "TUN devices",
            ["ip", "tuntap", "add", "dev", "grpcdiag0", "mode", "tun"],
            "modprobe tun; /dev/net/tun must exist",
        ),
    )
    for name, words, do in trials:
        works = tools.output("unshare", "--net", "--", *words) is not None
        found = "works" if works else ("does not work" if root else "not allowed, or not found")
        yield _make_check(area, name, works, found, do)


def _check_cubic(area: Area) -> Iterator[Check]:
    here = machine.sysctls().get("net.ipv4.tcp_available_congestion_control", "")
    yield _make_check(area, "cubic", "cubic" in here.split(), here or "unknown", "modprobe tcp_cubic")


def settings() -> Iterator[tuple[str, str, str]]:
    """List the kernel settings that affect an analysis: name, value, meaning of the value."""
    values = machine.sysctls()
    means: tuple[tuple[str, Callable[[str], str]], ...] = (
        (
            "net.ipv4.tcp_congestion_control",
            lambda v: (
                "congestion windows are estimated by the rules of cubic"
                if v == "cubic"
                else f"{v} differs from cubic: congestion windows are measured with ss, or reported as bytes in flight"
            ),
        ),
        (
            "net.ipv4.tcp_slow_start_after_idle",
            lambda v: (
                "congestion windows stay after idle time" if v == "0" else "congestion windows restart after idle time"
            ),
        ),
        (
            "net.ipv4.tcp_autocorking",
            lambda v: "small writes are sent immediately" if v == "0" else "small writes may be joined",
        ),
        ("net.ipv4.tcp_rmem", lambda v: "minimum, default and maximum receive buffer"),
        ("net.ipv4.tcp_wmem", lambda v: "minimum, default and maximum send buffer"),
        ("net.ipv4.tcp_notsent_lowat", lambda v: "unsent bytes below which a socket is writable"),
        ("net.core.default_qdisc", lambda v: "queueing discipline of new interfaces"),
    )
    for name, meaning in means:
        if name in values:
            yield name, values[name], meaning(values[name])


_CHECKS: dict[Area, tuple[Callable[[Area], Iterator[Check]], ...]] = {
    "recording": (
        _check_kernel,
        _check_tool("tcpdump", "tcpdump", "records packets", needed=True),
        _check_right_to_record,
        _check_tool("setpriv", "util-linux", "lets root run tcpdump as the caller of sudo", needed=False),
        _check_filters,
        _check_tool("ss", "iproute2", "measures congestion windows", needed=False),
        _check_tool("ip", "iproute2", "finds interfaces by route, reports routes and MTUs", needed=False),
        _check_tool("tc", "iproute2", "reports queueing disciplines", needed=False),
        _check_tool("ethtool", "ethtool", "reports offloads", needed=False),
        _check_tool("ssh", "openssh-client", "records on another host with --also", needed=False),
    ),
    "verifying": (
        _check_tool("tshark", "tshark", "decodes the capture for the comparison", needed=True),
        _check_module("pyshark", "runs tshark", "pyshark", needed=True),
    ),
    "lab": (
        _check_module("grpcio", "clients and servers of the lab", "grpcio", needed=True),
        _check_tool("ip", "iproute2", "creates namespaces and links", needed=True),
        _check_tool("nft", "nftables", "drops and rejects packets in some cases", needed=False),
        _check_tool("nginx", "nginx", "is the proxy of some cases", needed=False),
        _check_namespaces,
        _check_cubic,
    ),
}
