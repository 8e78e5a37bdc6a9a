"""Read what this machine knows of its clock: the kernel's state (adjtimex(2)), and chrony's if it runs."""

import ctypes
import hashlib
from typing import Any

from . import tools

_UNSYNCHRONISED, _NANOSECONDS = 0x40, 0x2000
"""Bits of the status: STA_UNSYNC and STA_NANO (linux/timex.h)."""
_ERROR = 5
"""State of a clock that is not synchronised: TIME_ERROR."""
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_TRACKING = 14
"""Columns of `chronyc -c tracking`."""


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "seconds", "fraction", "tick")),
        *((name, ctypes.c_long) for name in ("ppsfreq", "jitter")),
        ("shift", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    )


def describe_clock() -> dict[str, Any] | None:
    """Describe the state of the clock: whether it is synchronised, and how wrong it may be; None if unknown."""
    kernel, chrony = _ask_kernel(), _parse_tracking(tools.output("chronyc", "-c", "tracking"))
    return {**kernel, "chrony": chrony} if kernel else None


def _ask_kernel() -> dict[str, Any] | None:
    state = _Timex()  # without modes, adjtimex changes nothing
    try:
        code = ctypes.CDLL(None).adjtimex(ctypes.byref(state))
    except (OSError, AttributeError):
        return None
    if code < 0:
        return None
    return {
        "synchronised": code != _ERROR and not state.status & _UNSYNCHRONISED,
        "max_error_ns": state.maxerror * 1_000,
        "estimated_error_ns": state.esterror * 1_000,
        "offset_ns": state.offset * (1 if state.status & _NANOSECONDS else 1_000),
    }


def _parse_tracking(text: str | None) -> dict[str, Any] | None:
    """Parse `chronyc -c tracking`. The error is at most offset + dispersion + half of the delay (chronyc(1))."""
    cells = (text or "").strip().split(",")
    if len(cells) != _TRACKING:
        return None
    try:
        offset, delay, dispersion = (float(cells[place]) for place in (4, 10, 11))
        error = round((abs(offset) + dispersion + delay / 2) * 1e9)
    except (ValueError, OverflowError):
        return None
    return {"synchronised": cells[13] != "Not synchronised", "max_error_ns": error, "offset_ns": round(offset * 1e9)}


def identify_boot() -> str | None:
    """Identify this run of the kernel, which has one clock for all its containers; a hash, as the id is private."""
    boot = tools.read(_BOOT_ID)
    return hide_boot(boot) if boot else None


def hide_boot(boot: str) -> str:
    """Give the hash by which a kernel's run is told from others."""
    return hashlib.blake2b(f"grpcdiag {boot}".encode(), digest_size=16).hexdigest()
