"""Read this machine's settings, which packets do not show but an analysis needs."""

import os
import platform
import re
import socket
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from . import clock, tools

_OF_SOCKETS = "default_qdisc netdev_max_backlog rmem_default rmem_max somaxconn wmem_default wmem_max"
_OF_TCP = (
    "abort_on_overflow adv_win_scale allowed_congestion_control autocorking available_congestion_control "
    "congestion_control early_retrans ecn fastopen fin_timeout keepalive_intvl keepalive_time limit_output_bytes "
    "max_syn_backlog mem min_rtt_wlen min_tso_segs moderate_rcvbuf mtu_probing no_metrics_save notsent_lowat "
    "pacing_ca_ratio pacing_ss_ratio recovery retries2 rmem sack slow_start_after_idle syn_retries timestamps "
    "tso_win_divisor tw_reuse window_scaling wmem"
)
SYSCTLS = (*(f"net.core.{name}" for name in _OF_SOCKETS.split()), *(f"net.ipv4.tcp_{name}" for name in _OF_TCP.split()))
"""Settings that change how TCP sends, waits or gives up."""


def sysctls() -> dict[str, str]:
    """Read the values of `SYSCTLS` in this network namespace, without those that this kernel lacks."""
    paths = {"/proc/sys/" + name.replace(".", "/"): name for name in SYSCTLS}
    found = tools.read_settings(tuple(paths))
    return {paths[path]: " ".join(value.split()) for path, value in found.items()}


def addresses() -> list[str]:
    """List the IP addresses of this network namespace."""
    links = tools.answer("ip", "-j", "addr", "show")
    if not isinstance(links, list):
        return []
    infos = [info for link in links if isinstance(link, dict) for info in link.get("addr_info", [])]
    return [info["local"] for info in infos if isinstance(info, dict) and "local" in info]


def routes(targets: Sequence[str]) -> list[dict[str, Any]]:
    """List the routes to the targets and those of the namespace as `ip -j` prints them, with `initcwnd`, `congctl`."""
    found: list[dict[str, Any]] = []
    for ip in dict.fromkeys(targets):
        got = tools.answer("ip", "-j", "-d", "route", "get", ip)
        found += [{"target": ip, **route} for route in got] if isinstance(got, list) else []
    for family in ("-4", "-6"):
        got = tools.answer("ip", family, "-j", "-d", "route", "show", "table", "all")
        found += [route for route in got[:200] if isinstance(route, dict)] if isinstance(got, list) else []
    return found


def links(interface: str) -> dict[str, Any]:
    """Read MTU, queueing discipline, offloads and counters of the interface, or of all for `any`."""
    found = tools.answer("ip", "-j", "-s", "link", "show", *([] if interface == "any" else ["dev", interface]))
    return {
        link["ifname"]: {
            "mtu": link.get("mtu"),
            "state": link.get("operstate"),
            "kind": link.get("link_type"),
            "txqlen": link.get("txqlen"),
            "counters": link.get("stats64"),
            "qdisc": tools.answer("tc", "-j", "-s", "qdisc", "show", "dev", link["ifname"]) or link.get("qdisc"),
            "offloads": offloads(link["ifname"]),
        }
        for link in (found if isinstance(found, list) else [])[:64]
        if isinstance(link, dict) and "ifname" in link and (interface != "any" or "UP" in link.get("flags", []))
    }


def offloads(interface: str) -> dict[str, bool] | None:
    """Read the offloads that change what a capture shows; None without ethtool."""
    text = tools.output("ethtool", "-k", interface)
    if text is None:
        return None
    wanted: tuple[str, ...] = ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload")
    wanted += ("large-receive-offload", "tx-checksumming", "rx-checksumming", "tx-udp-segmentation")
    pairs = (line.strip().partition(": ") for line in text.splitlines())
    return {name: value.startswith("on") for name, _, value in pairs if name in wanted}


def cpus() -> dict[str, Any]:
    """Describe the processors: their number, model, frequency governor and load."""
    lines = (tools.read("/proc/cpuinfo") or "").splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    governor = tools.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    load = tools.read("/proc/loadavg")
    return {"count": os.cpu_count(), "usable": usable, "model": model, "governor": governor, "load": load}


def cpu_pressure() -> dict[str, int] | None:
    """Read for how long some thread of the machine has waited for a processor (PSI); None where it is not known."""
    found = re.match(r"some .*\btotal=(\d+)", tools.read("/proc/pressure/cpu") or "")
    return {"time_ns": time.monotonic_ns(), "waited_us": int(found[1])} if found else None


def versions() -> dict[str, str | None]:
    """List the versions of the recording tools and of gRPC."""
    lines = (tools.output("tcpdump", "--version") or "").splitlines()
    libpcap = next((line for line in lines if "libpcap" in line), None)
    return {
        "tcpdump": lines[0].removeprefix("tcpdump version ") if lines else None,
        "libpcap": libpcap.removeprefix("libpcap version ") if libpcap else None,
        "iproute2": (tools.output("ss", "--version") or "").strip().removeprefix("ss utility, ") or None,
        "ethtool": (tools.output("ethtool", "--version") or "").strip() or None,
        "python": sys.version.split()[0],
        "grpcio": package("grpcio"),
        "cypcap": package("cypcap"),
    }


def package(name: str) -> str | None:
    """Find the version of a Python package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def snapshot(interface: str, targets: Sequence[str]) -> dict[str, Any]:
    """Collect all settings of this machine."""
    kernel = platform.uname()
    return {
        "name": socket.gethostname(),
        "kernel": f"{kernel.system} {kernel.release} {kernel.version}",
        "machine": kernel.machine,
        "network_namespace": (tools.output("readlink", "/proc/self/ns/net") or "").strip() or None,
        "boot": clock.identify_boot(),
        "clock": clock.describe_clock(),
        "addresses": addresses(),
        "cpus": cpus(),
        "cpu_pressure": cpu_pressure(),
        "sysctls": sysctls(),
        "routes": routes(targets),
        "interfaces": links(interface),
        "versions": versions(),
    }
