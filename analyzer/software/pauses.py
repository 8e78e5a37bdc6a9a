"""What to look at on a host that stops, by its software."""

from ..model.finding import Remedy
from . import intents
from .implementation import C_CORE
from .known import read_all

_GARBAGE = (
    "the garbage collector's log at the times of the evidence",
    "GODEBUG=gctrace=1 (Go), -Xlog:gc (Java); a larger heap is collected less often",
)
_QUOTAS = (
    "nr_throttled and throttled_usec in cpu.stat of the cgroup, before and after",
    "they grow if a CPU limit stops the process; a higher limit takes CPU time from others",
)
_STEAL = ("the column st of vmstat 1", "time that a hypervisor took from the host")


def list_remedies(software: str | None, who: str, *, quota: bool, paused: bool) -> tuple[Remedy, ...]:
    """List what to look at: the quota first if the times fit one, the event loop first where the software has one.

    `paused`: PINGs waited as well.
    """
    known = read_all().get(software or "")
    looks = [_GARBAGE] if known is None or known.collects_garbage else []
    looks += [_QUOTAS, *([] if software else _list_loops("grpc-js")), _STEAL]
    if software and not (software == C_CORE and paused):  # its threads acknowledge PINGs while grpc.aio is blocked
        looks[:0] = _list_loops(software)
    looks.sort(key=lambda look: quota and look is not _QUOTAS)
    kinds = {_QUOTAS: "linux", _STEAL: "linux"}
    return tuple(Remedy(kinds.get(look, "application"), look[0], f"on {who}: {look[1]}") for look in looks)


def _list_loops(software: str) -> list[tuple[str, str]]:
    found = read_all()[software].find(intents.BLOCKED_LOOP)
    return [(setting.knob, setting.note) for setting in found]
