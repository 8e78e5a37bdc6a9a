"""What to look at on a host that stops, by its software."""

from ..model.finding import Remedy
from .recognise import C_CORE

_GARBAGE = (
    "the garbage collector's log at the times of the evidence",
    "GODEBUG=gctrace=1 (Go), -Xlog:gc (Java); a larger heap is collected less often",
)
_QUOTAS = (
    "nr_throttled and throttled_usec in cpu.stat of the cgroup, before and after",
    "they grow if a CPU limit stops the process; a higher limit takes CPU time from others",
)
_STEAL = ("the column st of vmstat 1", "time that a hypervisor took from the host")
_STOPS_ALL = "whether a handler that computes or waits stops the event loop, and all calls with it"
_NODE = ("perf_hooks.monitorEventLoopDelay() (Node.js)", f"shows {_STOPS_ALL}")
_ASYNCIO = (
    "loop.set_debug(True), loop.slow_callback_duration (Python asyncio)",
    f"logs slow callbacks: {_STOPS_ALL}",
)
_TOKIO = (
    "tokio::task::spawn_blocking for handlers that compute or block",
    "such a handler holds a worker thread, and all calls that wait for one",
)
_LOOPS = {"grpc-js": _NODE, "connect-es": _NODE, "grpclib": _ASYNCIO, "tonic": _TOKIO}
"""What to look at first where one loop runs all calls, by software."""
_WITHOUT_COLLECTOR = ("tonic", "nginx", "haproxy", "envoy", "nghttpx", "Apache", "h2o", "Pingora", "grpc-swift")
"""Software whose language has no garbage collector."""


def list_remedies(software: str | None, who: str, *, quota: bool, paused: bool) -> tuple[Remedy, ...]:
    """List what to look at: the quota first if the times fit one, the event loop first where the software has one.

    `paused`: PINGs waited as well.
    """
    loop = _LOOPS.get(software or "")
    if software == C_CORE and not paused:
        loop = _ASYNCIO  # the threads of C-core acknowledge PINGs while the loop of grpc.aio is blocked
    looks = [_GARBAGE] if software not in _WITHOUT_COLLECTOR else []
    looks += [_QUOTAS, *([] if software else [_NODE]), _STEAL]
    if loop:
        looks.insert(0, loop)
    looks.sort(key=lambda look: quota and look is not _QUOTAS)
    kinds = {_QUOTAS: "linux", _STEAL: "linux"}
    return tuple(Remedy(kinds.get(look, "application"), look[0], f"on {who}: {look[1]}") for look in looks)
