"""The settings of another host: a shell script prints them there, and they become the sidecar of its capture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .clock import hide_boot
from .machine import SYSCTLS

MARK = "grpcdiag-host "
"""What its lines begin with."""
MOST_LINES = 500
"""Lines that are kept; a host has fewer addresses than this."""

SCRIPT = (
    r"""
say() { echo "grpcdiag-host $1 $2"; }
say started "$(date +%s%N)"
say name "$(uname -n)"
say kernel "$(uname -s) $(uname -r) $(uname -v)"
say machine "$(uname -m)"
say boot "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
{ ip -o addr show 2>/dev/null || hostname -i; } | while read -r first second family address rest; do
    case "$family" in inet*) say address "${address%%/*}" ;; *) say address "$first" ;; esac
done
for key in """
    + " ".join(name.replace(".", "/") for name in SYSCTLS)
    + r"""; do [ -r "/proc/sys/$key" ] && say sysctl "$key $(cat "/proc/sys/$key")"; done
"""
)


def describe(lines: Sequence[str], file: str, packets: dict[str, int] | None) -> dict[str, Any] | None:
    """Make the sidecar of a file from the lines after `MARK`; None when the host did not say when it began."""
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value.strip())
    single = {name: values[0] for name, values in found.items()}
    if not re.fullmatch("[0-9]{1,19}", single.get("started", "")):
        return None
    settings = (text.partition(" ") for text in found.get("sysctl", []))
    return {
        "capture": {"file": file, "interface": "any"},
        "started_time_ns": int(single["started"]),
        "ended_time_ns": None,
        "packets": packets,
        "host": {
            "name": single.get("name", ""),
            "kernel": single.get("kernel", ""),
            "machine": single.get("machine"),
            "boot": hide_boot(single["boot"]) if single.get("boot") else None,
            "addresses": found.get("address", []),
            "sysctls": {name.replace("/", "."): " ".join(value.split()) for name, _, value in settings},
        },
    }
